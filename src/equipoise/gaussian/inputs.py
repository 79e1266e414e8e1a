"""The input of every solver: unary scores, embeddings and ridge, checked and brought to one form.

    F(s | X) = -1/2 s^T (W + ridge I) s + U^T s,      W = (11^T - I) (x) A A^T                         (§4.2)

Sizes, dtypes and devices are always checked. Values are checked on the CPU only, where reading them does not wait for a
device.
"""

import math
from typing import NamedTuple, NoReturn

import torch
from torch import Tensor

from ..chain.checks import at, check_device, first
from ..chain.problem import positions
from ..native.values import readable


class System(NamedTuple):
    """A batch of systems in the form that the solvers expect.

    >>> checked_system(torch.zeros(2, 4, 3), torch.zeros(2, 4, 5), 1.0).ridge
    tensor([1., 1.])
    """

    unary: Tensor  # U, (*batch, L, M), 0 beyond the length
    embeddings: Tensor  # A, (*batch, L, D), 0 beyond the length
    ridge: Tensor  # (*batch,), in the dtype of the solution

    def to_solution_dtype(self) -> "System":
        return System(self.unary.to(self.ridge.dtype), self.embeddings.to(self.ridge.dtype), self.ridge)


def checked_system(unary: Tensor, embeddings: Tensor, ridge: float | Tensor, lengths: Tensor | None = None) -> System:
    """Check a system and bring it to one form.

    Half precision is kept, and solutions are float32. If one tensor is float64, the other is converted to float64.
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
    return System(zero_padding(unary, lengths), zero_padding(embeddings, lengths), ridge)


def same_dtype(unary: Tensor, embeddings: Tensor) -> tuple[Tensor, Tensor]:
    """Both as float64 if one of them is; otherwise unchanged."""
    if torch.float64 in (unary.dtype, embeddings.dtype):
        return unary.double(), embeddings.double()
    return unary, embeddings


def as_ridge(ridge: float | Tensor, batch: torch.Size, dtype: torch.dtype, device: torch.device) -> Tensor:
    """ridge as one number per example, (*batch,)."""
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


def zero_padding(x: Tensor, lengths: Tensor | None) -> Tensor:
    """x, (*batch, L, ...), with 0 beyond the length, so that padding affects neither values nor gradients."""
    if lengths is None:
        return x
    if lengths.is_floating_point() or lengths.dtype == torch.bool or lengths.shape != x.shape[:-2]:
        wanted = tuple(x.shape[:-2])
        raise ValueError(f"lengths must be integers of shape {wanted}, got {lengths.dtype} of {tuple(lengths.shape)}")
    check_device("lengths", lengths, x)
    if readable(lengths):
        index = first((lengths < 1) | (lengths > x.shape[-2]))
        if index is not None:
            length = int(lengths[index])
            raise ValueError(f"{at('lengths', index)} is {length}, but must be from 1 to L = {x.shape[-2]}")
    return x.masked_fill(~positions(x, lengths)[..., None], 0)


def check_finite(name: str, x: Tensor) -> None:
    """Raise if x has a NaN or an infinity. Reads values."""
    index = first(~x.isfinite())
    if index is not None:
        raise ValueError(f"{at(name, index)} is {float(x[index])}: it must be finite")


def explain(system: System) -> NoReturn:
    """Raise an error with the reason why the solution is not finite."""
    check_finite("unary", system.unary)
    check_finite("embeddings", system.embeddings)
    unary, embeddings, ridge = system.to_solution_dtype()
    for name, product in (("A^T A", embeddings.mT @ embeddings), ("A^T U", embeddings.mT @ unary)):
        if not bool(product.isfinite().all()):
            raise ValueError(f"unary and embeddings are too large for {ridge.dtype}: {name} overflows")
    raise ValueError("the system is singular: ridge equals an eigenvalue of A^T A up to rounding; see gaussian.bounded")
