"""A reference UNet of §6.1 with PyTorch modules and concatenation, one net at a time."""

import torch
from torch import Tensor, nn

from equipoise_lab.nets.unet import UNet


def block(inputs: int, size: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for count in (inputs, size):
        layers += [nn.Conv2d(count, size, 3, padding=1, bias=False), nn.BatchNorm2d(size), nn.ReLU()]
    return nn.Sequential(*layers)


class PlainUNet(nn.Module):
    def __init__(self, width: int, depth: int, labels: int = 0, end: str = "relu") -> None:
        super().__init__()
        sizes = [width * 2 ** min(level, 3) for level in range(depth + 1)]
        self.down = nn.ModuleList(block(a, b) for a, b in zip([3, *sizes], sizes, strict=False))
        self.up = nn.ModuleList(block(sizes[i + 1] + sizes[i], sizes[i]) for i in range(depth))
        if end != "relu":
            self.up[0][5] = nn.Identity()
        if end == "linear":
            self.up[0][4] = nn.Identity()
        self.scores = nn.Conv2d(width, labels, 1) if labels else nn.Identity()

    def forward(self, images: Tensor) -> Tensor:
        """(B, labels or width, H, W) for uint8 images (B, H, W, 3)."""
        x, skips = (images.permute(0, 3, 1, 2).to(torch.get_default_dtype()) - 127.5) / 64, []
        for level, part in enumerate(self.down):
            x = part(x if level == 0 else nn.functional.max_pool2d(x, 2))
            skips.append(x)
        for level in reversed(range(len(self.up))):
            x = nn.functional.interpolate(x, scale_factor=2, mode="bilinear")
            x = self.up[level](torch.cat([x, skips[level]], 1))
        return self.scores(x)

    def blocks(self) -> list[tuple[str, nn.Sequential]]:
        ups = [(f"up{level}", self.up[level]) for level in reversed(range(len(self.up)))]
        return [(f"down{level}", part) for level, part in enumerate(self.down)] + ups

    def take(self, parameters: dict[str, Tensor]) -> "PlainUNet":
        """Copy the parameters of `UNet.init`."""
        with torch.no_grad():
            for name, part in self.blocks():
                first = [parameters[f"{name}.0{side}.weight"] for side in ("", ".below", ".beside")
                         if f"{name}.0{side}.weight" in parameters]  # fmt: skip
                part[0].weight.copy_(torch.cat(first, 1))
                part[3].weight.copy_(parameters[f"{name}.1.weight"])
            if isinstance(self.scores, nn.Conv2d):
                self.scores.weight.copy_(parameters["scores.weight"][..., None, None])
                self.scores.bias.copy_(parameters["scores.bias"])
        return self

    def named(self, what: str) -> dict[str, Tensor]:
        """Parameters (`data`) or their gradients (`grad`), with the names of `UNet`."""
        found = {}
        for name, part in self.blocks():
            first, below = getattr(part[0].weight, what), part[0].in_channels - part[0].out_channels
            if name.startswith("up"):
                found |= {f"{name}.0.below.weight": first[:, :below], f"{name}.0.beside.weight": first[:, below:]}
            else:
                found[f"{name}.0.weight"] = first
            found[f"{name}.1.weight"] = getattr(part[3].weight, what)
            for half, norm in self._norms(part):
                found[f"{name}.{half}.gain"] = getattr(norm.weight, what)
                found[f"{name}.{half}.shift"] = getattr(norm.bias, what)
        if isinstance(self.scores, nn.Conv2d):
            found["scores.weight"] = getattr(self.scores.weight, what)[..., 0, 0]
            found["scores.bias"] = getattr(self.scores.bias, what)
        return found

    @staticmethod
    def _norms(part: nn.Sequential) -> list[tuple[str, nn.Module]]:
        return [(half, part[i]) for half, i in (("0", 1), ("1", 4)) if isinstance(part[i], nn.BatchNorm2d)]

    def statistics(self) -> dict[str, Tensor]:
        norms = [norm for _, part in self.blocks() for _, norm in self._norms(part)]
        return {
            "mean": torch.cat([norm.running_mean for norm in norms]),
            "variance": torch.cat([norm.running_var for norm in norms]),
        }


def stacked(net: UNet, replicas: int) -> tuple[list[dict[str, Tensor]], dict[str, Tensor], dict[str, Tensor]]:
    """The parameters of each replica, the stacked parameters, and the stacked statistics."""
    each = [net.init(torch.Generator().manual_seed(seed)) for seed in range(replicas)]
    for one in each:  # make gains and shifts differ between channels
        for name, x in one.items():
            if name.endswith(("gain", "shift")):
                x += 0.3 * torch.randn(x.shape, generator=torch.Generator().manual_seed(len(name)))
    together = {name: torch.stack([one[name] for one in each]) for name in each[0]}
    return each, together, {name: torch.stack([x] * replicas) for name, x in net.statistics().items()}
