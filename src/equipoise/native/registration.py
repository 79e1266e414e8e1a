"""Operators of torch, `equipoise::NAME`: a function, its results without values for a trace, and its derivative."""

from collections.abc import Callable, Iterable
from typing import Any

import torch

LIBRARY = torch.library.Library("equipoise", "FRAGMENT")


def define(name: str, function: Callable[..., Any], empty: Callable[..., Any], changes: Iterable[str] = ()) -> Any:
    """Register a function, and return its name for further registrations.

    Args:
        name: of the operator.
        function: of tensors, lists of tensors and constants, with annotations.
        empty: returns its results without values, from the same arguments.
        changes: the arguments that it changes.
    """
    qualified: Any = f"equipoise::{name}"
    LIBRARY.define(name + torch.library.infer_schema(function, mutates_args=tuple(changes)))
    LIBRARY.impl(name, function, "CompositeExplicitAutograd")
    torch.library.register_fake(qualified, empty, lib=LIBRARY)
    return qualified
