"""Among labellings with the same score, every backend gives that with the smallest last label, then predecessor.

Scores are small integers, so that sums are exact in any order.
"""

import importlib.util
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from equipoise import chain
from equipoise.chain import backends
from equipoise.chain.cpu.library import library
from equipoise.chain.problem import spread, whole
from equipoise.crf import scanning

MODULES: list[Any] = [backends.load(name) for name in ("reference", "exponential")]
if library(torch.float32) is not None:
    MODULES.append(backends.load("cpu"))


def problems(shapes: list[tuple[int, int]], own: str, dtype: torch.dtype) -> Iterator[tuple[Tensor, Tensor]]:
    for seed, (length, m) in enumerate(shapes):
        chance = torch.Generator().manual_seed(seed)
        shape = (length - 1, m, m) if own == "edge" else (m, m)
        unary, pairwise = (torch.randint(-1, 2, s, generator=chance).to(dtype) for s in ((4, length, m), (4, *shape)))
        pairwise = pairwise[0] if own == "shared" else pairwise
        pairwise = torch.where(torch.rand(pairwise.shape, generator=chance) < 0.2, -torch.inf, pairwise)
        yield unary, pairwise


def first_of_the_best(unary: Tensor, pairwise: Tensor) -> list[list[int]]:
    """The rule, by lists of Python."""
    every = spread(pairwise, unary).expand(len(unary), unary.shape[1] - 1, *pairwise.shape[-2:])
    paths = []
    for rows, matrices in zip(unary.tolist(), every.tolist(), strict=True):
        best, pointers = rows[0], []
        for row, matrix in zip(rows[1:], matrices, strict=True):
            ways = [[a + step[j] for a, step in zip(best, matrix, strict=True)] for j in range(len(row))]
            pointers.append([way.index(max(way)) for way in ways])
            best = [max(way) + score for way, score in zip(ways, row, strict=True)]
        path = [best.index(max(best))]
        for pointer in reversed(pointers):
            path.append(pointer[path[-1]])
        paths.append(path[::-1] if max(best) > -torch.inf else [-100] * len(rows))
    return paths


def test_the_rule_is_the_order_of_reversed_labellings() -> None:
    ties = 0
    for unary, pairwise in problems([(n, m) for n in (1, 2, 3, 4) for m in (1, 2, 3)] * 5, "shared", torch.float64):
        for rows, path in zip(unary, first_of_the_best(unary, pairwise), strict=True):
            scores = {
                labels: float(chain.score(rows, pairwise, torch.tensor(labels)))
                for labels in itertools.product(range(unary.shape[-1]), repeat=len(rows))
            }
            if (highest := max(scores.values())) > -torch.inf:
                best = [labels for labels, score in scores.items() if score == highest]
                assert min(best, key=lambda labels: labels[::-1]) == tuple(path)
                ties += len(best) > 1
    assert ties > 50


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.split(".")[-1])
@pytest.mark.parametrize("own", ["shared", "sequence", "edge"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_backend_of_the_cpu_has_the_same_order(module: Any, own: str, dtype: torch.dtype) -> None:
    shapes = [
        (1, 3),
        (2, 2),
        (40, 2),
        (5, 5),
        (30, 5),
        (20, 9),
        (12, 17),
        (9, 23),
        (7, 33),
        (300, 4),
        (6, 65),
        (3, 130),
    ]
    for unary, pairwise in problems(shapes, own, dtype):
        labels, _ = module.decode(unary, spread(pairwise, unary), whole(unary))
        assert labels.tolist() == first_of_the_best(unary, pairwise)
        if own == "shared" and unary.shape[1] == 5:
            assert scanning.decode(unary, pairwise, whole(unary)).tolist() == labels.tolist()


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="the GPU backend is written in Triton")
@pytest.mark.parametrize("kind", ["sequential", "in chunks", "many labels"])
@pytest.mark.parametrize("own", ["shared", "edge"])
def test_the_kernels_of_a_gpu_have_the_same_order(kind: str, own: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In Triton's interpreter, if there is no GPU."""
    from contract import use_chunks
    from triton_chains import DEVICE, gpu

    wide = importlib.import_module("equipoise.chain.gpu.wide")
    use_chunks(monkeypatch, kind == "in chunks")
    shapes = [(1, 3), (5, 3), (9, 2), (4, 5), (17, 3)]
    if DEVICE == "cuda":
        shapes += [(500, 9), (64, 33), (4096, 23), (20, 120)]
        shapes += [(20, 200), (10, 500)] if kind == "many labels" else []
    elif kind == "many labels":
        monkeypatch.setattr(wide, "MIN_LABELS", 1)
        for name, size in {"SMALL_BEST": wide.Tile(2, 2, 2, 1), "TILE": 2, "POSITIONS": 2}.items():
            monkeypatch.setattr(wide, name, size)
    for unary, pairwise in problems(shapes, own, torch.float32):
        labels, _ = gpu.decode(unary.to(DEVICE), pairwise.to(DEVICE), whole(unary).to(DEVICE))
        assert labels.tolist() == first_of_the_best(unary, pairwise)
