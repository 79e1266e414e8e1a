"""The recurrence of an LSTM, for E replicas and both directions at once. Along a sequence, from either end,

    i, f, g, o = sigma, sigma, tanh, sigma of a_t + V h_{t-1},    c_t = f c_{t-1} + i g,    h_t = o tanh c_t

The input terms a = U x + b are stored as rows, one per position, sequence after sequence, so that one product computes
them without padding. There are two implementations with the same result:

`stepped`  one product and one pass over the gates per position, for any state size
`fused`    one GPU kernel for the whole loop: each program runs a few sequences of one replica and keeps V and the
           states on chip; for states small enough that V fits there
"""

import importlib.util
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .stepping import Stepped

GPU = importlib.util.find_spec("triton") is not None
SMALL = 64
"""The largest state size for which `fused` is used."""


class Rows(NamedTuple):
    """The positions of N sequences for each of E replicas. A length may be 0."""

    starts: Tensor  # (E, N): the row of the first position
    lengths: Tensor  # (E, N)
    longest: int  # an upper bound of the lengths


def run(gates: Tensor, weight: Tensor, rows: Rows) -> Tensor:
    """The states of both directions, (E, R, 2, H), for a (E, R, 2, 4H) and V (E, 2, 4H, H).

    They are 0 in rows outside any sequence.
    """
    small = weight.shape[-1] <= SMALL and gates.dtype != torch.float64
    return (fused if gates.is_cuda and GPU and small else stepped)(gates, weight, rows)


def stepped(gates: Tensor, weight: Tensor, rows: Rows) -> Tensor:
    position = torch.arange(rows.longest, device=gates.device)[:, None]
    lengths, starts = rows.lengths[:, None], rows.starts[:, None]
    live = position < lengths  # (E, T, N)
    index = torch.where(live, starts + position, 0), torch.where(live, starts + lengths - 1 - position, 0)
    return Stepped.apply(gates, weight.to(gates.dtype), torch.stack(index, 1), live[:, None].expand(-1, 2, -1, -1))


def fused(gates: Tensor, weight: Tensor, rows: Rows) -> Tensor:
    return _Fused.apply(gates, weight.to(gates.dtype), rows.starts, rows.lengths)


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gates: Tensor, weight: Tensor, starts: Tensor, lengths: Tensor) -> Tensor:
        from . import triton_lstm

        gates, weight = gates.contiguous(), weight.contiguous()
        states, before, active, cells = triton_lstm.forward(gates, weight, starts, lengths)
        ctx.save_for_backward(weight, starts, lengths, before, active, cells)
        return states

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        from . import triton_lstm

        weight, starts, lengths, before, active, cells = ctx.saved_tensors
        dgates = triton_lstm.backward(grad.contiguous(), weight, starts, lengths, active, cells)
        dweight = [torch.bmm(dgates[:, :, side].transpose(1, 2), before[:, :, side]) for side in (0, 1)]
        return dgates, torch.stack(dweight, 1), None, None
