"""What may be seen of a tensor, and who is looking: kernels want values, traces and transforms want operators."""

import torch
from torch import Tensor
from torch._C import _are_functorch_transforms_active, _has_storage, _len_torch_dispatch_stack


def readable(*tensors: Tensor) -> bool:
    """Whether the values can be looked at without waiting for a device or breaking a trace."""
    if torch.compiler.is_compiling():
        return False
    for x in tensors:  # not all(), which takes longer to start than to run
        if not (x.is_cpu and _has_storage(x)) or torch._C._functorch.is_functorch_wrapped_tensor(x):
            return False
    return True


def opaque(x: Tensor) -> bool:
    """Whether a batch of gradients in a backward pass hides in this tensor, which operators cannot see either."""
    return not _has_storage(x) and not torch._C._functorch.is_functorch_wrapped_tensor(x)


def bare() -> bool:
    """Whether tensors with values are all that comes along: no trace, no transform, no mode that wants to see calls."""
    return not (torch.compiler.is_compiling() or _are_functorch_transforms_active() or _len_torch_dispatch_stack())


def capturing(x: Tensor) -> bool:
    """Whether a CUDA graph is being made, which wants its own memory and no host."""
    return x.is_cuda and torch.cuda.is_current_stream_capturing()


def has_values(x: Tensor) -> bool:
    """`bare`, in a backward pass that torch.compile has nothing to do with, and not `opaque`."""
    return _has_storage(x) and not (_len_torch_dispatch_stack() or _are_functorch_transforms_active())
