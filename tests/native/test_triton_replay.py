"""Recorded launches without a GPU: kernels are Python functions, of tensors first and then of addresses."""

import ctypes
import importlib
import weakref
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="launches need Triton, which is not installed")
replay = importlib.import_module("equipoise.native.triton_replay")
triton_start = importlib.import_module("equipoise.native.triton_start")
Launch = triton_start.Launch
SIZE, CPU = 4, torch.device("cpu")


class Kernel:
    """out = factor * x + y, or factor * x if y is None, for arrays of SIZE numbers; the factor is a constant."""

    fn = "kernel"

    def by_tensor(self, x: Tensor, y: Tensor | None, out: Tensor, factor: float) -> None:
        first = slice(SIZE)  # memory may continue after them
        out.view(-1)[first] = factor * x.view(-1)[first] + (0 if y is None else y.view(-1)[first])

    def by_address(self, x: int, y: int | None, out: int, factor: float) -> None:
        xs, ys, outs = (None if a is None else (ctypes.c_float * SIZE).from_address(a) for a in (x, y, out))
        assert xs is not None
        assert outs is not None
        for i in range(SIZE):
            outs[i] = factor * xs[i] + (0 if ys is None else ys[i])


class Weigh(Kernel):
    """out = n * x[0] * y, with the first two arguments given later."""

    fn = "weigh"

    def by_tensor(self, x: Tensor, n: int, y: Tensor, out: Tensor, _: float) -> None:  # type: ignore[override]
        out.view(-1)[:SIZE] = n * x * y

    def by_address(self, x: int, n: int, y: int, out: int, _: float) -> None:  # type: ignore[override]
        weight = (ctypes.c_float * 1).from_address(x)[0]
        super().by_address(y, None, out, n * weight)


KERNEL, WEIGH = Kernel(), Weigh()


class Machine:
    """Starts kernels, and counts how."""

    def __init__(self) -> None:
        self.started, self.direct, self.device = 0, 0, -1  # a tensor on the CPU has device -1
        self.compiled: set[tuple[Any, ...]] = set()
        self.searches = 0

    def start(self, kernel: Kernel, programs: int, warps: int, arguments: Any, constants: Any, *_: Any) -> None:
        assert not any(x.requires_grad for x in arguments if isinstance(x, Tensor))
        self.started += 1
        self.compiled.add((kernel, self.device, constants, *map(type, arguments)))
        kernel.by_tensor(*arguments, *constants)

    def find(self, kernel: Kernel, device: int, constants: Any, *types: type) -> Any:
        def run(x: int, y: int, z: int, stream: int, function: Any, *rest: Any) -> None:
            assert (x, y, z, stream, rest[:4]) == (5, 1, 1, 7, ("metadata", None, None, None))
            self.direct += 1
            function.by_address(*rest[4:])

        self.searches += 1
        if (kernel, device, constants, *types) not in self.compiled:
            return None
        return SimpleNamespace(run=run, function=kernel, packed_metadata="metadata")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    found = Machine()
    monkeypatch.setattr(replay, "start", found.start)
    monkeypatch.setattr(replay.triton_start, "find", found.find)
    monkeypatch.setattr(replay.triton_start, "DIRECT_LAUNCH", True)
    monkeypatch.setattr(replay.values, "current_device", lambda: found.device)
    monkeypatch.setattr(replay.values, "current_stream", lambda device: 7)
    monkeypatch.setattr(replay, "replays", {})
    return found


def call(recording: Any, a: Tensor, b: Tensor, c: Tensor | None) -> tuple[Tensor, Tensor, Any]:
    """2 a + b, and 3 (2 a + b) + c, and for later weight * a and weight * 4 a."""
    make = torch.empty if recording is None else lambda shape: recording.empty(shape, torch.float32, CPU)
    run = replay.start if recording is None else recording.start
    both = make((2, SIZE))  # views of memory that was made are found in it
    double, total, result, first, second = both[1], make(SIZE), make((1, SIZE)), make(SIZE), make(SIZE)
    run(KERNEL, 5, 1, (a, None, double), (2.0,))
    run(KERNEL, 5, 1, (double, b, total), (1.0,))
    run(KERNEL, 5, 1, (total, c, result.view(SIZE)), (3.0,))
    weighted = make(SIZE)
    launches = [
        Launch(WEIGH, 5, 1, (a, weighted), (0.0,)),
        Launch(KERNEL, 5, 1, (weighted, None, first), (1.0,)),
        Launch(KERNEL, 5, 1, (weighted, None, second), (4.0,)),
    ]
    return total, result, (replay.defer if recording is None else recording.defer)(launches, [first, second])


