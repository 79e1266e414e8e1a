"""Types of command-line options with values from registries: tasks, schemes, objectives, optimizers, schedules,
searches."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from ..recipe import OBJECTIVES, OPTIMIZERS, SCHEDULES, SEARCHES
from ..schemes import SCHEMES
from ..tasks import TASKS

if TYPE_CHECKING:
    Scheme = str
    Objective = str
    Optimizer = str
    Schedule = str
    Search = str
else:
    Scheme = Annotated[
        tyro.extras.literal_type_from_choices(list(SCHEMES)),
        tyro.conf.arg(help="Training scheme:\n" + "\n".join(f"{name}: {one.text}." for name, one in SCHEMES.items())),
    ]
    Objective = tyro.extras.literal_type_from_choices(list(OBJECTIVES))
    Optimizer = tyro.extras.literal_type_from_choices(list(OPTIMIZERS))
    Schedule = tyro.extras.literal_type_from_choices(list(SCHEDULES))
    Search = tyro.extras.literal_type_from_choices(list(SEARCHES))

Task = Annotated[
    str,
    tyro.conf.Positional,
    tyro.conf.arg(
        metavar="TASK", help=f"Task: {', '.join(f'{name} ({one.title.lower()})' for name, one in TASKS.items())}."
    ),
]
Json = Annotated[bool, tyro.conf.arg(name="json")]
Source = Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="[FILE|FOLDER]")]
