"""The loop of `recurrence`, one position at a time: a product, then the gates; and its gradient, in reverse order.

    do = dh tanh c,  dc += dh o (1 - tanh^2 c),  di = dc g,  df = dc c_{t-1},  dg = dc i;   dc <- dc f,  dh <- V^T dz

In both directions, sequences begin at step 0, so steps after the end of a sequence do not affect it and need no mask.
On a GPU the gates are one kernel per step (`triton_cell`).
"""

import importlib.util
from typing import Any

import torch
from torch import Tensor

GPU = importlib.util.find_spec("triton") is not None


class Stepped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gates: Tensor, weight: Tensor, index: Tensor, live: Tensor) -> Tensor:
        """gates (E, R, 2, 4H), weight (E, 2, 4H, H); index, live (E, 2, T, N): the row of each step, if it exists."""
        z = _gather_steps(gates, index)  # (2E, T, N, 4H)
        w = weight.flatten(0, 1).transpose(1, 2)
        h = z.new_empty(*z.shape[:-1], weight.shape[-1])
        c = torch.empty_like(h, dtype=torch.promote_types(h.dtype, torch.float32))
        for t in range(z.shape[1]):
            if t > 0:
                z[:, t].baddbmm_(h[:, t - 1], w)
            _activate(z, c, h, t)
        ctx.save_for_backward(weight, index, live, z, c, h)
        ctx.rows = gates.shape[1]
        return _scatter_steps(h, index, live, gates.shape[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        weight, index, live, z, c, h = ctx.saved_tensors
        w = weight.flatten(0, 1)
        dh = _gather_steps(grad, index).mul_(live.flatten(0, 1)[..., None])
        dz, dc = torch.empty_like(z), torch.zeros_like(c[:, 0])
        back = torch.zeros_like(h[:, 0])
        for t in reversed(range(z.shape[1])):
            _activate_backward(z, c, dh, back, dc, dz, t)
            if t > 0:
                back = torch.bmm(dz[:, t], w)
        after, before = dz[:, 1:].flatten(1, 2), h[:, :-1].flatten(1, 2)
        dweight = torch.bmm(after.transpose(1, 2), before).unflatten(0, weight.shape[:2])
        return _scatter_steps(dz, index, live, ctx.rows), dweight, None, None


def _gather_steps(rows: Tensor, index: Tensor) -> Tensor:
    """Reorder rows (E, R, 2, K) by step, (2E, T, N, K)."""
    e, side = _replica_and_side(index)
    return rows[e, index, side].flatten(0, 1)


def _scatter_steps(steps: Tensor, index: Tensor, live: Tensor, rows: int) -> Tensor:
    """The inverse of `_gather_steps`, (E, R, 2, K); 0 in rows outside any sequence."""
    e, side = _replica_and_side(index)
    out = steps.new_zeros(len(index), rows + 1, 2, steps.shape[-1])  # an extra row for steps after the end
    out[e, torch.where(live, index, rows), side] = steps.unflatten(0, index.shape[:2])
    return out[:, :rows].contiguous()


def _replica_and_side(index: Tensor) -> tuple[Tensor, Tensor]:
    """The first two indices, (E, 1, 1, 1) and (2, 1, 1)."""
    e, side = (torch.arange(size, device=index.device) for size in index.shape[:2])
    return e[:, None, None, None], side[:, None, None]


def _activate(z: Tensor, c: Tensor, h: Tensor, t: int) -> None:
    """Turn the sums in z[:, t] into gates, in place, and write c[:, t] and h[:, t]."""
    if z.is_cuda and GPU and z.dtype != torch.float64:
        from . import triton_cell

        triton_cell.forward(z, c, h, t)
        return
    i, f, g, o = z[:, t].chunk(4, -1)
    for gate in (i, f, o):
        gate.sigmoid_()
    g.tanh_()
    c[:, t] = i * g if t == 0 else f * c[:, t - 1] + i * g
    h[:, t] = o * c[:, t].tanh()


def _activate_backward(z: Tensor, c: Tensor, dh: Tensor, back: Tensor, dc: Tensor, dz: Tensor, t: int) -> None:
    """Write dz[:, t] from dh[:, t] and `back`, the gradient from step t + 1; update dc for step t - 1, in place."""
    if z.is_cuda and GPU and z.dtype != torch.float64:
        from . import triton_cell

        triton_cell.backward(z, c, dh, back, dc, dz, t)
        return
    i, f, g, o = z[:, t].chunk(4, -1)
    di, df, dg, do = dz[:, t].chunk(4, -1)
    tanh_c, total = c[:, t].tanh(), dh[:, t] + back
    do.copy_(total * tanh_c * o * (1 - o))
    dc.add_(total * o * (1 - tanh_c * tanh_c))
    di.copy_(dc * g * i * (1 - i))
    dg.copy_(dc * i * (1 - g * g))
    if t > 0:
        df.copy_(dc * c[:, t - 1] * f * (1 - f))
    else:
        df.zero_()
    dc.mul_(f)