def numbers(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    return tuple(torch.randn(3, SIZE, generator=torch.Generator().manual_seed(seed)).unbind())  # type: ignore[return-value]


def check(results: Sequence[Any], a: Tensor, b: Tensor, c: Tensor | None) -> None:
    total, result, later = results
    torch.testing.assert_close(total, 2 * a + b)
    torch.testing.assert_close(result, (3 * total + (0 if c is None else c))[None])
    factors = ((0.5, 1), (-1.5, 2))
    found = [later(torch.tensor(weight), n) for weight, n in factors]  # each with its own memory
    for (weight, n), (first, second) in zip(factors, found, strict=True):
        torch.testing.assert_close(first, n * weight * a)
        torch.testing.assert_close(second, 4 * n * weight * a)


@pytest.mark.parametrize("optional", [True, False])
def test_every_call_computes_the_same(machine: Machine, optional: bool) -> None:
    """Recorded, and repeated directly."""
    for seed in range(4):
        a, b, c = (x.clone() for x in numbers(seed))
        inputs = a, b, c if optional else None
        check(replay.repeated(("key", optional), call, *inputs), *inputs)
    assert len(replay.replays) == 1
    assert machine.searches == 3 + 3  # in the second call; then they are known
    # Started, three launches each: the first call, its two uses of what is for later, and each second use afterwards.
    assert (machine.started, machine.direct) == (3 * 3 + 3 * 3, 3 * (3 + 3))


def test_parameters(machine: Machine) -> None:
    for seed in range(3):
        a, b, c = (x.clone() for x in numbers(seed))
        inputs = torch.nn.Parameter(a), b, c
        check(replay.repeated("key", lambda r, x, *rest: call(r, x.detach(), *rest), *inputs), a, b, c)


def test_a_kernel_that_was_started_with_a_parameter(machine: Machine) -> None:
    """Its type is another one, so it is started once more with a plain tensor."""
    started = []
    for seed in range(3):
        a, b, c = (x.clone() for x in numbers(seed))
        before = machine.started
        results = replay.repeated("key", call, torch.nn.Parameter(a, requires_grad=False), b, c)
        started.append(machine.started - before)
        check(results, a, b, c)
    assert started == [3, 3, 0]


def test_what_is_not_recorded(machine: Machine) -> None:
    """Gaps in memory, an address given twice, and nothing at all."""
    a, b, c = (x.clone() for x in numbers(0))
    gaps = torch.stack([a, a], -1)[:, 0]
    check(replay.repeated("gaps", call, gaps, b, c), gaps, b, c)
    check(replay.repeated("twice", call, a, b, b.view(SIZE)), a, b, b)
    assert replay.repeated("none", lambda recording, x: [recording], torch.empty(0)) == [None]
    assert not replay.replays
    check(replay.repeated("key", call, a, b, c), a, b, c)
    check(replay.repeated("key", call, gaps, b, c), gaps, b, c)  # also if the key is known
    assert len(replay.replays) == 1


def test_another_device(machine: Machine) -> None:
    """A launch on a device that is not the current one is not direct."""
    for seed in range(4):
        machine.device = 3 if seed == 3 else -1
        a, b, c = (x.clone() for x in numbers(seed))
        before = machine.direct
        results = replay.repeated("key", call, a, b, c)
        assert machine.direct - before == (3 if seed in (1, 2) else 0)
        check(results, a, b, c)
    a, b, c = (x.clone() for x in numbers(5))
    machine.device = -1
    results = replay.repeated("key", call, a, b, c)
    machine.device = 3  # the device changes before the launches for later
    check(results, a, b, c)


def test_without_an_interface_for_direct_launches(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay.triton_start, "DIRECT_LAUNCH", False)
    for seed in range(3):
        a, b, c = (x.clone() for x in numbers(seed))
        check(replay.repeated("key", call, a, b, c), a, b, c)
    assert not machine.direct


def test_one_number_with_a_stride(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts as contiguous."""
    monkeypatch.setattr(replay.triton_start, "DIRECT_LAUNCH", False)

    def triple(recording: Any, x: Tensor) -> tuple[Tensor]:
        found = recording.empty((1,), torch.float32, CPU)
        recording.start(KERNEL, 5, 1, (x, None, found), (3.0,))
        return (found,)

    for number in (1.0, 2.0, 3.0):
        x = torch.tensor([number, -1.0])[::2]
        assert x.is_contiguous()
        assert replay.repeated("key", triple, x)[0].tolist() == [3 * number]
    assert machine.started == 3


def test_outputs_are_not_kept(machine: Machine) -> None:
    """Neither what the call returns, while its launches for later exist, nor what these return."""
    for seed in range(3):
        a, b, c = (x.clone() for x in numbers(seed))
        total, result, later = replay.repeated("key", call, a, b, c)
        seen = [weakref.ref(x) for x in (total, result)]
        del total, result
        found = later(torch.tensor(1.0), 1)
        seen += [weakref.ref(x) for x in found]
        del found
        if seed:  # a recording is alive as long as its own launches for later
            assert [x() for x in seen] == [None] * 4


def test_memory_that_a_recording_does_not_know(machine: Machine) -> None:
    def wrong(recording: Any, a: Tensor) -> list[Tensor]:
        out = torch.empty(SIZE)
        recording.start(KERNEL, 5, 1, (a, None, out), (1.0,))
        return [out]

    with pytest.raises(ValueError, match="must be an input or come from"):
        replay.repeated("key", wrong, torch.ones(SIZE))


def test_the_number_of_recordings_is_limited(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "MAX_REPLAYS", 2)
    a, b, c = (x.clone() for x in numbers(0))
    sizes = []
    for key in range(5):
        check(replay.repeated(key, call, a, b, c), a, b, c)
        sizes.append(len(replay.replays))
    assert sizes == [1, 2, 1, 2, 1]


def test_scratch_memory_is_aligned(machine: Machine) -> None:
    def odd(recording: Any, a: Tensor) -> list[Tensor]:
        parts = [recording.empty((n,), torch.uint8, CPU) for n in (1, 17, 16, 3)]
        out = recording.empty((SIZE,), torch.float32, CPU)
        recording.start(KERNEL, 5, 1, (a, None, out), (1.0,))
        recording.launches.append(Launch(KERNEL, 1, 1, tuple(parts), ()))
        return [out]

    replay.repeated("key", odd, torch.ones(SIZE))
    (found,) = replay.replays.values()
    offsets = [place.offset for place in found.launches[1].arguments]
    assert offsets == [0, 16, 48, 64]
    assert found.scratch == (80,)
