"""Repeat the launches of a call on other tensors of the same shapes, without the Python code that led to them.

A call of several kernels takes longer on the host than on the device: it allocates memory for each of them, and
computes grids and arguments that follow from the shapes. So the first call of a shape is recorded (`Recording`). Later
calls (`Replay`) allocate the results, and everything else at once, and only add up addresses.

A call may return a launch for later, such as that of a backward pass, whose first two arguments are not known before.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import triton_start, values
from .triton_start import prepare, start

ALIGNMENT = 16  # bytes


class Place(NamedTuple):
    """A tensor argument: one of the tensors of a call, and what is added to its address."""

    tensor: int
    offset: int
    dtype: torch.dtype


class Launch(NamedTuple):
    kernel: Any
    programs: int
    warps: int
    arguments: tuple[Any, ...]  # a `Place` for each tensor
    constants: tuple[Any, ...]


class Form(NamedTuple):
    """How to allocate an output: like an input, or by shape if that is -1."""

    like: int
    shape: tuple[int, ...]
    dtype: torch.dtype


Later = Callable[[Tensor, int], None]
"""A launch with its first two arguments, a tensor and a number."""


class Recording:
    """Runs the first call: its memory and its launches. No tensor may be an input twice."""

    def __init__(self, *inputs: Tensor | None) -> None:
        self.inputs = inputs
        self.made: list[Tensor] = []  # alive until the end, so that no address occurs twice
        self.launches: list[Launch] = []
        self.later: Launch | None = None

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
        x = torch.empty(shape, dtype=dtype, device=device)
        self.made.append(x)
        return x

    def start(
        self, kernel: Any, programs: int, warps: int, arguments: tuple[Any, ...], constants: tuple[Any, ...]
    ) -> None:
        start(kernel, programs, warps, arguments, constants)
        self.launches.append(Launch(kernel, programs, warps, arguments, constants))

    def prepare(self, *launch: Any) -> Later:
        """`triton_start.prepare`, once in a call."""
        self.later = Launch(*launch)
        return prepare(*launch)

    def replay(self, outputs: Sequence[Any]) -> "Replay":
        """The same launches for other inputs. Memory of a tensor that is not an output is scratch."""
        outputs = [x for x in outputs if isinstance(x, Tensor)]
        addresses = [x.data_ptr() for x in outputs]
        places: list[tuple[Tensor, int, int]] = []  # tensor that was made, number of its new tensor, offset there
        first, size = len(self.inputs), 0
        for x in self.made:
            if x.data_ptr() in addresses:
                places.append((x, first + addresses.index(x.data_ptr()), 0))
            else:
                places.append((x, first + len(outputs), size))
                size += -(-x.nbytes // ALIGNMENT) * ALIGNMENT

        def place(x: Any) -> Any:
            if not isinstance(x, Tensor):
                return x
            for k, tensor in enumerate(self.inputs):
                if tensor is x:
                    return Place(k, 0, x.dtype)
            for tensor, k, offset in places:
                if 0 <= x.data_ptr() - tensor.data_ptr() < tensor.nbytes:
                    return Place(k, offset + x.data_ptr() - tensor.data_ptr(), x.dtype)
            raise ValueError("an argument of a recorded launch must be an input or come from Recording.empty")

        def placed(x: Launch) -> Launch:
            return x._replace(arguments=tuple(map(place, x.arguments)))

        later = None if self.later is None else placed(self.later)
        return Replay([placed(x) for x in self.launches], later, [self._form(x) for x in outputs], size)

    def _form(self, output: Tensor) -> Form:
        """Like an input of the same shape if there is one, since `empty_like` is the fastest way to get memory."""
        for k, x in enumerate(self.inputs):
            if x is not None and x.shape == output.shape and x.dtype == output.dtype:
                return Form(k, (), x.dtype)
        return Form(-1, tuple(output.shape), output.dtype)


class Replay:
    """Launches kernels with all arguments known but the addresses of the tensors."""

    def __init__(self, launches: list[Launch], later: Launch | None, outputs: list[Form], scratch: int) -> None:
        self.launches, self.later, self.outputs, self.scratch = launches, later, outputs, (scratch,)
        self.direct: dict[int, list[Any]] = {}  # by device
        self.direct_later: dict[int, Any] = {}

    def __call__(self, *inputs: Tensor | None) -> list[Any]:
        """The outputs, then the launch for later, which keeps all memory that it may need.

        Inputs must be contiguous, and None where they were None in the recording.
        """
        first: Any = inputs[0]
        device, number = first.device, first.get_device()
        results: list[Any] = [
            torch.empty(shape, dtype=dtype, device=device) if like < 0 else torch.empty_like(inputs[like])  # type: ignore[arg-type]
            for like, shape, dtype in self.outputs
        ]
        tensors = *inputs, *results
        if self.scratch[0]:
            tensors = *tensors, torch.empty(self.scratch, dtype=torch.uint8, device=device)
        ready = self.direct.get(number)
        if ready is None or number != values.current_device():
            self._first(number, tensors)
            return results if self.later is None else [*results, self._first_later(number, tensors)]
        addresses = [0 if x is None else x.data_ptr() for x in tensors]
        stream = values.current_stream(number)
        for run, programs, function, metadata, arguments, constants in ready:
            filled = [x if k < 0 else addresses[k] + x for k, x in arguments]
            run(programs, 1, 1, stream, function, metadata, None, None, None, *filled, *constants)
        if self.later is not None:
            known = self.direct_later.get(number)
            results.append(self._first_later(number, tensors) if known is None else _later(known, addresses, tensors))
        return results

    def _first(self, device: int, tensors: tuple[Tensor | None, ...]) -> None:
        """Launch by `start`, and prepare the launches of later calls on this device."""
        found = []
        for launch in self.launches:
            kernel, programs, warps, arguments, constants = self._filled(launch, tensors)
            start(kernel, programs, warps, arguments, constants)
            found.append(_direct(launch, device, *map(type, arguments)))
        if None not in found:
            self.direct[device] = found

    def _first_later(self, device: int, tensors: tuple[Tensor | None, ...]) -> Later:
        """Prepare the launch for later, and those of later calls on this device if the kernel was launched before."""
        assert self.later is not None
        launch = self._filled(self.later, tensors)
        found = _direct(self.later, device, Tensor, int, *map(type, launch.arguments))
        if found is not None:
            self.direct_later[device] = found
        return prepare(*launch)

    def _filled(self, launch: Launch, tensors: tuple[Tensor | None, ...]) -> Launch:
        arguments = (self._tensor(tensors, x) if isinstance(x, Place) else x for x in launch.arguments)
        return launch._replace(arguments=tuple(arguments))

    def _tensor(self, tensors: tuple[Tensor | None, ...], place: Place) -> Tensor:
        x = tensors[place.tensor]
        assert x is not None
        if x.dtype == place.dtype and not place.offset:
            return x
        size = (x.nbytes - place.offset) // place.dtype.itemsize * place.dtype.itemsize
        return x.view(-1).view(torch.uint8)[place.offset :][:size].view(place.dtype)


def _direct(launch: Launch, device: int, *types: type) -> tuple[Any, ...] | None:
    """What a direct launch needs; None if the kernel was not compiled yet, or cannot be launched directly."""
    program = triton_start.find(launch.kernel, device, launch.constants, *types)
    if not triton_start.DIRECT_LAUNCH or program is None:
        return None
    places = [(x.tensor, x.offset) if isinstance(x, Place) else (-1, x) for x in launch.arguments]
    return program.run, launch.programs, program.function, program.packed_metadata, places, launch.constants


def _later(direct: tuple[Any, ...], addresses: list[int], tensors: tuple[Tensor | None, ...]) -> Later:
    run, programs, function, metadata, arguments, constants = direct
    last = [x if k < 0 else addresses[k] + x for k, x in arguments]

    def launch(x: Tensor, n: int, _alive: tuple[Tensor | None, ...] = tensors) -> None:
        stream = values.current_stream(x.get_device())
        run(programs, 1, 1, stream, function, metadata, None, None, None, x.data_ptr(), n, *last, *constants)

    return launch
