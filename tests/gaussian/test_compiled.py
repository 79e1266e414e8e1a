"""The loops in C against plain torch in float64, and that neither threads nor the lack of a compiler change answers."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from equipoise import gaussian
from equipoise.gaussian import passes
from equipoise.gaussian.cpu import backend as compiled
from equipoise.gaussian.cpu.library import library

pytestmark = pytest.mark.skipif(library(torch.float32) is None, reason="needs a C compiler")
# images, pixels, dimensions, labels
SIZES = [(2, 1, 1, 1), (3, 257, 5, 2), (1, 5000, 16, 3), (2, 256, 4, 21), (5, 40, 64, 2), (1, 140_000, 3, 2)]
LIMITS = {torch.float32: 2e-6, torch.float64: 2e-13}  # of sums that cancel, a few hundred units of the last place


def normal(*shape: int, seed: int = 0, first: bool = False) -> Tensor:
    x = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return x.mT.contiguous().mT if first else x


def system(count: int, length: int, d: int, m: int, first: bool) -> tuple[Tensor, ...]:
    """U, A, ridge and the gradient with respect to s."""
    a, u = normal(count, length, d, first=first), normal(count, length, m, seed=1, first=first)
    g = normal(count, length, m, seed=2, first=not first)
    ridge = 1 + 2 * torch.linalg.eigvalsh(a.mT @ a)[:, -1]
    return u, a, ridge, g


def close(got: Tensor, want: Tensor, limit: float) -> None:
    assert got.shape == want.shape
    assert (got.double() - want.double()).norm() <= limit * want.double().norm()


@pytest.mark.parametrize("first", [False, True], ids=["channels last", "channels first"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_a_solve_and_its_gradients_equal_the_specification(
    size: tuple[int, ...], dtype: torch.dtype, first: bool
) -> None:
    """Pixels that fill no vector, several blocks, several pieces; dimensions and labels that fill no tile."""
    doubles = system(*size, first)
    u, a, ridge, g = (x.to(dtype) for x in doubles)
    found = compiled.solve(u, a, ridge)
    want = passes.solve(u.double(), a.double(), ridge.double())
    for got, right in zip(found, want, strict=True):
        close(got, right, LIMITS[dtype])
    rest = a, ridge, dtype, (True, True, True)
    exact = *(x.double() for x in rest[:2]), torch.float64, (True, True, True)
    for got, right in zip(
        compiled.solve_gradients(g, *found, *rest), passes.solve_gradients(g.double(), *want, *exact), strict=True
    ):
        assert got.dtype == dtype
        close(got, right, 20 * LIMITS[dtype])
    assert compiled.solve_gradients(g, *found, *rest)[1].stride() == a.stride()


@pytest.mark.parametrize("n", range(3))
def test_gradients_that_nobody_wants_are_not_made(n: int) -> None:
    u, a, ridge, g = system(2, 300, 3, 2, first=True)
    wanted = tuple(k == n for k in range(3))
    found = compiled.solve(u, a, ridge)
    args = g, *found, a, ridge, torch.float64, wanted
    for ours, theirs in zip(compiled.solve_gradients(*args), passes.solve_gradients(*args), strict=True):
        assert (ours is None) == (theirs is None)
        if theirs is not None:
            close(ours, theirs, 1e-12)


@pytest.mark.parametrize("stride", ["expanded", "every second pixel", "images shared"])
def test_tensors_are_read_where_they_are(stride: str) -> None:
    u, a, ridge, g = system(2, 300, 3, 2, first=True)
    if stride == "expanded":  # as autograd does to the gradient of a sum
        g = torch.ones((), dtype=torch.float64).expand(g.shape)
    elif stride == "every second pixel":
        u, a, g = u[:, ::2], a[:, ::2], g[:, ::2]
    else:
        a = a[:1].expand(2, -1, -1)
    found, rest = compiled.solve(u, a, ridge), (a, ridge, torch.float64, (True, True, True))
    for got, right in zip(found, passes.solve(u, a, ridge), strict=True):
        close(got, right, 1e-13)
    for got, right in zip(
        compiled.solve_gradients(g, *found, *rest), passes.solve_gradients(g, *found, *rest), strict=True
    ):
        close(got, right, 1e-12)


def test_many_pixels_do_not_wear_off_float32() -> None:
    """All embeddings alike: sums that only grow, where adding a million one by one would keep two digits."""
    a, u = torch.full((1, 1_000_000, 1), 0.1), torch.full((1, 1_000_000, 2), 0.3)
    u[..., 1] = -0.3
    ridge = torch.tensor([30_000.0])
    scores, c, _ = compiled.solve(u, a, ridge)
    gram, moment = 1_000_000 * float(a[0, 0, 0]) ** 2, 1_000_000 * float(a[0, 0, 0]) * float(u[0, 0, 0])
    want = moment / (30_000.0 - gram)
    torch.testing.assert_close(c[0, :, 0].double(), torch.tensor([want, -want]).double(), rtol=1e-5, atol=0)
    assert bool(scores.isfinite().all())


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("threads")
def test_the_number_of_threads_changes_no_bit() -> None:
    leaves = [x.float().requires_grad_() for x in system(3, 5000, 8, 3, first=True)[:3]]
    answers = []
    for n in (1, 2, 3):
        torch.set_num_threads(n)
        scores = gaussian.solve(*leaves)
        answers.append((scores, *torch.autograd.grad(scores.square().sum(), leaves)))
    for other in answers[1:]:
        for got, want in zip(other, answers[0], strict=True):
            assert torch.equal(got, want)


CODE = """
import torch
from equipoise import gaussian
unary, embeddings = torch.randn(2, 5, 3, requires_grad=True), torch.randn(2, 5, 2)
scores = gaussian.solve(unary, embeddings, 100.0)
torch.testing.assert_close(gaussian.potts(scores, embeddings, 100.0), unary)
scores.sum().backward()
torch.testing.assert_close(gaussian.potts(unary.grad, embeddings, 100.0), torch.ones(2, 5, 3))
"""


@pytest.mark.parametrize(
    ("given", "warning"), [("/bin/false", "exit status 1"), ("/no/such/compiler", "No such file"), ("/bin/true", "")]
)
def test_a_compiler_that_fails_is_done_without(given: str, warning: str, tmp_path: Path) -> None:
    environment = {**os.environ, "CC": given, "EQUIPOISE_CACHE": str(tmp_path)}
    result = subprocess.run(
        [sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stderr
    assert warning in result.stderr
    assert result.stderr.count("plain PyTorch") == 1
