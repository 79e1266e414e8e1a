"""Random Gaussian CRFs: the closed form against a dense float64 solution.

The error is at most the condition number of the system times a few rounding errors.
"""

from collections import Counter
from pathlib import Path

import torch
from faults.chains import VIEWS
from torch import Tensor

from equipoise import gaussian

PER_ROUND = 8


def gaussians(seed: int, folder: Path) -> Counter[str]:
    generator, counts = torch.Generator().manual_seed(seed), Counter[str]()

    def integer(low: int, high: int) -> int:
        return int(torch.randint(low, high, (), generator=generator))

    for _ in range(PER_ROUND):
        length, d, m = integer(1, 40), integer(1, 6), integer(2, 4)
        dtype = (torch.float32, torch.float64, torch.float16, torch.bfloat16)[integer(0, 4)]
        unary, embeddings = (torch.randn(1, length, k, generator=generator).to(dtype) for k in (m, d))
        largest = torch.linalg.matrix_norm(embeddings.double(), 2)[0] ** 2
        ridge = float((largest * 10 ** (3 * float(torch.rand((), generator=generator)) - 1)).float())
        system = _system(embeddings[0].double(), m, ridge)
        values = torch.linalg.eigvalsh(system).abs()
        want = _by_eigenvectors(system, unary[0].double())
        limit = 32 * torch.finfo(torch.float64 if dtype == torch.float64 else torch.float32).eps
        views = [VIEWS[list(VIEWS)[integer(0, len(VIEWS))]] if dtype.itemsize > 2 else VIEWS["plain"] for _ in range(2)]
        u, a = views[0](unary), views[1](embeddings)
        got = gaussian.solve(u, a, ridge)
        error = float((got[0].double() - want).norm() / want.norm() / (values.max() / values.min()))
        assert error < limit, f"seed {seed}: {dtype}, L {length}, d {d}, M {m}, ridge {ridge}: error {error}"
        counts.update(("problems", "answers"))
    return counts


def _system(a: Tensor, m: int, ridge: float) -> Tensor:
    """W + ridge I for the labels after one another: (11^T - I) (x) A A^T + ridge I."""
    gram, others = a @ a.mT, 1 - torch.eye(m, dtype=torch.float64)
    return torch.kron(others, gram) + ridge * torch.eye(m * len(a), dtype=torch.float64)


def _by_eigenvectors(system: Tensor, unary: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(system)
    return (vectors @ ((vectors.mT @ unary.mT.flatten()) / values)).view(unary.shape[::-1]).mT
