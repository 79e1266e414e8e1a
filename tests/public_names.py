"""The public names of a module, and the methods that a class itself defines."""

import inspect
from types import ModuleType
from typing import Any


def public(module: ModuleType) -> list[str]:
    """`__all__`, or the functions and classes that the module itself defines."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    made = {x: value for x, value in vars(module).items() if inspect.isfunction(value) or inspect.isclass(value)}
    return [x for x, value in made.items() if value.__module__ == module.__name__ and not x.startswith("_")]


def methods_of(layer: type) -> dict[str, Any]:
    """The public methods of a layer, also those of its own base classes."""
    own = [vars(base) for base in layer.__mro__ if base.__module__.startswith("equipoise.")]
    return {x: f for each in own for x, f in each.items() if inspect.isfunction(f) and not x.startswith("_")}
