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


OTHERS = [lambda: scaling.Regularized(3.0), lambda: scaling.Online(alpha=4.0)]


@pytest.mark.parametrize(
    ("make", "method"),
    [
        *[(lambda x: ChainCRF(3, x), method) for method in OTHERS],
        *[(lambda x: GaussianCRF(3, 1.0, x), method) for method in [*OTHERS, lambda: scaling.Learned(start=2.0)]],
    ],
)
def test_scaling_can_be_added_to_a_checkpoint(make, method) -> None:
    plain, scaled = make(scaling.Fixed()), make(method())
    scaled.load_state_dict(plain.state_dict())
    for name, value in method().state_dict().items():
        assert torch.equal(scaled.scaling.state_dict()[name], value)
    again = make(method())
    again.load_state_dict(scaled.state_dict())


@pytest.mark.parametrize("boundaries", [False, True])
@pytest.mark.parametrize("rules", [None, BIO], ids=["free", "constrained"])
@pytest.mark.parametrize("nested", [False, True], ids=["layer", "model"])
def test_learned_added_to_a_plain_checkpoint_keeps_predictions(
    boundaries: bool, rules: constraints.Constraints | None, nested: bool
) -> None:
    """Exactly those of the plain layer, and one more training step hardly changes the running average."""
    plain = ChainCRF(3, scaling.Fixed(), rules, boundaries=boundaries)
    crf = ChainCRF(3, scaling.Learned(start=2.0), rules, boundaries=boundaries)
    for parameter in plain.parameters():
        torch.nn.init.normal_(parameter, std=2.0)
    if nested:
        torch.nn.ModuleDict({"crf": crf}).load_state_dict(torch.nn.ModuleDict({"crf": plain}).state_dict())
    else:
        crf.load_state_dict(plain.state_dict())
    unary = 9 * torch.randn(20, 6, 3)
    mask = torch.rand(20, 6) < 0.7
    torch.testing.assert_close(
        crf.eval().log_marginals(unary, mask), plain.log_marginals(unary, mask), rtol=1e-5, atol=1e-5
    )
    labels = crf.decode(unary, mask)
    torch.testing.assert_close(crf.score(unary, labels, mask), plain.score(unary, labels, mask), rtol=1e-5, atol=1e-4)
    crf.train().loss(unary, labels, mask).backward()
    assert 1 < float(crf.scaling.size) < 1.5
    assert float(crf.scaling.steps) == 1


def test_learned_for_several_replicas_added_to_a_plain_checkpoint() -> None:
    plain, crf = ChainCRF(3, scaling.Fixed()), ChainCRF(3, scaling.Learned(start=torch.tensor([1.0, 2.0]))).eval()
    crf.load_state_dict(plain.state_dict())
    unary = torch.randn(2, 4, 5, 3)
    torch.testing.assert_close(crf.log_marginals(unary), plain.log_marginals(unary), rtol=1e-5, atol=1e-5)


def test_a_plain_checkpoint_whose_pairwise_scores_are_0() -> None:
    plain, crf = ChainCRF(3, scaling.Fixed()), ChainCRF(3, scaling.Learned()).eval()
    torch.nn.init.zeros_(plain.pairwise)
    crf.load_state_dict(plain.state_dict())
    unary = torch.randn(4, 5, 3)
    torch.testing.assert_close(crf.log_marginals(unary), unary.log_softmax(-1))
    assert bool(crf.scaling.log_scales.isfinite().all())


def test_a_plain_checkpoint_of_other_labels_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="size mismatch for pairwise"):
        ChainCRF(3, scaling.Learned(), BIO).load_state_dict(ChainCRF(4, scaling.Fixed()).state_dict())


def test_a_checkpoint_of_an_earlier_learned_is_an_error() -> None:
    crf = ChainCRF(3, scaling.Learned())
    old = {"pairwise": crf.pairwise, "scaling.log_unary": torch.zeros(()), "scaling.log_pairwise": torch.zeros(())}
    with pytest.raises(RuntimeError, match=r"scaling\.log_unary belongs to an earlier form of scaling\.Learned"):
        crf.load_state_dict(old)


def test_the_state_of_another_scaling_method_is_an_error() -> None:
    with pytest.raises(RuntimeError, match=r"scaling\.log_scales"):
        ChainCRF(3, scaling.Learned()).load_state_dict(ChainCRF(3, scaling.Offline(4.0)).state_dict())
