"""The folder of a tagger is one unit: what does not belong together is refused, and a new model replaces all of it."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from faults.taggers import ABOUT, TEXT, made, names, original, put, sign, tagged

from equipoise.files.errors import DataError
from equipoise.tagger import Tagger, load
from equipoise.tagger.description import text
from equipoise.tagger.model import save
from equipoise.tagger.splitting import NEWEST

pytest.importorskip("transformers")

CARD = ("README.md", "modeling_equipoise.py")
"""What makes a model of transformers load anywhere."""
KINDS = ("bilstm", "encoder")


@pytest.mark.parametrize("kind", KINDS)
def test_every_changed_bit_is_refused(kind: str, tmp_path: Path) -> None:
    """Bits of all files but the model card, at equal distances: in names, shapes, numbers and texts."""
    put(kind, tmp_path)
    for path in sorted(each for each in tmp_path.iterdir() if each.name != "README.md"):
        whole = path.read_bytes()
        for place in range(0, len(whole), max(len(whole) // 12, 1)):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
            with pytest.raises(DataError, match=path.name):
                load(tmp_path)
        path.write_bytes(whole)
    assert tagged(tmp_path) == original(kind)[1]


def test_a_model_card_may_be_edited_and_that_of_a_person_stays(tmp_path: Path) -> None:
    card = put("encoder", tmp_path / "a") / "README.md"
    card.write_text(card.read_text() + "It knows rivers, too.")
    assert tagged(tmp_path / "a") == original("encoder")[1]
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "README.md").write_text("mine")
    for _ in range(2):
        save(made("encoder"), tmp_path / "b", ABOUT)
    assert (tmp_path / "b" / "README.md").read_text() == "mine"


@pytest.mark.parametrize("kind", KINDS)
def test_exchanged_labels_and_files_of_another_model_are_refused(kind: str, tmp_path: Path) -> None:
    path = put(kind, tmp_path / "a") / "tagger.json"
    whole = path.read_text()
    fields = json.loads(whole)
    fields["labels"][1:3] = fields["labels"][2], fields["labels"][1]
    path.write_text(json.dumps(fields))
    with pytest.raises(DataError, match=r"tagger\.json is damaged: its digest"):
        load(tmp_path / "a")
    path.write_text(whole)
    save(made(kind, seed=1), tmp_path / "b", ABOUT)
    (tmp_path / "a" / "model.safetensors").write_bytes((tmp_path / "b" / "model.safetensors").read_bytes())
    with pytest.raises(DataError, match=r"model\.safetensors does not belong to tagger\.json: its SHA-256 differs"):
        load(tmp_path / "a")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("old", KINDS)
def test_a_model_that_replaces_another_is_there_completely_or_not_at_all(
    kind: str, old: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process ends after any number of changes of the folder."""
    new = made(kind, seed=1)
    wanted = [(one.tags, one.probabilities) for one in new.tag(TEXT)]
    left = {"model.safetensors", "tagger.json", "notes.txt"}
    left |= {"config.json", "tokenizer.json", "tokenizer_config.json", *CARD} if kind == "encoder" else set()
    rename, unlink = Path.replace, Path.unlink
    outcomes = []
    for steps in range(20):
        here = put(old, tmp_path / f"{steps}")
        (here / "notes.txt").write_text("mine")
        done = 0

        def limited(function: Callable[..., Any]) -> Callable[..., Any]:
            def call(path: Path, *arguments: Any, **options: Any) -> Any:
                nonlocal done
                done += 1
                if done > steps:  # noqa: B023
                    raise KeyboardInterrupt
                return function(path, *arguments, **options)

            return call

        with monkeypatch.context() as patch:
            for name, function in (("replace", rename), ("rename", Path.rename), ("unlink", unlink)):
                patch.setattr(Path, name, limited(function))
            try:
                save(new, here, ABOUT)
                complete = True
            except KeyboardInterrupt:
                complete = False
        got = tagged(here)
        assert got in (original(old)[1], wanted)
        outcomes.append(got == wanted)
        if complete:
            break
        save(new, here, ABOUT)
        assert names(here) == left
        assert tagged(here) == wanted
    assert complete
    assert outcomes == sorted(outcomes)
    assert 2 <= outcomes.count(False) < len(outcomes) - 1  # it was the old one, and from one step on the new one
    assert names(here) == left
    assert (here / "notes.txt").read_text() == "mine"


