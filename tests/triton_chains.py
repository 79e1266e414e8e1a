"""Random chains for the tests of the Triton backend, on a GPU or in Triton's interpreter, and the contract on them."""

import importlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from contract import EQUALITIES, FACTS, Backend, Case, fused_loss, fused_total

from equipoise.chain.checks import problem
from equipoise.chain.problem import Problem

pytest.importorskip("triton", reason="the GPU backend is written in Triton, which is not installed")
gpu = importlib.import_module("equipoise.chain.gpu.backend")
replay = importlib.import_module("equipoise.native.triton_replay")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
GPU = Backend("gpu", gpu, DEVICE, (torch.float32,), kernels=True)


@pytest.fixture
def strict_memory() -> Iterator[None]:
    """In the interpreter, check addresses and do not rely on the content of fresh memory or the order of programs."""
    replay.replays.clear()  # tests set what they follow from
    if DEVICE == "cuda":
        yield
        return
    from interpreter import strict

    with strict():
        yield


def on_device(test: Any) -> Any:
    return pytest.mark.gpu(pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA device")(test))


def make(
    batch: tuple[int, ...],
    length: int,
    m: int,
    own: Any = (),
    *,
    scale: float = 1.0,
    forbidden: float = 0.0,
    ragged: bool = True,
) -> Problem:
    """A random problem; own is () for one matrix, "edge" for one per edge, or the batch sizes of pairwise."""
    generator = torch.Generator().manual_seed(0)
    unary = scale * torch.randn(*batch, length, m, generator=generator)
    shape = (*batch, length - 1, m, m) if own == "edge" else (*own, m, m)
    pairwise = scale * torch.randn(shape, generator=generator)
    for x in (unary, pairwise):
        x[torch.rand(x.shape, generator=generator) < forbidden] = -torch.inf
    lengths = torch.randint(1, length + 1, batch, generator=generator) if ragged else torch.full(batch, length)
    return problem(unary.to(DEVICE), pairwise.to(DEVICE), lengths.to(DEVICE)).clean()


def check(p: Problem, scale: float = 1.0) -> None:
    """Equality with the reference and, on a GPU, the other facts of the contract."""
    case = Case(Problem(*(x.cpu() for x in p)), scale)
    for holds in [*EQUALITIES, *(FACTS if DEVICE == "cuda" else [])]:
        holds(GPU, case)
    if gpu.has_fused_loss(p.unary, p.pairwise):
        fused_loss(GPU, case)
        fused_total(GPU, case)
