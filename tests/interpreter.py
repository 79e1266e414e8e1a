"""Triton's interpreter, made to find what it would pass and a GPU would not.

A GPU stops at an address outside all memory, gives fresh memory with any content, and runs programs in any order. The
interpreter reads what lies beside a tensor, gets memory that is often zero, and runs programs in order.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from triton.runtime import interpreter


@contextmanager
def strict() -> Iterator[None]:
    """Check the addresses of all loads and stores, fill fresh memory with NaN, and run programs in reverse order."""
    builder, executor = interpreter.interpreter_builder, interpreter.GridExecutor
    known = np.zeros((0, 2), np.uint64)  # first and last address of each tensor
    load, store, place = builder.create_masked_load, builder.create_masked_store, builder.set_grid_idx
    arguments = executor._init_args_hst

    def with_known_tensors(self: Any, args: Any, kwargs: Any) -> Any:
        nonlocal known
        found = arguments(self, args, kwargs)
        tensors = [x for x in found[0] if isinstance(x, Tensor) and x.numel()]
        known = np.array([(x.data_ptr(), x.data_ptr() + x.nbytes - 1) for x in tensors], np.uint64)
        return found

    def check(pointers: Any, mask: Any) -> None:
        used = pointers.data[mask.data.astype(bool)]
        if used.size:
            low, high = used.min(), used.max()
            if not ((known[:, 0] <= low) & (high <= known[:, 1])).any():
                raise IndexError(f"addresses {low} to {high} are not within one argument")

    def checked_load(pointers: Any, mask: Any, *rest: Any) -> Any:
        check(pointers, mask)
        return load(pointers, mask, *rest)

    def checked_store(pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        check(pointers, mask)
        return store(pointers, value, mask, *rest)

    def in_reverse(x: int, y: int, z: int) -> None:
        place(builder.grid_dim[0] - 1 - x, y, z)

    builder.create_masked_load, builder.create_masked_store = checked_load, checked_store
    builder.set_grid_idx, executor._init_args_hst = in_reverse, with_known_tensors
    deterministic = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)  # torch.empty then gives NaN
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(deterministic)
        executor._init_args_hst = arguments
        del builder.create_masked_load, builder.create_masked_store, builder.set_grid_idx