def test_a_bilstm_over_an_encoder_is_no_model_of_transformers(tmp_path: Path) -> None:
    from transformers import AutoModelForTokenClassification

    save(made("bilstm"), put("encoder", tmp_path), ABOUT)
    assert names(tmp_path) == {"model.safetensors", "tagger.json"}
    with pytest.raises((OSError, ValueError)):
        AutoModelForTokenClassification.from_pretrained(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
def test_a_reader_sees_the_old_or_the_new_model_while_it_is_replaced(kind: str, tmp_path: Path) -> None:
    models = [made(kind, seed) for seed in (0, 1)]
    outcomes = [[(one.tags, one.probabilities) for one in model.tag(TEXT)] for model in models]
    save(models[0], tmp_path, ABOUT)
    end = threading.Event()

    def write_again() -> None:
        while not end.is_set():
            for model in models:
                save(model, tmp_path, ABOUT)

    writer = threading.Thread(target=write_again)
    writer.start()
    try:
        for _ in range(15):
            assert tagged(tmp_path) in outcomes
    finally:
        end.set()
        writer.join()


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_of_the_first_format_is_read_and_replaced(kind: str, tmp_path: Path) -> None:
    path = put(kind, tmp_path) / "tagger.json"
    fields = json.loads(path.read_text()) | {"format": "equipoise tagger 1"}
    path.write_text(json.dumps(fields))
    with pytest.raises(DataError, match="the field files is unknown in the format 'equipoise tagger 1'"):
        load(tmp_path)
    path.write_text(json.dumps({name: x for name, x in fields.items() if name not in ("files", "sha256")}))
    assert tagged(tmp_path) == original(kind)[1]
    save(made("bilstm", seed=1), tmp_path, ABOUT)
    assert names(tmp_path) - set(CARD) == {"model.safetensors", "tagger.json"}  # no such folder had a card


CHANGES: list[tuple[str, str, Callable[[dict[str, Any]], object], str]] = [
    ("bilstm", "tagger.json", lambda x: x.pop("labels"), "the field labels is missing"),
    ("bilstm", "tagger.json", lambda x: x.update(labels=[]), "the field labels has a wrong value: []"),
    ("bilstm", "tagger.json", lambda x: x["labels"].append("O"), "the field labels has a wrong value"),
    ("bilstm", "tagger.json", lambda x: x.update(scheme="IOB9"), "the field scheme has a wrong value"),
    ("bilstm", "tagger.json", lambda x: x.update(scheme="BMES"), "the fields labels and scheme do not fit"),
    ("bilstm", "tagger.json", lambda x: x.update(sizes={}), "the field sizes has a wrong value"),
    ("bilstm", "tagger.json", lambda x: x["sizes"].update(hidden=10**9), "the field sizes has a wrong value"),
    ("bilstm", "tagger.json", lambda x: x["sizes"].update(hidden=10**5), "net.lstm.weight_ih_l0 has the shape"),
    ("bilstm", "tagger.json", lambda x: x["vocabulary"].pop("words"), "the field vocabulary has a wrong value"),
    ("bilstm", "tagger.json", lambda x: x["vocabulary"]["words"].append("x"), "net.words.weight has the shape"),
    ("bilstm", "tagger.json", lambda x: x.update(words=3), "the field words has a wrong value: 3"),
    ("bilstm", "tagger.json", lambda x: x.update(files={}), "the field files has no model.safetensors"),
    ("bilstm", "tagger.json", lambda x: x["files"].update({"../x": {}}), "the field files has a wrong value"),
    ("bilstm", "tagger.json", lambda x: x.update(more=1), "the field more is unknown"),
    ("bilstm", "tagger.json", lambda x: x.update(format=2), "the field format is 2"),
    ("encoder", "tagger.json", lambda x: x["labels"].reverse(), "id2label and scheme are not the labels"),
    ("encoder", "config.json", lambda x: x.pop("encoder_config"), "the field 'encoder_config' is missing"),
    ("encoder", "config.json", lambda x: x.update(model_type="bert"), "model_type is 'bert'"),
    ("encoder", "config.json", lambda x: x["id2label"].pop("1"), "id2label must have the numbers 0 to 3"),
    ("encoder", "config.json", lambda x: x["encoder_config"].update(hidden_size="a"), "hidden_size"),
    ("encoder", "config.json", lambda x: x["encoder_config"].update(num_hidden_layers=10**9), "num_hidden_layers is"),
    ("encoder", "config.json", lambda x: x["encoder_config"].update(vocab_size=10**9), "config.json wants 16,"),
    ("encoder", "config.json", lambda x: x["encoder_config"].update(num_hidden_layers=1), "have unknown backbone"),
    ("encoder", "config.json", lambda x: x.update(classifier_dropout=float("nan")), "NaN is no number"),
    ("encoder", "config.json", lambda x: x.update(classifier_dropout=2.0), "dropout probability has to be"),
    ("encoder", "config.json", lambda x: x.update(boundaries=False), "have unknown crf.end, crf.start"),
    ("encoder", "tokenizer_config.json", lambda x: x.update(model_max_length=-1), "model_max_length"),
    ("encoder", "tokenizer_config.json", lambda x: x.pop("pad_token"), "the tokenizer has no pad_token"),
    ("encoder", "tokenizer.json", lambda x: x["model"]["vocab"].update(new=999), "a token of number 999"),
    ("encoder", "tokenizer.json", lambda x: x["model"].update(unk_token="?"), "tokenizer"),
]


def test_a_model_keeps_its_rule_for_words(tmp_path: Path) -> None:
    """A model of an earlier version names none, and splits texts as before; so it does when it is saved again."""
    path = put("bilstm", tmp_path) / "tagger.json"
    assert load(tmp_path).rule == NEWEST == 2
    fields = json.loads(path.read_text())
    assert fields.pop("words") == 2
    path.write_text(text(fields))
    old = Tagger.load(tmp_path)
    assert old.words("我住在北京。") == ["我住在北京", "。"]
    old.save(tmp_path)
    assert Tagger.load(tmp_path).words("北京") == ["北京"]


@pytest.mark.parametrize(("kind", "file", "change", "message"), CHANGES)
def test_wrong_fields_are_named_also_with_new_digests(
    kind: str, file: str, change: Callable[[dict[str, Any]], object], message: str, tmp_path: Path
) -> None:
    path = put(kind, tmp_path) / file
    fields = json.loads(path.read_text())
    change(fields)
    path.write_text(json.dumps(fields))
    sign(tmp_path)
    with pytest.raises(DataError) as caught:
        load(tmp_path)
    assert message in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("kind", KINDS)
def test_weights_that_are_cut_off_or_not_finite_are_refused(kind: str, tmp_path: Path) -> None:
    path = put(kind, tmp_path) / "model.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:-4])
    with pytest.raises(DataError, match=r"model\.safetensors does not belong to tagger\.json: it has \d+ bytes"):
        load(tmp_path)
    sign(tmp_path)
    with pytest.raises(ValueError if kind == "bilstm" else DataError, match=r"model\.safetensors"):
        load(tmp_path)
    own = made(kind)
    with torch.no_grad():
        own.crf.pairwise[0, 0] = torch.nan
    save(own, tmp_path / "nan", ABOUT)
    with pytest.raises(DataError, match=r"the weights .*crf\.pairwise are not finite"):
        load(tmp_path / "nan")
