"""A trained tagger: its F1 by seqeval, and the tags and confidences of a file."""

import os
from pathlib import Path

import pytest
import torch
from lab.tasks.chunking.synthetic import write
from seqeval.metrics import f1_score
from torch import Tensor

from equipoise import chain
from equipoise_lab.data import MalformedLineError, conll
from equipoise_lab.recipe import Recipe
from equipoise_lab.tasks.chunking import Chunking, chunks
from equipoise_lab.tasks.chunking.tagging import read_and_tag, report
from equipoise_lab.training import Model, train


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("data"))


@pytest.fixture(autouse=True)
def _synthetic_data(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("EQUIPOISE_DATA", str(folder))


def recipe(**fields: object) -> Recipe:
    return Recipe("chunking", net="bilstm", batch_size=8, **fields)


def names(task: Chunking, labels: Tensor, lengths: list[int]) -> list[list[str]]:
    return [[task.tags[i] for i in row[:n]] for row, n in zip(labels.tolist(), lengths, strict=True)]


@pytest.fixture(scope="module")
def model(folder: Path) -> Model:
    before = os.environ.get("EQUIPOISE_DATA")
    os.environ["EQUIPOISE_DATA"] = str(folder)
    kept = {}
    train([recipe(max_epochs=2)], done=lambda run, x: kept.update({run.recipe: x}))
    ((done, parameters),) = kept.items()
    trained = Model(done, parameters)
    os.environ.pop("EQUIPOISE_DATA") if before is None else os.environ.update(EQUIPOISE_DATA=before)
    return trained


def test_the_metric_is_f1_of_seqeval(model: Model) -> None:
    test = model.task.split(0, 0).test
    lengths = model.task.sentences.lengths[test].tolist()
    guess = names(model.task, model.predict(test), lengths)
    truth = names(model.task, model.task.sentences.labels[test], lengths)
    assert model.evaluate(test) == pytest.approx(f1_score(truth, guess))
    assert report(model, test) == chunks.evaluate(guess, truth)


def test_a_file_is_tagged_as_the_test_part_is(model: Model, folder: Path, tmp_path: Path) -> None:
    """With and without the third column. Confidences are the marginals of the tags."""
    test = model.task.split(0, 0).test
    lengths = model.task.sentences.lengths[test].tolist()
    want = names(model.task, model.predict(test), lengths)
    bare = tmp_path / "bare.txt"
    given = list(conll.read(folder / "conll2000" / "test.txt.gz"))
    bare.write_text("".join("".join(f"{w} {p}\n" for w, p in zip(s.words, s.pos, strict=True)) + "\n" for s in given))
    for path in (folder / "conll2000" / "test.txt.gz", bare):
        tagged = list(read_and_tag(model, path))
        assert [t.tags for t in tagged] == want
        assert [t.words for t in tagged] == [s.words for s in given]
        assert [t.pos for t in tagged] == [s.pos for s in given]
    batch = model.task.batch(test[None], model.task.room(test[None]))
    one = {name: x[None] for name, x in model.parameters.items()}
    log_p = chain.log_marginals(model.task.unary(one, batch), model.task.pairwise(one, batch), batch.lengths)
    for i, (row, n) in enumerate(zip(tagged, lengths, strict=True)):
        best = log_p[0, i, :n].max(-1).values.exp()
        torch.testing.assert_close(torch.tensor(row.confidences), best, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("objective", ["margin", "mean_field", "likelihood"])
def test_confidences_are_probabilities_for_every_objective(model: Model, folder: Path, objective: str) -> None:
    other = Model(recipe(objective=objective), model.parameters)
    (first, *_) = read_and_tag(other, folder / "conll2000" / "test.txt.gz")
    assert all(0 < p <= 1 + 1e-5 for p in first.confidences)


def test_unknown_words_and_parts_of_speech_are_tagged(model: Model, tmp_path: Path) -> None:
    path = tmp_path / "new.txt"
    words = ["Zürich", "a" * 90, "fine", *["dog"] * 100]  # a longer word and a longer sentence than in the corpus
    path.write_text("".join(f"{word} XYZ\n" for word in words), encoding="utf-8")
    (tagged,) = read_and_tag(model, path)
    assert len(tagged.tags) == len(tagged.confidences) == 103
    path.write_text("dog NN\ndog\n")
    with pytest.raises(MalformedLineError, match="line 2: expected 2 columns"):
        list(read_and_tag(model, path))
    path.write_text("\n")
    assert list(read_and_tag(model, path)) == []
