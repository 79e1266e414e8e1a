"""The results of a benchmark, one row per peer and case, with the machine and its load."""

import os
import platform
import statistics
from dataclasses import asdict, dataclass, field
from typing import Any, Self

import torch

from equipoise import __version__


@dataclass
class Measurements:
    device: str
    torch: str
    threads: int
    version: str
    load_before: float
    load_after: float = 0.0
    rows: list[Any] = field(default_factory=list)

    @classmethod
    def start(cls, device: str) -> Self:
        """An empty report for this machine, with its current load."""
        name = torch.cuda.get_device_name() if device == "cuda" else platform.processor() or platform.machine()
        return cls(f"{device}: {name}", torch.__version__, torch.get_num_threads(), __version__, os.getloadavg()[0])

    @property
    def busy(self) -> bool:
        """Whether other programs were running at the start. If so, measure again."""
        return self.device.startswith("cpu") and self.load_before > 0.5

    @property
    def slowed(self) -> float:
        """The share of the time in slowed turns, averaged over the rows that have it."""
        return statistics.fmean([x for row in self.rows if (x := getattr(row, "slowed", None)) is not None] or [0.0])

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "busy": self.busy}
