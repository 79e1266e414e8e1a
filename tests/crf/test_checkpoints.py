"""Checkpoints load after constraints or a scaling method were added, and with constraints that were once stored."""

import warnings

import pytest
import torch

from equipoise import ChainCRF, GaussianCRF, constraints, scaling

NAMES = ["O", "B-X", "I-X"]
BIO, IOB1 = (constraints.from_labels(NAMES, scheme) for scheme in ("BIO", "IOB1"))


def old_checkpoint(rules: constraints.Constraints) -> dict[str, torch.Tensor]:
    """As written when constraints were part of the state."""
    state = ChainCRF(3).state_dict()
    return {
        **state,
        "allowed_transitions": rules.transitions,
        "allowed_start": rules.start,
        "allowed_end": rules.end,
    }


def test_constraints_are_not_part_of_the_state() -> None:
    assert ChainCRF(3, constraints=BIO).state_dict().keys() == ChainCRF(3).state_dict().keys()


def test_constraints_can_be_added_to_a_checkpoint() -> None:
    plain, constrained = ChainCRF(3), ChainCRF(3, constraints=BIO)
    constrained.load_state_dict(plain.state_dict())
    assert torch.equal(constrained.pairwise, plain.pairwise)
    assert not bool((constrained.decode(torch.randn(50, 4, 3))[:, 0] == 2).any())
    plain.load_state_dict(constrained.state_dict())


def test_a_checkpoint_with_constraints_loads() -> None:
    state = old_checkpoint(BIO)
    keys = set(state)
    crf = ChainCRF(3, constraints=BIO)
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), crf)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        crf.load_state_dict(state)
        model.load_state_dict({**model.state_dict(), **{f"1.{key}": x for key, x in state.items()}})
    assert torch.equal(crf.pairwise, state["pairwise"])
    assert set(state) == keys


@pytest.mark.parametrize("own", [None, IOB1], ids=["none", "others"])
def test_other_constraints_in_a_checkpoint_are_not_used(own: constraints.Constraints | None) -> None:
    crf = ChainCRF(3, constraints=own)
    unary = torch.randn(20, 4, 3)
    with pytest.warns(UserWarning, match="constraints that differ from those of this layer"):
        crf.load_state_dict(old_checkpoint(BIO))
    same = ChainCRF(3, constraints=own)
    same.load_state_dict(crf.state_dict())
    assert torch.equal(crf.decode(unary), same.decode(unary))


@pytest.mark.parametrize("make", [lambda method: ChainCRF(3, method), lambda method: GaussianCRF(3, 1.0, method)])
@pytest.mark.parametrize(
    "method", [lambda: scaling.Learned(start=2.0), lambda: scaling.Regularized(3.0), lambda: scaling.Online(alpha=4.0)]
)
def test_scaling_can_be_added_to_a_checkpoint(make, method) -> None:
    plain, scaled = make(None), make(method())
    scaled.load_state_dict(plain.state_dict())
    for name, value in method().state_dict().items():
        assert torch.equal(scaled.scaling.state_dict()[name], value)
    again = make(method())
    again.load_state_dict(scaled.state_dict())


def test_the_state_of_another_scaling_method_is_an_error() -> None:
    with pytest.raises(RuntimeError, match=r"scaling\.log_scales"):
        ChainCRF(3, scaling.Learned()).load_state_dict(ChainCRF(3, scaling.Offline(4.0)).state_dict())
