"""A new scaling method needs its class and one entry in `schemes.SCHEMES`."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from lab.training.tiny import recipe
from torch import Tensor, nn

from equipoise.scaling import Scaling
from equipoise_lab.recipe import Recipe
from equipoise_lab.schemes import SCHEMES, Scheme
from equipoise_lab.training import Model, Run, tensors, train
from equipoise_lab.training.groups import paced, with_gradient
from equipoise_lab.training.replica import Replica


class State(NamedTuple):
    alpha: Tensor
    log_gain: Tensor


class Gain(Scaling):
    """U -> alpha e^g U with a learned g."""

    learned = ("log_gain",)

    def __init__(self, alpha: Tensor) -> None:
        super().__init__()
        self.register_buffer("alpha", alpha)
        self.log_gain = nn.Parameter(torch.zeros_like(alpha))

    def state(self) -> State:
        return State(self.alpha, self.log_gain)

    @staticmethod
    def factors(state: State, norms: object) -> tuple[Tensor, Tensor]:
        return state.alpha * state.log_gain.exp(), torch.ones_like(state.alpha)


class Walk(Gain):
    """The same, but g moves by 0.01 against the sign of its gradient, and a training step counts its examples."""

    learned, paced, kept = (), ("log_gain",), ("seen",)

    class State(NamedTuple):
        alpha: Tensor
        log_gain: Tensor
        seen: Tensor

    def __init__(self, alpha: Tensor) -> None:
        Scaling.__init__(self)
        self.register_state("alpha", alpha)
        self.register_state("log_gain", torch.zeros_like(alpha))
        self.register_state("seen", torch.zeros_like(alpha))

    def state(self) -> "Walk.State":  # type: ignore[override]
        return Walk.State(self.alpha, self.log_gain, self.seen)

    @staticmethod
    def measured(state: "Walk.State", norms: object, weights: Tensor | None = None) -> "Walk.State":
        assert weights is not None
        return state._replace(seen=state.seen + weights.sum(-1))

    @staticmethod
    def moved(state: "Walk.State", gradients: dict[str, Tensor]) -> "Walk.State":
        return state._replace(log_gain=state.log_gain - 0.01 * gradients["log_gain"].sign())


def arguments(recipes: Sequence[Any]) -> dict[str, Any]:
    return {"alpha": torch.tensor([one.factor for one in recipes])}


@pytest.fixture
def scheme(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(SCHEMES, "gain", Scheme("joint, with a learned gain", Gain, arguments))
    return "gain"


def trained(*recipes: Recipe, **options: Any) -> list[tuple[Run, dict[str, Tensor]]]:
    """The runs and their parameters, in the order of the recipes."""
    found = []
    train(recipes, done=lambda run, parameters: found.append((run, parameters)), **options)
    return sorted(found, key=lambda pair: recipes.index(pair[0].recipe))


def test_training_moves_its_learned_field(scheme: str) -> None:
    """In a stack with other schemes, with the result of a separate run."""
    assert "scaling.log_gain" in with_gradient()
    assert "scaling.log_gain" not in paced()
    recipes = [recipe(scheme=scheme, alpha=2.0), recipe(scheme="learned"), recipe(scheme="joint")]
    (run, parameters), (_, of_learned), (_, of_joint) = trained(*recipes)
    assert run.failed is None
    assert run.history[-1].loss < run.history[0].loss
    assert abs(float(parameters["scaling.log_gain"])) > 1e-3
    assert not parameters["scaling.log_scales"].any()
    assert float(of_learned["scaling.log_gain"]) == float(of_joint["scaling.log_gain"]) == 0
    ((alone, of_alone),) = trained(recipes[0])
    assert alone.test == pytest.approx(run.test)
    torch.testing.assert_close(of_alone["scaling.log_gain"], parameters["scaling.log_gain"])


def test_a_method_may_measure_and_move_its_own_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a stack with other schemes: 3 epochs of 150 examples in batches of 16 are 30 steps."""
    monkeypatch.setitem(SCHEMES, "walk", Scheme("joint, with a gain that moves itself", Walk, arguments))
    assert "scaling.log_gain" in paced()
    recipes = [recipe(scheme="walk", max_epochs=3), recipe(scheme="learned"), recipe(scheme="joint", fold=1)]
    (run, parameters), (_, of_learned), (_, of_joint) = trained(*recipes)
    assert run.history[-1].loss < run.history[0].loss
    moved = float(parameters["scaling.log_gain"]) / 0.01
    assert moved == pytest.approx(round(moved), abs=1e-3)
    assert 0 < abs(round(moved)) <= 10 * run.epochs
    assert float(parameters["scaling.seen"]) in [150 * epoch for epoch in range(1, run.epochs + 1)]  # of the best epoch
    assert float(of_learned["scaling.seen"]) == float(of_joint["scaling.seen"]) == 0
    ((alone, of_alone),) = trained(recipes[0])
    assert alone.test == pytest.approx(run.test)
    torch.testing.assert_close(of_alone["scaling.log_gain"], parameters["scaling.log_gain"])


def test_a_checkpoint_has_its_learned_field(scheme: str, tmp_path: Path) -> None:
    """Resuming from the checkpoint gives the result of an uninterrupted run."""
    path, one = tmp_path / "checkpoint", recipe(scheme=scheme)

    def interrupt(replicas: Sequence[Replica]) -> None:
        if len(replicas[0].history) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train([one], checkpoint=path, watch=interrupt)
    stored, _ = tensors.load(path)
    assert float(stored["stack/parameters/scaling.log_gain"]) != 0
    ((run, parameters),), ((want, of_want),) = trained(one, checkpoint=path), trained(one)
    assert run.test == want.test
    assert all(torch.equal(x, parameters[name]) for name, x in of_want.items())


def test_a_saved_model_has_its_learned_field(scheme: str, tmp_path: Path) -> None:
    path = tmp_path / "model"
    ((run, parameters),) = trained(recipe(scheme=scheme))
    Model(run.recipe, parameters).save(path)
    model = Model.load(path)
    assert torch.equal(model.parameters["scaling.log_gain"], parameters["scaling.log_gain"])
    assert model.evaluate(model.task.split(0, 0).test) == pytest.approx(run.test, abs=1e-6)


def test_models_saved_before_it_was_registered_still_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model"
    ((run, parameters),) = trained(recipe(scheme="learned", max_epochs=1))
    Model(run.recipe, parameters).save(path)
    monkeypatch.setitem(SCHEMES, "gain", Scheme("joint, with a learned gain", Gain, arguments))
    model = Model.load(path)
    assert model.evaluate(model.task.split(0, 0).test) == pytest.approx(run.test, abs=1e-6)


def test_help_lists_a_scheme_that_was_registered_before_the_command_is_imported() -> None:
    code = """
import sys
from equipoise_lab.schemes import SCHEMES, Scheme
SCHEMES["gain"] = Scheme("joint, with a learned gain")
from equipoise_lab import cli
sys.argv = ["equipoise-lab", "train", "--help"]
cli.main()
"""
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout
    assert "gain: joint, with a learned gain." in " ".join(printed.replace("│", " ").split())
