"""The types of arguments that the commands of `equipoise tag` share."""

from pathlib import Path
from typing import Annotated

import tyro

Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff]
Json = Annotated[bool, tyro.conf.arg(name="json"), tyro.conf.FlagCreatePairsOff]
Model = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
Source = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
