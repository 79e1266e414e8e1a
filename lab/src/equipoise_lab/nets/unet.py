"""The image net of §6.1: UNet-like, for E replicas at once.

    block         conv 3x3 -> batch norm -> ReLU -> conv 3x3 -> batch norm -> ReLU
    encoder       block, max-pool 2, block, max-pool 2, ...      width, 2 width, 4 width, 8 width, 8 width channels
    decoder       bilinear upsampling 2, concatenated with the encoder's map of that size, block, ...
    regression    1x1 convolution to label scores; omitted in the net for pixel embeddings, whose last block can
                  also end before its ReLU or before its batch norm (`ENDS`)

All activations are (B, E C, H, W), channels last in memory, so batch norm, ReLU, pooling and upsampling are torch's,
on E C channels. A convolution of two concatenated maps is computed as the sum of two convolutions, without a copy.
"""

import math
from functools import reduce
from itertools import accumulate

import torch
from torch import Tensor
from torch.nn import functional

from .convolution import conv3x3

COLOURS = 3
MOMENTUM = 0.1
"""Weight of a batch in the running statistics."""
EPSILON = 1e-5
DOUBLED = 3
"""Number of levels at which the encoder doubles the channels."""

ENDS = ("relu", "norm", "linear")
"""How the last block ends: with its ReLU, with its batch norm, or with its convolution."""
LAST = "up0.1"

Parameters = dict[str, Tensor]


class UNet:
    """One net per replica: `init` draws the parameters of one replica, and a call runs E replicas at once.

    Args:
        width: Channels of the full-size maps.
        depth: Number of times the image is halved; its sides must be multiples of 2^depth.
        labels: Scores per pixel. If 0, there is no regression, and each pixel has an embedding of `width` numbers.
        end: How the last block ends, one of `ENDS`.

    >>> net = UNet(width=4, depth=2, labels=2)
    >>> one = {name: x[None] for name, x in net.init(torch.Generator().manual_seed(0)).items()}
    >>> rest = {name: x[None] for name, x in net.statistics().items()}
    >>> net(one, rest, torch.zeros(1, 5, 8, 8, 3, dtype=torch.uint8)).shape
    torch.Size([1, 5, 64, 2])
    """

    def __init__(self, width: int, depth: int, labels: int = 0, end: str = "relu") -> None:
        if width < 1 or depth < 1:
            raise ValueError(f"width and depth must be at least 1, got {width} and {depth}")
        if end not in ENDS:
            raise ValueError(f"end must be one of {', '.join(ENDS)}, got {end!r}")
        self.width, self.depth, self.labels, self.end = width, depth, labels, end
        sizes = [width * 2 ** min(level, DOUBLED) for level in range(depth + 1)]
        self.channels: dict[str, int] = {}  # of each normalised map, in order
        self.shapes: dict[str, tuple[int, ...]] = {}
        for level, size in enumerate(sizes):
            self._block(f"down{level}", {"": sizes[level - 1] if level else COLOURS}, size)
        for level in reversed(range(depth)):
            self._block(f"up{level}", {".below": sizes[level + 1], ".beside": sizes[level]}, sizes[level])
        if end == "linear":
            del self.channels[LAST]

    def _block(self, name: str, inputs: dict[str, int], size: int) -> None:
        self.shapes |= {f"{name}.0{part}": (size, count, 3, 3) for part, count in inputs.items()}
        self.shapes[f"{name}.1"] = (size, size, 3, 3)
        self.channels |= {f"{name}.0": size, f"{name}.1": size}

    def init(self, generator: torch.Generator) -> Parameters:
        """Parameters of one replica: kernels normal with variance 2 / inputs, which preserves the scale of the maps."""
        parameters = {}
        for name, shape in self.shapes.items():
            inputs = sum(s[1] for n, s in self.shapes.items() if n.split(".")[:2] == name.split(".")[:2])
            parameters[f"{name}.weight"] = torch.randn(shape, generator=generator) * math.sqrt(2 / (9 * inputs))
        for name, size in self.channels.items():
            parameters |= {f"{name}.gain": torch.ones(size), f"{name}.shift": torch.zeros(size)}
        if self.labels:
            bound = 1 / math.sqrt(self.width)
            for part, shape in (("weight", (self.labels, self.width)), ("bias", (self.labels,))):
                parameters[f"scores.{part}"] = (2 * torch.rand(shape, generator=generator) - 1) * bound
        return parameters

    def statistics(self) -> Parameters:
        """Initial running mean and variance of all normalised maps, concatenated."""
        total = sum(self.channels.values())
        return {"mean": torch.zeros(total), "variance": torch.ones(total)}

    def __call__(
        self, parameters: Parameters, statistics: Parameters, images: Tensor, moves: Tensor | None = None
    ) -> Tensor:
        """Scores (E, B, H W, labels), or embeddings (E, B, H W, width), of uint8 images (E, B, H, W, 3).

        Without `moves`, maps are normalised by the running statistics. With `moves` (E,), they are normalised by the
        batch, and the running statistics of replicas with `moves` 1 are updated in place; with 0 they are not.
        """
        norm = _Norm(self.channels, statistics, learning=moves is not None)

        def block(name: str, *maps: tuple[str, Tensor]) -> Tensor:
            x = reduce(torch.add, (conv3x3(x, parameters[f"{name}.0{part}.weight"]) for part, x in maps))
            x = conv3x3(norm(f"{name}.0", x, parameters).relu_(), parameters[f"{name}.1.weight"])
            if f"{name}.1" == LAST and self.end != "relu":
                return x if self.end == "linear" else norm(LAST, x, parameters)
            return norm(f"{name}.1", x, parameters).relu_()

        x, skips = _to_map(images, parameters["down0.0.weight"].dtype), []
        for level in range(self.depth):
            skips.append(block(f"down{level}", ("", x)))
            x = functional.max_pool2d(skips[-1], 2)
        x = block(f"down{self.depth}", ("", x))
        for level in reversed(range(self.depth)):
            x = functional.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
            x = block(f"up{level}", (".below", x), (".beside", skips.pop()))
        if moves is not None:
            norm.move(moves)
        return self._regress(parameters, _rows(x, len(images)))

    def _regress(self, parameters: Parameters, rows: Tensor) -> Tensor:
        """Scores with contiguous pixels for each label, the layout that suits the solver when labels are few."""
        if not self.labels:
            return rows
        weight, bias = parameters["scores.weight"][:, None], parameters["scores.bias"][:, None, :, None]
        with torch.autocast(rows.device.type, enabled=False):  # the scores keep full precision
            return (weight @ rows.to(weight.dtype).mT + bias).mT


