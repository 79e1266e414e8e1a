"""Layers and batches for tests of the kernels before and after the chain, in C and in Triton."""

import importlib
import os
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from equipoise import ChainCRF, constraints
from equipoise.crf import choice
from equipoise.crf.fused import LayerKernels
from equipoise.crf.reasons import Reason
from equipoise.scaling import Learned, Scaling

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LABELS = ("O", "B-X", "I-X")


def triton() -> LayerKernels:
    pytest.importorskip("triton", reason="the kernels are written in Triton, which is not installed")
    return importlib.import_module("equipoise.crf.gpu.prepare")


@pytest.fixture(params=["C", "Triton", pytest.param("Triton on a GPU", marks=pytest.mark.gpu)])
def kernels(request: pytest.FixtureRequest) -> Iterator[LayerKernels]:
    """The same tests in C, in Triton's interpreter, and on a GPU where `-m gpu` asks for them."""
    if "GPU" in request.param and DEVICE == "cpu":
        pytest.skip("no GPU")
    with patch.dict(os.environ, {"TRITON_INTERPRET": "1" if DEVICE == "cpu" else "0"}):
        if request.param != "C":
            yield triton()
            return
        if DEVICE == "cuda":
            pytest.skip("tensors are on the GPU")
        compiled = importlib.import_module("equipoise.crf.cpu.prepare")
        if compiled.library(torch.float32) is None:
            pytest.skip("there is no C compiler")
        yield compiled


def using(kernels: LayerKernels | None) -> Any:
    """Use these kernels, or the torch code."""
    return patch.object(choice, "kernels_for", lambda x: kernels or Reason.FORCED)


def layer(
    constrained: bool = False, boundaries: bool = True, method: type[Scaling] = Learned, objective: str = "likelihood"
) -> ChainCRF:
    rules = constraints.from_labels(list(LABELS), "BIO") if constrained else None
    fixed = torch.Generator().manual_seed(0)
    options = {"boundaries": boundaries, "objective": objective, "generator": fixed, "validate": False}
    return ChainCRF(3, method(), rules, **options).to(DEVICE)


def scores(step: int, scale: float = 3.0) -> Tensor:
    return scale * torch.randn(4, 5, 3, generator=torch.Generator().manual_seed(step))


def labels_and_mask(empty: bool) -> tuple[Tensor, Tensor]:
    labels = torch.tensor([[0, 1, 2, 2, 0], [1, 2, 0, 0, 0], [0, 0, 1, 0, 1], [1, 2, 2, 2, 2]])
    mask = torch.arange(5) < torch.tensor([5, 3, 2, 0 if empty else 4])[:, None]
    mask[0, 1] = False  # a hole: a subword
    labels[1, 0] = -100
    return labels.to(DEVICE), mask.to(DEVICE)


def train(
    crf: ChainCRF,
    batches: list[Tensor],
    used: LayerKernels | None,
    empty: bool = False,
    weight: float = 1.0,
    reduction: str = "mean",
) -> dict[str, Any]:
    """The losses, gradients and state of some steps of SGD, by kernels or by torch."""
    labels, mask = labels_and_mask(empty)
    found: dict[str, Any] = {}
    for step, unary in enumerate(batches):
        u = unary.to(DEVICE, copy=True).requires_grad_()
        with using(used):
            loss = crf.loss(u, labels, mask, reduction=reduction)
            (weight * loss).sum().backward()
        found[f"loss {step}"], found[f"unary {step}"] = loss.detach(), u.grad
        for name, parameter in crf.named_parameters():
            found[f"{name} {step}"] = parameter.grad
            if parameter.grad.isfinite().all():
                parameter.data -= 0.01 * parameter.grad
            parameter.grad = None
    with torch.no_grad(), using(used):
        crf.eval()
        found["labels"] = crf.decode(batches[0].to(DEVICE), mask)
        found["without a mask"] = crf.decode(batches[0].to(DEVICE))
        found["each"] = crf.loss(batches[0].to(DEVICE), labels, mask, reduction="none")
        crf.train()
    return found | {name: buffer.clone() for name, buffer in crf.named_buffers()}


def assert_same(got: dict[str, Any], want: dict[str, Any], tolerance: float = 2e-6) -> None:
    assert got.keys() == want.keys()
    for name, x in want.items():
        finite = x[x.isfinite()].to(torch.float32).abs()
        limit = tolerance * float(finite.max()) if finite.numel() else 0.0
        torch.testing.assert_close(got[name], x, rtol=tolerance, atol=limit, equal_nan=True, msg=name)


def hole() -> Tensor:
    unary = scores(7)
    unary[0, 1, 2] = -torch.inf  # a label that is forbidden
    unary[1, 4] = torch.nan  # beyond the length
    return unary


BATCHES: dict[str, list[Tensor]] = {
    "usual": [scores(step) for step in range(2)],
    "small and large": [scores(0, 1e-3), scores(1, 100.0), scores(2, 0.1)],
    "a forbidden label, and NaN in the padding": [scores(0), hole()],
    "all scores are 0": [scores(0), torch.zeros(4, 5, 3), scores(1)],
    "a score is NaN": [scores(0), scores(1).index_fill(0, torch.tensor([0]), torch.nan), scores(2)],
}
