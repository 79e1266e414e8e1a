"""The LSTM kernels equal the torch code in float64, which `test_bilstm` compares with PyTorch's LSTM."""

import importlib
import os
from collections.abc import Iterator
from unittest.mock import patch

import pytest
import torch
from lab.nets.rows import consecutive
from torch import Tensor

from equipoise_lab.nets import recurrence, stepping
from equipoise_lab.nets.recurrence import Rows

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
INTERPRET = {"TRITON_INTERPRET": "1" if DEVICE == "cpu" else "0"}


@pytest.fixture
def _kernels() -> Iterator[None]:
    with patch.dict(os.environ, INTERPRET):  # Triton and our kernels read this once, on their first import
        pytest.importorskip("triton", reason="the kernels are written in Triton, which is not installed")
        importlib.import_module("equipoise_lab.nets.triton_lstm")
        yield


def made(state: int, dtype: torch.dtype, lengths: list[list[int]]) -> tuple[Tensor, Tensor, Rows]:
    torch.manual_seed(0)
    where, count = consecutive(lengths, gap=1)
    gates = torch.randn(len(lengths), count, 2, 4 * state, device=DEVICE).to(dtype).requires_grad_()
    weight = (torch.randn(len(lengths), 2, 4 * state, state, device=DEVICE) * state**-0.5).to(dtype).requires_grad_()
    return gates, weight, Rows(where.starts.to(DEVICE), where.lengths.to(DEVICE), where.longest)


def values_and_gradients(states: Tensor, *inputs: Tensor) -> list[Tensor]:
    weights = torch.randn(states.shape, generator=torch.Generator().manual_seed(1)).to(states)
    return [states.detach(), *torch.autograd.grad((states * weights).sum(), inputs)]


SOME = [[4] * 20 + [3, 2, 2, 2, 1, 1, 0, 3] + [2] * 10, [5] + [1] * 30 + [0] * 7]  # more than one program per replica
HALF = pytest.param(
    torch.bfloat16,
    2e-2,
    marks=[
        pytest.mark.gpu,
        pytest.mark.skipif(DEVICE == "cpu", reason="Triton's interpreter has no bfloat16 products"),
    ],
)


@pytest.mark.usefixtures("_kernels")
@pytest.mark.parametrize("state", [5, 50])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-6), HALF])
def test_fused_equals_stepped_in_double_precision(state: int, dtype: torch.dtype, tolerance: float) -> None:
    gates, weight, where = made(state, dtype, SOME)
    got = values_and_gradients(recurrence.fused(gates, weight, where), gates, weight)
    exact = [x.detach().double().requires_grad_() for x in (gates, weight)]
    wanted = values_and_gradients(recurrence.stepped(*exact, where), *exact)
    for mine, want in zip(got, wanted, strict=True):
        assert float((mine - want).abs().max()) < tolerance * float(want.abs().max())


@pytest.mark.usefixtures("_kernels")
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-6), (torch.bfloat16, 3e-2)])
def test_the_gate_kernel_equals_the_torch_code(
    dtype: torch.dtype, tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    gates, weight, where = made(70, dtype, [row[:4] for row in SOME])
    exact = [x.detach().double().requires_grad_() for x in (gates, weight)]
    wanted = values_and_gradients(recurrence.stepped(*exact, where), *exact)
    kernels = importlib.import_module("equipoise_lab.nets.triton_cell")
    monkeypatch.setattr(stepping, "_activate", kernels.forward)
    monkeypatch.setattr(stepping, "_activate_backward", kernels.backward)
    got = values_and_gradients(recurrence.stepped(gates, weight, where), gates, weight)
    for mine, want in zip(got, wanted, strict=True):
        assert float((mine - want).abs().max()) < tolerance * float(want.abs().max())
