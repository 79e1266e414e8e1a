"""The question every chain function is asked: scores of a chain, checked and brought to one shape.

    F(Y | X) = sum_t U(x_t, y_t) + sum_t W_t(y_t, y_{t+1})                                      (§4.1, eq. 1)

What can be checked without waiting for a device is checked always: ranks, sizes, dtypes and devices by `given`, and on
the CPU also the values of `lengths` and `labels`, by `check_values` or by the kernel that reads them anyway. On an
accelerator values are read only by `check`, which waits for it.
"""

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from ..native.values import capturing, eager, readable

MOST_LOOKS = 1024  # that `given` remembers
IGNORE = -100  # marks a position that does not count, in labels given and labels returned


class Problem(NamedTuple):
    """A batch of chains, checked."""

    unary: Tensor  # (*batch, L, M), float32 or float64, anything beyond the length
    pairwise: Tensor  # same dtype; as given, or after `spread`, which the algorithms want, (*b, E, M, M)
    lengths: Tensor  # (*batch,), int64

    @property
    def valid(self) -> Tensor:
        """Which positions exist, (*batch, L)."""
        return positions(self.unary, self.lengths)

    def clean(self) -> "Problem":
        """With 0 beyond the length: what stands there, NaN included, must reach neither a value nor a gradient."""
        return self._replace(unary=self.unary.masked_fill(~self.valid[..., None], 0))

    def spread(self) -> "Problem":
        return self._replace(pairwise=spread(self.pairwise, self.unary))

    def detach(self) -> "Problem":
        return Problem(self.unary.detach(), self.pairwise.detach(), self.lengths)


def positions(unary: Tensor, lengths: Tensor) -> Tensor:
    """Which positions exist, (*batch, L)."""
    return torch.arange(unary.shape[-2], device=lengths.device) < lengths[..., None]


def spread(pairwise: Tensor, unary: Tensor) -> Tensor:
    """pairwise as (*b, E, M, M), where b broadcasts to batch, and E is L-1, or 1 where all edges share a matrix."""
    if pairwise.ndim == 2:
        return pairwise.view((1,) * (unary.ndim - 1) + pairwise.shape)
    return pairwise.unsqueeze(-3) if pairwise.ndim == unary.ndim else pairwise


def given(unary: Tensor, pairwise: Tensor, lengths: Tensor | None = None, labels: Tensor | None = None) -> Problem:
    """The scores as a problem, all checked but the values of lengths and labels; half precision becomes float32.

    To know again what was in order takes a third of the time that the checks do, which short chains feel.
    """
    looks = (_look(unary), _look(pairwise), _look(lengths), _look(labels)) if eager() else None
    known = _in_order.get(looks)
    if known is not None and (lengths is not None or not capturing(unary)):
        return Problem(unary, pairwise, known if lengths is None else lengths)
    chain = _checked(unary, pairwise, lengths, labels)
    as_given = chain.unary is unary and chain.pairwise is pairwise and (lengths is None or chain.lengths is lengths)
    if looks is not None and as_given and not capturing(unary):
        if len(_in_order) == MOST_LOOKS:
            _in_order.clear()
        _in_order[looks] = chain.lengths if lengths is None else _UNUSED
    return chain


def _look(x: Tensor | None) -> tuple[torch.Size, torch.dtype, torch.device] | type:
    """What the checks ask about."""
    return (x.shape, x.dtype, x.device) if isinstance(x, Tensor) else type(x)


_UNUSED = torch.empty(0)
_in_order: dict[tuple[object, ...] | None, Tensor] = {}  # what passed as it was, and lengths for where none are given


def _checked(unary: Tensor, pairwise: Tensor, lengths: Tensor | None, labels: Tensor | None) -> Problem:
    check_scores(unary, pairwise)
    if unary.dtype != pairwise.dtype or unary.dtype not in (torch.float32, torch.float64):
        dtype = torch.promote_types(torch.promote_types(unary.dtype, pairwise.dtype), torch.float32)
        unary, pairwise = unary.to(dtype), pairwise.to(dtype)
    if lengths is None:
        lengths = whole(unary)
    else:
        check_lengths(unary, lengths)
        lengths = lengths if lengths.dtype == torch.int64 else lengths.to(torch.int64)
    if labels is not None:
        check_labels(unary, labels)
    return Problem(unary, pairwise, lengths)


def problem(unary: Tensor, pairwise: Tensor, lengths: Tensor | None = None, labels: Tensor | None = None) -> Problem:
    """The scores as a problem for plain torch: all checked, pairwise spread."""
    chain = given(unary, pairwise, lengths, labels)
    check_values(chain, labels)
    return chain.spread()


def whole(unary: Tensor) -> Tensor:
    """Lengths of chains that all have the full length; made once, as on a GPU that takes longer than a short chain."""
    batch, length = unary.shape[:-2], unary.shape[-2]
    if torch.compiler.is_compiling() or capturing(unary):
        return torch.full(batch, length, dtype=torch.int64, device=unary.device)
    return _whole(batch, length, unary.device)


@lru_cache(maxsize=64)
def _whole(batch: torch.Size, length: int, device: torch.device) -> Tensor:
    with torch.inference_mode(False):  # or autograd could not save it later
        return torch.full(batch, length, dtype=torch.int64, device=device)


