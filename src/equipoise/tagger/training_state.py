"""What an interrupted training continues from: `training.safetensors` in the folder of the model.

It has the parameters, the state of the optimizer, the history, and the settings and digests of the data and the net, so
that another training is not continued.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..files import tensors
from ..files.errors import DataError
from ..files.writing import WritingError
from .folder import DESCRIPTION, STATE, change, describe, has_model
from .model import TaggingModel

BEFORE = {"bf16": False, "optimizer": "adamw"}
"""What a training of an earlier version did, which had no such settings."""


@dataclass(frozen=True)
class Epoch:
    loss: float
    f1: float | None  # on the validation sentences, if there are any
    ratio: float  # ||U|| / ||W||
    seconds: float


def line(history: Sequence[Epoch], epochs: int) -> str:
    """One line on the last epoch.

    >>> line([Epoch(loss=3.2149, f1=0.9102, ratio=2.0, seconds=31.2)], 15)
    'epoch 1/15: loss 3.21, F1 91.02 %, best 91.02 %, 31 s'
    """
    last, best = history[-1], max(epoch.f1 or 0 for epoch in history)
    f1 = "" if last.f1 is None else f"F1 {100 * last.f1:.2f} %, best {100 * best:.2f} %, "
    return f"epoch {len(history)}/{epochs}: loss {last.loss:.2f}, {f1}{last.seconds:.0f} s"


def digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def write(
    tagger: TaggingModel, optimizer: torch.optim.Optimizer, key: dict[str, Any], history: list[Epoch], folder: Path
) -> None:
    """Everything that the next epoch depends on."""
    named = {f"model.{name}": x for name, x in tagger.state_dict().items()}
    for i, state in optimizer.state_dict()["state"].items():
        named |= {f"optimizer.{i}.{name}": x for name, x in state.items()}
    text = json.dumps({"settings": key, "history": [asdict(epoch) for epoch in history]})
    try:
        tensors.save(folder / STATE, named, text)
    except OSError as error:
        raise WritingError(f"{folder / STATE} could not be written: {error.strerror or error}") from error


def resumed(tagger: TaggingModel, optimizer: torch.optim.Optimizer, key: dict[str, Any], folder: Path) -> list[Epoch]:
    """Load the state in the folder, if there is one, and return its history."""
    path = folder / STATE
    try:
        if not path.exists():
            if not has_model(folder):
                return []
            path = folder / DESCRIPTION
            about = describe(folder)["training"]
            _check_settings(about["settings"], key, folder)
            return [Epoch(**epoch) for epoch in about.get("history", [])]
        named, text = tensors.load(path)
        known = json.loads(text)
        _check_settings(known["settings"], key, folder)
        tagger.load_state_dict({name[6:]: x for name, x in named.items() if name.startswith("model.")})
        state: dict[int, dict[str, Tensor]] = {}
        for name, x in named.items():
            if name.startswith("optimizer."):
                _, number, field = name.split(".")
                state.setdefault(int(number), {})[field] = x
        optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
        return [Epoch(**epoch) for epoch in known["history"]]
    except (AttributeError, KeyError, TypeError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{path} is not the state of this training ({reason}): use --overwrite") from None


def _check_settings(stored: dict[str, Any], key: dict[str, Any], folder: Path) -> None:
    stored = BEFORE | stored
    changed = [name for name in key if stored.get(name) != key[name]]
    if changed:
        what = ", ".join(
            f"the {name}" if name in ("data", "model") else f"{name} {stored.get(name)}" for name in changed
        )
        raise DataError(f"{folder} was trained with other settings ({what}): repeat them, or choose another --out")


def finish(folder: Path, history: list[Epoch]) -> None:
    """Mark the training as finished and remove its state."""
    fields = describe(folder)
    fields["training"] |= {"finished": True, "history": [asdict(epoch) for epoch in history]}
    change(folder, fields)
    (folder / STATE).unlink(missing_ok=True)
