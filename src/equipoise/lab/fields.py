"""Checks of fields that were read from JSON: a wrong type would only fail much later, or not at all."""

import math
import sys
from typing import Any

LARGEST = sys.float_info.max


def number(fields: dict[str, Any], name: str, largest: float = LARGEST, *, none: bool = True) -> float:
    """A number from 0 on; null is NaN, unless `none` is False.

    >>> number({"test": 0.5}, "test", 1.0)
    0.5
    """
    value = fields[name]
    if value is None and none:
        return math.nan
    if type(value) not in (int, float) or not 0 <= value <= largest:
        wanted = "from 0 to 1" if largest == 1 else "that is not negative and not infinite"
        raise ValueError(f"{name} must be a number {wanted}{' or null' * none}, got {cut(value)}")
    return float(value)


def integer(fields: dict[str, Any], name: str) -> int:
    """An integer from 0 on, of at most 63 bits.

    >>> integer({"seed": 0.5}, "seed")
    Traceback (most recent call last):
    ValueError: seed must be an integer from 0 on, got 0.5
    """
    value = fields[name]
    if type(value) is not int or not 0 <= value < 2**63:
        raise ValueError(f"{name} must be an integer from 0 on, got {cut(value)}")
    return value


def cut(value: object) -> str:
    """The value as a short text."""
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."