def check(unary: Tensor, pairwise: Tensor, labels: Tensor | None = None, lengths: Tensor | None = None) -> None:
    """Raise if any value is out of its range: NaN or +inf in a score, a bad length, a label out of range.

    Every function of this package checks shapes and dtypes. Values on an accelerator can only be checked by waiting for
    it, so that is done here, on request.

    >>> unary = torch.zeros(2, 4, 3)
    >>> unary[1, 2, 0] = float("nan")
    >>> check(unary, torch.zeros(3, 3))
    Traceback (most recent call last):
    ...
    ValueError: unary[1, 2, 0] is nan: scores must be finite or -inf
    """
    given(unary, pairwise, lengths, labels)
    valid = torch.ones_like(unary[..., 0], dtype=torch.bool) if lengths is None else positions(unary, lengths)
    if lengths is not None:
        _check_length_values(unary, lengths)
    _check_finite("unary", unary, valid[..., None])
    _check_finite("pairwise", pairwise)
    if labels is not None:
        check_label_values(unary, labels, valid)


def check_values(chain: Problem, labels: Tensor | None = None) -> None:
    """Raise if a length or a label that counts is out of range, where values can be read."""
    unary, _, lengths = chain
    if not readable(lengths):
        return
    _check_length_values(unary, lengths)
    if labels is None or not readable(labels) or labels.numel() == 0:
        return
    low, high = labels.aminmax()  # one look that settles most cases
    if low < 0 or high >= unary.shape[-1]:
        check_label_values(unary, labels, positions(unary, lengths))


def check_scores(unary: Tensor, pairwise: Tensor) -> None:
    for name, x in (("unary", unary), ("pairwise", pairwise)):
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} must be a tensor, got {type(x).__name__}")
        if not x.is_floating_point():
            raise TypeError(f"{name} must have a floating-point dtype, got {x.dtype}")
    check_device("pairwise", pairwise, unary)
    if unary.ndim < 2:
        raise ValueError(f"unary must have shape (*batch, L, M), got {tuple(unary.shape)}")
    *_, length, labels = unary.shape
    if length == 0 or labels == 0:
        raise ValueError(f"unary must have at least one position and one label, got shape {tuple(unary.shape)}")
    if pairwise.shape != (labels, labels):
        _check_pairwise_shape(unary, pairwise)


def check_lengths(unary: Tensor, lengths: Tensor) -> None:
    _check_integers("lengths", lengths)
    if lengths.shape != unary.shape[:-2]:
        raise ValueError(
            f"lengths has shape {tuple(lengths.shape)}, but unary {tuple(unary.shape)} needs {tuple(unary.shape[:-2])}"
        )
    check_device("lengths", lengths, unary)


def check_labels(unary: Tensor, labels: Tensor) -> None:
    """Check the type and shape of labels, (*batch, L)."""
    _check_integers("labels", labels)
    if labels.shape != unary.shape[:-1]:
        raise ValueError(
            f"labels has shape {tuple(labels.shape)}, but unary {tuple(unary.shape)} needs {tuple(unary.shape[:-1])}"
        )
    check_device("labels", labels, unary)


def check_label_values(unary: Tensor, labels: Tensor, valid: Tensor) -> None:
    """Check that labels are in range where `valid` is on. Reads values."""
    index = first(valid & ((labels < 0) | (labels >= unary.shape[-1])))
    if index is not None:
        raise ValueError(
            f"{at('labels', index)} is {int(labels[index])}, but a position that counts needs a label from 0 to "
            f"{unary.shape[-1] - 1}"
        )


def first(where: Tensor) -> tuple[int, ...] | None:
    """The index of the first True, or None."""
    hits = where.nonzero()
    return tuple(hits[0].tolist()) if len(hits) else None


def at(name: str, index: tuple[int, ...]) -> str:
    """`name` with its index, as it is written in Python."""
    return f"{name}[{', '.join(map(str, index))}]" if index else name


def _check_pairwise_shape(unary: Tensor, pairwise: Tensor) -> None:
    batch, (length, labels) = unary.shape[:-2], unary.shape[-2:]
    per_edge = pairwise.ndim == unary.ndim + 1
    fits = pairwise.ndim >= 2 and pairwise.shape[-2:] == (labels, labels)
    if fits and pairwise.ndim > 2:
        own = pairwise.shape[: pairwise.ndim - 2 - per_edge]
        fits = pairwise.ndim in (unary.ndim, unary.ndim + 1) and all(
            a in (1, b) for a, b in zip(own, batch, strict=True)
        )
        fits = fits and (not per_edge or pairwise.shape[-3] == length - 1)
    if not fits:
        forms = [(labels, labels), (*batch, labels, labels), (*batch, length - 1, labels, labels)]
        raise ValueError(
            f"pairwise has shape {tuple(pairwise.shape)}, but unary {tuple(unary.shape)} needs "
            f"{forms[0]} for all, {forms[1]} for each sequence or {forms[2]} for each edge"
        )


def check_device(name: str, x: Tensor, unary: Tensor) -> None:
    if x.device != unary.device:
        raise ValueError(f"{name} is on {x.device}, but unary is on {unary.device}")


def _check_length_values(unary: Tensor, lengths: Tensor) -> None:
    if lengths.numel() == 0:
        return
    low, high = lengths.aminmax()
    if low >= 1 and high <= unary.shape[-2]:
        return
    index = first((lengths < 1) | (lengths > unary.shape[-2]))
    if index is not None:
        raise ValueError(
            f"{at('lengths', index)} is {int(lengths[index])}, but must be from 1 to L = {unary.shape[-2]}"
        )


def _check_finite(name: str, x: Tensor, where: Tensor | None = None) -> None:
    bad = x.isnan() | (x == torch.inf)
    index = first(bad if where is None else bad & where)
    if index is not None:
        raise ValueError(f"{at(name, index)} is {float(x[index])}: scores must be finite or -inf")


def _check_integers(name: str, x: Tensor) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} must be a tensor, got {type(x).__name__}")
    if x.is_floating_point() or x.is_complex() or x.dtype == torch.bool:
        raise TypeError(f"{name} must be integers, got {x.dtype}")
