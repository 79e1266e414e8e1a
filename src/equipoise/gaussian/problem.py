"""The question every solver is asked: unary scores, embeddings and ridge, checked and brought to one shape.

    F(s | X) = -1/2 s^T (W + ridge I) s + U^T s,      W = (11^T - I) (x) A A^T                         (§4.2)

Sizes, dtypes and devices are always checked; values where that needs no waiting for a device, which is on the CPU.
"""

import math
from typing import NamedTuple, NoReturn

import torch
from torch import Tensor

from ..chain.problem import at, check_device, first, positions
from ..native.values import readable


class Problem(NamedTuple):
    """A batch of systems in the one shape that the solvers work on."""

    unary: Tensor  # U, (*batch, L, M), 0 beyond the length
    embeddings: Tensor  # A, (*batch, L, D), likewise
    ridge: Tensor  # (*batch,), of the dtype in which answers are given

    def to_answer_dtype(self) -> "Problem":
        return Problem(self.unary.to(self.ridge.dtype), self.embeddings.to(self.ridge.dtype), self.ridge)


def problem(unary: Tensor, embeddings: Tensor, ridge: float | Tensor, lengths: Tensor | None = None) -> Problem:
    """Check a system and bring it to one shape.

    Half precision stays as it is, to be read as it is: answers are float32. Other dtypes are raised to the wider one.
    """
    check_tensor("unary", unary, "(*batch, L, M)")
    check_embeddings(embeddings)
    check_device("embeddings", embeddings, unary)
    if embeddings.shape[:-1] != unary.shape[:-1]:
        wanted = ", ".join(map(str, unary.shape[:-1]))
        raise ValueError(
            f"embeddings has shape {tuple(embeddings.shape)}, but unary {tuple(unary.shape)} needs ({wanted}, D)"
        )
    unary, embeddings = same_dtype(unary, embeddings)
    ridge = as_ridge(ridge, unary.shape[:-2], torch.promote_types(unary.dtype, torch.float32), unary.device)
    return Problem(beyond_zero(unary, lengths), beyond_zero(embeddings, lengths), ridge)


def same_dtype(unary: Tensor, embeddings: Tensor) -> tuple[Tensor, Tensor]:
    """Both as float64 if one of them is; half precision and float32 as they are."""
    if torch.float64 in (unary.dtype, embeddings.dtype):
        return unary.double(), embeddings.double()
    return unary, embeddings


def as_ridge(ridge: float | Tensor, batch: torch.Size, dtype: torch.dtype, device: torch.device) -> Tensor:
    """ridge as one number an example, (*batch,)."""
    if not isinstance(ridge, Tensor):
        if not 0 < ridge < math.inf:
            raise ValueError(f"ridge must be positive, got {ridge}")
        return torch.full(batch, ridge, dtype=dtype, device=device)
    try:
        fits = torch.broadcast_shapes(ridge.shape, batch) == batch
    except RuntimeError:
        fits = False
    if not fits:
        raise ValueError(f"ridge has shape {tuple(ridge.shape)}, but must be a number or of shape {tuple(batch)}")
    if readable(ridge):
        index = first(~((ridge > 0) & (ridge < math.inf)))
        if index is not None:
            raise ValueError(f"ridge must be positive, but {at('ridge', index)} is {float(ridge[index]):g}")
    return ridge.to(device=device, dtype=dtype).expand(batch)


def check_embeddings(embeddings: Tensor) -> None:
    check_tensor("embeddings", embeddings, "(*batch, L, D)")


def check_tensor(name: str, x: Tensor, shape: str) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} must be a tensor, got {type(x).__name__}")
    if not x.is_floating_point():
        raise TypeError(f"{name} must have a floating-point dtype, got {x.dtype}")
    if x.ndim < 2 or 0 in x.shape[-2:]:
        raise ValueError(f"{name} must have shape {shape} with no size of 0 after the batch, got {tuple(x.shape)}")


def beyond_zero(x: Tensor, lengths: Tensor | None) -> Tensor:
    """x, (*batch, L, ...), with 0 beyond the length: what stands there must reach neither a value nor a gradient."""
    if lengths is None:
        return x
    if lengths.is_floating_point() or lengths.dtype == torch.bool or lengths.shape != x.shape[:-2]:
        wanted = tuple(x.shape[:-2])
        raise ValueError(f"lengths must be integers of shape {wanted}, got {lengths.dtype} of {tuple(lengths.shape)}")
    check_device("lengths", lengths, x)
    if readable(lengths):
        index = first((lengths < 1) | (lengths > x.shape[-2]))
        if index is not None:
            found = int(lengths[index])
            raise ValueError(f"{at('lengths', index)} is {found}, but must be from 1 to L = {x.shape[-2]}")
    return x.masked_fill(~positions(x, lengths)[..., None], 0)


def check_finite(name: str, x: Tensor) -> None:
    """Raise if x has a NaN or an infinity. Reads values."""
    index = first(~x.isfinite())
    if index is not None:
        raise ValueError(f"{at(name, index)} is {float(x[index])}: it must be finite")


def explain(system: Problem) -> NoReturn:
    """Say why the answer is not finite."""
    check_finite("unary", system.unary)
    check_finite("embeddings", system.embeddings)
    unary, embeddings, ridge = system.to_answer_dtype()
    for name, product in (("A^T A", embeddings.mT @ embeddings), ("A^T U", embeddings.mT @ unary)):
        if not bool(product.isfinite().all()):
            raise ValueError(f"unary and embeddings are too large for {ridge.dtype}: {name} overflows")
    raise ValueError(
        "the system has no solution: ridge is, up to rounding, an eigenvalue of A^T A; see gaussian.bounded"
    )
