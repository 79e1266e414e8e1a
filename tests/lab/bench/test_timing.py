"""Turns that the machine slowed down do not count, whoever's they were, and never for want of others."""

import itertools
import math

import pytest

from equipoise.lab.bench import timing
from equipoise.lab.bench.timing import PATIENCE, SLOWED, TURN, Pulse, Times, Turn, measure


class Clock:
    """One that stands still unless somebody works."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now

    def work(self, seconds: float = TURN) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(timing, "time", clock)
    return clock


def nobody() -> None:
    """There is no device to wait for."""


def times_of(found: dict[str, Times | str], name: str = "a") -> Times:
    times = found[name]
    assert isinstance(times, Times)
    return times


def test_only_steady_turns_count() -> None:
    times = Times([Turn(1.0, [3.0, 5.0]), Turn(SLOWED, [9.0, 9.0, 9.0]), Turn(1.1, [4.0])], quickest=1.0)
    assert times.counted == [3, 5, 4]
    assert times.median == 4
    assert times.lowest == 3
    assert times.slowed == pytest.approx(27 / 39)
    assert times.every == [3, 5, 9, 9, 9, 4]


def test_all_turns_count_if_none_is_steady() -> None:
    times = Times([Turn(2.0, [3.0]), Turn(3.0, [5.0])], quickest=1.0)
    assert times.counted == [3, 5]
    assert times.slowed == 1


def test_like_is_compared_with_like() -> None:
    one = Times([Turn(1.0, [2.0, 2.0]), Turn(2.0, [5.0, 5.0, 5.0])], quickest=1.0)
    other = Times([Turn(1.0, [8.0])], quickest=1.0)
    slowed = Times([Turn(2.0, [10.0])], quickest=1.0)
    assert other.over(one) == 4
    assert slowed.over(one) == 2
    assert one.over(slowed) == 0.5


def test_a_slow_machine_is_waited_for_and_its_turns_are_set_aside(clock: Clock) -> None:
    """There is a pulse before and after each turn: of each peer's, the second is slowed, and every other after it."""
    beats = itertools.cycle([1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 1.0])
    found = measure({"a": clock.work, "b": clock.work}, 1.5 * TURN, nobody, Pulse(lambda: next(beats)))
    for name in ("a", "b"):
        times = times_of(found, name)
        assert [turn.pulse for turn in times.turns] == [1, 2, 1]
        assert len(times.counted) == 2
        assert times.slowed == pytest.approx(1 / 3)


@pytest.mark.parametrize(("beat", "turns"), [(1.0, 2), (2.0, 2 * PATIENCE - 1)])
def test_patience_ends(clock: Clock, beat: float, turns: int) -> None:
    """A machine that is always slow gets several times the seconds, one that never is, once."""
    pulse = Pulse(lambda: beat)
    pulse.quickest = 1.0
    times = times_of(measure({"a": clock.work}, 1.7 * TURN, nobody, pulse))
    assert len(times.turns) == turns
    assert bool(times.steady) == (beat == 1)


def test_the_quickest_pulse_of_all_is_the_measure(clock: Clock) -> None:
    """Also if it comes last: the turns before it were slowed, though nobody could know."""
    beats = iter([2.0, 2.0, 2.0, 2.0])
    times = times_of(measure({"a": clock.work}, 2.5 * TURN, nobody, Pulse(lambda: next(beats, 1.0))))
    assert [turn.pulse for turn in times.turns] == [2, 2, 1, 1, 1]
    assert times.quickest == 1
    assert len(times.steady) == 3


def test_a_turn_is_as_many_calls_as_fit_and_at_least_one(clock: Clock) -> None:
    calls = {"short": lambda: clock.work(TURN / 8), "long": lambda: clock.work(9 * TURN)}
    found = measure(calls, 0.0, nobody, Pulse(lambda: 1.0))
    assert times_of(found, "short").every == [TURN / 8] * 8
    assert times_of(found, "long").every == [pytest.approx(9 * TURN)]


def test_a_peer_that_fails_says_why_and_stops_nobody() -> None:
    def fails() -> None:
        raise MemoryError("no room")

    found = measure({"bad": fails, "good": nobody}, 0.0, nobody)
    assert found["bad"] == "MemoryError: no room"
    assert times_of(found, "good").every


def test_a_call_ends_with_the_device(clock: Clock) -> None:
    """What the device still had to do before is not the call's time; what it had to do for it is."""
    queue = [5 * TURN]

    def call() -> None:
        queue.append(2 * TURN)

    def wait() -> None:
        clock.work(sum(queue))
        queue.clear()

    assert times_of(measure({"a": call}, 0.0, wait, Pulse(lambda: 1.0))).every == [pytest.approx(2 * TURN)]


def test_a_pulse_is_felt() -> None:
    pulse = Pulse()
    assert pulse.quickest == math.inf
    felt = [pulse() for _ in range(5)]
    assert pulse.quickest == min(felt) > 0
