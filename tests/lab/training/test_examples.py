"""No example serves twice: a run trains, searches alpha, validates and tests on different ones."""

import pytest
import torch
from lab.training.tiny import Tiny, recipe

from equipoise_lab.training.examples import examples, halves

WHOLE = Tiny().split(0, 0)
PARTS = [{"scheme": "online", "search": "valid"}, {"scheme": "joint", "add_searched": True}]


@pytest.mark.parametrize("fields", PARTS)
def test_the_searched_half_validates_no_run(fields: dict[str, object]) -> None:
    split, searched = examples(recipe(**fields), WHOLE)
    assert torch.cat([searched, split.valid]).sort().values.tolist() == WHOLE.valid.tolist()
    assert abs(len(searched) - len(split.valid)) <= 1
    assert split.test.tolist() == WHOLE.test.tolist()
    trained = set(split.train.tolist())
    assert trained - set(searched.tolist()) == set(WHOLE.train.tolist())
    assert trained.isdisjoint(split.valid.tolist())
    assert trained.isdisjoint(searched.tolist()) == (fields["scheme"] == "online")


@pytest.mark.parametrize("fields", [{"scheme": "joint"}, {"scheme": "online"}, {"scheme": "joint", "search": "valid"}])
def test_other_runs_validate_on_all_validation_examples(fields: dict[str, object]) -> None:
    split, searched = examples(recipe(**fields), WHOLE)
    assert split.valid.tolist() == WHOLE.valid.tolist()
    assert searched.tolist() == split.train.tolist() == WHOLE.train.tolist()


def test_the_halves_do_not_depend_on_the_seed_or_the_state_of_the_random_numbers() -> None:
    torch.manual_seed(1)
    first = halves(WHOLE.valid)
    torch.manual_seed(2)
    assert [x.tolist() for x in first] == [x.tolist() for x in halves(WHOLE.valid)]
    of_seeds = [examples(recipe(scheme="online", search="valid", seed=seed), WHOLE).searched for seed in range(3)]
    assert len({tuple(x.tolist()) for x in of_seeds}) == 1
