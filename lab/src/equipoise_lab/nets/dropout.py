"""Dropout for E replicas, with random bits that are a hash of (key, step, place, element).

    y = x / (1 - rate)   where hash >= rate 2^32,    0 elsewhere

The key belongs to the replica, the step counts its training steps, the place numbers the calls in one pass through the
net, and the element is the number of an example in its batch, of a position in it, and of a channel. So the result of a
replica does not depend on the others in its stack, nor on the padding, and a run that is resumed from a checkpoint
continues with the same bits. No mask is stored: the backward pass computes the hash again. On a GPU this is one kernel
(`triton_dropout`). The torch code here is the specification, and the CPU implementation.
"""

import importlib.util
from typing import Any

import torch
from torch import Tensor

GPU = importlib.util.find_spec("triton") is not None
SPAN = 512
"""Elements of example b at position t are numbered from b * SPAN + t."""
KEYS = 2**31
PLACES = 64
"""The maximum number of places in a net."""
_WORD = 0xFFFFFFFF


def fresh(generator: torch.Generator) -> Tensor:
    """The state of one replica before its first step: key and step, (2,).

    >>> fresh(torch.Generator().manual_seed(0)).shape
    torch.Size([2])
    """
    return torch.cat([torch.randint(KEYS, (1,), generator=generator), torch.zeros(1, dtype=torch.long)])


class Dropout:
    """The dropout of one pass through a net: each call is the next place.

    >>> drop = Dropout(fresh(torch.Generator().manual_seed(0))[None], rate=0.5)
    >>> drop(torch.ones(1, 2, 4), torch.arange(2)[None]).unique()
    tensor([0., 2.])
    """

    def __init__(self, state: Tensor, rate: float, moves: Tensor | None = None) -> None:
        """The state (E, 2) counts this step in place for replicas with `moves` (E,) 1."""
        if not 0 <= rate < 1:
            raise ValueError(f"rate must be at least 0 and less than 1, got {rate}")
        self.rate, self.place = rate, 0
        with torch.no_grad():
            self._seeds = _seeds(state)
            if moves is not None:
                state[:, 1] += moves.to(state.dtype)

    def seeds(self) -> Tensor:
        """The seeds of the next place, (E, 2)."""
        if self.place == PLACES:
            raise ValueError(f"a net has at most {PLACES} places for dropout")
        self.place += 1
        return self._seeds[self.place - 1]

    def __call__(self, x: Tensor, rows: Tensor) -> Tensor:
        """Dropout of x (E, R, C), whose rows have the numbers (E, R)."""
        seeds = self.seeds()
        if self.rate == 0:
            return x
        if x.is_cuda and GPU:
            return _Drop.apply(x, rows, seeds, self.rate)
        return torch.where(keeps(seeds, elements(rows, x.shape[-1]), self.rate), x * (1 / (1 - self.rate)), 0)


def elements(rows: Tensor, width: int) -> Tensor:
    """The numbers of the elements of rows (E, R) with these numbers: (E, R, width)."""
    return rows[..., None] * width + torch.arange(width, device=rows.device)


def keeps(seeds: Tensor, numbers: Tensor, rate: float) -> Tensor:
    """Which elements with these numbers (E, ...) are kept, for the seeds (E, 2) of a place."""
    first, second = (x.view(-1, *[1] * (numbers.ndim - 1)) for x in seeds.unbind(-1))
    return _mix(_mix((numbers ^ first) & _WORD) + second) >= threshold(rate)


def threshold(rate: float) -> int:
    """An element is kept if its hash is at least this.

    >>> threshold(0.5) == 2**31
    True
    """
    return round(rate * 2**32)


def _seeds(state: Tensor) -> Tensor:
    """Two words of 32 bits for each place and replica, (PLACES, E, 2), as int64."""
    key, step = state.unbind(-1)
    place = torch.arange(PLACES, device=state.device)[:, None]
    first = _mix(_mix(key + 0x9E3779B9) + step)
    second = _mix(_mix(step ^ 0x85EBCA6B) + key)
    return torch.stack([_mix(first + 0xC2B2AE35 * place), _mix(second ^ (0x27D4EB2F * place & _WORD))], -1)


def _mix(x: Tensor) -> Tensor:
    """A bijection of 32-bit words in which every output bit depends on every input bit; x is int64 modulo 2^32."""
    x = x & _WORD
    x = (x ^ (x >> 16)) * 0x7FEB352D & _WORD
    x = (x ^ (x >> 15)) * 0x846CA68B & _WORD
    return x ^ (x >> 16)


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: Tensor, seeds: Tensor, rate: float) -> Tensor:
        ctx.save_for_backward(rows, seeds)
        ctx.rate = rate
        return _launch(x, rows, seeds, rate)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        rows, seeds = ctx.saved_tensors
        return _launch(grad, rows, seeds, ctx.rate), None, None, None


def _launch(x: Tensor, rows: Tensor, seeds: Tensor, rate: float) -> Tensor:
    from . import triton_dropout

    x = x.contiguous()
    out = torch.empty_like(x)
    count, width = x.shape[1:]
    lanes = max(16, 1 << (width - 1).bit_length())
    triton_dropout.drop_kernel[(len(x) * count,)](
        x, out, rows.contiguous(), seeds, count, width, threshold(rate), 1 / (1 - rate), LANES=lanes, num_warps=2
    )
    return out
