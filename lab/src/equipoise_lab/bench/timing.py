"""Wall-clock times of calls that alternate, on a machine with other load.

Other processes can halve the speed of a core for tenths of a second, many times a minute, without changing the load
average. So calls are timed in short turns, with a speed probe, a fixed piece of Python, before and after each turn. A
turn is steady if neither probe took much longer than the fastest probe of the run. Only steady turns count; if a call
has none, all its turns count.

With one thread on the CPU, the clock should be the CPU time of the process, which other processes do not lengthen; they
only take their share of the caches.

A call can also be timed "in a step": other work comes right before it, which is not timed. A turn is then a number of
steps of the same library, as in a training loop. All of them count, also the first, which follows the steps of another
one.
"""

import itertools
import math
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

from .peers import Call

TURN = 0.03  # seconds, unless one call takes longer; several short calls in a row keep their data in the caches
MAX_TURNS = 200
STEPS = 20  # in a turn, unless its calls take longer: the first few still miss what other libraries removed from caches
MAX_TURNS_OF_STEPS = 12  # the work before a call may take much longer than the call
SLOWED = 1.25  # a turn is not steady if a probe takes this many times the fastest
MAX_SECONDS = 4  # times the requested seconds, after which no more steady turns are awaited


class Turn(NamedTuple):
    probe: float  # seconds of the slower of the two probes
    seconds: list[float]  # of each call


class Times(NamedTuple):
    """The turns of one call."""

    turns: list[Turn]
    fastest: float  # of all probes

    @property
    def every(self) -> list[float]:
        return [x for turn in self.turns for x in turn.seconds]

    @property
    def steady(self) -> list[float]:
        return [x for turn in self.turns if turn.probe < SLOWED * self.fastest for x in turn.seconds]

    @property
    def counted(self) -> list[float]:
        return self.steady or self.every

    @property
    def median(self) -> float:
        return statistics.median(self.counted)

    @property
    def mean(self) -> float:
        """The mean of all calls, also of slowed ones."""
        return statistics.fmean(self.every)

    @property
    def lowest(self) -> float:
        """The 10th percentile of the counted calls."""
        return sorted(self.counted)[len(self.counted) // 10]

    def relative_to(self, other: "Times") -> float:
        """The ratio of the medians. If either has no steady turn, all turns of both count."""
        if self.steady and other.steady:
            return self.median / other.median
        return statistics.median(self.every) / statistics.median(other.every)

    def turn_by_turn(self, other: "Times") -> float:
        """The median of the ratios of turns of the same round. All turns count: a slow stretch lengthens both."""
        rounds = zip(self.turns, other.turns, strict=False)  # a call may have reached its time earlier
        return statistics.median(statistics.fmean(a.seconds) / statistics.fmean(b.seconds) for a, b in rounds)

    @property
    def slowed(self) -> float:
        """The share of the time in turns that were not steady."""
        return 1 - sum(self.steady) / sum(self.every)


class Probe:
    """Measures the current speed of the machine with a fixed piece of Python, and stores the fastest time."""

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self.clock = clock or (lambda: min(_seconds(lambda: sum(range(1500))) for _ in range(3)))
        self.fastest = math.inf

    def __call__(self) -> float:
        seconds = self.clock()
        self.fastest = min(self.fastest, seconds)
        return seconds


PROBE = Probe()


def measure(
    calls: dict[str, Call],
    seconds: float,
    wait: Callable[[], None],
    probe: Probe = PROBE,
    before: Callable[[], object] | None = None,
    clock: Callable[[], float] | None = None,
) -> dict[str, Times | str]:
    """The times of each call, or its error message. Calls alternate until each has this many steady seconds.

    `wait` blocks until the device has finished. With `before`, calls are timed in a step. `clock` is
    the wall clock by default.
    """
    turns: dict[str, list[Turn]] = {name: [] for name in calls}
    failures: dict[str, str] = {}
    most = MAX_TURNS if before is None else MAX_TURNS_OF_STEPS
    for _, (name, call) in itertools.product(range(most), calls.items()):
        so_far = Times(turns[name], probe.fastest)
        if name in failures or sum(so_far.steady) > seconds or sum(so_far.every) > MAX_SECONDS * seconds:
            continue
        earlier = probe()
        try:
            taken = _turn(call, wait, before, clock)
        except Exception as failure:  # a peer that fails at a size is a result and must not end the run
            failures[name] = f"{type(failure).__name__}: {failure}"[:200]
            continue
        turns[name].append(Turn(max(earlier, probe()), taken))
    return {name: failures.get(name) or Times(turns[name], probe.fastest) for name in calls}


def measure_warm(
    calls: dict[str, Call],
    seconds: float,
    wait: Callable[[], None],
    before: Callable[[], object] | None = None,
    clock: Callable[[], float] | None = None,
) -> dict[str, Times | str]:
    """As `measure`, after one uncounted turn of each call. A call that fails in that turn is not measured."""
    warm = measure(calls, 0.0, wait, before=before, clock=clock)
    able = {name: call for name, call in calls.items() if not isinstance(warm[name], str)}
    times = measure(able, seconds, wait, before=before, clock=clock)
    return {name: times.get(name, warm[name]) for name in calls}


def _turn(
    call: Call,
    wait: Callable[[], None],
    before: Callable[[], object] | None,
    clock: Callable[[], float] | None,
) -> list[float]:
    def finished() -> None:
        call()
        wait()

    taken: list[float] = []
    stop = time.perf_counter() + TURN
    while not taken or (time.perf_counter() < stop if before is None else len(taken) < STEPS and sum(taken) < TURN):
        if before is not None:
            before()
        wait()
        taken.append(_seconds(finished, clock))
    return taken


def _seconds(call: Callable[[], object], clock: Callable[[], float] | None = None) -> float:
    clock = clock or time.perf_counter
    start = clock()
    call()
    return clock() - start
