"""Bad input: a one-line error that names the argument and the problem."""

import pytest
import torch
from torch import Tensor

from equipoise import gaussian

UNARY, EMBEDDINGS = torch.ones(2, 6, 3), torch.ones(2, 6, 4)
METHODS = pytest.mark.parametrize("method", ["direct", "cg", "dense"])


@pytest.mark.parametrize("ridge", [0.0, -1.0, float("nan"), float("inf")])
def test_ridge_must_be_positive(ridge: float) -> None:
    with pytest.raises(ValueError, match="ridge must be positive, got"):
        gaussian.solve(UNARY, EMBEDDINGS, ridge)
    with pytest.raises(ValueError, match=r"ridge must be positive, but ridge\[1\] is"):
        gaussian.solve(UNARY, EMBEDDINGS, torch.tensor([1.0, ridge]))


@pytest.mark.parametrize(
    ("unary", "embeddings", "message"),
    [
        (UNARY, EMBEDDINGS[:, :5], r"embeddings has shape \(2, 5, 4\), but unary \(2, 6, 3\) needs \(2, 6, D\)"),
        (UNARY, EMBEDDINGS[:1], r"embeddings has shape \(1, 6, 4\), but unary \(2, 6, 3\) needs \(2, 6, D\)"),
        (UNARY[0, 0], EMBEDDINGS, r"unary must have shape \(\*batch, L, M\)"),
        (UNARY, EMBEDDINGS[0, 0], r"embeddings must have shape \(\*batch, L, D\)"),
        (UNARY[:, :0], EMBEDDINGS[:, :0], r"with no size of 0 after the batch, got \(2, 0, 3\)"),
        (UNARY, EMBEDDINGS[..., :0], r"with no size of 0 after the batch, got \(2, 6, 0\)"),
        (UNARY[..., :0], EMBEDDINGS, r"with no size of 0 after the batch, got \(2, 6, 0\)"),
    ],
)
def test_sizes(unary: Tensor, embeddings: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gaussian.solve(unary, embeddings, 1.0)


def test_types_and_options() -> None:
    with pytest.raises(TypeError, match="unary must be a tensor, got list"):
        gaussian.solve([[1.0]], EMBEDDINGS, 1.0)
    with pytest.raises(TypeError, match=r"embeddings must have a floating-point dtype, got torch.int64"):
        gaussian.solve(UNARY, EMBEDDINGS.long(), 1.0)
    with pytest.raises(ValueError, match=r"embeddings is on meta, but unary is on cpu"):
        gaussian.solve(UNARY, EMBEDDINGS.to("meta"), 1.0)
    with pytest.raises(ValueError, match=r"ridge has shape \(3,\), but must be a number or of shape \(2,\)"):
        gaussian.solve(UNARY, EMBEDDINGS, torch.ones(3))
    with pytest.raises(ValueError, match=r"ridge has shape \(2, 2\), but must be a number or of shape \(2,\)"):
        gaussian.solve(UNARY, EMBEDDINGS, torch.ones(2, 2))
    with pytest.raises(ValueError, match="method must be one of direct, cg, dense, or a solver, got 'lu'"):
        gaussian.solve(UNARY, EMBEDDINGS, 1.0, method="lu")
    with pytest.raises(ValueError, match=r"lengths\[0\] is 7, but must be from 1 to L = 6"):
        gaussian.solve(UNARY, EMBEDDINGS, 1.0, torch.tensor([7, 1]))
    with pytest.raises(ValueError, match=r"lengths must be integers of shape \(2,\), got torch.float32 of \(2,\)"):
        gaussian.solve(UNARY, EMBEDDINGS, 1.0, torch.ones(2))
    with pytest.raises(ValueError, match=r"lengths must be integers of shape \(2,\), got torch.int64 of \(3,\)"):
        gaussian.mean_abs(EMBEDDINGS, torch.tensor([1, 2, 3]))
    with pytest.raises(TypeError, match="embeddings must be a tensor"):
        gaussian.mean_abs([[1.0]])


@METHODS
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_values_that_are_not_finite_are_located(method: str, value: float) -> None:
    for name, n in (("unary", 0), ("embeddings", 1)):
        inputs = [UNARY.clone(), EMBEDDINGS.clone()]
        inputs[n][1, 4, 2] = value
        with pytest.raises(ValueError, match=rf"{name}\[1, 4, 2\] is -?(nan|inf): it must be finite"):
            gaussian.solve(*inputs, 100.0, method=method)


def test_nan_is_located_even_if_all_embeddings_are_zero() -> None:
    unary, embeddings = UNARY.clone(), torch.zeros(2, 6, 4)
    unary[0, 0, 0] = torch.nan
    with pytest.raises(ValueError, match=r"unary\[0, 0, 0\] is nan"):
        gaussian.solve(unary, embeddings, 1.0)


@pytest.mark.parametrize("method", ["direct", "dense"])
def test_a_singular_system_is_an_error(method: str) -> None:
    one, two = torch.tensor([[3.0], [4.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])  # 25; 1 and 3
    for embeddings, ridge in ((one, 25.0), (two, 3.0), (two, 1.0)):
        with pytest.raises(ValueError, match="singular: ridge equals an eigenvalue of A"):
            gaussian.solve(torch.ones(len(embeddings), 2).triu(), embeddings, ridge, method=method)


def test_overflow() -> None:
    with pytest.raises(ValueError, match=r"too large for torch.float32: A\^T A overflows"):
        gaussian.solve(UNARY, 1e30 * EMBEDDINGS, 1.0)
    with pytest.raises(ValueError, match=r"too large for torch.float32: A\^T U overflows"):
        gaussian.solve(1e30 * UNARY, 1e15 * EMBEDDINGS, 1.0)


def test_more_dimensions_than_pixels() -> None:
    unary, embeddings = torch.randn(1, 2).double(), torch.randn(1, 9).double()
    scores = gaussian.solve(unary, embeddings, 100.0)
    torch.testing.assert_close(gaussian.potts(scores, embeddings, 100.0), unary)
