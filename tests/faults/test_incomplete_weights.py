"""Weights that are missing, unknown or of another shape are an error. They were drawn at random, with a warning."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

pytest.importorskip("transformers")

import tiny_encoder
from safetensors.torch import load_file, save_file
from tagger.small import write
from transformers import AutoModelForTokenClassification, BertForMaskedLM

from equipoise.integrations.transformers import CRFConfig, CRFForTokenClassification

Weights = dict[str, Tensor]


def without(part: str) -> Callable[[Weights], Weights]:
    return lambda weights: {name: x for name, x in weights.items() if part not in name}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    made = CRFForTokenClassification.from_encoder(tiny_encoder.save(tmp_path / "encoder"), tiny_encoder.LABELS)
    made.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def change(folder: Path, weights: Callable[[Weights], Weights]) -> None:
    path = folder / "model.safetensors"
    save_file(weights(load_file(path)), path, metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (without("classifier"), "lack classifier.bias, classifier.weight"),
        (without("scaling"), "lack crf.scaling.examples, crf.scaling.log_scales, crf.scaling.size and 2 more"),
        (without("layer.1"), "lack backbone.encoder.layer.1."),
        (lambda x: x | {"more\x1b": torch.ones(1)}, r"have unknown 'more\x1b'"),
        (
            lambda x: x | {"classifier.bias": torch.ones(3)},
            "other shapes than config.json: classifier.bias [3]",
        ),
    ],
)
def test_weights_of_a_saved_model(saved: Path, weights: Callable[[Weights], Weights], message: str) -> None:
    change(saved, weights)
    for load in (CRFForTokenClassification.from_pretrained, AutoModelForTokenClassification.from_pretrained):
        with pytest.raises(ValueError, match=r"model\.safetensors") as caught:
            load(saved)
        assert message in str(caught.value)
        assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_hidden_layers": 1}, "have unknown backbone.encoder.layer.1"),
        ({"num_hidden_layers": 3}, "lack backbone.encoder.layer.2"),
        ({"hidden_size": 8}, "have other shapes than config.json"),
    ],
)
def test_fields_of_the_encoder_that_change_shapes(saved: Path, fields: dict[str, object], message: str) -> None:
    path = saved / "config.json"
    known = json.loads(path.read_text())
    known["encoder_config"] |= fields
    path.write_text(json.dumps(known))
    with pytest.raises(ValueError, match="the weights") as caught:
        CRFForTokenClassification.from_pretrained(saved)
    assert message in str(caught.value)


def test_other_shapes_can_be_asked_for(saved: Path) -> None:
    change(saved, lambda x: x | {"classifier.bias": torch.ones(3)})
    CRFForTokenClassification.from_pretrained(saved, ignore_mismatched_sizes=True)
    change(saved, without("pairwise"))
    with pytest.raises(ValueError, match=r"lack crf\.pairwise"):
        CRFForTokenClassification.from_pretrained(saved, ignore_mismatched_sizes=True)


def test_weights_of_an_encoder(saved: Path, tmp_path: Path) -> None:
    encoder = tmp_path / "encoder"
    change(encoder, without("pooler"))  # it is not used
    CRFForTokenClassification.from_encoder(str(encoder), tiny_encoder.LABELS)
    change(encoder, without("layer.1.output"))
    with pytest.raises(ValueError, match=r"encoder \(model\.safetensors\) lack encoder\.layer\.1\.output"):
        CRFForTokenClassification.from_encoder(str(encoder), tiny_encoder.LABELS)
    with pytest.raises(ValueError, match="has the model_type 'bert', expected 'equipoise_crf'"):
        CRFForTokenClassification.from_pretrained(encoder)
    BertForMaskedLM(tiny_encoder.config()).save_pretrained(encoder)  # its head is not used
    CRFForTokenClassification.from_encoder(str(encoder), tiny_encoder.LABELS)


@pytest.mark.parametrize("labels", [{0: "O", 2: "B-X"}, {0: "O", 1: "O"}, {0: "O", 1: None}, {1: "O", 2: "B-X"}])
def test_every_number_needs_a_label(labels: dict[int, str]) -> None:
    with pytest.raises(ValueError, match="id2label"):
        CRFConfig(encoder_config=tiny_encoder.config(), id2label=labels, scheme=None)


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("config.json", lambda text: text.replace('"hidden_size": 16', '"hidden_size": "a"'), "hidden_size"),
        ("config.json", lambda text: text.replace('"hidden_size": 16', '"hidden_size": 8'), ""),
        ("config.json", lambda text: text.replace('"model_type": "bert"', '"model_type": []'), ""),
        ("config.json", lambda text: text[:99], "config.json"),
        ("config.json", lambda text: "[]", ""),
        ("tokenizer.json", lambda text: text.replace('"vocab"', '"voc"'), ""),
        ("tokenizer.json", lambda text: text[:99], ""),
        ("tokenizer_config.json", lambda text: text.replace('"pad_token"', '"x_token"'), "the tokenizer has no pad"),
        ("tokenizer_config.json", lambda text: "[]", ""),
        ("model.safetensors", lambda text: "x", ""),
    ],
)
def test_a_damaged_encoder_is_one_line(
    file: str,
    change: Callable[[str], str],
    message: str,
    command: Callable[..., int],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = Path(tiny_encoder.save(tmp_path / "encoder")) / file
    capsys.readouterr()
    path.write_text(change(path.read_text(errors="replace")))
    train = write(tmp_path / "train.conll", 4)
    assert command("tag", "train", "--train", train, "--encoder", path.parent, "--out", tmp_path / "m") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"equipoise: --encoder {path.parent} cannot be loaded: it must be a folder with config.json")
    assert message in line
