"""Fine-tuning equals a plain loop with torch's AdamW, gradient clipping and a linear schedule."""

import math
from dataclasses import replace

import pytest
import torch
from lab.training.comparison import assert_same, assert_same_tensors, results
from lab.training.reference_finetuning import FineTuning
from lab.training.tiny import Tiny, recipe
from torch import Tensor

from equipoise_lab.recipe import Recipe
from equipoise_lab.training import clipping
from equipoise_lab.training.replica import Replica
from equipoise_lab.training.stack import Stack
from equipoise_lab.training.steps import Stepper

USUAL = {"schedule": "linear", "clip": 1.0, "weight_decay": 0.01, "max_epochs": 4}
FINE_TUNED = [
    *[recipe(scheme=scheme, **USUAL) for scheme in ("joint", "stage", "unary", "offline", "joint_x10")],
    recipe(**USUAL, scheme="joint_x1000", learning_rates=(1e-4,)),
    *[recipe(objective=objective, **USUAL) for objective in ("likelihood", "margin")],
    *[recipe(**USUAL | {"warmup": warmup}, seed=3) for warmup in (0.0, 0.5, 1.0)],
    *[recipe(**USUAL | {"clip": clip}, fold=1) for clip in (0.0, 0.01, 100.0)],
    recipe(**USUAL, share=0.2, scheme="joint_x100", learning_rates=(1e-3,)),
    recipe(**USUAL, share=0.2, scheme="stage", fold=2, learning_rates=(0.01, 0.1, 0.001)),
    recipe(**USUAL | {"max_epochs": 1, "weight_decay": 1.0}),
]


@pytest.mark.parametrize("wanted", FINE_TUNED, ids=lambda one: f"{one.scheme}-{one.objective}")
def test_a_run_equals_the_reference_loop(wanted: Recipe) -> None:
    (run,), (parameters,) = results([wanted])
    reference = FineTuning(wanted).run()
    for name, want in reference.parameters().items():
        torch.testing.assert_close(parameters[name], want, rtol=1e-5, atol=1e-5)
    measured = [epoch for epoch in run.history if epoch.measured]
    found = [(epoch.phase, epoch.loss, epoch.valid, epoch.ratio) for epoch in measured]
    torch.testing.assert_close(found, reference.history, rtol=1e-4, atol=1e-4)
    assert run.valid == pytest.approx(reference.valid)
    for part, got in ((reference.test, run.test), (reference.train, run.train)):
        assert got == pytest.approx(reference.metric(part, reference.last_objective()))


@pytest.mark.usefixtures("_double")
def test_a_stack_equals_separate_runs() -> None:
    """Recipes with and without clipping, and with plateaus, in one call."""
    recipes = [*FINE_TUNED, recipe(clip=0.1), recipe(scheme="joint_x10"), recipe(scheme="learned", **USUAL)]
    together, parameters = results(recipes, stack_size=5)
    for run, of_run in zip(together, parameters, strict=True):
        (alone,), (of_alone,) = results([run.recipe])
        assert_same(run, alone, 1e-9)
        assert_same_tensors(of_run, of_alone, 1e-9)


def gradients(scale: Tensor) -> dict[str, Tensor]:
    """Gradients of E replicas of different size, (E,)."""
    generator = torch.Generator().manual_seed(0)
    e = len(scale)
    shapes = {"unary.a": (e, 3, 2), "unary.b": (e,), "pairwise.c": (e, 4), "scaling.d": (e,)}
    found = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    return {name: x * scale.reshape(-1, *[1] * (x.ndim - 1)) for name, x in found.items()}


