"""The letter net of §6.1: LeNet5-like, for E replicas at once.

    letter 16x8 -> zero-padded to 32x32 -> conv 5x5, 10 -> ReLU -> pool 2 -> conv 5x5, 20 -> ReLU -> pool 2
                -> 140 -> ReLU (or sigmoid) -> 26

Two exact shortcuts make it cheap. The padding is known: outside the 20x12 region of the first convolution that sees the
letter, every output is relu(bias), and after pooling the map is that constant but for 10x6 places. Taking the constant
out (its share of the second convolution is one number a filter) leaves a map that is zero outside 10x6, so only those
places are computed and multiplied. And a convolution over so few columns is one matrix product a row: five input rows,
side by side, times a banded matrix that holds the kernel once for each output column. That reads each number a few
times where im2col copies it 25 times, and every product is a batched matrix product over replicas.
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
SEEN = (ROWS + REACH, COLUMNS + REACH)  # outputs of the first convolution that see the letter: 20 x 12
POOLED = (SEEN[0] // 2, SEEN[1] // 2)  # 10 x 6 of the 14 x 14 pooled map
OUTPUT = (SIDE - REACH) // 2 - REACH  # the second convolution's 10 x 10
OFFSET = (((SIDE - ROWS) // 2 - REACH) // 2, ((SIDE - COLUMNS) // 2 - REACH) // 2)  # 10 x 6 from row 2, column 4

WIDTH = 64  # of a row of the pooled map, 6 * 10 numbers and some room, so that products start at even addresses
ROOM = 504  # of the features, likewise

VARIANTS = ("relu", "sigmoid", "layernorm")


class LeNet:
    """A family of nets, one a replica: `init` draws the parameters of one, the call runs E of them side by side.

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
        """Parameters of one replica, uniform within 1 / sqrt(inputs), as PyTorch's own layers start."""
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

        # Outside the 10 x 6 places the pooled map is relu(bias). That constant is not in the windows; its share of the
        # second convolution is the same everywhere.
        blank = torch.relu(parameters["conv1.bias"])
        constant = (parameters["conv2.weight"].sum((-2, -1)) @ blank[..., None])[..., 0] + parameters["conv2.bias"]
        band = _band(parameters["conv2.weight"], POOLED[1], OUTPUT, shift=OFFSET[1], width=WIDTH)
        x = x.reshape(e, n * OUTPUT, KERNEL * WIDTH) @ band  # (E, N * 10, 10 * 20)
        x = pooling.rows(x.reshape(e, n, OUTPUT, OUTPUT, FILTERS[1]), constant, ROOM)  # (E, N, 504)

        x = self._normal(x[..., :FEATURES]) if self.variant == "layernorm" else x
        weight = torch.nn.functional.pad(parameters["fc1.weight"], (0, x.shape[-1] - FEATURES))
        x = torch.baddbmm(parameters["fc1.bias"][:, None], x, weight.transpose(-2, -1))
        x = torch.sigmoid(x) if self.variant == "sigmoid" else torch.relu(self._normal(x))
        with torch.autocast(x.device.type, enabled=False):  # the scores themselves are never rounded
            return torch.baddbmm(
                parameters["fc2.bias"][:, None],
                x.to(parameters["fc2.weight"].dtype),
                parameters["fc2.weight"].transpose(-2, -1),
            )

    def _normal(self, x: Tensor) -> Tensor:
        return torch.nn.functional.layer_norm(x, x.shape[-1:]) if self.variant == "layernorm" else x


def windows(letters: Tensor) -> Tensor:
    """Letters (N, 16, 8) as the rows of the first product, (N, 20, 40): five rows of pixels for each row of outputs.

    They do not depend on parameters, so a data set is laid out once.
    """
    padded = torch.nn.functional.pad(letters, (0, 0, REACH, REACH))
    return padded.unfold(1, KERNEL, 1).transpose(-2, -1).reshape(len(letters), SEEN[0], KERNEL * COLUMNS)


def _band(weight: Tensor, columns: int, outputs: int, shift: int, width: int = 0) -> Tensor:
    """The kernel (E, F, C, 5, 5) as a matrix (E, 5 * columns * C, outputs * F): five rows in, a row of outputs out.

    Input column i meets output column o by kernel column i + shift - o, if there is one; `shift` is where the first
    input column stands in the padded map. If `width` is given, rows of input are filled up to it. It is a product with
    zeros and ones, because its gradient is one too, where that of an index would have to be sorted.
    """
    e, f, c = weight.shape[:3]
    meets = torch.arange(columns, device=weight.device)[:, None] + shift - torch.arange(outputs, device=weight.device)
    picks = meets.flatten() == torch.arange(KERNEL, device=weight.device)[:, None]  # (5, columns * outputs)
    with torch.autocast(weight.device.type, enabled=False):
        band = weight.reshape(e, f * c * KERNEL, KERNEL) @ picks.to(weight.dtype)
    band = band.reshape(e, f, c, KERNEL, columns, outputs).permute(0, 3, 4, 2, 5, 1)
    band = band.reshape(e, KERNEL, columns * c, outputs * f)
    return torch.nn.functional.pad(band, (0, 0, 0, max(width - columns * c, 0))).flatten(1, 2)
