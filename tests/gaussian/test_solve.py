"""The three solvers against a dense float64 solve by numpy, which does not use the structure of W."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from equipoise import gaussian
from equipoise.gaussian import passes

METHODS = ["direct", "cg", "dense"]


def truth(unary: Tensor, embeddings: Tensor, ridge: float) -> np.ndarray:
    """s of one image, with W built block by block, labels outermost as in the paper."""
    length, m = unary.shape
    a = embeddings.detach().double().numpy()
    w = np.zeros((m * length, m * length))
    for j in range(m):
        for k in range(m):
            if j != k:
                w[j * length : (j + 1) * length, k * length : (k + 1) * length] = a @ a.T
    u = unary.detach().double().numpy().T.reshape(-1)
    return np.linalg.solve(w + ridge * np.eye(m * length), u).reshape(m, length).T


def make(*sizes: int, d: int, m: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    unary = torch.randn(*sizes, m, generator=generator, dtype=torch.float64)
    embeddings = torch.randn(*sizes, d, generator=generator, dtype=torch.float64)
    return unary.to(dtype), embeddings.to(dtype)


@pytest.mark.parametrize("m", [1, 2, 3, 5, 21])
@pytest.mark.parametrize("method", METHODS)
def test_all_methods_solve_the_system_with_lengths_and_one_ridge_per_image(method: str, m: int) -> None:
    unary, embeddings = make(3, 9, d=4, m=m)
    lengths, ridge = torch.tensor([9, 1, 6]), torch.tensor([60.0, 40.0, 90.0])
    unary[1, 1:], embeddings[2, 6:] = torch.nan, torch.inf  # beyond the length
    scores = gaussian.solve(unary, embeddings, ridge, lengths, method=method, tolerance=1e-13)
    for n, length in enumerate(lengths.tolist()):
        want = truth(unary[n, :length], embeddings[n, :length], float(ridge[n]))
        np.testing.assert_allclose(scores[n, :length].numpy(), want, rtol=1e-10, atol=1e-13)
        assert bool((scores[n, length:] == 0).all())


@pytest.mark.parametrize("method", ["direct", "dense"])
@pytest.mark.parametrize("m", [2, 5])
def test_indefinite_systems(method: str, m: int) -> None:
    unary, embeddings = make(8, d=3, m=m)
    ridge = 1.0
    assert gaussian.sigma_max(embeddings) > ridge
    scores = gaussian.solve(unary, embeddings, ridge, method=method)
    np.testing.assert_allclose(scores.numpy(), truth(unary, embeddings, ridge), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("m", [2, 3])
@pytest.mark.parametrize(("method", "gap"), [("direct", 1e-6), ("direct", 1e-7), ("dense", 1e-6)])
def test_float64_precision_near_a_singular_system(method: str, gap: float, m: int) -> None:
    """Squaring the matrix alone would lose twice as many digits as the condition number explains."""
    unary, embeddings = make(8, d=3, m=m)
    ridge = float(gaussian.sigma_max(embeddings)) * (1 - gap)
    want = torch.from_numpy(truth(unary, embeddings, ridge))
    assert (gaussian.solve(unary, embeddings, ridge, method=method) - want).norm() < 1e-15 / gap * want.norm()


@given(
    st.sampled_from([(), (1,), (0,), (2, 3)]), st.integers(1, 6), st.integers(1, 8), st.integers(1, 4), st.integers()
)
def test_direct_solves_the_system(batch: tuple[int, ...], length: int, d: int, m: int, seed: int) -> None:
    """Any leading dimensions, and more embedding dimensions than pixels."""
    unary, embeddings = make(*batch, length, d=d, m=m, seed=seed % 2**31)
    ridge = 1 + torch.rand(batch, dtype=torch.float64) + gaussian.sigma_max(embeddings)
    scores = gaussian.solve(unary, embeddings, ridge)
    assert scores.shape == unary.shape
    torch.testing.assert_close(gaussian.potts(scores, embeddings, ridge), unary)


@pytest.mark.parametrize("m", [2, 6, 12])  # few and many labels have different memory layouts
@pytest.mark.parametrize("unary_first", [False, True])
@pytest.mark.parametrize("embeddings_first", [False, True])
def test_channels_first_and_last(m: int, unary_first: bool, embeddings_first: bool) -> None:
    unary, embeddings = make(2, 30, d=5, m=m)
    want = gaussian.solve(unary, embeddings, 200.0)
    weight = torch.randn(2, 30, m, dtype=torch.float64)
    gradients = {}
    for first in (False, True):
        u = unary.mT.contiguous().mT if first and unary_first else unary.clone()
        a = embeddings.mT.contiguous().mT if first and embeddings_first else embeddings.clone()
        u, a = u.requires_grad_(), a.requires_grad_()
        scores = gaussian.solve(u, a, 200.0)
        torch.testing.assert_close(scores, want)
        gradients[first] = torch.autograd.grad(scores, (u, a), weight)
        assert gradients[first][1].stride() == a.stride()
        assert scores.stride() == (u.stride() if m > passes.FEW else (30 * m, 1, 30))
    torch.testing.assert_close(gradients[True], gradients[False])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_half_precision_is_summed_and_returned_in_float32(dtype: torch.dtype) -> None:
    unary, embeddings = make(2, 4000, d=8, m=3, dtype=dtype)
    ridge = 2.0 * float(gaussian.sigma_max(embeddings).max())
    exact = gaussian.solve(unary.double(), embeddings.double(), ridge)
    leaves = unary.requires_grad_(), embeddings.requires_grad_()
    scores = gaussian.solve(*leaves, ridge)
    assert scores.dtype == torch.float32
    assert (scores - exact).norm() < 1e-6 * exact.norm()
    gradients = torch.autograd.grad((ridge * scores).square().sum(), leaves)
    doubles = [x.detach().double().requires_grad_() for x in leaves]
    want = torch.autograd.grad((ridge * gaussian.solve(*doubles, ridge)).square().sum(), doubles)
    limit = 2e-6 if dtype == torch.float32 else torch.finfo(dtype).eps
    for got, right in zip(gradients, want, strict=True):
        assert got.dtype == dtype
        assert (got - right).norm() < limit * right.norm()


@pytest.mark.parametrize("method", METHODS)
def test_autocast_is_disabled(method: str) -> None:
    """It would round sums over all pixels to 8 bits."""
    leaves = [x.requires_grad_() for x in make(2, 50, d=4, m=3, dtype=torch.float32)]

    def compute() -> tuple[Tensor, ...]:
        scores = gaussian.solve(*leaves, 300.0, method=method)
        return scores.detach(), *torch.autograd.grad(scores.square().sum(), leaves)

    want = compute()
    with torch.autocast("cpu", torch.bfloat16):
        got = compute()
        bound, norm = gaussian.spectral_bound(leaves[1]), gaussian.mean_abs(leaves[1])
        sigma = gaussian.sigma_max(leaves[1])
    for ours, right in zip(got, want, strict=True):
        assert ours.dtype == torch.float32
        assert (ours - right).norm() <= 1e-5 * right.norm()
    torch.testing.assert_close(bound, gaussian.spectral_bound(leaves[1]))
    torch.testing.assert_close(norm, gaussian.mean_abs(leaves[1]))
    torch.testing.assert_close(sigma, gaussian.sigma_max(leaves[1]))


def test_mixed_dtypes_give_the_wider_one() -> None:
    unary, embeddings = make(5, d=2, m=2)
    exact = gaussian.solve(unary, embeddings.float(), 50.0)
    assert exact.dtype == torch.float64
    assert gaussian.solve(unary.float(), embeddings.bfloat16(), 50.0).dtype == torch.float32


def test_memory_kept_for_the_backward_pass_is_linear_in_l() -> None:
    """A A^T alone would take 16 GiB at this size."""
    unary, embeddings = make(2**16, d=2, m=2, dtype=torch.float32)
    unary.requires_grad_()
    embeddings.requires_grad_()
    saved: dict[int, int] = {}

    def pack(x: Tensor) -> Tensor:
        saved[x.untyped_storage().data_ptr()] = x.numel()
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        scores = gaussian.solve(unary, embeddings, 1e6)
    assert sum(saved.values()) <= unary.numel() + embeddings.numel() + 100
    scores.sum().backward()


def test_potts_without_ridge_is_w() -> None:
    unary, embeddings = make(6, d=2, m=3)
    w = embeddings @ embeddings.T
    want = w @ (unary.sum(-1, keepdim=True) - unary)
    torch.testing.assert_close(gaussian.potts(unary, embeddings), want)
    torch.testing.assert_close(gaussian.potts(unary, embeddings, 2.0), want + 2 * unary)
    lengths = torch.tensor(4)
    short = gaussian.potts(unary, embeddings, 2.0, lengths)
    torch.testing.assert_close(short[:4], gaussian.potts(unary[:4], embeddings[:4], 2.0))
    assert bool((short[4:] == 0).all())
