"""ChainCRF with scores of NaN or +inf: an error where values are checked, elsewhere a NaN loss and no labels."""

import re

import pytest
import torch
from torch import Tensor

from equipoise import ChainCRF, chain, scaling
from equipoise.objectives import OBJECTIVES, RULES, Objective

LABELS = torch.tensor([[0, 1, 2, 0], [2, 1, -100, -100]])
DEVICES = ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu])] if torch.cuda.is_available() else ["cpu"]


def scores(device: str = "cpu") -> Tensor:
    return torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(0)).to(device)


def layer(validate: bool | None, where: str, value: float, device: str = "cpu") -> tuple[ChainCRF, Tensor, Tensor]:
    """A layer, unary scores and which sequences have an invalid score."""
    crf, unary = ChainCRF(3, boundaries=True, validate=validate).to(device), scores(device)
    if where == "unary":
        unary[1, 1, 0] = value
    else:
        with torch.no_grad():
            getattr(crf, where).view(-1)[1] = value
    return crf, unary, torch.tensor([where != "unary", True])


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("where", ["unary", "pairwise", "start", "end"])
@pytest.mark.parametrize("objective", [x for x in OBJECTIVES if x != "unary"])
@pytest.mark.parametrize("device", DEVICES)
def test_validation_raises(device: str, objective: str, where: str, value: float) -> None:
    """Always with validate=True, and by the value of the loss where that can be read."""
    for validate in (True, None) if device == "cpu" else (True,):
        crf, unary, _ = layer(validate, where, value, device)
        with pytest.raises(ValueError, match=r"(unary|pairwise)\[.*\] is (nan|inf)"):
            crf.loss(unary, LABELS.to(device), objective=objective)


@pytest.mark.parametrize("method", [scaling.Fixed, scaling.Offline, scaling.Learned], ids=lambda x: x.__name__)
def test_the_error_names_the_score(method: type[scaling.Scaling]) -> None:
    crf, unary = ChainCRF(3, method(), validate=True), scores()
    unary[0, 3, 1] = torch.nan
    mask = torch.tensor([[True, False, True, True], [True, True, False, False]])
    for call in (crf.decode, crf.log_marginals, crf.potentials):
        with pytest.raises(ValueError, match=re.escape("unary[0, 3, 1] is nan: scores must be finite or -inf")):
            call(unary, mask)
    with pytest.raises(ValueError, match=re.escape("unary[0, 3, 1] is nan: scores must be finite or -inf")):
        crf.loss(unary, LABELS, mask)


def test_validation_does_not_rely_on_the_loss() -> None:
    """An objective may lose the NaN."""
    crf, unary, _ = layer(True, "unary", torch.nan)
    blind = Objective(lambda unary, pairwise, labels, lengths: torch.zeros(2), rule="map")
    with pytest.raises(ValueError, match=re.escape("unary[1, 1, 0] is nan")):
        crf.loss(unary, LABELS, objective=blind)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("where", ["unary", "pairwise", "start", "end"])
@pytest.mark.parametrize("objective", [x for x in OBJECTIVES if x != "unary"])
@pytest.mark.parametrize("device", DEVICES)
def test_unchecked_losses_and_gradients_are_nan(device: str, objective: str, where: str, value: float) -> None:
    crf, unary, invalid = layer(False, where, value, device)
    unary.requires_grad_()
    losses = crf.loss(unary, LABELS.to(device), objective=objective, reduction="none")
    assert torch.equal(losses.isnan().cpu(), invalid)
    (gradient,) = torch.autograd.grad(losses.sum(), unary)
    assert torch.equal(gradient.isnan().flatten(1).any(1).cpu(), invalid)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("where", ["unary", "pairwise", "start", "end"])
@pytest.mark.parametrize("rule", list(RULES))
@pytest.mark.parametrize("validate", [None, False])
@pytest.mark.parametrize("device", DEVICES)
def test_unchecked_decoding_gives_no_labels(
    device: str, validate: bool | None, rule: str, where: str, value: float
) -> None:
    crf, unary, invalid = layer(validate, where, value, device)
    invalid = invalid & (rule != "unary" or where != "pairwise")
    mask = (LABELS != -100).to(device)
    labels = crf.decode(unary, mask, rule)
    assert torch.equal(labels >= 0, mask & ~invalid.to(device)[:, None])
    assert (labels[~(labels >= 0)] == -100).all()


def test_masked_scores_have_no_effect() -> None:
    crf, unary = ChainCRF(3, validate=True), scores()
    mask = torch.tensor([[True, False, True, True], [True, True, False, False]])
    for objective in OBJECTIVES:
        results = []
        for value in (0.0, torch.nan):
            masked = unary.masked_fill(~mask[..., None], value).requires_grad_()
            loss = crf.loss(masked, LABELS, mask, objective=objective)
            results.append((loss, *torch.autograd.grad(loss, masked)))
        torch.testing.assert_close(*results)


def test_changing_returned_lengths_changes_no_later_result() -> None:
    """The lengths of whole chains are cached."""
    crf, unary = ChainCRF(3), torch.randn(3, 7, 3)
    before = crf.decode(unary), crf.log_marginals(unary), chain.log_partition(unary, crf.pairwise)
    crf.potentials(unary).lengths.fill_(1)
    after = crf.decode(unary), crf.log_marginals(unary), chain.log_partition(unary, crf.pairwise)
    assert all(map(torch.equal, before, after))
