"""Validation of the arguments of a chain function, and the `Problem` built from them.

Shapes, dtypes and devices are always checked (`given`). Values of `lengths` and `labels` are checked only where reading
them does not wait for a device: on the CPU, by `check_values` or by the kernel that reads them anyway. `check` also
reads values on an accelerator.
"""

import torch
from torch import Tensor

from ..native.values import capturing, eager, readable, signature
from .problem import Problem, positions, whole

CACHE_SIZE = 1024  # entries in the cache of validated inputs
INTEGERS = torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16, torch.uint32, torch.uint64


def given(unary: Tensor, pairwise: Tensor, lengths: Tensor | None = None, labels: Tensor | None = None) -> Problem:
    """Validate everything but the values of lengths and labels; half precision becomes float32.

    Shapes, dtypes and devices that passed before are found in a cache. The lookup takes a third of the time of the
    checks, which matters for short chains.
    """
    if not eager():  # a traced program must not depend on what the cache holds
        return _validate(unary, pairwise, lengths, labels)
    key = signature(unary, pairwise, lengths, labels)
    cached = _validated.get(key)
    if cached is not None and (lengths is not None or not capturing(unary)):
        return Problem(unary, pairwise, cached if lengths is None else lengths)
    chain = _validate(unary, pairwise, lengths, labels)
    unchanged = chain.unary is unary and chain.pairwise is pairwise and (lengths is None or chain.lengths is lengths)
    if unchanged and not capturing(unary):
        if len(_validated) == CACHE_SIZE:
            _validated.clear()
        _validated[key] = chain.lengths if lengths is None else _UNUSED
    return chain


def problem(unary: Tensor, pairwise: Tensor, lengths: Tensor | None = None, labels: Tensor | None = None) -> Problem:
    """A problem for plain torch: everything is validated, and pairwise is spread."""
    chain = given(unary, pairwise, lengths, labels)
    check_values(chain, labels)
    return chain.spread()


def check(unary: Tensor, pairwise: Tensor, labels: Tensor | None = None, lengths: Tensor | None = None) -> None:
    """Raise if any value is out of its range: NaN or +inf in a score, a bad length, a label out of range.

    Every function of this package checks shapes and dtypes. Checking values on an accelerator means waiting for it, so
    this function does it on request.

    >>> unary = torch.zeros(2, 4, 3)
    >>> unary[1, 2, 0] = float("nan")
    >>> check(unary, torch.zeros(3, 3))
    Traceback (most recent call last):
    ...
    ValueError: unary[1, 2, 0] is nan: scores must be finite or -inf
    """
    given(unary, pairwise, lengths, labels)
    lengths = None if lengths is None else int64("lengths", lengths)
    valid = torch.ones_like(unary[..., 0], dtype=torch.bool) if lengths is None else positions(unary, lengths)
    if lengths is not None:
        _check_length_values(unary, lengths)
    _check_finite("unary", unary, valid[..., None])
    _check_finite("pairwise", pairwise)
    if labels is not None:
        check_label_values(unary, int64("labels", labels), valid)


_UNUSED = torch.empty(0)
_validated: dict[tuple[object, ...], Tensor] = {}  # signatures of valid inputs -> default lengths


def _validate(unary: Tensor, pairwise: Tensor, lengths: Tensor | None, labels: Tensor | None) -> Problem:
    check_scores(unary, pairwise)
    if unary.dtype != pairwise.dtype or unary.dtype not in (torch.float32, torch.float64):
        dtype = torch.promote_types(torch.promote_types(unary.dtype, pairwise.dtype), torch.float32)
        unary, pairwise = unary.to(dtype), pairwise.to(dtype)
    if lengths is None:
        lengths = whole(unary)
    else:
        check_lengths(unary, lengths)
        lengths = int64("lengths", lengths)
    if labels is not None:
        check_labels(unary, labels)
    return Problem(unary, pairwise, lengths)


def check_values(chain: Problem, labels: Tensor | None = None) -> None:
    """Raise if a length, or the label of a valid position, is out of range. Skipped where values cannot be read."""
    unary, _, lengths = chain
    if not readable(lengths):
        return
    _check_length_values(unary, lengths)
    if labels is None or not readable(labels) or labels.numel() == 0:
        return
    labels = int64("labels", labels)
    low, high = labels.aminmax()  # cheap test that settles most cases
    if low < 0 or high >= unary.shape[-1]:
        check_label_values(unary, labels, positions(unary, lengths))


def int64(name: str, x: Tensor) -> Tensor:
    """Integers of any type as int64, since torch indexes by few others. What int64 cannot hold becomes its largest.

    >>> int64("labels", torch.tensor([0, 255], dtype=torch.uint8))
    tensor([  0, 255])
    """
    if x.dtype == torch.int64:
        return x
    _check_integers(name, x)
    signed = x.to(torch.int64)
    return signed.masked_fill(signed < 0, torch.iinfo(torch.int64).max) if x.dtype == torch.uint64 else signed


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
    """Check that labels are in range where `valid` is True. Reads values."""
    index = first(valid & ((labels < 0) | (labels >= unary.shape[-1])))
    if index is not None:
        raise ValueError(
            f"{at('labels', index)} is {int(labels[index])}, but labels of valid positions must be from 0 to "
            f"{unary.shape[-1] - 1}"
        )


def first(where: Tensor) -> tuple[int, ...] | None:
    """The index of the first True, or None."""
    hits = where.nonzero()
    return tuple(hits[0].tolist()) if len(hits) else None


def at(name: str, index: tuple[int, ...]) -> str:
    """`name` with its index, in Python syntax."""
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
    if x.dtype not in INTEGERS:
        raise TypeError(f"{name} must be integers, got {x.dtype}")
