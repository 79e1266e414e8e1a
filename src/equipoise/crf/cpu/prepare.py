"""Call layer.c: one function before the chain, one in the backward pass, and one for predicted labels."""

import ctypes
import struct
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...chain.checks import int64
from ...chain.cpu import backend as chain
from ...chain.cpu.library import library as chain_library
from ...chain.totals import Total
from ...masking import rows
from ...native.compiler import build
from ...native.values import readable, resolved
from ...scaling.kernel_state import LEARNING, KernelState
from ...scaling.pace import SLOWER_AFTER, SMOOTHING, STEP
from ..fused import Arguments, Gradients, Parameters, as_bytes
from ..reasons import Reason

HALF = torch.float16, torch.bfloat16  # computed in float32
CPU = torch.device("cpu")  # explicit, since the default device may differ
READS_LABELS = True
INVALID, HAS_EMPTY, MOVED = 1, 2, 4  # as in layer.c
MIN_THREADED_SCORES = 2**18  # for fewer, waking a thread gains too little
FIELDS = 6  # of `results` in layer.h

SOURCES = tuple(Path(__file__).with_name(name) for name in ("layer.c", "layer.h", "gradients.h"))
LAYER = struct.Struct("5q4d24q").pack  # `Layer` of layer.h
GRADIENTS = struct.Struct("6q").pack  # `Gradients`


@cache
def library(dtype: torch.dtype) -> ctypes.CDLL | None:
    """The compiled functions for this dtype, or None if they are not available; the log has the reason."""
    if dtype not in (torch.float32, torch.float64) or chain_library(dtype) is None:
        return None
    loaded = build("layer", SOURCES, dtype, "what comes before and after chains on the CPU runs in plain PyTorch")
    if loaded is not None:
        loaded.place.argtypes = *(ctypes.c_void_p,) * 3, ctypes.c_int64, ctypes.c_int64
    return loaded


def fits(unary: Tensor, parameters: Parameters, state: KernelState) -> bool:
    dtype = parameters.pairwise.dtype
    alike = all(x is None or x.dtype == dtype for x in (*parameters[1:3], *state.tensors))
    alike = alike and (unary.dtype == dtype or (dtype == torch.float32 and unary.dtype in HALF))
    return alike and unary.numel() > 0 and library(dtype) is not None and readable(unary, parameters.pairwise)


def loss(given: Arguments, loss_name: str, total: Total) -> tuple[Tensor, Gradients] | Reason:
    _, unary, parameters, state, kind, mask, labels = given
    call = Call(unary, parameters, state, kind)
    gold, valid = call.keep(mask, labels)
    if not valid:
        return Reason.INVALID_LABEL
    chains = *call.assemble(), call.lengths, gold
    total = total._replace(empty=call.empty)
    value, weighted = chain.fused_loss(loss_name, *chains, total)
    unused = [weighted]  # it can be called once

    def gradients(weight: Tensor) -> tuple[Tensor | None, ...]:
        to_chain: Any = unused.pop()(weight) if unused else None
        if to_chain is None:
            weights = total.gradient(weight, call.lengths).expand(call.lengths.shape)
            _, *to_chain = chain.loss_and_gradient(loss_name, *chains, weights)
        return call.gradients(*to_chain)

    return value, gradients


def decode(given: Arguments, rule: str, in_place: bool) -> Tensor | Reason:
    """The best labelling. For other rules the functions of the chain are called one after the other."""
    if rule != "map":
        return Reason.IN_PARTS
    _, unary, parameters, state, kind, mask, _ = given
    call = Call(unary, parameters, state, kind)
    call.keep(mask, None)
    labels, _ = chain.decode(*call.assemble(), call.lengths)
    return call.place(labels) if in_place else rows(labels, call.lengths, mask)


class Call:
    """`fused.Call` in C. It keeps all memory whose address is in `packed`, as far as a later function reads it."""

    def __init__(self, unary: Tensor, parameters: Parameters, state: KernelState, kind: int) -> None:
        self.shape, self.dtype, self.state, self.kind = unary.shape, unary.dtype, state, kind
        self.pairwise = resolved(parameters.pairwise.detach()).contiguous()
        self.unary = resolved(unary.detach().to(self.pairwise.dtype)).contiguous()
        self.library: Any = library(self.pairwise.dtype)  # `fits` is only true if there is one
        self.boundaries = [None if x is None else resolved(x.detach()).contiguous() for x in parameters[1:3]]
        self.allowed = [None if x is None else as_bytes(x) for x in parameters[3:]]

    def keep(self, mask: Tensor | None, labels: Tensor | None) -> tuple[Tensor | None, bool]:
        *batch, length, m = self.shape
        sequences = self.shape.numel() // (length * m)
        size, each = self.unary.itemsize, sequences + 1
        numbers = 4 * each + FIELDS  # sizes, counts, two parts and `results`, before the ranks
        self.scratch = torch.empty(numbers * size + sequences * length * 4, dtype=torch.uint8, device=CPU)
        start = self.scratch.data_ptr()
        self.rank = start + numbers * size
        self.lengths = torch.empty(batch, dtype=torch.int64, device=CPU)
        self.marked = torch.empty(batch, dtype=torch.bool, device=CPU)
        self.scores = torch.empty_like(self.unary), torch.empty_like(self.pairwise)
        kept = None if mask is None else as_bytes(mask)
        gold = None if labels is None else resolved(int64("labels", labels)).contiguous()
        moved = None if gold is None else torch.empty_like(gold)
        read = self.unary, self.pairwise, *self.boundaries, *self.allowed, kept, gold, *self.state[:5]
        written = self.lengths, moved, self.marked, *self.scores
        self.packed = LAYER(
            *(sequences, length, m, self.kind),
            torch.get_num_threads() if self.shape.numel() >= MIN_THREADED_SCORES else 1,
            *(self.state.horizon, STEP, SLOWER_AFTER, SMOOTHING),
            *[0 if x is None else x.data_ptr() for x in (*read, *written)],
            *(start, start + each * size, start + 2 * each * size, start + 4 * each * size, self.rank),
        )
        status = self.library.prepare(self.packed)
        self.empty = self.marked if status & HAS_EMPTY else None
        self.in_place = not status & (HAS_EMPTY | MOVED)
        return moved, not status & INVALID

    def assemble(self) -> tuple[Tensor, Tensor]:
        scores = self.scores
        del self.scores  # autograd keeps the call, so the call must not keep what autograd returns
        return scores

    def gradients(self, to_unary: Tensor, to_pairwise: Tensor) -> tuple[Tensor | None, ...]:
        read = resolved(to_unary).contiguous(), resolved(to_pairwise).contiguous()
        given = self.unary, self.pairwise, *self.boundaries
        outputs: list[Any] = [None if x is None else torch.empty_like(x) for x in given]
        packed = GRADIENTS(*[0 if x is None else x.data_ptr() for x in (*read, *outputs)])
        self.library.gradients(self.packed, packed)
        if self.kind == LEARNING:
            torch.autograd.graph.increment_version(self.state.tensors)
        return outputs[0].to(self.dtype), *outputs[1:]

    def place(self, labels: Tensor) -> Tensor:
        if self.in_place:
            return labels
        labels = labels.contiguous()
        placed, length = torch.empty_like(labels), labels.shape[-1]
        pointers = labels.data_ptr(), self.rank, placed.data_ptr()
        self.library.place(*pointers, labels.numel() // length, length)
        return placed
