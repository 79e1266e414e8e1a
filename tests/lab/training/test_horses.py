"""Horses in the engine: a run equals a simple training loop over modules, and does not depend on its stack."""

import itertools
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from lab.tasks.horses.synthetic import write
from lab.training.comparison import lines, results
from lab.training.reference_horses import NET, FewHorses, Reference, recipe
from torch import Tensor

from equipoise_lab import tasks
from equipoise_lab.recipe import SCHEMES, Recipe
from equipoise_lab.tasks.horses import Horses
from equipoise_lab.tasks.task import Batch
from equipoise_lab.training import Model, train
from equipoise_lab.training.replica import Replica


@pytest.fixture(autouse=True)
def _small_horses(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.getbasetemp() / "horses"
    if not folder.exists():
        write(folder)
    monkeypatch.setenv("EQUIPOISE_DATA", str(folder))
    monkeypatch.setitem(tasks.TASKS, "horses", FewHorses)


@pytest.mark.usefixtures("_double")
@pytest.mark.parametrize(
    "wanted",
    [
        *[recipe(scheme=scheme) for scheme in ("joint", "stage", "online", "offline", "offline_reg", "learned")],
        recipe(scheme="offline", alpha=4.0, fold=1),
        recipe(net=f"{NET}+normalized+share0.9+ridge2"),
        recipe(net=f"{NET}+share0.3+learned", seed=1),
    ],
    ids=lambda one: f"{one.scheme}-{one.net}",
)
def test_one_run_equals_the_reference_loop(wanted: Recipe) -> None:
    """With a last batch that is not full."""
    (run,), (parameters,) = results([wanted])
    reference = Reference(wanted).run()
    assert run.failed is None
    got, want = ([(*line[:3], *line[4:]) for line in history] for history in (lines(run), reference.history))
    torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close([x[3] for x in lines(run)], [x[3] for x in reference.history], rtol=1e-5, atol=1e-6)
    assert run.test == pytest.approx(reference.metric(reference.test, alone=False), abs=1e-6)
    for name, x in reference.parameters().items():
        torch.testing.assert_close(parameters[name], x, rtol=1e-5, atol=1e-6, msg=lambda text, n=name: f"{n}: {text}")


MIXED = [
    *[recipe(scheme=scheme, fold=place % 3, seed=place % 2) for place, scheme in enumerate(SCHEMES)],
    recipe(scheme="joint", fold=2, learning_rates=(0.03,), max_epochs=3),
    recipe(scheme="unary", fold=2, seed=3, max_epochs=1),
    recipe(scheme="joint", fold=1, optimizer="sgd"),
]


@pytest.mark.slow
@pytest.mark.usefixtures("_double")
def test_a_stack_equals_separate_runs() -> None:
    """All schemes, and training sets of different size, so that some batches are partly or completely fillers."""
    alone = [results([one]) for one in MIXED]
    for size in (3, 100):
        together, parameters = results(MIXED, stack_size=size)
        for run, of_run, ((want,), (of_want,)) in zip(together, parameters, alone, strict=True):
            got, wanted = (
                [*itertools.chain(*lines(one)), one.test, one.valid, one.train, one.alpha, one.ratio]
                for one in (run, want)
            )
            torch.testing.assert_close(got, wanted, rtol=1e-9, atol=1e-9, equal_nan=True)
            assert of_run.keys() == of_want.keys()
            torch.testing.assert_close(of_run, of_want, rtol=1e-9, atol=1e-9)


@pytest.mark.usefixtures("_double")
def test_training_the_unary_net_does_not_change_the_pairwise_net() -> None:
    (_,), (parameters,) = results([recipe(scheme="unary")])
    start = FewHorses(NET).init(Replica(recipe()).generator("init"))
    moved = {name for name, x in start.items() if not torch.equal(parameters[name], x)}
    assert moved == {name for name in start if "unary." in name}


@pytest.mark.usefixtures("_double")
def test_the_net_is_frozen_in_the_second_stage() -> None:
    """With a third learning rate that moves nothing, the net equals that of `unary`."""
    (run, stage), (of_alone, of_stage) = results(
        [recipe(scheme="unary"), recipe(scheme="stage", learning_rates=(0.01, 0.02, 1e-30), max_epochs=2)]
    )
    assert [x.phase for x in stage.history] == [0, 0, 1, 1, 2, 2]
    assert lines(stage)[:2] == lines(run)
    for name, x in of_alone.items():
        if name.startswith("unary."):
            assert torch.equal(x, of_stage[name])


def test_a_diverged_replica_fails_and_the_others_continue() -> None:
    diverging = [recipe(optimizer="sgd", learning_rates=(1e30,)), recipe(net=f"{NET}+checked")]
    healthy = recipe(optimizer="sgd", seed=1)
    runs = train([diverging[0], healthy, diverging[1]])
    assert "the loss was nan in epoch" in str(runs[0].failed)
    assert "the loss was nan in epoch 1" in str(runs[2].failed)
    assert runs[1].failed is None
    assert runs[1].test == pytest.approx(train([healthy])[0].test, abs=1e-6)
    assert math.isnan(runs[2].test)


def test_it_learns_and_a_saved_model_has_the_same_metric(tmp_path: Path) -> None:
    wanted = recipe(scheme="joint", max_epochs=25, plateau=25, stop=25, learning_rates=(0.02,), fold=2)
    (run,), (parameters,) = results([wanted])
    assert run.history[-1].loss < run.history[0].loss
    assert run.test > 0.5
    Model(wanted, parameters).save(tmp_path / "model")
    model = Model.load(tmp_path / "model")
    test = model.task.split(wanted.fold, wanted.seed).test
    assert model.evaluate(test) == pytest.approx(run.test, abs=1e-6)
    assert model.predict(test).shape == (9, 16, 16)


def test_resuming_from_a_checkpoint_gives_the_same_result(tmp_path: Path) -> None:
    """A checkpoint includes the statistics of batch norm."""

    class StoppedError(Exception):
        pass

    recipes = [recipe(scheme="joint", max_epochs=3), recipe(scheme="stage", max_epochs=1)]
    want, of_want = results(recipes)
    for epochs in range(3):

        def watch(replicas: list[Replica], epochs: int = epochs) -> None:
            if sum(len(replica.history) for replica in replicas) > epochs:
                raise StoppedError

        with pytest.raises(StoppedError):
            train(recipes, checkpoint=tmp_path / "checkpoint", watch=watch)
    kept = []
    got = train(recipes, checkpoint=tmp_path / "checkpoint", done=lambda run, x: kept.append((run.recipe, x)))
    assert [lines(run) for run in got] == [lines(run) for run in want]
    for one, wanted in zip(recipes, of_want, strict=True):
        parameters = next(x for key, x in kept if key == one)
        assert all(torch.equal(x, parameters[name]) for name, x in wanted.items())


def test_evaluation_is_split_into_batches_that_fit_in_memory() -> None:
    """A feature map of width 16 at 128 x 128 has 2^18 numbers: 256 pictures at once, over all replicas."""
    assert Horses("w16-128").at_once == 256
    assert Horses("w8-64").at_once == 2048
    recipes = [recipe(seed=seed, max_epochs=1) for seed in range(2)]
    wanted = [run.test for run in train(recipes)]

    class Huge(FewHorses):
        def __init__(self, *args) -> None:
            super().__init__(*args)
            self.at_once = 1

        def batch(self, examples: Tensor, room: int) -> Batch:
            assert examples.shape[1] <= 32
            return super().batch(examples, room)

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(tasks.TASKS, "horses", Huge)
        torch.testing.assert_close([run.test for run in train(recipes)], wanted)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-2), ("bfloat16", 0.1)])
def test_the_loss_on_a_gpu_equals_that_on_the_cpu(precision: str, tolerance: float) -> None:
    """In the first epoch, with kernels, a recorded step and fillers."""
    recipes = [recipe(scheme=scheme, fold=place % 3, max_epochs=1) for place, scheme in enumerate(SCHEMES)]
    want = [run.history[0].loss for run in train(recipes)]
    got = [run.history[0].loss for run in train(recipes, device="cuda", precision=precision)]
    torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)


def test_seeds_share_the_validation_set_but_not_the_initial_parameters() -> None:
    a, b = (Replica(replace(recipe(), seed=seed)) for seed in (0, 1))
    task = Horses(NET)
    assert torch.equal(task.split(0, 0).valid, task.split(0, 1).valid)
    assert not torch.equal(*(task.init(x.generator("init"))["unary.down0.0.weight"] for x in (a, b)))
