"""Stacks have in common what they must have, and no phase is trained twice."""

import itertools
from dataclasses import replace

from lab.training.tiny import recipe

from equipoise_lab.recipe import OBJECTIVES, SCHEMES
from equipoise_lab.training.phases import groups_for_testing, kind, phases, shared_first_phase, stack_groups

MIXED = [
    recipe(scheme=scheme, objective=objective, optimizer=optimizer, seed=seed)
    for seed in (0, 1)
    for optimizer in ("adam", "sgd")
    for scheme in SCHEMES
    for objective in OBJECTIVES
]


def test_every_recipe_is_in_one_group_for_each_of_its_phases() -> None:
    for depth in range(3):
        grouped = [i for group in stack_groups(MIXED, depth) for i in group]
        assert len(grouped) == len(set(grouped))
        shared = set(shared_first_phase(MIXED)) if depth == 0 else set()
        assert set(grouped) == {i for i, x in enumerate(MIXED) if len(phases(x)) > depth} - shared


def test_a_group_has_one_optimizer_and_recipes_of_one_kind_are_neighbours() -> None:
    for depth in range(3):
        for group in stack_groups(MIXED, depth):
            assert len({(MIXED[i].optimizer, MIXED[i].batch_size, MIXED[i].momentum) for i in group}) == 1
            trained = {phases(MIXED[i])[depth].trained for i in group}
            assert trained == {"pairwise"} or "pairwise" not in trained
            kinds = [kind(MIXED[i], phases(MIXED[i])[depth]) for i in group]
            changes = sum(a != b for a, b in itertools.pairwise(kinds))
            assert changes == len(set(kinds)) - 1


def test_which_fields_separate_groups() -> None:
    base = recipe()
    others = [replace(base, **{name: value}) for name, value in (("net", "alone"), ("optimizer", "sgd"))]
    others += [replace(base, batch_size=5), replace(base, momentum=0.1), replace(base, schedule="linear")]
    assert len(stack_groups([base, *others], 0)) == 6
    same = [
        replace(base, seed=7),
        replace(base, fold=2),
        replace(base, learning_rates=(1.0,)),
        replace(base, alpha=9.0),
    ]
    same += [replace(base, scheme="learned"), replace(base, objective="margin"), replace(base, max_epochs=99)]
    assert len(stack_groups([base, *same], 0)) == 1


def test_which_recipes_share_their_first_phase() -> None:
    first = {"max_epochs": 5, "seed": 3}
    recipes = [
        recipe(scheme="stage", **first, learning_rates=(0.1, 0.2, 0.3)),
        recipe(scheme="stage", **first, learning_rates=(0.1, 0.5, 0.6), objective="margin"),
        recipe(scheme="unary", **first, learning_rates=(0.1,)),
        recipe(scheme="unary", **first, learning_rates=(0.1,), objective="likelihood", subset=3, weight=9.0, start=2.0),
        recipe(scheme="joint", **first, learning_rates=(0.1,)),
        recipe(scheme="joint", **first, learning_rates=(0.1,)),
    ]
    assert shared_first_phase(recipes) == {1: 0, 2: 0, 3: 0}
    changed = [("learning_rates", (0.2,)), ("seed", 4), ("fold", 1), ("max_epochs", 6), ("plateau", 1), ("stop", 2)]
    changed += [
        ("threshold", 0.5),
        ("weight_decay", 0.1),
        ("batch_size", 7),
        ("optimizer", "sgd"),
        ("momentum", 0.1),
        ("net", "alone"),
    ]
    for name, value in changed:
        assert shared_first_phase([recipes[2], replace(recipes[2], **{name: value})]) == {}


def test_groups_for_testing_have_every_recipe_once() -> None:
    for group in groups_for_testing(MIXED):
        assert len({MIXED[i].optimizer for i in group}) == 1
    assert sorted(i for group in groups_for_testing(MIXED) for i in group) == list(range(len(MIXED)))
