"""Turns in which the machine was slowed down do not count, unless a call has no others."""

import itertools
import math

import pytest

from equipoise_lab.bench import timing
from equipoise_lab.bench.timing import MAX_SECONDS, SLOWED, STEPS, TURN, Probe, Times, Turn, measure, measure_warm


class Clock:
    """A clock that advances only when `work` is called."""

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


def no_wait() -> None:
    """There is no device to wait for."""


def times_of(found: dict[str, Times | str], name: str = "a") -> Times:
    times = found[name]
    assert isinstance(times, Times)
    return times


def test_only_steady_turns_count() -> None:
    times = Times([Turn(1.0, [3.0, 5.0]), Turn(SLOWED, [9.0, 9.0, 9.0]), Turn(1.1, [4.0])], fastest=1.0)
    assert times.counted == [3, 5, 4]
    assert times.median == 4
    assert times.lowest == 3
    assert times.slowed == pytest.approx(27 / 39)
    assert times.every == [3, 5, 9, 9, 9, 4]


def test_all_turns_count_if_none_is_steady() -> None:
    times = Times([Turn(2.0, [3.0]), Turn(3.0, [5.0])], fastest=1.0)
    assert times.counted == [3, 5]
    assert times.slowed == 1


def test_ratios_use_the_same_kind_of_turns_for_both() -> None:
    one = Times([Turn(1.0, [2.0, 2.0]), Turn(2.0, [5.0, 5.0, 5.0])], fastest=1.0)
    other = Times([Turn(1.0, [8.0])], fastest=1.0)
    slowed = Times([Turn(2.0, [10.0])], fastest=1.0)
    assert other.relative_to(one) == 4
    assert slowed.relative_to(one) == 2
    assert one.relative_to(slowed) == 0.5


def test_turns_of_the_same_round_are_compared() -> None:
    """Slow rounds have the same ratio as quick ones, and none is left out."""
    base = Times([Turn(1.0, [2.0, 2.0]), Turn(9.0, [20.0]), Turn(1.0, [2.0])], fastest=1.0)
    other = Times([Turn(1.0, [3.0]), Turn(9.0, [30.0]), Turn(1.0, [8.0, 8.0]), Turn(1.0, [50.0])], fastest=1.0)
    assert other.turn_by_turn(base) == 1.5
    assert base.turn_by_turn(base) == 1


def test_slowed_turns_are_repeated(clock: Clock) -> None:
    """Each turn has a probe before and after it. The second turn of each call is slowed."""
    probes = itertools.cycle([1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 1.0])
    found = measure({"a": clock.work, "b": clock.work}, 1.5 * TURN, no_wait, Probe(lambda: next(probes)))
    for name in ("a", "b"):
        times = times_of(found, name)
        assert [turn.probe for turn in times.turns] == [1, 2, 1]
        assert len(times.counted) == 2
        assert times.slowed == pytest.approx(1 / 3)


@pytest.mark.parametrize(("seconds", "turns"), [(1.0, 2), (2.0, 2 * MAX_SECONDS - 1)])
def test_the_wait_for_steady_turns_is_limited(clock: Clock, seconds: float, turns: int) -> None:
    """On a machine that is always slow, measuring takes at most MAX_SECONDS times as long."""
    probe = Probe(lambda: seconds)
    probe.fastest = 1.0
    times = times_of(measure({"a": clock.work}, 1.7 * TURN, no_wait, probe))
    assert len(times.turns) == turns
    assert bool(times.steady) == (seconds == 1)


def test_turns_are_compared_with_the_fastest_probe_of_the_run(clock: Clock) -> None:
    """Also if that probe comes after them."""
    probes = iter([2.0, 2.0, 2.0, 2.0])
    times = times_of(measure({"a": clock.work}, 2.5 * TURN, no_wait, Probe(lambda: next(probes, 1.0))))
    assert [turn.probe for turn in times.turns] == [2, 2, 1, 1, 1]
    assert times.fastest == 1
    assert len(times.steady) == 3


def test_a_turn_has_as_many_calls_as_fit_and_at_least_one(clock: Clock) -> None:
    calls = {"short": lambda: clock.work(TURN / 8), "long": lambda: clock.work(9 * TURN)}
    found = measure(calls, 0.0, no_wait, Probe(lambda: 1.0))
    assert times_of(found, "short").every == [TURN / 8] * 8
    assert times_of(found, "long").every == [pytest.approx(9 * TURN)]


@pytest.mark.parametrize("measured", [measure, measure_warm])
def test_a_failing_peer_is_reported_and_the_others_are_measured(measured) -> None:
    def fails() -> None:
        raise MemoryError("no room")

    found = measured({"bad": fails, "good": no_wait}, 0.0, no_wait)
    assert found["bad"] == "MemoryError: no room"
    assert times_of(found, "good").every


def test_the_first_turn_does_not_count_after_a_warm_up(clock: Clock) -> None:
    seconds = iter([9 * TURN])
    found = measure_warm({"a": lambda: clock.work(next(seconds, TURN))}, 0.0, no_wait)
    assert times_of(found).every == [pytest.approx(TURN)]


def test_a_call_includes_the_work_of_the_device(clock: Clock) -> None:
    """Work that was queued before the call does not count; work that the call queues does."""
    queue = [5 * TURN]

    def call() -> None:
        queue.append(2 * TURN)

    def wait() -> None:
        clock.work(sum(queue))
        queue.clear()

    assert times_of(measure({"a": call}, 0.0, wait, Probe(lambda: 1.0))).every == [pytest.approx(2 * TURN)]


def test_the_probe_measures_and_stores_the_fastest_time() -> None:
    probe = Probe()
    assert probe.fastest == math.inf
    measured = [probe() for _ in range(5)]
    assert probe.fastest == min(measured) > 0


def test_work_before_each_call_is_not_timed(clock: Clock) -> None:
    order: list[str] = []

    def before() -> None:
        order.append("before")
        clock.work(1.0)

    def call(name: str, seconds: float) -> None:
        order.append(name)
        clock.work(seconds)

    short, long = TURN / STEPS / 2, TURN / 2
    calls = {"short": lambda: call("short", short), "long": lambda: call("long", long)}
    found = measure(calls, 0.003, no_wait, Probe(lambda: 1.0), before)
    # Some steps of each in turn, and fewer if they take longer.
    assert order[: 2 * STEPS + 4] == ["before", "short"] * STEPS + ["before", "long"] * 2
    assert order[2 * STEPS + 4 :][:2] != ["before", "long"]
    assert times_of(found, "short").mean == pytest.approx(short)
    assert times_of(found, "long").mean == pytest.approx(long)
