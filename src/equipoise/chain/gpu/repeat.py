"""Calls in eager mode: the launches of the first call for some shapes are recorded, and then repeated."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from torch import Tensor

from ...native import triton_replay
from ...native.triton_replay import Recording
from ...native.values import resolved
from .launch import Launcher, plan
from .scan import Chunks


def repeated(
    name: Hashable,
    call: Callable[..., Sequence[Any]],
    chunk: Callable[[Tensor, Tensor], int],
    unary: Tensor,
    pairwise: Tensor,
    lengths: Tensor,
    *others: Tensor | None,
) -> Sequence[Any]:
    """call(recording, chunk(unary, pairwise), *inputs); after the first call for these shapes, its launches again."""
    unary, pairwise = resolved(unary), resolved(pairwise)

    def first(recording: Recording | None, u: Tensor, w: Tensor, *rest: Tensor | None) -> Sequence[Any]:
        return call(recording, chunk(u, w), u, w, *rest)

    if not plan(unary.shape, pairwise.shape).indexable:  # pairwise must be copied first
        return first(None, unary, pairwise, lengths, *others)
    key = name, unary.shape, pairwise.shape, *[x is None for x in others]
    return triton_replay.repeated(key, first, unary, pairwise, lengths, *others)


def messages(
    recording: Recording | None, chunk: int, unary: Tensor, pairwise: Tensor, lengths: Tensor
) -> tuple[Launcher, Tensor]:
    """The launcher of a problem, and both messages, in chunks unless chunk is 0."""
    launcher = Launcher(unary, pairwise, lengths, recording)
    return launcher, Chunks(launcher, chunk).forward()[1] if chunk else launcher.forward()[1]


def log_marginals(*arguments: Any) -> Sequence[Tensor]:
    """`backend.log_marginals`."""
    launcher, state = messages(*arguments)
    return launcher.log_marginals_and_losses(state)[:1]


def likeliest(*arguments: Any) -> Sequence[Tensor]:
    """`backend.likeliest`."""
    launcher, state = messages(*arguments)
    return (launcher.likeliest(state),)


def decode(
    recording: Recording | None, chunk: int, unary: Tensor, pairwise: Tensor, lengths: Tensor
) -> Sequence[Tensor]:
    """`backend.decode`."""
    launcher = Launcher(unary, pairwise, lengths, recording)
    return Chunks(launcher, chunk).decode() if chunk else launcher.decode()
