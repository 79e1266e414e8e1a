"""Starts Triton kernels, at a third of what Triton itself takes for that: on a fast device the host is what takes time.

`kernel[grid](...)` finds out on every call which compilation serves it, from the types, values and addresses of all
arguments. Ours are compiled for none of the latter (`triton_kernels.general`), so a few constants tell.
"""

from typing import Any

import torch
import triton
from torch import Tensor

# Versions whose compiled kernels are started by run(x, y, z, stream, function, metadata, three hooks, *arguments).
KNOWN = (3, 2) <= tuple(int(x) for x in triton.__version__.split(".")[:2]) <= (3, 7)

compiled: dict[Any, Any] = {}  # kernels, by what they were compiled for


def start(kernel: Any, programs: int, warps: int, arguments: tuple[Any, ...], constants: tuple[Any, ...]) -> None:
    """kernel[(programs,)](*arguments, *constants, num_warps=warps); the first argument tells the device."""
    device = arguments[0].get_device()
    # An address is a number, which spares Triton asking the driver whose it is.
    addresses = [x.data_ptr() if type(x) is Tensor else x for x in arguments]
    key = kernel.fn, device, constants, *[x is None for x in arguments]
    found = compiled.get(key)
    if found is None or device != torch._C._cuda_getDevice():
        with torch.cuda.device_of(arguments[0]):
            compiled[key] = kernel[(programs,)](*arguments, *constants, num_warps=warps)
        return
    stream = torch._C._cuda_getCurrentRawStream(device)
    if KNOWN:
        program = found.function, found.packed_metadata, None, None, None
        found.run(programs, 1, 1, stream, *program, *addresses, *constants)
    else:
        found[programs, 1, 1](*arguments, *constants, stream=stream)
