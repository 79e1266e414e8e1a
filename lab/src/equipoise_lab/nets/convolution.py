"""3 x 3 convolutions of E nets at once: one tensor holds the channels of all nets, one group per net.

    y[b, (e, o)] = sum_c w[e, o, c] * x[b, (e, c)]

We also tried a custom kernel for nets with few channels on an H200 (bfloat16, 40 nets, 8 channels, 64 x 64, batch 16).
cuDNN's grouped convolution was about 15 % faster, forward and backward, and ten times faster than 40 separate
convolutions.
"""

from torch import Tensor
from torch.nn.functional import conv2d


def conv3x3(x: Tensor, weight: Tensor) -> Tensor:
    """Convolve x (B, E C, H, W) with weight (E, O, C, 3, 3), zero padding 1, to (B, E O, H, W).

    >>> import torch
    >>> conv3x3(torch.ones(1, 2, 3, 3), torch.ones(2, 1, 1, 3, 3))[0, 0]  # the number of pixels under the kernel
    tensor([[4., 6., 4.],
            [6., 9., 6.],
            [4., 6., 4.]])
    """
    return conv2d(x, weight.flatten(0, 1), padding=1, groups=len(weight))
