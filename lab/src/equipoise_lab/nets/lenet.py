"""The letter net of §6.1: LeNet5-like, for E replicas at once.

    letter 16x8 -> zero-padded to 32x32 -> conv 5x5, 10 -> ReLU -> pool 2 -> conv 5x5, 20 -> ReLU -> pool 2
                -> 140 -> ReLU (or sigmoid) -> 26

Two exact shortcuts make it fast.

Constant padding: only a 20x12 region of the first convolution depends on the letter. Every other output is relu(bias),
so after pooling the map is constant except for 10x6 positions. We subtract this constant; its contribution to the
second convolution is one number per filter. The rest is zero outside 10x6, so only those positions are computed.

Banded matrices: the letter has few columns, so each output row is one matrix product: five input rows, concatenated,
times a banded matrix that holds the kernel once for each output column. This reads each number a few times, whereas
im2col copies it 25 times. Every product is a batched matrix product over replicas.
"""

import math

import torch
from torch import Tensor

from . import pooling

LABELS = 26
ROWS, COLUMNS = 16, 8
SIDE = 32
KERNEL = 5
FILTERS = (10, 20)
HIDDEN = 140
FEATURES = FILTERS[1] * 5 * 5

REACH = KERNEL - 1
SEEN = (ROWS + REACH, COLUMNS + REACH)  # outputs of the first convolution that depend on the letter: 20 x 12
POOLED = (SEEN[0] // 2, SEEN[1] // 2)  # 10 x 6 of the 14 x 14 pooled map
OUTPUT = (SIDE - REACH) // 2 - REACH  # the second convolution's 10 x 10
OFFSET = (((SIDE - ROWS) // 2 - REACH) // 2, ((SIDE - COLUMNS) // 2 - REACH) // 2)  # the 10 x 6 start at (2, 4)

WIDTH = 64  # 6 * 10 numbers per row of the pooled map, padded so that matrix products are aligned in memory
FEATURES_PADDED = 504  # 500 features, padded likewise

VARIANTS = ("relu", "sigmoid", "layernorm")


class LeNet:
    """One net per replica: `init` draws the parameters of one replica, and a call runs E replicas at once.

    >>> net = LeNet()
    >>> one = net.init(torch.Generator().manual_seed(0))
    >>> letters = windows(torch.zeros(7, 16, 8))
    >>> net({name: x[None] for name, x in one.items()}, letters[None]).shape
    torch.Size([1, 7, 26])
    """

    def __init__(self, variant: str = "relu") -> None:
        if variant not in VARIANTS:
            raise ValueError(f"variant must be one of {', '.join(VARIANTS)}, got {variant!r}")
        self.variant = variant

    def init(self, generator: torch.Generator) -> dict[str, Tensor]:
        """Parameters of one replica, uniform within 1 / sqrt(inputs), as in PyTorch's layers."""
        shapes = {
            "conv1": (FILTERS[0], 1, KERNEL, KERNEL),
            "conv2": (FILTERS[1], FILTERS[0], KERNEL, KERNEL),
            "fc1": (HIDDEN, FEATURES),
            "fc2": (LABELS, HIDDEN),
        }
        parameters = {}
        for name, shape in shapes.items():
            bound = 1 / math.sqrt(math.prod(shape[1:]))
            for part, size in (("weight", shape), ("bias", shape[:1])):
                parameters[f"{name}.{part}"] = (2 * torch.rand(size, generator=generator) - 1) * bound
        return parameters

    def __call__(self, parameters: dict[str, Tensor], letters: Tensor) -> Tensor:
        """Scores (E, N, 26) for letters given as `windows`, (E, N, 20, 40)."""
        e, n = letters.shape[:2]
        band = _band(parameters["conv1.weight"], COLUMNS, SEEN[1], shift=REACH)
        x = letters.reshape(e, n * SEEN[0], KERNEL * COLUMNS) @ band  # (E, N * 20, 12 * 10)
        x = x.reshape(e, n, *SEEN, FILTERS[0])
        x = pooling.windows(x, parameters["conv1.bias"], WIDTH, KERNEL, OUTPUT, above=OFFSET[0])  # (E, N, 10, 5 * 64)

        # Outside the 10 x 6 positions the pooled map is relu(bias). The windows exclude this constant; its contribution
        # to the second convolution is the same at every position.
        blank = torch.relu(parameters["conv1.bias"])
        constant = (parameters["conv2.weight"].sum((-2, -1)) @ blank[..., None])[..., 0] + parameters["conv2.bias"]
        band = _band(parameters["conv2.weight"], POOLED[1], OUTPUT, shift=OFFSET[1], width=WIDTH)
        x = x.reshape(e, n * OUTPUT, KERNEL * WIDTH) @ band  # (E, N * 10, 10 * 20)
        x = pooling.rows(x.reshape(e, n, OUTPUT, OUTPUT, FILTERS[1]), constant, FEATURES_PADDED)  # (E, N, 504)

        x = self._normal(x[..., :FEATURES]) if self.variant == "layernorm" else x
        weight = torch.nn.functional.pad(parameters["fc1.weight"], (0, x.shape[-1] - FEATURES))
        x = torch.baddbmm(parameters["fc1.bias"][:, None], x, weight.transpose(-2, -1))
        x = torch.sigmoid(x) if self.variant == "sigmoid" else torch.relu(self._normal(x))
        with torch.autocast(x.device.type, enabled=False):  # the scores keep full precision
            return torch.baddbmm(
                parameters["fc2.bias"][:, None],
                x.to(parameters["fc2.weight"].dtype),
                parameters["fc2.weight"].transpose(-2, -1),
            )

    def _normal(self, x: Tensor) -> Tensor:
        return torch.nn.functional.layer_norm(x, x.shape[-1:]) if self.variant == "layernorm" else x


def windows(letters: Tensor) -> Tensor:
    """Letters (N, 16, 8) as the input of the first product, (N, 20, 40): five pixel rows for each output row.

    This does not depend on parameters, so it is computed once per data set.
    """
    padded = torch.nn.functional.pad(letters, (0, 0, REACH, REACH))
    return padded.unfold(1, KERNEL, 1).transpose(-2, -1).reshape(len(letters), SEEN[0], KERNEL * COLUMNS)


def _band(weight: Tensor, columns: int, outputs: int, shift: int, width: int = 0) -> Tensor:
    """The kernel (E, F, C, 5, 5) as a matrix (E, 5 * columns * C, outputs * F): five input rows to one output row.

    Input column i contributes to output column o through kernel column i + shift - o, if it exists. `shift` is the
    column of the first input column in the padded map. If `width` is given, input rows are padded to it. The matrix is
    built by a product with a 0/1 matrix: its gradient is a product too, while that of indexing needs a sort.
    """
    e, f, c = weight.shape[:3]
    column = torch.arange(columns, device=weight.device)[:, None] + shift - torch.arange(outputs, device=weight.device)
    selection = column.flatten() == torch.arange(KERNEL, device=weight.device)[:, None]  # (5, columns * outputs)
    with torch.autocast(weight.device.type, enabled=False):
        band = weight.reshape(e, f * c * KERNEL, KERNEL) @ selection.to(weight.dtype)
    band = band.reshape(e, f, c, KERNEL, columns, outputs).permute(0, 3, 4, 2, 5, 1)
    band = band.reshape(e, KERNEL, columns * c, outputs * f)
    return torch.nn.functional.pad(band, (0, 0, 0, max(width - columns * c, 0))).flatten(1, 2)
