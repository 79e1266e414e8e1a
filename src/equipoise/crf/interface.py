"""What the kernels of a layer must provide, in C (`cpu`) and in Triton (`gpu`)."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from ..chain.totals import Total
from ..scaling.kernel_state import KernelState

Gradients = Callable[[Tensor], tuple[Tensor | None, ...]]
"""The gradients of unary, pairwise, start and end from that of the loss, a number. Moves the state of learned scaling.

It may be called several times, with the same result except for that state.
"""


class Parameters(NamedTuple):
    """Those of a `ChainCRF`, and what its constraints allow."""

    pairwise: Tensor  # (M, M)
    start: Tensor | None  # (M,)
    end: Tensor | None
    allowed: Tensor | None  # (M, M), booleans
    allowed_start: Tensor | None  # (M,)
    allowed_end: Tensor | None


class Known:
    """Stands for the shapes and dtypes of all arguments of a call, which were checked."""

    def __init__(self, fits: bool) -> None:
        self.fits = fits  # whether the kernels support them


class Arguments(NamedTuple):
    """The arguments of a call of a layer."""

    known: Known
    unary: Tensor  # (*batch, L, M)
    parameters: Parameters
    state: KernelState  # of scaling
    kind: int  # of scaling
    mask: Tensor | None  # (*batch, L)
    labels: Tensor | None  # (*batch, L), or None for a prediction; -100 removes a position


class Call(Protocol):
    """One call: the tensors that its kernels share."""

    kind: int
    lengths: Tensor
    empty: Tensor | None

    def keep(self, mask: Tensor | None, labels: Tensor | None, /) -> tuple[Tensor | None, bool]:
        """Measure, find the positions that count, and return their labels, moved, and whether all labels are valid."""

    def assemble(self) -> tuple[Tensor, Tensor]:
        """The scores of the chain."""

    def gradients(self, to_unary: Tensor, to_pairwise: Tensor, /) -> tuple[Tensor | None, ...]:
        """Of unary, pairwise, start and end, from those of the chain's scores. Moves the state of learned scaling."""

    def place(self, labels: Tensor, /) -> Tensor:
        """Labels of the chain, (*batch, L), in their original places, -100 elsewhere."""


class Kernels(Protocol):
    READS_LABELS: bool
    """Whether they find labels that are out of range or break the constraints."""

    def fits(self, unary: Tensor, parameters: Parameters, state: KernelState, /) -> bool:
        """Whether the kernels support these scores, (*batch, L, M), and this state of scaling."""

    def Call(self, unary: Tensor, parameters: Parameters, state: KernelState, kind: int, /) -> Call: ...  # noqa: N802

    def loss(self, given: Arguments, loss_name: str, total: Total, /) -> tuple[Tensor, Gradients] | None:
        """The total of the losses "likelihood" or "cross_entropy" of labels.

        None if there is no kernel for all of it, or if it found an invalid label.
        """

    def decode(self, given: Arguments, rule: str, in_place: bool, /) -> Tensor | None:
        """Labels in place, or the `masking.rows` of labels. None if no kernel does all of it."""


def as_bytes(x: Tensor) -> Tensor:
    """A mask, contiguous and with one byte per entry."""
    return (x if x.dtype in (torch.bool, torch.uint8, torch.int8) else x != 0).contiguous()
