"""Where and when a benchmark was run, and what it measured, a row a peer."""

import statistics
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class Measurements:
    device: str
    torch: str
    threads: int
    version: str
    load_before: float
    load_after: float = 0.0
    rows: list[Any] = field(default_factory=list)

    @property
    def busy(self) -> bool:
        """Whether other programs were at work: then trust ratios of several only, and measure again."""
        return self.device.startswith("cpu") and self.load_before > 0.5

    @property
    def slowed(self) -> float:
        """The share of the time, on average over the rows that took turns, that others slowed the machine down."""
        return statistics.fmean([x for row in self.rows if (x := getattr(row, "slowed", None)) is not None] or [0.0])

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "busy": self.busy}
