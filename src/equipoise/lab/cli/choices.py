"""Types of command-line options whose values come from registries: schemes, objectives, optimizers, devices."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from ..recipe import OBJECTIVES, OPTIMIZERS
from ..schemes import SCHEMES

if TYPE_CHECKING:
    Scheme = str
    Objective = str
    Optimizer = str
else:
    Scheme = tyro.extras.literal_type_from_choices(list(SCHEMES))
    Objective = tyro.extras.literal_type_from_choices(list(OBJECTIVES))
    Optimizer = tyro.extras.literal_type_from_choices(list(OPTIMIZERS))

Device = Literal["cpu", "cuda"]
Json = Annotated[bool, tyro.conf.arg(name="json")]
Source = Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="[FILE|FOLDER]")]
