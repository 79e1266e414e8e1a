"""The contract of a backend: `solve`, `solve_gradients`, `gram` and `turn` equal plain torch in float64."""

import os
from collections.abc import Iterator
from types import ModuleType
from unittest.mock import patch

import pytest
import torch
from gaussian import triton_backend
from torch import Tensor

from equipoise.gaussian import passes

# images, pixels, dimensions, labels: sizes that are no multiple of a vector, a tile or a block
SIZES = [(2, 1, 1, 1), (3, 257, 5, 2), (2, 256, 4, 21), (5, 40, 64, 2), *((2, 1100, 6, m) for m in range(1, 6))]
LARGE = [(1, 5000, 16, 3), (1, 140_000, 3, 2)]  # several blocks and pieces; too slow in Triton's interpreter
LIMITS = {torch.float32: 2e-6, torch.float64: 2e-13}  # of sums with cancellation: a few hundred units in the last place
ALL = (True, True, True)
LAYOUTS = pytest.mark.parametrize("channels_first", [False, True], ids=["channels last", "channels first"])


def backend(name: str) -> tuple[ModuleType, str]:
    """The backend and its device, or a skip."""
    if name == "gpu" and triton_backend.gpu is None:
        pytest.skip("needs Triton")
    found = {"passes": passes, "gpu": triton_backend.gpu}[name]
    return found, triton_backend.DEVICE if name == "gpu" else "cpu"


@pytest.fixture(autouse=True)
def _interpreted() -> Iterator[None]:
    with patch.dict(os.environ, triton_backend.INTERPRET):
        yield


def normal(*shape: int, seed: int = 0, channels_first: bool = False) -> Tensor:
    x = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return x.mT.contiguous().mT if channels_first else x


def system(count: int, length: int, d: int, m: int, channels_first: bool) -> tuple[Tensor, ...]:
    """U, A, ridge and the gradient with respect to s."""
    a = normal(count, length, d, channels_first=channels_first)
    u = normal(count, length, m, seed=1, channels_first=channels_first)
    g = normal(count, length, m, seed=2, channels_first=not channels_first)
    ridge = 1 + 2 * torch.linalg.eigvalsh(a.mT @ a)[:, -1]
    return u, a, ridge, g


def close(got: Tensor, want: Tensor, limit: float) -> None:
    assert got.shape == want.shape
    assert (got.cpu().double() - want.cpu().double()).norm() <= limit * want.double().norm()


def check(name: str, tensors: tuple[Tensor, ...], dtype: torch.dtype, wanted: tuple[bool, ...] = ALL) -> None:
    """A solve and its gradients of this backend against `passes` in float64."""
    module, device = backend(name)
    u, a, ridge, g = (x.to(device, dtype) for x in tensors)
    exact_u, exact_a, exact_ridge, exact_g = (x.double() for x in (u, a, ridge, g))
    found, truth = module.solve(u, a, ridge), passes.solve(exact_u, exact_a, exact_ridge)
    for got, want in zip(found, truth, strict=True):
        close(got, want, LIMITS[dtype])
    gradients = module.solve_gradients(g, *found, a, ridge, dtype, wanted)
    exact = passes.solve_gradients(exact_g, *truth, exact_a, exact_ridge, torch.float64, wanted)
    for got, want in zip(gradients, exact, strict=True):
        assert (got is None) == (want is None)
        if want is not None:
            assert got.dtype == dtype
            close(got, want, 20 * LIMITS[dtype])  # the gradient of ridge is a long sum with cancellation
    if gradients[1] is not None and a.stride() == torch.empty_like(a).stride():
        assert gradients[1].stride() == a.stride()


@LAYOUTS
@pytest.mark.parametrize(
    ("name", "dtype", "size"),
    [
        *(("passes", dtype, size) for dtype in LIMITS for size in SIZES + LARGE),
        *(("gpu", torch.float32, size) for size in SIZES),
    ],
    ids=str,
)
def test_solve_and_gradients(name: str, dtype: torch.dtype, size: tuple[int, ...], channels_first: bool) -> None:
    check(name, system(*size, channels_first), dtype)


@pytest.mark.parametrize("name", ["passes", "gpu"])
@pytest.mark.parametrize("n", range(3))
def test_gradients_that_are_not_needed_are_none(name: str, n: int) -> None:
    check(name, system(2, 300, 3, 2, True), torch.float32, tuple(k == n for k in range(3)))


@pytest.mark.parametrize("name", ["passes", "gpu"])
@pytest.mark.parametrize("stride", ["expanded", "every second pixel", "shared image"])
def test_strided_tensors(name: str, stride: str) -> None:
    u, a, ridge, g = (x.float() for x in system(2, 300, 3, 2, True))
    if stride == "expanded":  # the gradient of a sum, from autograd
        g = torch.ones(()).expand(g.shape)
    elif stride == "every second pixel":
        u, a, g = u[:, ::2], a[:, ::2], g[:, ::2]
    else:
        a, ridge = a[:1].expand(2, -1, -1), ridge[:1].expand(2)
    check(name, (u, a, ridge, g), torch.float32)


@pytest.mark.filterwarnings("ignore:.*encountered in (divide|matmul):RuntimeWarning")  # numpy, in the interpreter
@pytest.mark.parametrize("name", ["passes", "gpu"])
def test_a_singular_image_is_nan_and_does_not_affect_the_others(name: str) -> None:
    module, device = backend(name)
    a = torch.tensor([[[3.0], [4.0]], [[1.0], [2.0]]], device=device)
    u = torch.tensor([[1.0, 0.0], [0.0, 0.0]], device=device).expand(2, 2, 2)
    scores = module.solve(u, a, torch.tensor([25.0, 25.0], device=device))[0]
    assert bool(scores[0].isnan().all())
    assert bool(scores[1].isfinite().all())


@LAYOUTS
@pytest.mark.parametrize("name", ["passes", "gpu"])
def test_gram_and_turn(name: str, channels_first: bool) -> None:
    module, device = backend(name)
    a, q = normal(2, 300, 5, channels_first=channels_first).to(device), normal(2, 5, 5, seed=1).to(device)
    close(module.gram(a.float()), a.mT @ a, LIMITS[torch.float32])
    turned = module.turn(a.float(), q.float())
    close(turned, a @ q, LIMITS[torch.float32])
    assert turned.stride() == a.stride()


@pytest.mark.parametrize("name", ["passes", "gpu"])
def test_an_empty_batch(name: str) -> None:
    module, device = backend(name)
    u, a, ridge = (torch.zeros(0, *shape, device=device) for shape in ((5, 2), (5, 3), ()))
    found = module.solve(u, a, ridge)
    assert [tuple(x.shape) for x in found] == [(0, 5, 2), (0, 2, 3), (0, 2, 3, 3)]
    gradients = module.solve_gradients(u, *found, a, ridge, torch.float32, ALL)
    assert [tuple(x.shape) for x in gradients] == [(0, 5, 2), (0, 5, 3), (0,)]
