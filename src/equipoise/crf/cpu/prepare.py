"""Call layer.c: one function before the chain, one in the backward pass, and one for predicted labels."""

import ctypes
import struct
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, empty_like

from ...chain.checks import int64
from ...chain.cpu import backend as chain
from ...chain.cpu.library import library as chain_library
from ...chain.totals import Total
from ...masking import rows
from ...native.compiler import build
from ...native.values import contiguous
from ...scaling.kernel_state import LEARNING, KernelState
from ...scaling.pace import SLOWER_AFTER, SMOOTHING, STEP
from ..fused import Arguments, Gradients, Parameters, as_bytes
from ..reasons import Reason

HALF = torch.float16, torch.bfloat16  # computed in float32
READS_LABELS = True
CPU = torch.device("cpu")  # explicit, since the default device may differ
INVALID, HAS_EMPTY, MOVED, FORBIDDEN = 1, 2, 4, 8  # as in layer.h
MIN_THREADED_SCORES = 2**18  # for fewer, waking a thread gains too little
FIELDS = 8  # of `results` in layer.h: s and its examples are the first two, the gradients of u and w the last two

SOURCES = tuple(Path(__file__).with_name(name) for name in ("layer.c", "layer.h", "gradients.h"))
LAYER = struct.Struct("5q4d24q").pack  # `Layer` of layer.h
GRADIENTS = struct.Struct("7q").pack  # `Gradients`


@cache
def library(dtype: torch.dtype) -> ctypes.CDLL | None:
    """The compiled functions for this dtype, or None if they are not available; the log has the reason."""
    if dtype not in (torch.float32, torch.float64) or chain_library(dtype) is None:
        return None
    loaded = build("layer", SOURCES, dtype, "what comes before and after chains on the CPU runs in plain PyTorch")
    if loaded is not None:
        loaded.place.argtypes = *(ctypes.c_void_p,) * 3, ctypes.c_int64, ctypes.c_int64
    return loaded


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def available(dtype: torch.dtype) -> bool:
    return library(dtype) is not None


def fits(unary: Tensor, parameters: Parameters, state: KernelState) -> bool:
    dtype = parameters.pairwise.dtype
    alike = all(x is None or x.dtype == dtype for x in (*parameters[1:3], *state[:5]))
    alike = alike and (unary.dtype == dtype or (dtype == torch.float32 and unary.dtype in HALF))
    return alike and unary.numel() > 0 and available(dtype)


def loss(given: Arguments, loss_name: str, total: Total) -> tuple[Tensor, Gradients] | Reason:
    call = Call(*given[1:5])
    gold, valid = call.keep(given.mask, given.labels)
    if not valid:
        return Reason.INVALID_LABEL
    value, *to_chain = call.loss(loss_name, gold, total)
    return value, partial(call.gradients, *to_chain)


def decode(given: Arguments, rule: str, in_place: bool) -> Tensor | Reason:
    """The best labelling. For other rules the functions of the chain are called one after the other."""
    if rule != "map":
        return Reason.IN_PARTS
    call = Call(*given[1:5])
    call.keep(given.mask, None)
    labels, _ = chain.decode(*call.assemble(), call.lengths)
    return call.place(labels) if in_place else rows(labels, call.lengths, given.mask)


class Call:
    """`fused.Call` in C. It keeps all memory whose address is in `packed`, as far as a later function reads it."""

    def __init__(self, unary: Tensor, parameters: Parameters, state: KernelState, kind: int) -> None:
        dtype = parameters.pairwise.dtype
        self.shape, self.dtype, self.state, self.kind = unary.shape, unary.dtype, state, kind
        self.given = contiguous(unary.detach().to(dtype), *parameters)
        self.library: Any = library(dtype)  # `fits` is only true if there is one

    def keep(self, mask: Tensor | None, labels: Tensor | None) -> tuple[Tensor | None, bool]:
        unary, pairwise, *_ = self.given
        *batch, length, m = self.shape
        sequences = self.shape.numel() // (length * m)
        size, each = pairwise.itemsize, sequences + 1
        self.results = pairwise.new_empty(FIELDS)
        # Sizes, counts and two parts, then ranks.
        self.scratch = torch.empty(4 * each * size + sequences * length * 4, dtype=torch.uint8, device=CPU)
        start = self.scratch.data_ptr()
        self.rank = start + 4 * each * size
        self.lengths = torch.empty(batch, dtype=torch.int64, device=CPU)
        self.marked = torch.empty(batch, dtype=torch.bool, device=CPU)
        self.scores = empty_like(unary), empty_like(pairwise)
        mask_bytes = None if mask is None else as_bytes(mask)
        gold = labels if labels is None or labels.dtype == torch.int64 else int64("labels", labels)
        gold = None if gold is None else contiguous(gold)[0]
        moved = None if gold is None else empty_like(gold)
        memory = *self.given, mask_bytes, gold, *self.state[:5], self.lengths, moved, self.marked, *self.scores
        self.packed = LAYER(
            *(sequences, length, m, self.kind),
            torch.get_num_threads() if self.shape.numel() >= MIN_THREADED_SCORES else 1,
            *(self.state.horizon, STEP, SLOWER_AFTER, SMOOTHING),
            *[0 if x is None else x.data_ptr() for x in memory],
            *(start, start + each * size, start + 2 * each * size, self.results.data_ptr(), self.rank),
        )
        self.status = self.library.prepare(self.packed)
        self.empty = self.marked if self.status & HAS_EMPTY else None
        return moved, not self.status & (INVALID | FORBIDDEN)

    def assemble(self) -> tuple[Tensor, Tensor]:
        scores = self.scores
        del self.scores  # autograd keeps the call, so the call must not keep what autograd returns
        return scores

    def loss(self, loss_name: str, gold: Tensor | None, total: Total) -> tuple[Tensor, Tensor, Tensor]:
        """The total of the losses, and its gradient with respect to the scores of the chain."""
        chains = *self.scores, self.lengths, gold
        del self.scores
        return chain.loss_and_gradient(loss_name, *chains, total=total._replace(empty=self.empty))

    def gradients(
        self, to_unary: Tensor, to_pairwise: Tensor, weight: Tensor | None = None
    ) -> tuple[Tensor | None, ...]:
        gradients = self.derive(to_unary, to_pairwise, weight)
        if self.kind == LEARNING:
            self.library.learn(self.packed)
            torch.autograd.graph.increment_version(self.state.tensors)
        return gradients[0].to(self.dtype), *gradients[1:]

    def derive(self, to_unary: Tensor, to_pairwise: Tensor, weight: Tensor | None = None) -> list[Any]:
        """The gradients, of the dtype of pairwise, of the scores of the chain times the weight."""
        read = contiguous(to_unary, to_pairwise, weight)
        outputs = [None if x is None else empty_like(x) for x in self.given[:4]]
        self.library.gradients(self.packed, GRADIENTS(*[0 if x is None else x.data_ptr() for x in (*read, *outputs)]))
        return outputs

    def place(self, labels: Tensor) -> Tensor:
        if not self.status & (HAS_EMPTY | MOVED):
            return labels
        labels = labels.contiguous()
        placed, length = empty_like(labels), labels.shape[-1]
        pointers = labels.data_ptr(), self.rank, placed.data_ptr()
        self.library.place(*pointers, labels.numel() // length, length)
        return placed
