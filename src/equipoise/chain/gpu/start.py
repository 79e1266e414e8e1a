"""Starts Triton kernels, at a third of what Triton itself takes for that: on a fast device the host is what takes time.

`kernel[grid](...)` finds out on every call which compilation serves it, from the types, values and addresses of all
arguments. Ours are compiled for none of the latter (`kernels.general`), so a few constants tell.
"""

from collections.abc import Callable
from typing import Any

import torch
import triton
from torch import Tensor

from ...native import values

# Versions whose compiled kernels are started by run(x, y, z, stream, function, metadata, three hooks, *arguments).
KNOWN = (3, 2) <= tuple(int(x) for x in triton.__version__.split(".")[:2]) <= (3, 7)

compiled: dict[Any, Any] = {}  # kernels, by what they were compiled for


def start(kernel: Any, programs: int, warps: int, arguments: tuple[Any, ...], constants: tuple[Any, ...]) -> None:
    """kernel[(programs,)](*arguments, *constants, num_warps=warps); the first argument tells the device."""
    device = arguments[0].get_device()
    key = kernel.fn, device, constants, *map(type, arguments)
    found = compiled.get(key)
    if found is None or device != values.current_device():
        with torch.cuda.device_of(arguments[0]):
            compiled[key] = kernel[(programs,)](*arguments, *constants, num_warps=warps)
        return
    stream = values.current_stream(device)
    if KNOWN:
        program = found.function, found.packed_metadata, None, None, None
        found.run(programs, 1, 1, stream, *program, *_addresses(arguments), *constants)
    else:
        found[programs, 1, 1](*arguments, *constants, stream=stream)


def ready(
    kernel: Any, programs: int, warps: int, arguments: tuple[Any, ...], constants: tuple[Any, ...]
) -> Callable[[Tensor, int], None]:
    """`start` on the same device and stream once the first two arguments, a tensor and a number, are known."""
    device = arguments[0].get_device()
    found = compiled.get((kernel.fn, device, constants, Tensor, int, *map(type, arguments)))
    if not KNOWN or found is None or device != values.current_device():
        return lambda x, n: start(kernel, programs, warps, (x, n, *arguments), constants)
    stream, run = values.current_stream(device), found.run
    first = programs, 1, 1, stream, found.function, found.packed_metadata, None, None, None
    last = *_addresses(arguments), *constants

    def later(x: Tensor, n: int, _alive: tuple[Any, ...] = arguments) -> None:
        run(*first, x.data_ptr(), n, *last)

    return later


def _addresses(arguments: tuple[Any, ...]) -> list[Any]:
    """Tensors as numbers, which spares Triton asking the driver whose they are."""
    return [x.data_ptr() if type(x) is Tensor else x for x in arguments]
