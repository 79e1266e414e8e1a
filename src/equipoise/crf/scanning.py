"""Prediction in programs of torch's own operators, for any length: the loops of `chain.reference` as `scan`.

ONNX and other runtimes cannot call the operators of `chain.operators`. torch.export unrolls a Python loop over
positions, so a program without them would accept one length only. `decode` and
`log_marginals` equal those of `chain` without gradients. pairwise is (M, M) or (*batch, M, M).
"""

from types import CodeType

import torch
from torch import Tensor

from ..chain.problem import IGNORE, positions
from ..chain.reference import finite, logsumexp, normalize
from ..native.values import only_torch
from ..objectives import RULES, Rule


def needed(unary: Tensor) -> bool:
    """Whether such a program is being exported for a length that is not fixed."""
    return only_torch() and isinstance(unary.shape[-2], torch.SymInt)


def decode(unary: Tensor, pairwise: Tensor, lengths: Tensor) -> Tensor:
    """The labelling with the highest score, (*batch, L), -100 beyond the length."""
    unary, pairwise, valid, is_first = _prepare(unary, pairwise, lengths)
    labels = torch.arange(unary.shape[-1], device=unary.device)

    def step(delta: Tensor, x: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        scores, on, at_first = x
        best, pointer = (delta[..., :, None] + torch.where(at_first, 0, pairwise)).max(-2)
        new = best + scores
        new = torch.where(on[..., None], new - finite(new.amax(-1, keepdim=True)), delta)
        return new, torch.where(on[..., None], pointer, labels.expand_as(pointer))

    def step_back(label: Tensor, pointer: Tensor) -> tuple[Tensor, Tensor]:
        return pointer.gather(-1, label[..., None])[..., 0], label.clone()

    last, pointers = _scan(step, torch.zeros_like(unary[0]), (unary, valid, is_first))
    _, path = _scan(step_back, last.argmax(-1), pointers, reverse=True)
    possible = (last > -torch.inf).any(-1)
    return torch.where(valid & possible, path, IGNORE).movedim(0, -1)


def log_marginals(unary: Tensor, pairwise: Tensor, lengths: Tensor) -> Tensor:
    """log P(y_t = j | X), (*batch, L, M), 0 beyond the length."""
    unary, pairwise, valid, is_first = _prepare(unary, pairwise, lengths)
    has_next = torch.cat([valid[1:], torch.zeros_like(valid[:1])])

    def step(alpha: Tensor, x: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        scores, on, at_first = x
        message = torch.where(at_first, 0, logsumexp(alpha[..., :, None] + pairwise, -2)) + scores
        new = torch.where(on[..., None], normalize(message)[0], alpha)
        return new, new.clone()

    def step_back(onward: Tensor, x: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        scores, continues = x
        new, _ = normalize(logsumexp(pairwise + onward[..., None, :], -1))
        beta = torch.where(continues[..., None], new, 0)
        return scores + beta, beta.clone()

    start = torch.zeros_like(unary[0])
    _, alpha = _scan(step, start, (unary, valid, is_first))
    _, beta = _scan(step_back, start, (unary, has_next), reverse=True)
    return normalize(alpha + beta)[0].masked_fill(~valid[..., None], 0).movedim(0, -2)


def _by_position(unary: Tensor, pairwise: Tensor, lengths: Tensor) -> Tensor:
    labels = log_marginals(unary, pairwise, lengths).argmax(-1)
    return torch.where(positions(unary, lengths), labels, IGNORE)


SCANNED: dict[str, Rule] = {**RULES, "map": decode, "marginal": _by_position}  # type: ignore[dict-item]
"""The rules of `objectives.RULES`. "mean_field" needs a fixed length."""


def _prepare(unary: Tensor, pairwise: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """unary (L, *batch, M), pairwise, which positions exist (L, *batch), and which is the first (L,)."""
    dtype = torch.promote_types(torch.promote_types(unary.dtype, pairwise.dtype), torch.float32)
    valid = positions(unary, lengths)
    unary = unary.detach().to(dtype).masked_fill(~valid[..., None], 0)
    is_first = torch.arange(unary.shape[-2], device=unary.device) == 0
    return unary.movedim(-2, 0), pairwise.detach().to(dtype), valid.movedim(-1, 0), is_first


@torch.no_grad()
def _scan(step, start, xs, reverse=False):  # type: ignore[no-untyped-def]
    from torch._dynamo.eval_frame import remove_from_cache
    from torch._higher_order_ops.scan import scan  # imports the compiler, which takes seconds

    # `scan` compiles a function that is defined inside it. What an earlier export compiled is valid for its fixed
    # sizes only, and would fix them here too.
    for code in scan.__code__.co_consts:
        if isinstance(code, CodeType):
            remove_from_cache(code)
    return scan(step, start, xs, dim=0, reverse=reverse)
