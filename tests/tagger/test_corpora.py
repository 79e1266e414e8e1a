"""Small parts of real corpora: the tagger learns, and its scores are those of independent programs."""

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from equipoise.tagger.columns import read
from equipoise_lab.tasks.chunking.chunks import evaluate as conlleval

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("EQUIPOISE_DATA" not in os.environ, reason="needs the corpora in EQUIPOISE_DATA"),
]
Call = Callable[..., int]


def part(name: str, out: Path, number: int) -> Path:
    """A file with the first sentences of a file of the data folder."""
    text = gzip.decompress((Path(os.environ["EQUIPOISE_DATA"]) / name).read_bytes()).decode().replace("\n\t\n", "\n\n")
    out.write_text("\n\n".join(text.split("\n\n")[:number]) + "\n")
    return out


def test_chunks_are_learned_from_few_sentences(
    command: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The baseline of the shared task, which uses parts of speech and all sentences, has an F1 of 0.77."""
    train = part("conll2000/train.txt.gz", tmp_path / "train.conll", 300)
    test = part("conll2000/test.txt.gz", tmp_path / "test.conll", 100)
    model = tmp_path / "model"
    options = ("--train", train, "--valid", test, "--out", model, "--epochs", 8, "--batch", 8, "--json")
    assert command("tag", "train", *options) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["validation"]["f1"] > 0.75
    assert command("tag", "run", model, test, "--conll") == 0
    tagged = tmp_path / "tagged.conll"
    tagged.write_text(capsys.readouterr().out)
    predicted, true = ([x.tags for x in read(path)] for path in (tagged, test))
    scores = conlleval(predicted, true)
    assert scores.overall.f1 == pytest.approx(found["validation"]["f1"])
    assert {kind: one.f1 for kind, one in scores.by_kind.items()} == pytest.approx(
        {kind: one["f1"] for kind, one in found["validation"]["types"].items()}
    )


def test_entities_in_tweets_are_scored_as_seqeval_does(
    command: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    metrics = pytest.importorskip("seqeval.metrics")
    train = part("wnut17/train.conll.gz", tmp_path / "train.conll", 200)
    model = tmp_path / "model"
    files = ("--train", train, "--valid", train, "--out", model)
    assert command("tag", "train", *files, "--epochs", 12, "--batch", 8, "--json") == 0
    found = json.loads(capsys.readouterr().out)["validation"]
    assert command("tag", "run", model, train, "--json") == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    sentences = read(train)
    assert [tuple(row["words"]) for row in rows] == [x.words for x in sentences]
    true, predicted = [list(x.tags) for x in sentences], [row["tags"] for row in rows]
    assert found["f1"] == pytest.approx(metrics.f1_score(true, predicted))
    assert found["f1"] > 0.2
