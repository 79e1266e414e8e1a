"""How recipes are divided into portions."""

import pytest

from equipoise_lab.recipe import Recipe
from equipoise_lab.run import portions
from equipoise_lab.run.local import Local


def test_portions_hold_every_recipe_once() -> None:
    rates = (3e-3, 3e-2, 1e-3)
    recipes = [Recipe("ocr", scheme="stage", objective=name, learning_rates=rates) for name in ("marginal", "margin")]
    recipes += [Recipe("ocr", seed=seed, optimizer=name) for seed in range(7) for name in ("adam", "sgd")]
    found = portions.portions(recipes, workers=2, stack_size=3)
    assert sorted(recipe.key for portion in found for recipe in portion) == sorted(recipe.key for recipe in recipes)


def test_recipes_that_share_a_stack_stay_together_if_there_are_enough_portions() -> None:
    nets = [Recipe("ocr", net=net, seed=seed) for net in ("default", "sigmoid", "layernorm") for seed in range(4)]
    assert [len(portion) for portion in portions.portions(nets, workers=1, stack_size=8)] == [4, 4, 4]
    assert [len(portion) for portion in portions.portions(nets, workers=3, stack_size=8)] == [2] * 6
    assert [len(portion) for portion in portions.portions(nets, workers=1, stack_size=3)] == [3, 1] * 3


def test_at_least_one_worker_is_required() -> None:
    with pytest.raises(ValueError, match="workers must be at least 1, got 0"):
        Local(0)
