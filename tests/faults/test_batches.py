"""Memory has a bound: batches are cut by words. Where all sentences are short, batches are those by sentences."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tagger.small import sentences

from equipoise.crf.potentials import Potentials
from equipoise.labels import Span
from equipoise.spans.probability import span_probabilities
from equipoise.tagger import TaggingModel, training
from equipoise.tagger.columns import Sentence
from equipoise.tagger.features import Vocabulary
from equipoise.tagger.model import CHUNK_WORDS
from equipoise.tagger.net import BiLSTM, Sizes
from equipoise.tagger.tagset import TagSet, infer

SHORT = sentences(200)
POOL = training.POOL


def long(words: int) -> Sentence:
    return Sentence(("Rome",) * words, ("O",) * words)


def by_sentences(data: list[Sentence], size: int) -> list[list[Sentence]]:
    order = [data[i] for i in torch.randperm(len(data)).tolist()]
    batches = []
    for start in range(0, len(order), POOL * size):
        pool = sorted(order[start : start + POOL * size], key=lambda x: len(x.words))
        batches += [pool[i : i + size] for i in range(0, len(pool), size)]
    return [batches[i] for i in torch.randperm(len(batches)).tolist()]


@pytest.mark.parametrize("size", [1, 3, 32])
def test_batches_of_ordinary_sentences_are_cut_by_sentences(size: int) -> None:
    """So a training of such sentences has the same result as before there was a bound."""
    data = [*SHORT, *map(long, range(400, 512))]
    torch.manual_seed(3)
    want = by_sentences(data, size)
    torch.manual_seed(3)
    assert training.shuffled(data, size) == want


def test_a_batch_has_a_bound_of_words() -> None:
    data = [*SHORT, *map(long, (600, 5_000, 9_000, 17_000, 20_000))]
    batches = training.shuffled(data, 32)
    assert sorted(x for batch in batches for x in batch) == sorted(data)
    assert all(len(x) == 1 or len(x) * max(len(y.words) for y in x) <= 32 * 512 for x in batches)
    assert max(len(x) for x in batches) == 32


def test_words_of_many_characters_count_as_several() -> None:
    """An encoder reads a token for each of their parts."""
    data = [Sentence(("x" * 50_000,), ("O",)) for _ in range(8)]
    assert max(map(len, training.shuffled(data, 32))) == 2


def test_prediction_and_balance_have_a_bound_and_the_same_tags(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = Sizes(word=8, character=4, filters=8, shape=4, hidden=8)
    own = TaggingModel(infer(SHORT, None, "a"), BiLSTM(Vocabulary.of([x.words for x in SHORT]), 5, sizes))
    words = [x.words for x in [*SHORT[:100], long(8_000), *SHORT[100:], long(1_000)]]
    read: list[int] = []
    forward = BiLSTM.forward

    def noted(net: BiLSTM, chunk: list[tuple[str, ...]]) -> tuple[torch.Tensor, torch.Tensor]:
        read.append(len(chunk) * max(map(len, chunk)))
        return forward(net, chunk)

    monkeypatch.setattr(BiLSTM, "forward", noted)
    found = list(own.tag(words))
    assert [x.words for x in found] == words
    assert max(read) <= CHUNK_WORDS
    assert next(iter(own.tag([words[101]]))).tags == found[101].tags
    read.clear()
    own.balance(words)
    assert max(read) <= 2**16


def test_probabilities_need_no_matrix_per_word() -> None:
    """With 300 labels, all pairs of neighbours of this sentence would take 14 GB."""
    labels = ("O", *(f"{prefix}-{i}" for i in range(150) for prefix in "BI"))
    tags = TagSet(labels, "IOB2")
    unary = torch.zeros(1, 20_000, len(labels))
    potentials = Potentials(unary, torch.zeros(len(labels), len(labels)), torch.tensor([20_000]))
    (found,) = span_probabilities(potentials, [[Span("3", 5, 7), Span("4", 19_998, 20_000)]], tags.tables)
    m = len(labels)
    begins = 1 / m + (1 / m) * (1 - 2 / m)  # B, or I after a label of another type
    assert found == pytest.approx([begins / m * (1 - 1 / m), begins / m], rel=1e-6)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="it reads the peak of memory as Linux gives it")
@pytest.mark.parametrize(("command", "most"), [("run", 700), ("train", 2_600)])
def test_the_peak_of_memory(command: str, most: int, tmp_path: Path) -> None:
    """8,000 words beside short sentences took 2 GB in `run`; a sentence of 100,000 words took 6 GB in `train`."""
    short, model = "Rome B-LOC\nfell O\n\n" * 100, tmp_path / "model"
    small, large = tmp_path / "small.conll", tmp_path / "large.conll"
    small.write_text(short)
    large.write_text("Rome B-LOC\nfell O\n" * (4_000 if command == "run" else 10_000) + "\n" + short)
    train = ["tag", "train", "--valid", str(small), "--out", str(model), "--epochs", "1", "--train"]
    _peak([*train, str(small)])
    arguments = ["tag", "run", str(model), str(large)] if command == "run" else [*train, str(large), "--overwrite"]
    assert _peak(arguments) < most


def _peak(arguments: list[str]) -> int:
    """The megabytes that the command needs at most; `ru_maxrss` would include those of the process that starts it."""
    program = (
        "import re, sys; from equipoise import cli; sys.argv[0] = 'equipoise'; cli.main();"
        "print(re.search(r'VmHWM:\\s*(\\d+) kB', open('/proc/self/status').read())[1], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    return int(done.stderr.splitlines()[-1]) // 1024
