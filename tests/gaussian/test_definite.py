"""When the energy has a maximum, and that bounded embeddings always give it one."""

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from equipoise import gaussian
from equipoise.gaussian import dense

SLACK = 1 / 1025  # sigma_hat <= D^SLACK sigma_max


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("m", [1, 2, 3, 5])
def test_definite_exactly_if_ridge_exceeds_sigma_max(m: int) -> None:
    """By the eigenvalues of the full matrix, for any number of labels; with one label always."""
    embeddings = normal(7, 3)
    sigma = gaussian.sigma_max(embeddings)
    for ridge in (0.99 * sigma, 1.01 * sigma):
        lowest = torch.linalg.eigvalsh(dense.matrix(embeddings, m, ridge)).min()
        assert bool(lowest > 0) == (m == 1 or bool(ridge > sigma))


@given(st.integers(1, 12), st.integers(1, 9), st.integers(-150, 150), st.integers(0, 2**31))
def test_the_bound_is_tight(length: int, d: int, exponent: int, seed: int) -> None:
    embeddings = normal(length, d, seed=seed) * 2.0**exponent
    sigma = torch.linalg.matrix_norm(embeddings, 2) ** 2
    bound = gaussian.spectral_bound(embeddings)
    assert float(sigma) * (1 - 1e-12) <= float(bound) <= float(sigma) * d**SLACK * (1 + 1e-12)
    torch.testing.assert_close(gaussian.sigma_max(embeddings), sigma)


@given(
    st.integers(2, 8),
    st.integers(1, 4),
    st.floats(0.01, 0.99),
    st.floats(1e-3, 1e3),
    st.integers(-20, 20),
    st.sampled_from([torch.float64, torch.float32, torch.bfloat16]),
    st.integers(0, 2**31),
)
@example(3, 4, 0.5, 647.625, 3, torch.float64, 151)  # sigma_max is above share * ridge by 3 rounding errors or more
def test_bounded_embeddings_make_any_system_definite(
    length: int, d: int, share: float, ridge: float, exponent: int, dtype: torch.dtype, seed: int
) -> None:
    embeddings = normal(2, length, d, seed=seed, dtype=dtype) * 2.0**exponent
    bounded = gaussian.bounded(embeddings, ridge, share)
    assert bounded.dtype == dtype
    rounding = (2 if dtype == torch.bfloat16 else 16) * torch.finfo(dtype).eps  # bfloat16 is only stored
    limit = share * ridge * (1 + rounding)
    before, after = gaussian.sigma_max(embeddings), gaussian.sigma_max(bounded)
    assert bool((after <= limit).all())
    assert torch.equal(bounded[before * d**SLACK < share * ridge], embeddings[before * d**SLACK < share * ridge])
    grown = gaussian.sigma_max(gaussian.bounded(embeddings, ridge, share, grow=True))
    assert bool((grown <= limit).all())
    assert bool((grown >= share * ridge * d**-SLACK * (1 - 2 * rounding)).all())
    if dtype == torch.float64:
        gaussian.check(bounded, ridge)
        assert bool((torch.linalg.eigvalsh(dense.matrix(bounded, 3, torch.tensor(ridge))) > 0).all())


def test_share_and_ridge_per_example_and_lengths() -> None:
    embeddings = 10 * normal(2, 6, 3)
    embeddings[1, 4:] = torch.nan
    ridge, share = torch.tensor([1.0, 5.0]), torch.tensor([0.5, 0.2])
    lengths = torch.tensor([6, 4])
    bounded = gaussian.bounded(embeddings, ridge, share, lengths)
    torch.testing.assert_close(
        gaussian.sigma_max(bounded, lengths), (ridge * share).double(), rtol=2e-3, atol=0, check_dtype=False
    )


def test_derivatives() -> None:
    embeddings = normal(2, 5, 3).requires_grad_()
    ridge = torch.tensor([2.0, 1.0], dtype=torch.float64, requires_grad=True)
    share = torch.tensor(0.4, dtype=torch.float64, requires_grad=True)
    for function in (gaussian.spectral_bound, gaussian.sigma_max):
        assert gradcheck(function, embeddings)
        assert gradgradcheck(function, embeddings)
    for grow in (False, True):

        def bounded(*args: Tensor, grow: bool = grow) -> Tensor:
            return gaussian.bounded(*args, grow=grow)

        assert gradcheck(bounded, (embeddings, ridge, share))
        assert gradgradcheck(bounded, (embeddings, ridge, share))


def test_the_gradient_has_the_memory_layout_of_the_embeddings() -> None:
    for embeddings in (normal(2, 5, 3), normal(2, 3, 5).mT):
        embeddings.requires_grad_()
        gradient = torch.autograd.grad(gaussian.spectral_bound(embeddings).sum(), embeddings)[0]
        assert gradient.stride() == embeddings.stride()


def test_the_gradient_is_continuous_where_eigenvalues_are_equal() -> None:
    """The gradient of sigma_max jumps from one eigenvector to another there."""
    equal = torch.eye(3, dtype=torch.float64)

    def gradient(x: Tensor) -> Tensor:
        x = x.clone().requires_grad_()
        return torch.autograd.grad(gaussian.spectral_bound(x), x)[0]

    at_equal = gradient(equal)
    torch.testing.assert_close(at_equal, 2 / 3 * 3**SLACK * equal)
    for n in range(3):
        near = equal.clone()
        near[n, n] += 1e-6
        torch.testing.assert_close(gradient(near), at_equal, rtol=0, atol=2e-3)


def test_zero_embeddings_stay_zero_and_have_a_finite_gradient() -> None:
    zero = torch.zeros(4, 2, requires_grad=True)
    for grow in (False, True):
        out = gaussian.bounded(zero, 1.0, grow=grow)
        assert bool((out == 0).all())
        gradient = torch.autograd.grad(out.sum(), zero)[0]
        assert bool(gradient.isfinite().all())


def test_check_raises_with_sigma_max_and_ridge() -> None:
    embeddings = torch.stack([torch.tensor([[1.0], [2.0]]), torch.tensor([[3.0], [4.0]])])
    gaussian.check(embeddings, 26.0)
    gaussian.check(embeddings, torch.tensor([6.0, 26.0]))
    gaussian.check(embeddings, 10.0, torch.tensor([2, 1]))
    message = r"sigma_max\(A\^T A\) of embeddings\[1\] is 25, but must be below ridge, which is 24"
    with pytest.raises(ValueError, match=message):
        gaussian.check(embeddings, 24.0)
    with pytest.raises(ValueError, match="not definite"):
        gaussian.check(embeddings, 25.0)
    with pytest.raises(ValueError, match=r"embeddings\[0, 1, 0\] is nan"):
        gaussian.check(torch.tensor([[[1.0], [torch.nan]]]), 25.0)


@pytest.mark.parametrize("function", [gaussian.sigma_max, gaussian.spectral_bound])
def test_embeddings_that_are_infinite_or_overflow(function) -> None:
    with pytest.raises(ValueError, match=r"embeddings\[1, 0\] is inf: it must be finite"):
        function(torch.tensor([[1.0], [torch.inf]]))
    with pytest.raises(ValueError, match=r"embeddings are too large for torch.float32: A\^T A overflows"):
        function(torch.full((3, 2), 1e30))


@pytest.mark.parametrize("share", [0.0, 1.0, -0.5, torch.tensor([0.5, 1.5]), float("nan")])
def test_share_must_be_between_0_and_1(share: float | Tensor) -> None:
    with pytest.raises(ValueError, match="share must be above 0 and below 1"):
        gaussian.bounded(torch.ones(2, 3, 1), 1.0, share)
