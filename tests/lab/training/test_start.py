"""The start of a run: label counts of its own training examples, the last layer, and runs that are not tested."""

import itertools
import math

import pytest
import torch
from lab.training.comparison import assert_same, assert_same_tensors, results
from lab.training.tiny import Tiny, recipe

from equipoise.crf.counts import association, count
from equipoise.energies import ChainEnergy, GaussianEnergy, balance
from equipoise.scaling import Learned, mean_abs
from equipoise_lab import tasks
from equipoise_lab.recipe import Recipe
from equipoise_lab.run.record import Record, record
from equipoise_lab.schemes import SCHEMES
from equipoise_lab.training.engine import train
from equipoise_lab.training.phases import method
from equipoise_lab.training.replica import Replica
from equipoise_lab.training.start import check, start

FRESH = [name for name, scheme in SCHEMES.items() if scheme.pairwise and scheme.phases == ("both",)]


def started(wanted: Recipe) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """The initial parameters, and the labels of the training examples with -100 beyond the lengths."""
    task, replica = Tiny(), Replica(wanted)
    train_part = replica.share_of(task.split(wanted.fold, wanted.seed).train)
    inside = torch.arange(task.labels.shape[1]) < task.lengths[train_part][:, None]
    return start(replica, task, train_part), task.labels[train_part].masked_fill(~inside, -100)


@pytest.mark.parametrize("share", [1.0, 0.2])
@pytest.mark.parametrize("scheme", FRESH)
def test_the_scaled_matrix_is_that_of_the_counts_of_the_runs_own_examples(scheme: str, share: float) -> None:
    wanted = recipe(scheme=scheme, counts=True, share=share, seed=2)
    parameters, labels = started(wanted)
    how = method([wanted])
    held = {name.removeprefix("scaling."): x[None] for name, x in parameters.items() if name.startswith("scaling.")}
    state = how.state()
    state = state._replace(**{name: x for name, x in held.items() if name in state._fields})
    matrix = parameters["pairwise.matrix"]
    _, b = how.factors(state, lambda: (torch.ones(1), mean_abs(matrix)[None]))
    exact = association(count(labels, num_labels=5)).pairwise.float()
    if scheme == "offline":
        exact = exact / mean_abs(exact)
    torch.testing.assert_close(b * matrix, exact, rtol=1e-5, atol=1e-6)


def test_a_small_matrix_has_the_same_scores() -> None:
    """Learned scaling divides by the size of the parameters."""
    sizes = []
    for size in (0.0, 0.01):
        parameters, _ = started(recipe(scheme="learned", counts=True, pairwise_size=size))
        matrix = parameters["pairwise.matrix"]
        sizes.append(float(mean_abs(matrix)))
        how = Learned()
        how.log_scales.copy_(parameters["scaling.log_scales"])
        found = balance(ChainEnergy(), how.eval(), torch.ones(3, 5), matrix)
        if size == 0:
            first = found.pairwise
        torch.testing.assert_close(found.pairwise, first)
    assert sizes[1] == pytest.approx(0.01)
    assert sizes[0] > 0.1


def test_without_a_pairwise_part_it_stays_zero_and_the_net_is_scaled() -> None:
    """Its gradient is no part of the norm that is clipped."""
    usual = {"objective": "likelihood", "schedule": "linear", "clip": 0.1, "weight_decay": 0.01}
    runs, (scaled, learned) = results([recipe(scheme=name, **usual) for name in ("unary_scaled", "learned")])
    assert not bool(scaled["pairwise.matrix"].any())
    assert bool(learned["pairwise.matrix"].any())
    assert float(scaled["scaling.examples"]) > 0
    assert runs[0].failed is None
    assert math.isinf(runs[0].ratio)
    assert Record.from_json(record(runs[0], "cpu", "float32").to_json()).recipe == runs[0].recipe


class WithHead(Tiny):
    head = "unary.2."


@pytest.fixture
def _head(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tasks.TASKS, "tiny", WithHead)


@pytest.mark.usefixtures("_head")
def test_the_last_layer_starts_with_its_own_deviation_and_moves_at_its_own_rate() -> None:
    """The first step of Adam moves every parameter by its rate."""
    one_step = {"batch_size": 512, "max_epochs": 1, "optimizer": "adam", "learning_rates": (1e-4,)}
    for deviation, rate in itertools.product((0.5, 0.0), (1.0, 100.0)):
        wanted = recipe(head_std=deviation, head_rate=rate, **one_step)
        before = start(Replica(wanted), WithHead(), torch.arange(3))
        if deviation:
            assert float(before["unary.2.weight"].std()) == pytest.approx(deviation)
        _, (after,) = results([wanted])
        for name, factor in (("unary.2.weight", rate), ("unary.2.bias", rate), ("unary.0.weight", 1.0)):
            moved = float((after[name] - before[name]).abs().median())
            assert moved == pytest.approx(1e-4 * factor, rel=0.01)


