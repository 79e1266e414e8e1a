"""The chunking task: splits, batches whose sentences do not affect each other, and F1 over a whole set."""

import dataclasses
import math
import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from lab.tasks.chunking.synthetic import TEST, TRAIN, write
from torch import Tensor

from equipoise_lab import tasks
from equipoise_lab.data import MissingFileError, conll
from equipoise_lab.nets import bilstm, tagger
from equipoise_lab.recipe import OBJECTIVES, Recipe
from equipoise_lab.tasks.chunking.task import Chunking, parse
from equipoise_lab.training import train

REAL = os.environ.get("EQUIPOISE_DATA")
real = pytest.mark.skipif(not REAL, reason="EQUIPOISE_DATA is not set")
FEW = torch.tensor([[3, 70, -1, 74, 12]])


def seqeval_f1(truth: list[list[str]], guess: list[list[str]]) -> float:
    return float(pytest.importorskip("seqeval.metrics").f1_score(truth, guess))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("data"))


@pytest.fixture(autouse=True)
def _synthetic_data(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("EQUIPOISE_DATA", str(folder))


def parameters(task: Chunking) -> dict[str, Tensor]:
    return {name: x[None] for name, x in task.init(torch.Generator().manual_seed(0)).items()}


def names(task: Chunking, labels: Tensor, lengths: list[int]) -> list[list[str]]:
    return [[task.tags[i] for i in row[:n]] for row, n in zip(labels.tolist(), lengths, strict=True)]


def test_tags_are_collected_from_training_and_test_part() -> None:
    task = Chunking()
    assert task.tags == ["B-LST", "B-NP", "B-VP", "I-LST", "I-NP", "I-VP", "O"]
    assert len(task.speech) == 10
    assert task.size == TRAIN + TEST


def test_the_validation_part_is_a_fifth_drawn_by_the_seed() -> None:
    task = Chunking()
    split = task.split(0, seed=3)
    assert (len(split.train), len(split.valid), len(split.test)) == (48, 12, TEST)
    assert torch.equal(torch.cat(split).sort().values, torch.arange(TRAIN + TEST))
    assert torch.equal(split.test, torch.arange(TRAIN, TRAIN + TEST))
    assert torch.equal(task.split(0, seed=3).valid, split.valid)
    assert not torch.equal(task.split(0, seed=4).valid, split.valid)
    with pytest.raises(ValueError, match="chunking has only test fold 0, got 1"):
        task.split(1, 0)


@pytest.mark.parametrize("net", ["default", "window-1", "speech-2", "bilstm"])
@pytest.mark.parametrize("surplus", [0, 1])
def test_scores_of_a_sentence_do_not_depend_on_the_batch(net: str, surplus: int) -> None:
    """Nor on the room of the batch."""
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
    losses = task.energy.losses("marginal", unary, task.pairwise(drawn, together), together.labels, together.lengths)
    assert bool(losses.isfinite().all())


def test_each_distinct_word_is_spelled_once() -> None:
    """For each replica, the words of its sentences letter by letter, the longest word first."""
    task, both = Chunking(), torch.cat([FEW, FEW.flip(1).masked_fill(FEW.flip(1) == 3, -1)])
    batch = task.batch(both, task.room(both))
    folder = Path(os.environ["EQUIPOISE_DATA"]) / "conll2000"
    read = [s for part in ("train", "test") for s in conll.read(folder / f"{part}.txt.gz")]
    for e, numbers in enumerate(both.tolist()):
        words = {word for i in numbers if i >= 0 for word in read[i].words}
        starts, sizes, _ = batch.inputs.spelling
        letters = "".join(map(chr, batch.inputs.characters[e].tolist()))
        spelled = [letters[a : a + n] for a, n in zip(starts[e].tolist(), sizes[e].tolist(), strict=True)]
        assert sorted(spelled, key=lambda word: -len(word)) == spelled
        assert sorted(word for word in spelled if word) == sorted(words)
        for i, number in enumerate(numbers):
            if number >= 0:
                numbered = batch.inputs.words[e, i, : len(read[number])].tolist()
                assert tuple(spelled[word] for word in numbered) == read[number].words


def test_room_is_that_of_the_largest_batch() -> None:
    """In units of 32 words or 192 letters, whichever needs more units."""
    task = Chunking()
    sentences = dataclasses.replace(task.sentences, sizes=torch.full_like(task.sentences.sizes, 100))
    none = len(task.sentences.sizes) - 1
    sentences.sizes[none] = 0
    distinct = len(set(task.sentences.words[[3, 70]].flatten().tolist()) - {none})
    batches = torch.tensor([[[3, -1], [-1, -1]], [[3, 70], [3, 3]]])
    assert sentences.room(batches) == -(-100 * distinct // 192)
    assert task.sentences.room(batches) == task.room(batches[:1, :1]) == 1


@pytest.mark.parametrize("net", ["default", "bilstm"])
def test_batches_and_scores_need_no_synchronisation_on_a_gpu(net: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything up to gradients and counts works on meta tensors, which have no values. Shapes depend on the room.

    So a step never waits for values, and can be recorded as a CUDA graph.
    """
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())  # it does not support meta tensors
    task, both = Chunking(net), torch.cat([FEW, FEW])
    monkeypatch.setattr(task, "sentences", _on_meta(task.sentences))
    monkeypatch.setattr(task, "counter", _on_meta(task.counter))
    leaves = {name: x.to("meta").expand(2, *x.shape[1:]).requires_grad_() for name, x in parameters(task).items()}
    batch, longest = task.batch(both.to("meta"), 3), task.sentences.words.shape[1]
    assert batch.inputs.characters.shape == (2, 3 * 192)
    assert batch.inputs.vectors.shape == (2, 3 * 32, 50)
    assert batch.inputs.words.shape == batch.inputs.speech.shape == (2, 5, longest)
    unary = task.unary(leaves, batch)
    assert unary.shape == (2, 5, longest, 7)
    assert len(torch.autograd.grad(unary.sum(), [x for name, x in leaves.items() if "unary" in name])) > 20
    assert task.scores(batch.labels, batch).shape == (2, 5, 3)


def _on_meta(holder: Any) -> Any:
    fields = {field.name: getattr(holder, field.name) for field in dataclasses.fields(holder)}
    return dataclasses.replace(holder, **{n: x.to("meta") for n, x in fields.items() if isinstance(x, Tensor)})


def test_a_batch_of_fillers_has_finite_scores() -> None:
    task = Chunking()
    none = torch.full((1, 3), -1)
    batch = task.batch(none, task.room(none))
    assert bool(task.unary(parameters(task), batch).isfinite().all())
    assert batch.lengths.tolist() == [[1, 1, 1]]


def test_f1_is_over_the_whole_set_not_a_mean_over_sentences() -> None:
    """One sentence without right chunks, and others without errors."""
    task = Chunking()
    batch = task.batch(FEW, task.room(FEW))
    predictions = batch.labels.clone()
    predictions[0, 0] = task.tags.index("O")
    keep = [0, 1, 3, 4]
    lengths = batch.lengths[0, keep].tolist()
    guess, truth = (names(task, x[0, keep], lengths) for x in (predictions, batch.labels))
    sums = (task.scores(predictions, batch) * batch.weights[..., None]).sum(1)
    assert float(task.measure(sums)) == pytest.approx(seqeval_f1(truth, guess))
    assert float(task.measure(torch.zeros(1, 3))) == 0


def recipe(**fields: object) -> Recipe:
    usual = {"batch_size": 8, "subset": 20, "net": "linear-20"}
    return Recipe("chunking", **(usual | fields))


@pytest.mark.parametrize("scheme", ["joint", "stage", "online", "learned"])
def test_it_learns(scheme: str) -> None:
    """The corpus is easy, because tags follow from the words. Every kind of phase is run."""
    rates = (0.03,) * (3 if scheme == "stage" else 1)
    (run,) = train([recipe(scheme=scheme, max_epochs=15, learning_rates=rates)])
    assert run.failed is None
    assert run.test > 0.75


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_diverged_replica_does_not_affect_the_others(objective: str) -> None:
    """Its scores are NaN, so no tag has the best score."""
    fields = {"optimizer": "sgd", "objective": objective, "max_epochs": 2}
    diverged, healthy = train([recipe(learning_rates=(1e30,), **fields), recipe(learning_rates=(0.01,), **fields)])
    assert diverged.failed is not None
    assert healthy.failed is None
    assert math.isfinite(healthy.test)


@pytest.mark.parametrize("net", ["linear-20", "bilstm"])
def test_a_stack_equals_separate_runs(net: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stacked replicas use the loop for GPUs, separate runs use PyTorch's LSTM; both in double precision."""
    monkeypatch.setattr(tagger, "CONTEXT", 30)  # a state of 300 is slow
    task = Chunking(net)
    monkeypatch.setitem(tasks.TASKS, "chunking", lambda *_: task)
    torch.set_default_dtype(torch.float64)
    try:
        schemes = ("joint", "online", "learned", "stage") if net == "linear-20" else ("joint", "learned")
        epochs, rates = (2 if net == "linear-20" else 1), {"stage": (0.01,) * 3}
        recipes = [
            recipe(scheme=scheme, net=net, seed=i, max_epochs=epochs, learning_rates=rates.get(scheme, (0.01,)))
            for i, scheme in enumerate(schemes)
        ]
        alone = [run for one in recipes for run in train([one])]
        monkeypatch.setattr(bilstm, "packed", bilstm.together)
        for stacked, want in zip(train(recipes), alone, strict=True):
            for a, b in zip(stacked.history, want.history, strict=True):
                assert (a.loss, a.valid, a.ratio) == pytest.approx((b.loss, b.valid, b.ratio), rel=1e-9)
            assert (stacked.test, stacked.train) == pytest.approx((want.test, want.train), rel=1e-9)
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("net", ["linear-20", "bilstm"])
def test_it_learns_on_a_gpu(net: str) -> None:
    """One replica and a stack, with recorded steps.

    Sums on a GPU vary from run to run, and with them the F1 on these 25 chunks of test data: 0.75 to 0.96 in 24 runs.
    """
    for count in (1, 3):
        recipes = [
            recipe(scheme="stage", net=net, seed=i, max_epochs=15, learning_rates=(0.03,) * 3) for i in range(count)
        ]
        for run in train(recipes, device="cuda"):
            assert run.failed is None
            assert run.train > 0.85


def test_names_of_nets() -> None:
    assert parse("default") == ("linear", 50, "glove", 0, "words")
    assert parse("bilstm+senna") == ("bilstm", 50, "senna", 0, "words")
    assert parse("linear-30") == ("linear", 30, "glove", 0, "words")
    assert parse("window-2") == ("linear", 50, "glove", 2, "words")
    assert parse("speech-1+senna") == ("linear", 50, "senna", 1, "speech")
    for bad in ("gru", "linear-", "linear-0", "window-0", "speech", "bilstm-3", "default+fasttext"):
        with pytest.raises(ValueError, match="chunking has the nets default, linear-N, window-K, speech-K and bilstm"):
            tasks.load("chunking", bad)
    assert Chunking("linear-30").net.shapes["hidden.weight"] == (30, 160)


def test_missing_files_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert batch.inputs.vectors.shape[1] == 32 * task.room(test[None, :64])
    unary, pairwise = task.unary(drawn, batch), task.pairwise(drawn, batch)
    predictions = task.energy.predict("likelihood", unary, pairwise, batch.lengths)
    lengths = batch.lengths[0].tolist()
    guess, truth = (names(task, x[0], lengths) for x in (predictions, batch.labels))
    assert float(task.measure(task.scores(predictions, batch).sum(1))) == pytest.approx(seqeval_f1(truth, guess))
    assert float(task.measure(task.scores(batch.labels, batch).sum(1))) == 1
