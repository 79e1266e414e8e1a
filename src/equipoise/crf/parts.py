"""The scaling method and the constraints of a layer, checked where they are given. An error says what was meant:

ChainCRF(5, scaling.Learned)        got the class Learned: write scaling.Learned()
ChainCRF(5, constraints=["O"])      got the list ['O']: write constraints.from_labels(labels, 'BIO')
"""

import torch
from torch import Tensor

from .. import scaling
from ..arguments import shown
from ..constraints import SCHEMES, Constraints, from_labels
from ..scaling import Fixed, Scaling


def check_scaling(value: object) -> Scaling:
    """The scaling method; `Fixed()` for None."""
    if value is None:
        return Fixed()
    if isinstance(value, Scaling):
        return value
    hint = scaling_meant(value)
    raise TypeError(
        f"scaling must be a method such as scaling.Learned(), got {shown(value)}{f': write {hint}' if hint else ''}"
    )


def scaling_meant(value: object) -> str:
    """What to write instead; "" if that is unclear."""
    if isinstance(value, str):
        methods = (name for name in scaling.__all__ if name.lower() == value.strip().lower())
        value = next((getattr(scaling, name) for name in methods), None)
    if isinstance(value, type) and issubclass(value, Scaling) and value is not Scaling:
        return f"{'scaling.' if value.__name__ in scaling.__all__ else ''}{value.__name__}()"
    if isinstance(value, Constraints):
        return "constraints=..."
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"scaling.Fixed({value})"
    return ""


def check_generator(value: object) -> torch.Generator | None:
    if value is None or isinstance(value, torch.Generator):
        return value
    hint = f": write torch.Generator().manual_seed({value})" if isinstance(value, int) else ""
    raise TypeError(f"generator must be a torch.Generator, got {shown(value)}{hint}")


def check_constraints(value: object) -> Constraints | None:
    if value is None or isinstance(value, Constraints):
        return value
    hint = ""
    if isinstance(value, Scaling):
        hint = ": write scaling=..."
    elif value is from_labels or isinstance(value, str | list | tuple | dict):
        scheme = value.upper() if isinstance(value, str) and value.upper() in SCHEMES else "BIO"
        hint = f": write constraints.from_labels(labels, {scheme!r})"
    elif isinstance(value, Tensor):
        hint = ": write constraints.Constraints(transitions, start, end)"
    raise TypeError(f"constraints must come from constraints.from_labels, got {shown(value)}{hint}")
