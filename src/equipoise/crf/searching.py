"""What both layers need for `scaling.Online`: the method itself, and the data to search on."""

import warnings
from collections.abc import Callable, Iterable
from typing import TypeVar

from ..scaling import Online, Scaling

Part = TypeVar("Part")


def searchable(method: Scaling) -> Online:
    if not isinstance(method, Online):
        raise TypeError(f"rebalance needs scaling=Online(...), but this layer has {type(method).__name__}")
    return method


def collect(parts: Iterable[Part], wanted: int, size: Callable[[Part], int], unit: str) -> tuple[list[Part], int]:
    """The first parts that together have the wanted size, or all with a warning; and their size."""
    seen: list[Part] = []
    count = 0
    for part in parts:
        seen.append(part)
        count += size(part)
        if count >= wanted:
            return seen, count
    warnings.warn(f"the search needs {wanted} {unit}, got {count}: alpha is based on those", stacklevel=4)
    return seen, count
