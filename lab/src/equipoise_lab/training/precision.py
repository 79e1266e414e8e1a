"""The precision of matrix products, which torch keeps in global switches."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def matmul_precision(precision: str) -> Iterator[None]:
    """Matrix products in this precision within the context."""
    if precision not in ("float32", "tf32", "bfloat16"):
        raise ValueError(f"precision must be 'float32', 'tf32' or 'bfloat16', got {precision!r}")
    # cuDNN, which runs LSTMs and convolutions, has its own switch.
    places: tuple[Any, ...] = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [place.allow_tf32 for place in places]
    for place in places:
        place.allow_tf32 = precision == "tf32"
    try:
        yield
    finally:
        for place, allowed in zip(places, before, strict=True):
            place.allow_tf32 = allowed
