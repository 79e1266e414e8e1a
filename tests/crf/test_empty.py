"""Sequences without any position: no loss, no gradient, labels of -100, and no influence on the others."""

import pytest
import torch
from torch import Tensor

from equipoise import ChainCRF, constraints, scaling

BMES = constraints.from_labels(["B", "M", "E"], "BMES")  # no labelling of length 1 is allowed
METHODS = {
    "fixed": scaling.Fixed,
    "offline": scaling.Offline,
    "regularized": scaling.Regularized,
    "learned": scaling.Learned,
}


def example() -> tuple[Tensor, Tensor, Tensor]:
    """Unary scores with NaN in row 1, where the mask is off, labels that the constraints allow, and the mask."""
    unary = torch.randn(3, 4, 3, generator=torch.Generator().manual_seed(0))
    unary[1] = torch.nan
    mask = torch.tensor([[1, 1, 1, 0], [0, 0, 0, 0], [0, 1, 0, 1]], dtype=torch.bool)
    labels = torch.tensor([[0, 1, 2, 0], [2, 2, 2, 2], [0, 0, 0, 2]])
    return unary.requires_grad_(), labels, mask


@pytest.mark.parametrize("objective", ["likelihood", "marginal", "margin", "unary"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("boundaries", [False, True])
def test_loss(objective: str, method: str, boundaries: bool) -> None:
    generator = torch.Generator().manual_seed(1)
    crf = ChainCRF(3, METHODS[method](), BMES, objective=objective, boundaries=boundaries, generator=generator)
    unary, labels, mask = example()
    got = crf.loss(unary, labels, mask)
    want = crf.loss(unary[[0, 2]], labels[[0, 2]], mask[[0, 2]])
    torch.testing.assert_close(got, want)
    wanted = [unary, *crf.parameters()]
    options = {"allow_unused": True, "materialize_grads": True}
    for a, b in zip(*(torch.autograd.grad(x, wanted, **options) for x in (got, want)), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("rule", ["map", "marginal", "unary"])
def test_decoding(rule: str) -> None:
    crf = ChainCRF(3, constraints=BMES)
    unary, _, mask = example()
    labels = crf.decode(unary, mask, rule)
    assert labels[1].tolist() == [-100] * 4
    assert torch.equal(labels[[0, 2]], crf.decode(unary[[0, 2]], mask[[0, 2]], rule))


def test_marginals_and_balance() -> None:
    crf = ChainCRF(3, constraints=BMES)
    unary, _, mask = example()
    log_p = crf.log_marginals(unary, mask)
    assert not log_p[1].any()
    torch.testing.assert_close(log_p[[0, 2]], crf.log_marginals(unary[[0, 2]], mask[[0, 2]]))
    torch.testing.assert_close(crf.balance(unary, mask), crf.balance(unary[[0, 2]], mask[[0, 2]]))


def test_a_batch_in_which_nothing_counts() -> None:
    for method in METHODS.values():
        crf = ChainCRF(3, method(), BMES)
        unary, labels = torch.randn(2, 4, 3, requires_grad=True), torch.full((2, 4), -100)
        for reduction in ("mean", "sum", "token_mean"):
            loss = crf.loss(unary, labels, reduction=reduction)
            assert float(loss.detach()) == 0
            assert not any(x.any() for x in torch.autograd.grad(loss, (unary, crf.pairwise), materialize_grads=True))
        assert crf.loss(unary, labels, reduction="none").tolist() == [0, 0]
        assert bool((crf.decode(unary, labels != -100) == -100).all())
        assert float(crf.balance(unary, labels != -100)) == 0


def test_rebalancing() -> None:
    unary, labels, mask = example()
    found = []
    for rows in ([0, 1, 2], [0, 2]):
        crf = ChainCRF(3, scaling.Online(subset=2), constraints=BMES, generator=torch.Generator().manual_seed(1))
        found.append(float(crf.rebalance([(unary[rows], labels[rows], mask[rows])])))
    assert found[0] == found[1]


@pytest.mark.slow
def test_the_same_where_values_cannot_be_read() -> None:
    crf = ChainCRF(3, scaling.Offline(), BMES, generator=torch.Generator().manual_seed(1))
    unary, labels, mask = example()
    compiled = torch.compile(crf, fullgraph=True, backend="aot_eager")
    got, want = compiled(unary, labels, mask), crf(unary, labels, mask)
    torch.testing.assert_close(got, want)
    wanted = (unary, crf.pairwise)
    for a, b in zip(*(torch.autograd.grad(x, wanted) for x in (got, want)), strict=True):
        torch.testing.assert_close(a, b)
    assert torch.equal(
        torch.compile(crf.decode, fullgraph=True, backend="aot_eager")(unary, mask), crf.decode(unary, mask)
    )
