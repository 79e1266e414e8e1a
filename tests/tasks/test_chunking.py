"""The chunking task: its splits, batches whose parts do not see each other, F1 over a whole set, tags for a file."""

import dataclasses
import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from seqeval.metrics import f1_score
from tasks.corpus import TEST, TRAIN, write
from torch import Tensor

from equipoise import chain, tasks
from equipoise.data import MalformedLineError, MissingFileError, conll
from equipoise.recipe import Recipe
from equipoise.tasks import chunks
from equipoise.tasks.chunking import Chunking, parse, read_and_tag, report
from equipoise.training import Model, train

REAL = os.environ.get("EQUIPOISE_DATA")
real = pytest.mark.skipif(not REAL, reason="EQUIPOISE_DATA is not set")
FEW = torch.tensor([[3, 70, -1, 74, 12]])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("data"))


@pytest.fixture(autouse=True)
def _made_up(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("EQUIPOISE_DATA", str(folder))


def parameters(task: Chunking) -> dict[str, Tensor]:
    return {name: x[None] for name, x in task.init(torch.Generator().manual_seed(0)).items()}


def names(task: Chunking, labels: Tensor, lengths: list[int]) -> list[list[str]]:
    return [[task.tags[i] for i in row[:n]] for row, n in zip(labels.tolist(), lengths, strict=True)]


def test_tags_are_those_of_both_parts() -> None:
    task = Chunking()
    assert task.tags == ["B-LST", "B-NP", "B-VP", "I-LST", "I-NP", "I-VP", "O"]
    assert len(task.speech) == 10
    assert task.size == TRAIN + TEST


def test_a_fifth_of_the_training_part_validates_by_the_seed() -> None:
    task = Chunking()
    split = task.split(0, seed=3)
    assert (len(split.train), len(split.valid), len(split.test)) == (48, 12, TEST)
    assert torch.equal(torch.cat(split).sort().values, torch.arange(TRAIN + TEST))
    assert torch.equal(split.test, torch.arange(TRAIN, TRAIN + TEST))
    assert torch.equal(task.split(0, seed=3).valid, split.valid)
    assert not torch.equal(task.split(0, seed=4).valid, split.valid)
    with pytest.raises(ValueError, match="chunking has test fold 0 alone, got 1"):
        task.split(1, 0)


@pytest.mark.parametrize("net", ["default", "bilstm"])
@pytest.mark.parametrize("surplus", [0, 32])
def test_a_sentence_is_scored_as_if_alone(net: str, surplus: int) -> None:
    """Whatever else is in the batch, and however much room there is."""
    task = Chunking(net)
    drawn = parameters(task)
    together = task.batch(FEW, task.room(FEW) + surplus)
    unary = task.unary(drawn, together)
    assert unary.shape == (1, 5, task.sentences.words.shape[1], 7)
    assert together.weights.tolist() == [[1, 1, 0, 1, 1]]
    for i, number in enumerate(FEW[0].tolist()):
        if number >= 0:
            alone = task.batch(FEW[:, i : i + 1], task.room(FEW[:, i : i + 1]))
            n = int(alone.lengths[0, 0])
            assert int(together.lengths[0, i]) == n
            assert torch.equal(together.labels[0, i, :n], alone.labels[0, 0, :n])
            torch.testing.assert_close(unary[0, i, :n], task.unary(drawn, alone)[0, 0, :n])
    losses = task.energy.losses("marginal", unary, task.pairwise(drawn, together), together)
    assert bool(losses.isfinite().all())


def test_each_distinct_word_is_spelled_once() -> None:
    task = Chunking()
    batch = task.batch(FEW, task.room(FEW))
    read = conll.read(Path(os.environ["EQUIPOISE_DATA"]) / "conll2000" / "train.txt.gz")
    words = {word for i, s in enumerate(read) if i in FEW[0].tolist() for word in s.words}
    rows = ["".join(map(chr, row[:n])) for row, n in zip(*(x.tolist() for x in batch.inputs[:2]), strict=True)]
    spelled = [row for row in rows if row != "\0"]
    assert len(spelled) == len(set(spelled))
    assert words <= set(spelled)
    assert "First" in spelled  # of the last test sentence
    assert task.room(FEW) == len(rows) == 32


@pytest.mark.parametrize("net", ["default", "bilstm"])
def test_off_the_cpu_nothing_looks_at_numbers(net: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors without numbers go all the way, to gradients and counts: a GPU need not wait, and can record a step.

    What shapes there are follows from the room alone.
    """
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())  # has no such device
    task = Chunking(net)
    monkeypatch.setattr(task, "sentences", _without_numbers(task.sentences))
    monkeypatch.setattr(task, "counter", _without_numbers(task.counter))
    leaves = {name: x.to("meta").requires_grad_() for name, x in parameters(task).items()}
    batch = task.batch(FEW.to("meta"), 96)
    longest, letters = task.sentences.words.shape[1], task.sentences.characters.shape[1]
    assert batch.inputs.characters.shape == (96, letters)
    assert batch.inputs.words.shape == batch.inputs.speech.shape == (5, longest)
    unary = task.unary(leaves, batch)
    assert unary.shape == (1, 5, longest, 7)
    assert len(torch.autograd.grad(unary.sum(), [x for name, x in leaves.items() if "unary" in name])) > 20
    assert task.scores(batch.labels, batch).shape == (1, 5, 3)


def _without_numbers(holder: Any) -> Any:
    fields = {field.name: getattr(holder, field.name) for field in dataclasses.fields(holder)}
    return dataclasses.replace(holder, **{n: x.to("meta") for n, x in fields.items() if isinstance(x, Tensor)})


def test_nothing_but_fillers() -> None:
    task = Chunking()
    none = torch.full((1, 3), -1)
    batch = task.batch(none, task.room(none))
    assert bool(task.unary(parameters(task), batch).isfinite().all())
    assert batch.lengths.tolist() == [[1, 1, 1]]


def test_f1_is_over_the_whole_set_not_a_mean_over_sentences() -> None:
    """Two sentences, one all right and one all wrong, of different numbers of chunks."""
    task = Chunking()
    batch = task.batch(FEW, task.room(FEW))
    predictions = batch.labels.clone()
    predictions[0, 0] = task.tags.index("O")
    keep = [0, 1, 3, 4]
    lengths = batch.lengths[0, keep].tolist()
    guess, truth = (names(task, x[0, keep], lengths) for x in (predictions, batch.labels))
    sums = (task.scores(predictions, batch) * batch.weights[..., None]).sum(1)
    assert float(task.measure(sums)) == pytest.approx(f1_score(truth, guess))
    assert float(task.measure(torch.zeros(1, 3))) == 0


def recipe(**fields: object) -> Recipe:
    usual = {"batch_size": 8, "subset": 20, "net": "linear-20"}
    return Recipe("chunking", **(usual | fields))


@pytest.mark.parametrize("scheme", ["joint", "stage", "online", "learned"])
def test_it_learns(scheme: str) -> None:
    """An easy corpus: tags follow from the words. Every kind of phase runs, the frozen net's too."""
    rates = (0.03,) * (3 if scheme == "stage" else 1)
    (run,) = train([recipe(scheme=scheme, max_epochs=15, learning_rates=rates)])
    assert run.failed is None
    assert run.test > 0.75


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("net", ["linear-20", "bilstm"])
def test_it_learns_on_a_gpu(net: str) -> None:
    (run,) = train([recipe(scheme="stage", net=net, max_epochs=15, learning_rates=(0.03,) * 3)], device="cuda")
    assert run.failed is None
    assert run.test > 0.75


@pytest.fixture(scope="module")
def model(folder: Path) -> Model:
    before = os.environ.get("EQUIPOISE_DATA")
    os.environ["EQUIPOISE_DATA"] = str(folder)
    kept = {}
    train([recipe(net="bilstm", max_epochs=2)], done=lambda run, x: kept.update({run.recipe: x}))
    ((done, parameters),) = kept.items()
    made = Model(done, parameters)
    os.environ.pop("EQUIPOISE_DATA") if before is None else os.environ.update(EQUIPOISE_DATA=before)
    return made


def test_what_the_engine_measures_is_what_seqeval_measures(model: Model) -> None:
    test = model.task.split(0, 0).test
    lengths = model.task.sentences.lengths[test].tolist()
    guess = names(model.task, model.predict(test), lengths)
    truth = names(model.task, model.task.sentences.labels[test], lengths)
    assert model.evaluate(test) == pytest.approx(f1_score(truth, guess))
    assert report(model, test) == chunks.evaluate(guess, truth)


def test_a_file_is_tagged_as_the_test_part_is(model: Model, folder: Path, tmp_path: Path) -> None:
    """With and without the third column; confidences are the marginals of the tags."""
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
def test_confidences_for_every_objective(model: Model, folder: Path, objective: str) -> None:
    other = Model(recipe(net="bilstm", objective=objective), model.parameters)
    (first, *_) = read_and_tag(other, folder / "conll2000" / "test.txt.gz")
    assert all(0 < p <= 1 + 1e-5 for p in first.confidences)


def test_words_and_parts_of_speech_never_seen(model: Model, tmp_path: Path) -> None:
    path = tmp_path / "new.txt"
    words = ["Zürich", "a" * 90, "fine", *["dog"] * 100]  # longer than any before, in letters and in words
    path.write_text("".join(f"{word} XYZ\n" for word in words), encoding="utf-8")
    (tagged,) = read_and_tag(model, path)
    assert len(tagged.tags) == len(tagged.confidences) == 103
    path.write_text("dog NN\ndog\n")
    with pytest.raises(MalformedLineError, match="line 2: 2 columns wanted"):
        list(read_and_tag(model, path))
    path.write_text("\n")
    assert list(read_and_tag(model, path)) == []


def test_nets_by_name() -> None:
    assert parse("default") == ("linear", 100, "glove")
    assert parse("bilstm+senna") == ("bilstm", 100, "senna")
    assert parse("linear-30") == ("linear", 30, "glove")
    for bad in ("gru", "linear-", "linear-0", "bilstm-3", "default+fasttext"):
        with pytest.raises(ValueError, match="chunking has the nets default, linear-N and bilstm"):
            tasks.load("chunking", bad)
    assert Chunking("linear-30").net.hidden.out_features == 30


def test_what_is_missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MissingFileError, match=r"senna/words\.lst is missing"):
        tasks.load("chunking", "default+senna")
    monkeypatch.setenv("EQUIPOISE_DATA", str(tmp_path))
    with pytest.raises(MissingFileError, match=r"conll2000/train\.txt\.gz is missing \(and 1 more\): get it with"):
        tasks.load("chunking")


@real
def test_the_real_corpus() -> None:
    task = Chunking(data_dir=REAL)
    assert (task.size, len(task.tags), task.tags.count("I-LST")) == (8936 + 2012, 23, 1)
    assert int(task.sentences.lengths.max()) == task.sentences.words.shape[1] == 78
    assert int(task.sentences.lengths.sum()) == 211727 + 47377
    train, valid, test = task.split(0, 0)
    assert (len(train), len(valid), len(test)) == (7149, 1787, 2012)
    drawn = parameters(task)
    batch = task.batch(test[None, :64], task.room(test[None, :64]))
    assert len(batch.inputs.sizes) == task.room(test[None, :64])
    unary, pairwise = task.unary(drawn, batch), task.pairwise(drawn, batch)
    predictions = task.energy.predict("likelihood", unary, pairwise, batch)
    lengths = batch.lengths[0].tolist()
    guess, truth = (names(task, x[0], lengths) for x in (predictions, batch.labels))
    assert float(task.measure(task.scores(predictions, batch).sum(1))) == pytest.approx(f1_score(truth, guess))
    assert float(task.measure(task.scores(batch.labels, batch).sum(1))) == 1
