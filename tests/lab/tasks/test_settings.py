"""Every task has a valid default recipe for each objective, scheme and optimizer."""

import itertools

import pytest

from equipoise_lab.recipe import OPTIMIZERS, Recipe
from equipoise_lab.schemes import SCHEMES
from equipoise_lab.tasks import TASKS, task_by_name

ALPHAS = {
    "ocr": {"offline": 1.0, "offline_reg": 2.0, "temperature": 4.0},
    "chunking": {"offline": 2.0, "offline_reg": 4.0, "temperature": 4.0},
    "horses": {"offline": 1.0, "offline_reg": 1.0, "temperature": 0.5},
    "tagging-conll2000": {},
    "tagging-wnut17": {},
    "tagging-bc5cdr": {},
}


@pytest.mark.parametrize("task", TASKS)
def test_default_recipes_are_valid(task: str) -> None:
    known = task_by_name(task)
    for objective, scheme, optimizer in itertools.product(known.objectives, SCHEMES, OPTIMIZERS):
        recipe = known.settings.recipe(objective, scheme, optimizer)
        assert (recipe.task, recipe.objective, recipe.scheme, recipe.optimizer) == (task, objective, scheme, optimizer)
        assert len(recipe.learning_rates) == len(SCHEMES[scheme].phases)
        assert Recipe.from_json(recipe.to_json()) == recipe


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("task", TASKS)
def test_default_alpha(task: str, scheme: str) -> None:
    recipe = task_by_name(task).settings.recipe("marginal", scheme)
    assert recipe.alpha == ALPHAS[task].get(scheme, 1.0)
    assert recipe.weight == (0.001 if scheme == "offline_reg" else 0.1)


@pytest.mark.parametrize("task", TASKS)
def test_sgd_has_smaller_rates_for_losses_that_are_sums(task: str) -> None:
    """Except for the first stage, which trains the net alone with a mean over positions."""
    settings = task_by_name(task).settings
    for scheme in ("joint", "stage", "unary"):
        mean, total = (settings.recipe(objective, scheme, "sgd") for objective in ("marginal", "likelihood"))
        divisors = [a / b for a, b in zip(mean.learning_rates, total.learning_rates, strict=True)]
        assert divisors == pytest.approx({"joint": [10], "stage": [1, 10, 10], "unary": [1]}[scheme])


def test_fields_of_a_recipe_can_be_given() -> None:
    recipe = task_by_name("ocr").settings.recipe("margin", "offline", net="sigmoid", alpha=3.0, seed=2, max_epochs=5)
    assert (recipe.net, recipe.alpha, recipe.seed, recipe.max_epochs) == ("sigmoid", 3.0, 2, 5)


def test_a_net_can_have_its_own_settings() -> None:
    settings = task_by_name("tagging-wnut17").settings
    encoder, scratch = (settings.recipe("likelihood", "learned", net=net) for net in ("default", "bilstm"))
    assert (encoder.schedule, encoder.max_epochs, encoder.clip, encoder.weight_decay) == ("linear", 5, 1.0, 0.01)
    assert (scratch.schedule, scratch.max_epochs, scratch.clip, scratch.net) == ("plateau", 15, 0.0, "bilstm")
    assert task_by_name("tagging-conll2000").settings.base.max_epochs == 3
