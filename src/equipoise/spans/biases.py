"""Biases of a decoder: one number for each kind of transition, added to the score of every labelling that has it.

    kind      from            to                                       name in a file of biases
    stay      outside         outside                                  transition_bias_background_stay
    enter     outside         the first label of a span                transition_bias_background_to_start
    extend    inside a span   its next label, in BIOES not the last    transition_bias_inside_to_continue
    finish    inside a span   its last label, E or L                   transition_bias_inside_to_end
    leave     end of a span   outside                                  transition_bias_end_to_background
    switch    end of a span   the first label of the next span         transition_bias_end_to_start
    start     the first position is inside a span                      transition_bias_start
    end       the last position is inside a span                       transition_bias_end

A file of biases is JSON with named operating points, as `viterbi_calibration.json` beside openai/privacy-filter:

    {"operating_points": {"default": {"biases": {"transition_bias_background_stay": 0.5, ...}, "temperature": 1.2}}}

Biases that a file does not have are 0. `start`, `end` and "temperature" are additions of this library.
"""

import json
import math
from collections.abc import Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..constraints import OUTSIDE, SCHEMES, from_labels, split
from .tables import Tables

KEYS = {
    "stay": "transition_bias_background_stay",
    "enter": "transition_bias_background_to_start",
    "extend": "transition_bias_inside_to_continue",
    "finish": "transition_bias_inside_to_end",
    "leave": "transition_bias_end_to_background",
    "switch": "transition_bias_end_to_start",
    "start": "transition_bias_start",
    "end": "transition_bias_end",
}


class Biases(NamedTuple):
    """One number for each kind of transition, in nats; positive ones make it more probable.

    >>> Biases(enter=1.0).stay
    0.0
    """

    stay: float = 0.0
    enter: float = 0.0
    extend: float = 0.0
    finish: float = 0.0
    leave: float = 0.0
    switch: float = 0.0
    start: float = 0.0
    end: float = 0.0

    @classmethod
    def of(cls, values: Mapping[str, float], name: str = "biases") -> "Biases":
        """Biases from numbers by their name here or in a file.

        >>> Biases.of({"transition_bias_background_stay": -0.5}) == Biases.of({"stay": -0.5})
        True
        """
        if not isinstance(values, Mapping):
            raise TypeError(f"{name} must be numbers by name, such as {{'stay': 1.0}}, got {type(values).__name__}")
        fields = {key: field for field, key in KEYS.items()} | {field: field for field in KEYS}
        for key, value in values.items():
            if key not in fields:
                raise ValueError(f"{name} has the key {key!r}, but must have keys among {', '.join(KEYS)}")
            if not is_number(value):
                raise ValueError(f"{name}[{key!r}] must be a finite number, got {value!r}")
        return cls(**{fields[key]: float(value) for key, value in values.items()})


class Point(NamedTuple):
    """An operating point: biases and a temperature, by which scores are divided."""

    biases: Biases = Biases()
    temperature: float | None = None

    def save(self, path: Path | str, name: str = "default") -> None:
        """Write a file with this operating point, without `start`, `end` and the temperature where they do nothing."""
        values = {KEYS[field]: value for field, value in self.biases._asdict().items()}
        values = {key: value for key, value in values.items() if value or key not in (KEYS["start"], KEYS["end"])}
        point: dict[str, Any] = {"biases": values}
        if self.temperature not in (None, 1.0):
            point["temperature"] = self.temperature
        Path(path).write_text(json.dumps({"operating_points": {name: point}}, indent=2) + "\n", encoding="utf-8")


def read(path: Path | str, name: str = "default") -> Point:
    """One operating point of a file of biases."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    points = content.get("operating_points") if isinstance(content, dict) else None
    if not isinstance(points, dict):
        raise ValueError(f"{path} must be an object with an object 'operating_points'")
    if name not in points:
        raise ValueError(f"{path} has no operating point {name!r}, but {', '.join(map(repr, points))}")
    point = points[name]
    if not isinstance(point, dict) or not isinstance(point.get("biases"), dict):
        raise ValueError(f"{path}: the operating point {name!r} must have an object 'biases'")
    temperature = point.get("temperature")
    if temperature is not None and not (is_number(temperature) and temperature > 0):
        raise ValueError(f"{path}: the temperature must be a positive number, got {temperature!r}")
    return Point(Biases.of(point["biases"], str(path)), temperature)


class Rules(NamedTuple):
    """What a scheme allows, and the kind of each transition, as tensors over M labels."""

    allowed: Tensor  # (M, M) booleans
    start: Tensor  # (M,) booleans
    end: Tensor  # (M,) booleans
    kinds: Tensor  # (M, M), indices of the fields of `Biases`
    inside: Tensor  # (M,) booleans, all labels but O

    def potentials(self, biases: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Scores of transitions (M, M), of the first label (M,) and of the last one (M,), from 8 biases."""
        values = biases.to(self.kinds.device)
        transitions = values[self.kinds].masked_fill(~self.allowed, -torch.inf)
        start, end = (torch.where(self.inside, value, 0) for value in values[6:])
        return transitions, start.masked_fill(~self.start, -torch.inf), end.masked_fill(~self.end, -torch.inf)

    def to(self, device: torch.device) -> "Rules":
        return Rules(*(x.to(device) for x in self))


def rules(labels: Sequence[str], scheme: str, tables: Tables) -> Rules:
    """The rules of a scheme for M labels.

    >>> from equipoise.spans.tables import tables
    >>> names = ["O", "B-X", "I-X"]
    >>> rules(names, "BIO", tables(names, "BIO")).potentials(torch.arange(1.0, 9.0))[0]
    tensor([[1., 2., -inf],
            [5., 6., 3.],
            [5., 6., 3.]])
    """
    inside = torch.tensor([kind is not None for kind in tables.kinds])
    size, last = len(labels), torch.zeros(len(labels)).bool()
    free = torch.ones(size, size).bool()
    allowed, start, end = free, free[0], free[0]
    if scheme.upper() in SCHEMES:
        allowed, start, end, _ = from_labels(labels, scheme)
        middle, final = list(SCHEMES[scheme.upper()].chunk[1:3])
        parts = [split(label, scheme.upper()) for label in labels]
        last = torch.tensor([final != middle and part[0] == final and part != OUTSIDE for part in parts])
    joined, after, to = tables.joined, inside[:, None], inside[None, :]
    kinds = torch.where(joined, torch.where(last, 3, 2), torch.where(after, torch.where(to, 5, 4), to.long()))
    return Rules(allowed, start, end, kinds, inside)


def is_number(value: object) -> bool:
    """Whether this is a finite number, of Python or numpy."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
