"""The wall clock of calls that take turns, on a machine that is not ours alone.

A neighbour whom no load average shows can make a core half as fast for tenths of a second, many times a minute. So each
turn stands between two pulses, a fixed piece of Python. A turn is steady if neither took much longer than the quickest
pulse of all. What counts is steady turns, whoever's turn it was; if there was none, all do.
"""

import itertools
import math
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

from .peers import Call

TURN = 0.03  # seconds, unless a call takes longer: short calls find their own data in the caches, not that of a peer
MOST_TURNS = 200
SLOWED = 1.25  # times the quickest pulse, from which on a turn is not steady
PATIENCE = 4  # times the seconds asked for, until which steady turns are waited for


class Turn(NamedTuple):
    pulse: float  # the slower of the two around it
    seconds: list[float]  # of each call


class Times(NamedTuple):
    """Of one peer."""

    turns: list[Turn]
    quickest: float  # of all pulses

    @property
    def every(self) -> list[float]:
        return [x for turn in self.turns for x in turn.seconds]

    @property
    def steady(self) -> list[float]:
        return [x for turn in self.turns if turn.pulse < SLOWED * self.quickest for x in turn.seconds]

    @property
    def counted(self) -> list[float]:
        return self.steady or self.every

    @property
    def median(self) -> float:
        return statistics.median(self.counted)

    @property
    def lowest(self) -> float:
        """What a tenth of the calls that count stay below."""
        return sorted(self.counted)[len(self.counted) // 10]

    def over(self, other: "Times") -> float:
        """How many times longer than the other. Where one of them had no steady turn, all turns of both count."""
        if self.steady and other.steady:
            return self.median / other.median
        return statistics.median(self.every) / statistics.median(other.every)

    @property
    def slowed(self) -> float:
        """The share of the time that passed in turns that were not steady."""
        return 1 - sum(self.steady) / sum(self.every)


class Pulse:
    """Feels how fast the machine is, by a fixed piece of Python, and remembers the quickest."""

    def __init__(self, feel: Callable[[], float] | None = None) -> None:
        self.feel = feel or (lambda: min(_wall(lambda: sum(range(1500))) for _ in range(3)))
        self.quickest = math.inf

    def __call__(self) -> float:
        seconds = self.feel()
        self.quickest = min(self.quickest, seconds)
        return seconds


PULSE = Pulse()


def measure(
    calls: dict[str, Call], seconds: float, wait: Callable[[], None], pulse: Pulse = PULSE
) -> dict[str, Times | str]:
    """The times of each call, all taking turns until each has had so many steady seconds; or why it failed."""
    turns: dict[str, list[Turn]] = {name: [] for name in calls}
    failures: dict[str, str] = {}
    for _, (name, call) in itertools.product(range(MOST_TURNS), calls.items()):
        had = Times(turns[name], pulse.quickest)
        if name in failures or sum(had.steady) > seconds or sum(had.every) > PATIENCE * seconds:
            continue
        before = pulse()
        try:
            taken = _turn(call, wait)
        except Exception as failure:  # a peer that breaks on a size is a result, not the end of the run
            failures[name] = f"{type(failure).__name__}: {failure}"[:200]
            continue
        turns[name].append(Turn(max(before, pulse()), taken))
    return {name: failures.get(name) or Times(turns[name], pulse.quickest) for name in calls}


def _turn(call: Call, wait: Callable[[], None]) -> list[float]:
    def answered() -> None:
        call()
        wait()

    taken: list[float] = []
    stop = time.perf_counter() + TURN
    while not taken or time.perf_counter() < stop:
        wait()
        taken.append(_wall(answered))
    return taken


def _wall(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
