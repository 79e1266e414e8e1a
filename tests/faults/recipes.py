"""The recipes of the sweep that tests kill."""

from lab.training.tiny import recipe

from equipoise_lab.recipe import Recipe


def recipes(runs: int, epochs: int, first: int) -> list[Recipe]:
    """One recipe per seed; the first has its own number of epochs."""
    each = [first, *[epochs] * (runs - 1)]
    return [recipe(seed=seed, max_epochs=most, stop=most, scheme="learned") for seed, most in enumerate(each)]
