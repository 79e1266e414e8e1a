"""Arguments of constructors, checked where they are given. An error says what an argument must be and what it is."""

import operator
from collections.abc import Iterable
from reprlib import repr as shortened
from types import FunctionType

import numpy as np


def shown(value: object) -> str:
    """A value as an error shows it, on one line.

    >>> shown("learned"), shown(int), shown([1, 2]), shown(shown), shown(object())
    ("'learned'", 'the class int', 'the list [1, 2]', 'the function shown', 'an object of type object')
    """
    if value is None or isinstance(value, bool | int | float | str):
        return shortened(value)
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(value, FunctionType):
        return f"the function {value.__name__}"
    if type(value) in (list, tuple, dict, set):
        return f"the {type(value).__name__} {' '.join(shortened(value).split())}"
    return f"an object of type {type(value).__name__}"


def check_count(name: str, value: object, least: int = 1) -> int:
    """The value as an integer.

    >>> check_count("num_labels", ["O", "B-X"])
    Traceback (most recent call last):
    ...
    TypeError: num_labels must be an integer, got the list ['O', 'B-X']: write len(...)
    """
    try:
        number = None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None:
        hint = ": write len(...)" if isinstance(value, list | tuple | dict) else ""
        raise TypeError(f"{name} must be an integer, got {shown(value)}{hint}")
    if number < least:
        raise ValueError(f"{name} must be at least {least}, got {number}")
    return number


def check_flag(name: str, value: object, *, unset: bool = False) -> None:
    """True or False, also as 0 or 1; with `unset` also None.

    >>> check_flag("boundaries", "no")
    Traceback (most recent call last):
    ...
    TypeError: boundaries must be True or False, got 'no'
    """
    if isinstance(value, bool | np.bool_) or (isinstance(value, int) and value in (0, 1)) or (unset and value is None):
        return
    raise TypeError(f"{name} must be {'True, False or None' if unset else 'True or False'}, got {shown(value)}")


def check_name(name: str, value: object, names: Iterable[str], also: str = "") -> None:
    """One of these names.

    >>> check_name("rule", "best", ("map", "marginal"))
    Traceback (most recent call last):
    ...
    ValueError: rule must be one of map, marginal, got 'best'
    """
    names = list(names)
    if not isinstance(value, str) or value not in names:
        error = ValueError if isinstance(value, str) else TypeError
        raise error(f"{name} must be one of {', '.join(names)}{also}, got {shown(value)}")