class _Norm:
    """Batch norm for one pass through a net, by batch statistics, which are stored, or running statistics."""

    def __init__(self, channels: dict[str, int], statistics: Parameters, learning: bool) -> None:
        self.statistics, self.learning = statistics, learning
        ends = accumulate(channels.values())
        self.where = {name: slice(end - channels[name], end) for name, end in zip(channels, ends, strict=True)}
        self.means: list[Tensor] = []
        self.inverses: list[Tensor] = []  # 1 / sqrt(variance + EPSILON)
        self.corrections: list[float] = []  # Bessel's correction of the batch variance

    def __call__(self, name: str, x: Tensor, parameters: Parameters) -> Tensor:
        gain, shift = parameters[f"{name}.gain"].flatten(), parameters[f"{name}.shift"].flatten()
        if not self.learning:
            mean, variance = (self.statistics[part][:, self.where[name]].flatten() for part in ("mean", "variance"))
            return functional.batch_norm(x, mean, variance, gain, shift, eps=EPSILON)
        y, mean, inverse = torch.native_batch_norm(x, gain, shift, None, None, True, 0.0, EPSILON)
        count = x.numel() // x.shape[1]
        self.means.append(mean.detach())
        self.inverses.append(inverse.detach())
        self.corrections.append(count / max(count - 1, 1))
        return y

    @torch.no_grad()
    def move(self, moves: Tensor) -> None:
        share = (MOMENTUM * moves)[:, None]
        variances = torch._foreach_pow(self.inverses, -2)  # one kernel for all maps
        torch._foreach_sub_(variances, EPSILON)
        torch._foreach_mul_(variances, self.corrections)
        for name, per_layer in (("mean", self.means), ("variance", variances)):
            running = self.statistics[name]
            running.lerp_(torch.cat([x.view(len(running), -1) for x in per_layer], 1).to(running.dtype), share)


def _to_map(images: Tensor, dtype: torch.dtype) -> Tensor:
    """uint8 images (E, B, H, W, 3) as the first map, (B, E 3, H, W), with mean about 0 and deviation about 1."""
    channels_last = images.permute(1, 2, 3, 0, 4).flatten(3).to(dtype)  # (B, H, W, E 3)
    return ((channels_last - 127.5) / 64).permute(0, 3, 1, 2)


def _rows(x: Tensor, replicas: int) -> Tensor:
    """A map (B, E C, H, W) as one row per pixel, (E, B, H W, C)."""
    pixels = x.permute(0, 2, 3, 1).unflatten(3, (replicas, -1))  # (B, H, W, E, C)
    return pixels.permute(3, 0, 1, 2, 4).flatten(2, 3).contiguous()
