"""Launch Triton kernels in a third of the time of Triton's own launcher, since short calls are bound by the host.

`kernel[grid](...)` selects the compiled variant on every call from the types, values and addresses of all arguments.
Our kernels are not specialised on values or addresses (`jit_unspecialized`), so a small key suffices.
"""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from . import values

# Versions whose compiled kernels have run(x, y, z, stream, function, metadata, three hooks, *arguments).
DIRECT_LAUNCH = (3, 2) <= tuple(int(x) for x in triton.__version__.split(".")[:2]) <= (3, 7)


def jit_unspecialized(kernel: Any) -> Any:
    """Compile once for all sizes and addresses. Parameters with an annotation are constants.

    If Triton cannot tell in which dimension a matrix is contiguous, its version decides whether rows or columns are
    distributed over threads. So a kernel that sums over a matrix should load it with a constant stride of 1.
    """
    runtime = [name for name in inspect.signature(kernel).parameters if name not in kernel.__annotations__]
    return triton.jit(kernel, do_not_specialize=runtime)


class Launch(NamedTuple):
    """The arguments of `start`."""

    kernel: Any
    programs: int
    warps: int
    arguments: tuple[Any, ...]
    constants: tuple[Any, ...]
    dtypes: tuple[torch.dtype, ...] = ()


compiled: dict[Any, Any] = {}  # compiled kernels by kernel, device, constants and argument types


def start(
    kernel: Any,
    programs: int,
    warps: int,
    arguments: tuple[Any, ...],
    constants: tuple[Any, ...],
    dtypes: tuple[torch.dtype, ...] = (),
) -> None:
    """kernel[(programs,)](*arguments, *constants, num_warps=warps), on the device of the first argument.

    `dtypes` are those of the arguments whose dtype is not always the same.
    """
    device = arguments[0].get_device()
    key = kernel.fn, device, constants, *dtypes, *map(type, arguments)
    ready = compiled.get(key)
    if ready is None or device != values.current_device():
        with torch.cuda.device_of(arguments[0]):
            compiled[key] = kernel[(programs,)](*arguments, *constants, num_warps=warps)
        return
    stream = values.current_stream(device)
    if DIRECT_LAUNCH:
        program = ready.function, ready.packed_metadata, None, None, None
        ready.run(programs, 1, 1, stream, *program, *_addresses(arguments), *constants)
    else:
        ready[programs, 1, 1](*arguments, *constants, stream=stream)


def find(kernel: Any, device: int, constants: tuple[Any, ...], *dtypes_and_types: torch.dtype | type) -> Any:
    """The compiled kernel if it was started with arguments of these types on this device; None in the interpreter."""
    return compiled.get((kernel.fn, device, constants, *dtypes_and_types))


def prepared_launch(
    kernel: Any, programs: int, warps: int, arguments: tuple[Any, ...], constants: tuple[Any, ...]
) -> Callable[[Tensor, int], None]:
    """A function that takes the first two arguments, a tensor and a number, and launches on this device."""
    device = arguments[0].get_device()
    ready = find(kernel, device, constants, Tensor, int, *map(type, arguments))
    if not DIRECT_LAUNCH or ready is None or device != values.current_device():
        return lambda x, n: start(kernel, programs, warps, (x, n, *arguments), constants)
    run, stream = ready.run, values.current_stream
    program = ready.function, ready.packed_metadata, None, None, None
    last = *_addresses(arguments), *constants

    def launch(x: Tensor, n: int, _alive: tuple[Any, ...] = arguments) -> None:
        run(programs, 1, 1, stream(device), *program, x.data_ptr(), n, *last)

    return launch


def _addresses(arguments: tuple[Any, ...]) -> list[Any]:
    """Replace tensors by addresses, which saves Triton a query of the driver."""
    return [x.data_ptr() if type(x) is Tensor else x for x in arguments]