@pytest.mark.usefixtures("_head", "_double")
def test_a_stack_of_different_starts_equals_separate_runs() -> None:
    usual = {"schedule": "linear", "clip": 1.0, "objective": "likelihood"}
    recipes = [
        recipe(**usual),
        recipe(**usual, counts=True),
        recipe(**usual, head_rate=10.0),
        recipe(**usual, head_std=0.3, head_rate=100.0, scheme="joint_x100"),
        *(recipe(**usual, scheme=name) for name in ("unary", "unary_scaled", "learned", "scales", "scales_once")),
        *(recipe(**usual, scheme=name, counts=True, start=0.3) for name in ("learned", "scales", "scales_once")),
    ]
    together, parameters = results(recipes)
    for run, of_run in zip(together, parameters, strict=True):
        (alone,), (of_alone,) = results([run.recipe])
        assert_same(run, alone, 1e-9)
        assert_same_tensors(of_run, of_alone, 1e-9)


def test_the_size_of_the_first_examples_stays() -> None:
    """With more than 1,000 examples it no longer changes; that of `scales` is always 1."""
    short, long = (recipe(scheme="scales_once", max_epochs=epochs, schedule="linear") for epochs in (7, 12))
    _, (one, other, plain) = results([short, long, recipe(scheme="scales")])
    assert float(one["scaling.examples"]) >= 1000
    assert float(other["scaling.examples"]) >= 1000
    assert float(plain["scaling.size"]) == 1
    assert 0 < float(one["scaling.size"]) != 1


def test_a_run_that_is_not_tested_has_no_test_result() -> None:
    usual = {"schedule": "linear", "scheme": "learned"}
    (tested, blind, failed), (same, parameters, _) = results(
        [
            recipe(**usual),
            recipe(**usual, tested=False),
            recipe(tested=False, optimizer="sgd", learning_rates=(1e38,), objective="likelihood"),
        ]
    )
    assert (blind.valid, blind.epochs, blind.alpha) == (tested.valid, tested.epochs, tested.alpha)
    assert_same_tensors(parameters, same, 0.0)
    assert math.isnan(blind.test)
    assert math.isnan(blind.train)
    assert blind.ratio == blind.history[-1].ratio
    kept = record(blind, "cpu", "float32")
    line = kept.to_json()
    assert (line["test"], line["train"], line["recipe"]["tested"]) == (None, None, False)
    assert Record.from_json(line).valid == pytest.approx(blind.valid, rel=1e-5)
    assert math.isnan(failed.valid)


def test_no_batch_of_test_examples_is_made_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    task, seen = Tiny(), set()
    make = Tiny.batch

    def spied(self: Tiny, examples: torch.Tensor, room: int):
        seen.update(examples.flatten().tolist())
        return make(self, examples, room)

    monkeypatch.setattr(Tiny, "batch", spied)
    train([recipe(tested=False, counts=True)])
    split = task.split(0, 0)
    assert not seen & set(split.test.tolist())
    assert set(split.valid.tolist()) <= seen
    train([recipe()])
    assert set(split.test.tolist()) <= seen


def test_what_a_task_does_not_have_is_an_error() -> None:
    with pytest.raises(ValueError, match="head_std and head_rate need a task that names its last layer; tiny does not"):
        train([recipe(head_rate=10.0)])
    with pytest.raises(ValueError, match="counts needs a task with chains of labels; images has none"):
        check(recipe(counts=True), Images())


class Images(Tiny):
    name = "images"
    energy = GaussianEnergy()  # type: ignore[assignment]


def test_new_fields_are_left_out_of_the_key_at_their_default() -> None:
    fields = recipe().to_json()
    assert not {"counts", "pairwise_size", "head_std", "head_rate", "tested"} & set(fields)
    changed = recipe(counts=True, pairwise_size=0.01, head_std=0.2, head_rate=10.0, tested=False)
    assert Recipe.from_json(changed.to_json()) == changed
    for name, value in (("head_rate", 0.0), ("head_std", -1.0), ("pairwise_size", -0.1)):
        with pytest.raises(ValueError, match=name):
            recipe(**{name: value})
