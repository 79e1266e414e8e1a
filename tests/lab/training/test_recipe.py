"""A recipe identifies a run; an invalid recipe is refused when it is created."""

import dataclasses
import json
import math
from pathlib import Path

import pytest

from equipoise_lab.recipe import OBJECTIVES, OPTIMIZERS, SCHEMES, Recipe


def test_names_of_schemes_objectives_and_optimizers() -> None:
    paper = ["unary", "stage", "joint", "online", "offline", "offline_reg", "temperature", "learned"]
    assert [*SCHEMES] == [
        *paper,
        *("joint_x10", "joint_x100", "joint_x1000"),
        *("unary_scaled", "scales", "scales_once", "scales_once_x100"),
    ]
    assert set(OBJECTIVES) == {"marginal", "margin", "likelihood", "mean_field"}
    assert OPTIMIZERS == ("adam", "sgd", "rmsprop")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_recipe_survives_json(scheme: str) -> None:
    rates = (0.1, 1e-5, 3e-3) if scheme == "stage" else (1 / 3,)
    recipe = Recipe("ocr", scheme=scheme, learning_rates=rates, alpha=0.1, seed=7, fold=3, normalize=True)
    again = Recipe.from_json(json.loads(json.dumps(recipe.to_json())))
    assert again == recipe
    assert again.key == recipe.key
    assert hash(again) == hash(recipe)


def test_the_key_depends_on_every_field() -> None:
    base = Recipe("ocr")
    changed = {"scheme": "offline", "objective": "margin", "optimizer": "sgd", "learning_rates": (0.5,), "task": "x"}
    changed |= {"net": "sigmoid", "normalize": True, "schedule": "linear", "warmup": 0.2, "share": 0.5}
    changed |= {"search": "valid", "search_time": "end", "add_searched": True, "patience": "torch"}
    keys = {base.key}
    for field in dataclasses.fields(Recipe):
        value = changed.get(field.name, getattr(base, field.name))
        value = value if field.name in changed else value + 1
        keys.add(dataclasses.replace(base, **{field.name: value}).key)
    assert len(keys) == len(dataclasses.fields(Recipe)) + 1


def test_new_fields_survive_json_and_are_left_out_at_their_defaults() -> None:
    added = {"schedule": "linear", "warmup": 0.0, "clip": 1.0, "share": 0.01}
    added |= {"search": "valid", "search_time": "end", "add_searched": True, "patience": "torch", "matrix_std": 1.0}
    assert not added.keys() & Recipe("ocr").to_json().keys()
    recipe = Recipe("ocr", **added)
    assert recipe.to_json().items() >= added.items()
    assert Recipe.from_json(json.loads(recipe.key)) == recipe
    assert Recipe.from_json(Recipe("ocr").to_json() | {"schedule": "plateau", "share": 1.0}) == Recipe("ocr")


def test_the_recipes_of_stored_records_keep_their_keys() -> None:
    """A changed key would make every stored run a missing one."""
    file = Path(__file__).parents[3] / "results" / "runs.jsonl"
    if not file.is_file():
        pytest.skip("needs results/runs.jsonl")
    with file.open() as lines:
        stored = [json.loads(line)["recipe"] for line in lines]
    assert len(stored) >= 12_990
    for fields in stored:
        fields.pop("speed", None)  # a field of earlier versions
        assert Recipe.from_json(fields).key == json.dumps(fields, sort_keys=True)


def test_fields_of_earlier_versions_are_ignored() -> None:
    recipe = Recipe("ocr", scheme="learned")
    assert Recipe.from_json(recipe.to_json() | {"speed": 10.0}) == recipe


def test_a_recipe_is_immutable() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Recipe("ocr").seed = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"scheme": "jointly"}, "scheme must be one of unary, stage.*got 'jointly'"),
        ({"objective": "crf"}, "objective must be one of .*got 'crf'"),
        ({"optimizer": "lbfgs"}, "optimizer must be one of adam, sgd, rmsprop, got 'lbfgs'"),
        *[({name: 0}, f"{name} must be positive, got 0") for name in ("alpha", "weight", "threshold", "batch_size")],
        *[({name: -1}, f"{name} must be positive, got -1") for name in ("subset", "plateau", "stop", "max_epochs")],
        ({"start": 0.0}, "start must be positive, got 0.0"),
        ({"weight_decay": -0.1}, "weight_decay must not be negative, got -0.1"),
        ({"schedule": "cosine"}, "schedule must be one of plateau, linear, got 'cosine'"),
        *[({"warmup": x}, f"warmup must be between 0 and 1, got {x}") for x in (-0.1, 1.1, math.nan)],
        *[({"clip": x}, f"clip must not be negative, got {x}") for x in (-1.0, math.nan)],
        *[({"share": x}, f"share must be greater than 0 and at most 1, got {x}") for x in (0.0, 1.01, math.nan)],
        ({"search": "test"}, "search must be one of train, valid, got 'test'"),
        ({"search_time": "batch"}, "search_time must be one of epoch, end, got 'batch'"),
        ({"patience": 3}, "patience must be one of exact, torch, got 3"),
        ({"matrix_std": 0.0}, "matrix_std must be positive, got 0.0"),
        ({"alpha": math.nan}, "alpha must be positive, got nan"),
        ({"learning_rates": ()}, r"joint needs 1 positive learning rate\(s\), got \(\)"),
        ({"learning_rates": (0.1, 0.1)}, "joint needs 1 positive"),
        ({"learning_rates": (-0.1,)}, "joint needs 1 positive"),
        ({"learning_rates": (math.nan,)}, "joint needs 1 positive"),
        ({"scheme": "stage"}, "stage needs 3 positive"),
    ],
)
def test_invalid_recipes_are_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Recipe("ocr", **fields)


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(ValueError, match="a recipe has no fields named colour, size"):
        Recipe.from_json(Recipe("ocr").to_json() | {"size": 1, "colour": 2})
