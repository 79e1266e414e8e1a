"""A call of a layer by kernels: what comes before and after the chain, without many small operations of torch.

The kernels are in C for a CPU (`cpu`) and in Triton for a GPU (`gpu`). Both must equal the torch code of `potentials`,
which is used wherever there are none: under torch.compile and torch.func, for scaling methods without kernels, for
second derivatives, and to explain an error. A loss with kernels for all of it is one function of autograd; for other
losses the scores of the chain are (`derivatives`).
"""

from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..chain import backends
from ..chain.checks import CACHE_SIZE, signature
from ..chain.derivatives import apply
from ..chain.totals import Total
from ..masking import rows
from ..native.values import TRITON, eager, plain
from ..objectives import RULES
from ..scaling.kernel_state import FIXED, LEARNED, LEARNING, KernelState
from .derivatives import Assemble, InTorch, Loss
from .interface import Arguments, Kernels, Known, Parameters


class Prepared(NamedTuple):
    """The positions that count, moved to the front, and their scores in balance."""

    unary: Tensor  # (*batch, L, M)
    pairwise: Tensor  # (M, M)
    lengths: Tensor  # (*batch,): the number of positions that count, at least 1
    empty: Tensor | None  # (*batch,), booleans: sequences without any; None if it is known that there are none
    labels: Tensor | None  # (*batch, L): labels, moved


def kernels_for(x: Tensor) -> Kernels | None:
    """The kernels that can compute on x; None if there are none."""
    if not (eager() and isinstance(x, Tensor) and plain(x)):
        return None
    name = "cpu" if x.is_cpu else "gpu" if x.is_cuda and TRITON else None
    return None if name is None or backends.FORCED not in (None, name) else _load(name)


@cache
def _load(name: str) -> Any:
    """The kernels in a folder. They are imported where they are used: Triton may not be installed."""
    return import_module(f".{name}.prepare", __package__)


_known: dict[tuple[object, ...], Known] = {}


class LayerCall(NamedTuple):
    """A call of a layer by kernels."""

    kernels: Kernels
    given: Arguments
    recorded: bool  # by autograd

    def loss(self, loss_name: str, total: Total, in_torch: InTorch) -> Tensor | None:
        """The total of the losses "likelihood" or "cross_entropy"; None if no kernel computes all of it.

        Also None if a label is invalid.
        """
        if not self.recorded:
            return None
        compute = partial(self.kernels.loss, self.given, loss_name, total)
        found: Tensor | None = apply(Loss, self.given.unary, *self.given.parameters[:3], compute, in_torch)
        return found

    def decode(self, rule: str) -> Tensor:
        """Labels in place, (*batch, L), -100 where masked."""
        return self._decode(rule, True)

    def decode_rows(self, rule: str) -> Tensor:
        """The `masking.rows` of labels, (*batch, L + 1)."""
        return self._decode(rule, False)

    def _decode(self, rule: str, in_place: bool) -> Tensor:
        found = self.kernels.decode(self.given, rule, in_place)
        if found is not None:
            return found
        _, unary, parameters, state, kind, mask, _ = self.given
        call = self.kernels.Call(unary, parameters, state, kind)
        call.keep(mask, None)
        labels = RULES[rule](*call.assemble(), call.lengths)
        return call.place(labels) if in_place else rows(labels, call.lengths, mask)

    def prepared(self, in_torch: InTorch) -> Prepared | None:
        """Everything that comes before the chain; None if a label is invalid."""
        _, unary, parameters, state, kind, mask, labels = self.given
        call = self.kernels.Call(unary, parameters, state, kind)
        moved, valid = call.keep(mask, labels)
        if not valid:
            return None
        u, w = apply(Assemble, unary, *parameters[:3], call, in_torch) if self.recorded else call.assemble()
        return Prepared(u, w, call.lengths, call.empty, moved)


def layer_call(
    unary: Tensor,
    parameters: Parameters,
    state: KernelState | None,
    mask: Tensor | None,
    labels: Tensor | None,
    check: Callable[[], None] = lambda: None,
    *,
    training: bool,
    changes_labels: bool = False,
) -> LayerCall | None:
    """A call by kernels; None where there are none.

    Args:
        unary: (*batch, L, M).
        parameters: of the layer.
        state: of its scaling method; None if there are no kernels for it.
        mask: (*batch, L), or None.
        labels: (*batch, L), or None for a prediction.
        check: raises an error if the shape, dtype or device of an argument is wrong. It is called once for all calls
            with the same ones.
        training: whether the scaling method is in training mode.
        changes_labels: whether the layer changes labels that are invalid. Kernels do not; some do not look for any.
    """
    kernels = kernels_for(unary)
    if state is None or kernels is None or (changes_labels and not kernels.READS_LABELS):
        return None
    pairwise, start, end, allowed, *_ = parameters
    key = (
        *(kernels, signature(unary), unary.layout, signature(pairwise), signature(mask), signature(labels)),
        *[None if x is None else x.dtype for x in (start, end, allowed, *state[:5])],
    )
    known = _known.get(key)
    if known is None:
        check()
        if len(_known) == CACHE_SIZE:
            _known.clear()
        known = _known[key] = Known(kernels.fits(unary, parameters, state))
    if not known.fits:
        return None
    learnt = [x for x in (unary, pairwise, start, end) if x is not None and x.requires_grad]
    recorded = labels is not None and bool(learnt) and torch.is_grad_enabled()
    if recorded and state.learned and not training:
        return None  # exact derivatives
    kind = (LEARNING if recorded else LEARNED) if state.learned else FIXED
    return LayerCall(kernels, Arguments(known, unary, parameters, state, kind, mask, labels), recorded)
