"""Each Triton kernel against plain torch, and whole solves on a GPU in half precision."""

import os
from collections.abc import Iterator
from unittest.mock import patch

import pytest
import torch
from gaussian.triton_backend import DEVICE, INTERPRET, gpu
from torch import Tensor

from equipoise import gaussian
from equipoise.gaussian import passes, systems

pytestmark = pytest.mark.skipif(gpu is None, reason="needs Triton")
SIZES = [(2, 300, 5, 2), (1, 7, 16, 3), (3, 40, 40, 17), (0, 5, 3, 2)]  # images, pixels, dimensions, labels


@pytest.fixture(autouse=True)
def _interpreted() -> Iterator[None]:
    with patch.dict(os.environ, INTERPRET):
        yield


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32, channels_first: bool = False) -> Tensor:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)
    return x.mT.contiguous().mT if channels_first else x


def close(got: Tensor, want: Tensor) -> None:
    limit = 2e-6 if want.dtype == torch.float32 else torch.finfo(want.dtype).eps
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    assert (got.double() - want.double()).norm() <= limit * want.double().norm()


@pytest.mark.parametrize("channels_first", [False, True], ids=["channels last", "channels first"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_passes(size: tuple[int, ...], dtype: torch.dtype, channels_first: bool) -> None:
    count, length, d, m = size
    a, x = (
        normal(count, length, d, dtype=dtype, channels_first=channels_first),
        normal(count, length, m, seed=1, dtype=dtype, channels_first=channels_first),
    )
    g, s = normal(count, length, m, seed=2), normal(count, length, m, seed=3, channels_first=not channels_first)
    c, e = normal(count, m, d, seed=4), normal(count, m, d, seed=5)
    ridge = 1 + torch.rand(count, device=DEVICE)
    if DEVICE != "cpu" or dtype != torch.bfloat16:  # the interpreter multiplies bfloat16 as integers
        for got, want in zip(gpu.moments(x, a, gram=True), passes.moments(x, a), strict=True):
            close(got.sum(1), want)
        close(gpu.gram(a), passes.gram(a))
    close(gpu.moments(g, a, gram=False)[1].sum(1), passes.contract(g, a))
    close(gpu.expand(x, c, a, ridge), passes.expand(x, c, a, ridge))
    close(gpu.turn(a, normal(count, d, d, seed=6)), passes.turn(a, normal(count, d, d, seed=6)))
    got = gpu.spread(g, e, s, c, a, ridge, dtype, (True, True, True))
    for ours, theirs in zip(got, passes.spread(g, e, s, c, a, ridge, dtype, (True, True, True)), strict=True):
        close(ours, theirs)
    assert got[1].stride() == a.stride()


def test_sums_over_long_images_are_computed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "PROGRAMS", 6)
    a, x = normal(2, 700, 4), normal(2, 700, 2, seed=1)
    for got, want in zip(gpu.moments(x, a, gram=True), passes.moments(x, a), strict=True):
        assert got.shape[1] == 3
        close(got.sum(1), want)
    close(gpu.moments(x, a, gram=False)[1].sum(1), passes.contract(x, a))


@pytest.mark.parametrize("size", [(3, 5, 2), (2, 32, 4), (1, 20, 21), (2, 40, 3), (0, 5, 2)], ids=str)
@pytest.mark.parametrize("indefinite", [False, True], ids=["definite", "indefinite"])
def test_small_systems(size: tuple[int, ...], indefinite: bool) -> None:
    """The inverse times the matrix is the identity, up to the rounding of float32 sums."""
    count, d, m = size
    roots, products = normal(count, 3, 2 * d, d), normal(count, 3, m, d, seed=1)
    squares = roots.mT @ roots
    whole = squares.double().sum(1)
    ridge = (torch.linalg.eigvalsh(whole)[:, -1] * (0.6 if indefinite else 1.5)).float()
    inverses = gpu.invert(squares, ridge, m)
    eye = torch.eye(d, dtype=torch.float64, device=DEVICE)
    for inverse, factor in zip(inverses.unbind(1), (-1, m - 1), strict=True):
        product = inverse @ (ridge[:, None, None] * eye + factor * whole)
        torch.testing.assert_close(product, eye.expand(count, d, d), rtol=0, atol=1e-10 if d <= 32 else 1e-5)
    close(gpu.coefficients(products, inverses), systems.coefficients(products.double().sum(1), inverses).float())


@pytest.mark.filterwarnings("ignore:.*encountered in divide:RuntimeWarning")  # numpy, in the interpreter
def test_the_inverse_of_a_singular_matrix_is_nan() -> None:
    squares = torch.diag_embed(torch.tensor([[1.0, 3.0], [1.0, 4.0]], device=DEVICE))[:, None]
    inverses = gpu.invert(squares, torch.full((2,), 3.0, device=DEVICE), 2)
    assert bool(inverses[0, 0].isnan().all())
    assert bool(inverses[0, 1].isfinite().all())
    assert bool(inverses[1].isfinite().all())


@pytest.mark.gpu
@pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_solve_on_a_gpu_equals_float64(dtype: torch.dtype) -> None:
    a, u = normal(2, 5000, 16, dtype=dtype).requires_grad_(), normal(2, 5000, 3, seed=1, dtype=dtype).requires_grad_()
    ridge = 2 * gaussian.spectral_bound(a)
    scores = gaussian.solve(u, a, ridge)
    gradients = torch.autograd.grad((ridge[:, None, None].detach() * scores).square().sum(), (u, a))
    ua, aa = (x.detach().double().requires_grad_() for x in (u, a))
    bound = 2 * gaussian.spectral_bound(aa)
    exact = gaussian.solve(ua, aa, bound)
    want = torch.autograd.grad((bound[:, None, None].detach() * exact).square().sum(), (ua, aa))
    assert (scores.double() - exact).norm() < 1e-5 * exact.norm()
    limit = 1e-5 if dtype == torch.float32 else 2 * torch.finfo(dtype).eps
    for got, right in zip(gradients, want, strict=True):
        assert (got.double() - right).norm() < limit * right.norm()