def test_clipping_is_that_of_torch() -> None:
    """One limit and one norm per replica. The learned scales are not part of the norm; a limit of 0 is none."""
    limits = torch.tensor([1.0, 0.3, 0.0, 5.0, 1.0, 1.0])
    given = gradients(torch.tensor([1.0, 100.0, 1e6, 1e-3, 0.0, 1e-6]))
    factors = clipping.factor(given, limits)
    for e, limit in enumerate(limits.tolist()):
        mine = [torch.zeros_like(x[e]) for name, x in given.items() if name != "scaling.d"]
        for x, gradient in zip(mine, given.values(), strict=False):
            x.grad = gradient[e].clone()
        torch.nn.utils.clip_grad_norm_(mine, limit or math.inf)
        for x, gradient in zip(mine, given.values(), strict=False):
            torch.testing.assert_close(factors[e] * gradient[e], x.grad, rtol=1e-6, atol=0)


def test_a_replica_without_a_limit_keeps_infinite_gradients() -> None:
    """Its norm is then infinite, which must not turn finite gradients into NaN."""
    given = gradients(torch.tensor([1.0, 1.0]))
    given["unary.b"][0] = math.inf
    assert clipping.factor(given, torch.tensor([0.0, 100.0])).tolist() == [1, 1]


def test_a_stack_without_limits_does_not_compute_norms(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []
    factor = clipping.factor
    monkeypatch.setattr(clipping, "factor", lambda *given: counted.append(1) or factor(*given))
    results([recipe(max_epochs=1)])
    assert not counted
    results([recipe(max_epochs=1), recipe(max_epochs=1, clip=1.0)])
    assert counted


@pytest.mark.parametrize("share", [0.001, 0.01, 0.1, 0.5, 0.999, 1.0])
def test_a_share_has_the_right_size_and_is_part_of_larger_shares(share: float) -> None:
    whole = torch.arange(100, 250)
    for seed in range(3):
        one = Replica(recipe(share=share, seed=seed))
        used = one.share_of(whole)
        assert len(used) == len(set(used.tolist())) == max(1, round(150 * share))
        larger = Replica(replace(one.recipe, share=min(1.0, 2 * share))).share_of(whole)
        assert set(used.tolist()) <= set(larger.tolist()) <= set(whole.tolist())
        other = Replica(replace(one.recipe, scheme="offline", objective="margin", learning_rates=(1.0,)))
        assert torch.equal(other.share_of(whole), used)


def test_shares_depend_on_seed_and_fold() -> None:
    whole = torch.arange(150)
    drawn = {
        tuple(Replica(recipe(share=0.1, seed=seed, fold=fold)).share_of(whole).tolist())
        for seed in range(3)
        for fold in range(3)
    }
    assert len(drawn) == 9


def test_training_uses_only_the_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """In all phases. Validation and test use all of their examples."""
    one = recipe(scheme="stage", share=0.1, fold=2, max_epochs=2)
    seen: set[int] = set()
    run, evaluated = Stepper.run, []
    evaluate = Stack.evaluate
    monkeypatch.setattr(
        Stepper, "run", lambda self, orders, *more: seen.update(*_lists(orders)) or run(self, orders, *more)
    )
    monkeypatch.setattr(
        Stack, "evaluate", lambda self, x, examples: evaluated.append(len(examples[0])) or evaluate(self, x, examples)
    )
    results([one])
    split = Tiny().split(2, 0)
    assert seen == set(Replica(one).share_of(split.train).tolist())
    assert len(seen) == 9
    assert set(evaluated) == {60, 90, 9}


def _lists(orders: list[Tensor]) -> list[list[int]]:
    return [order.tolist() for order in orders]


def test_stacks_with_the_linear_schedule_have_no_copy_of_the_best_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: dict[str, int] = {}
    run = Stepper.run

    def counted(self: Stepper, *given: object) -> None:
        tensors = self.stack.tensors().values()
        sizes[self.stack.replicas[0].recipe.schedule] = sum(x.numel() for x in tensors)
        run(self, *given)

    monkeypatch.setattr(Stepper, "run", counted)
    results([recipe(schedule=name, max_epochs=1) for name in ("linear", "plateau")])
    parameters = sum(x.numel() for x in Tiny().init(torch.Generator()).values())
    assert sizes["plateau"] - sizes["linear"] >= parameters
