"""How Triton's compiled kernels are started, with one that only writes down what it is given."""

import importlib
import weakref
from typing import Any

import pytest
import torch

from equipoise.native import values


@pytest.mark.parametrize("known", [True, False])
def test_a_kernel_that_was_compiled_is_started_with_addresses(known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once or later, with the same arguments in the same order; and the first time by Triton itself."""
    calls: list[tuple[Any, ...]] = []

    class Compiled:
        function, packed_metadata = "function", "metadata"

        def run(self, *args: Any) -> None:
            calls.append(args)

        def __getitem__(self, grid: Any) -> Any:
            return lambda *args, stream: calls.append((*grid, stream, *args))

    class Kernel:
        fn = "kernel"

        def __getitem__(self, grid: Any) -> Any:
            return lambda *args, num_warps: calls.append((*grid, num_warps, *args)) or Compiled()

    pytest.importorskip("triton", reason="there is nothing to start without Triton")
    triton_start = importlib.import_module("equipoise.chain.gpu.start")  # once all tests know how Triton is to run
    monkeypatch.setattr(triton_start, "compiled", {})
    monkeypatch.setattr(triton_start, "DIRECT_LAUNCH", known)
    monkeypatch.setattr(values, "current_device", lambda: -1)
    monkeypatch.setattr(values, "current_stream", lambda device: 7)
    x, y = torch.zeros(2), torch.ones(3)
    kernel, constants = Kernel(), (16, True)
    triton_start.prepare(kernel, 5, 4, (y, None, 3), constants)(x, 1)
    triton_start.start(kernel, 5, 4, (x, 1, y, None, 3), constants)
    triton_start.prepare(kernel, 5, 4, (y, None, 3), constants)(x, 1)
    triton_start.start(kernel, 5, 4, (x, 1, y, y, 3), constants)  # another compilation: what was None is not
    by_triton = (5, 4, x, 1, y, None, 3, 16, True)
    ready = (5, 1, 1, 7, "function", "metadata", None, None, None, x.data_ptr(), 1, y.data_ptr(), None, 3, 16, True)
    plain = (5, 1, 1, 7, x, 1, y, None, 3, 16, True)
    again = ready if known else plain
    kept = torch.ones(3)
    later, alive = triton_start.prepare(kernel, 5, 4, (kept, None, 3), constants), weakref.ref(kept)
    del kept
    assert alive() is not None  # until it is started: an address keeps nothing alive
    del later
    assert alive() is None
    assert len(calls) == 4
    for got, want in zip(calls, (by_triton, again, again, (5, 4, x, 1, y, y, 3, 16, True)), strict=True):
        assert all(a is b or a == b for a, b in zip(got, want, strict=True))
