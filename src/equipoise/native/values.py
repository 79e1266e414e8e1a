"""Whether the values of a tensor can be read here: kernels need values, traces and transforms need operators.

Every use of torch's private interface `torch._C` is in this file.
"""

import contextlib
import importlib.util
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch._C import _are_functorch_transforms_active, _has_storage, _len_torch_dispatch_stack
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.autograd import forward_ad
from torch.compiler import is_compiling, is_exporting
from torch.nn import Parameter

current_device: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", int)
"""The number of the current CUDA device, without the cost of torch.cuda."""
current_stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", int)
"""The handle of the current stream of a CUDA device."""

_is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor
_PLAIN = Tensor.__torch_dispatch__  # of all classes that do not define their own
_TRACED = Tensor, Parameter, FakeTensor, FunctionalTensor

TRITON = importlib.util.find_spec("triton") is not None
"""Whether Triton is installed, in which the kernels for a GPU are written."""


def readable(*tensors: Tensor) -> bool:
    """Whether the values can be read without waiting for a device or breaking a trace."""
    if is_compiling():
        return False
    for x in tensors:  # a loop, and `plain` written out: the overhead of calls is larger than their work
        if not (x.is_cpu and _has_storage(x) and type(x).__torch_dispatch__ is _PLAIN) or _is_wrapped(x):
            return False
    return True


def plain(x: Tensor) -> bool:
    """Whether x has memory of its own: it is not a wrapper around other tensors, as DTensor is."""
    return type(x).__torch_dispatch__ is _PLAIN


def supports_operators(x: Tensor) -> bool:
    """Whether operators with a kernel, but no rule for other classes of tensors, accept x in a trace."""
    return type(x) in _TRACED or plain(x)


def resolved(x: Tensor) -> Tensor:
    """x without a pending negation (as in `z.conj().imag`), and with memory, for code that reads memory.

    A zero tensor, as in forward-mode derivatives, has none.
    """
    if x._is_zerotensor():
        return x.clone()
    return x.resolve_neg() if x.is_neg() else x


def contiguous(*tensors: Tensor | None) -> list[Any]:
    """Tensors for code that reads memory: contiguous, and `resolved`."""
    ready = []
    for x in tensors:  # a loop, since a call for each tensor takes longer than its work
        if x is not None and (x.is_neg() or x._is_zerotensor() or not x.is_contiguous()):
            x = resolved(x.detach()).contiguous()
        ready.append(x)
    return ready


def signature(*arguments: Tensor | None) -> tuple[object, ...]:
    """The properties of arguments that are always checked."""
    properties: list[object] = []
    for x in arguments:  # a loop, since a comprehension is one more call
        properties += (x.shape, x.dtype, x.device) if isinstance(x, Tensor) else (type(x),)
    return tuple(properties)


def opaque(x: Tensor) -> bool:
    """Whether x is a batch of gradients in a backward pass, whose batch dimension is hidden from operators."""
    return not _has_storage(x) and not _is_wrapped(x)


def transforming() -> bool:
    """Whether torch.compile is tracing or a transform of torch.func is active."""
    return is_compiling() or _are_functorch_transforms_active()


def transformed() -> bool:
    """Whether a transform of torch.func is active. False under torch.compile, which traces the rest."""
    return not is_compiling() and bool(_are_functorch_transforms_active())


def eager() -> bool:
    """Whether execution is eager on plain tensors: no trace, no transform, no dispatch mode, no forward mode.

    Kernels would lose the tangents of forward-mode derivatives. The functions of autograd raise an error instead.
    """
    recorded = is_compiling() or _are_functorch_transforms_active() or _len_torch_dispatch_stack()
    return not recorded and forward_ad._current_level < 0


def traced() -> bool:
    """Whether the call is traced, or is a batch of calls: operators are called instead of kernels."""
    return is_compiling() or _are_functorch_transforms_active() or _len_torch_dispatch_stack() > 0


def compiled() -> bool:
    """Whether torch.compile traces this call, outside transforms, for a program of this process."""
    return is_compiling() and not (is_exporting() or _are_functorch_transforms_active())


_self_contained = False


@contextlib.contextmanager
def self_contained() -> Iterator[None]:
    """Programs exported inside contain only operators of torch itself, so other runtimes can compile and run them."""
    global _self_contained
    before, _self_contained = _self_contained, True
    try:
        yield
    finally:
        _self_contained = before


def only_torch() -> bool:
    """Whether a program is being exported that may only contain operators of torch itself: for ONNX, or on request."""
    return is_exporting() and (_self_contained or torch.onnx.is_in_onnx_export())


def forward_mode() -> bool:
    """Whether forward-mode derivatives are computed."""
    return forward_ad._current_level >= 0


def memory(x: Tensor) -> Tensor:
    """The bytes of a contiguous tensor. One of a single number is contiguous with any stride."""
    return x.as_strided((x.numel(),), (1,)).view(torch.uint8)


def capturing(x: Tensor) -> bool:
    """Whether a CUDA graph is being captured, which needs its own memory and must not wait for the device."""
    return x.is_cuda and torch.cuda.is_current_stream_capturing()


def cached(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Keep the tensors that a function makes, of which the last argument is the device, for later calls.

    On a GPU, making one takes longer than a short chain. In a trace, and while a CUDA graph is captured, each is new.
    """

    @lru_cache(maxsize=64)
    def kept(*arguments: Any) -> Tensor:
        with torch.inference_mode(False):  # autograd cannot save an inference tensor
            return make(*arguments)

    def call(*arguments: Any) -> Tensor:
        device = arguments[-1]
        if traced() or (device.type == "cuda" and torch.cuda.is_current_stream_capturing()):
            return make(*arguments)
        return kept(*arguments)

    return call


def has_values(x: Tensor) -> bool:
    """Like `eager`, in a backward pass outside torch.compile, and x is not `opaque`."""
    return _has_storage(x) and not (_len_torch_dispatch_stack() or _are_functorch_transforms_active())
