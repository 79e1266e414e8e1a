"""The C code of the CPU backend: precision of long sums, threads, and the fallback without a compiler."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from equipoise import gaussian
from equipoise.gaussian.cpu import backend as compiled
from equipoise.gaussian.cpu.library import library

pytestmark = pytest.mark.skipif(library(torch.float32) is None, reason="needs a C compiler")


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).mT.contiguous().mT


def test_long_sums_keep_float32_precision() -> None:
    """With equal embeddings the sums only grow; adding a million terms one by one would leave two correct digits."""
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
def test_results_do_not_depend_on_the_number_of_threads() -> None:
    leaves = [
        x.requires_grad_() for x in (normal(3, 5000, 3, seed=1), normal(3, 5000, 8, seed=0), torch.full((3,), 2e4))
    ]
    results = []
    for n in (1, 2, 3):
        torch.set_num_threads(n)
        scores = gaussian.solve(*leaves)
        results.append((scores, *torch.autograd.grad(scores.square().sum(), leaves)))
    for other in results[1:]:
        for got, want in zip(other, results[0], strict=True):
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
    ("compiler", "warning"), [("/bin/false", "exit status 1"), ("/no/such/compiler", "No such file"), ("/bin/true", "")]
)
def test_without_a_working_compiler_plain_torch_is_used(compiler: str, warning: str, tmp_path: Path) -> None:
    environment = {**os.environ, "CC": compiler, "EQUIPOISE_CACHE": str(tmp_path)}
    result = subprocess.run(
        [sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stderr
    assert warning in result.stderr
    assert result.stderr.count("plain PyTorch") == 1
