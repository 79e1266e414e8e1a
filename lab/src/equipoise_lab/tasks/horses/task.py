"""Binary segmentation (§6.1, "Binary Segmentation"): 328 horses, two labels, intersection over union.

50 fixed pictures are the validation part: never trained on, never tested on. The other 278 form five folds, drawn by
the seed. Training also uses the mirror image of each picture: example 328 + i mirrors example i.

The metric is the intersection over union of the foreground, |P and T| / |P or T|, of each picture, averaged over
pictures; 1 where both are empty. It is measured at the resolution of the net; `segmenting.truth_iou` measures it at
that of the masks.

The net wN-S is a UNet of width N at S x S pixels, halved four times; wN-S-dK is halved K times. The name may be
followed by options, each at most once, that say how W is kept definite and how large it may be:

    +raw +checked +normalized     instead of bounded, see `crf.GaussianCRF`
    +share0.9                     the share of ridge that sigma_max may reach, 0.5 by default
    +learned                      the share is learned, from that start
    +ridge100                     the ridge, 1 by default
    +norelu +linear               embeddings end before the last ReLU, or also before the last batch norm
    +unmirrored                   train without mirror images

The net "default" is w8-64+unmirrored.
"""

import math
import re
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from equipoise.energies import DEFINITE, Embedded, GaussianEnergy

from ...data import horses
from ...nets.unet import UNet
from ..predicting import Predictor, Request
from ..task import Batch, Parameters, Split, mean, with_count
from .settings import SETTINGS

COUNT, VALIDATION, FOLDS, LABELS = 328, 50, 5, 2
DEFAULT = "w8-64+unmirrored"
NUMBER = r"[0-9]+(?:\.[0-9]+)?(?:e-?[0-9]+)?"
OPTION = f"share(?P<share>{NUMBER})|ridge(?P<ridge>{NUMBER})|(?P<learned>learned)|(?P<unmirrored>unmirrored)"
OPTION += f"|(?P<definite>{'|'.join(DEFINITE)})|(?P<end>norelu|linear)"
ENDS = {"norelu": "norm", "linear": "linear"}
NUMBERS_AT_ONCE = 2**26
"""Numbers in a full-size feature map over all replicas, in evaluation: 256 MB."""
NUMBERS_IN_TRAINING = 2**25
"""The same for one picture per replica, in training: with 16 pictures per batch, about 60 GB in all."""


class Net(NamedTuple):
    width: int
    size: int
    depth: int
    definite: str = "bounded"
    share: float = 0.5
    learned: bool = False
    ridge: float = 1.0
    mirrored: bool = True
    end: str = "relu"


def parse(name: str) -> Net:
    """What the name of a net stands for.

    >>> parse("w16-128+share0.9+learned")
    Net(width=16, size=128, depth=4, definite='bounded', share=0.9, learned=True, ridge=1.0, mirrored=True, end='relu')
    """
    first, *rest = re.sub("^default(?=$|\\+)", DEFAULT, name).split("+")
    sizes = re.fullmatch(r"w([1-9][0-9]*)-([1-9][0-9]*)(?:-d([1-9]))?", first)
    options: dict[str, str] = {}
    for part in rest:
        option = re.fullmatch(OPTION, part)
        if option is not None and option.lastgroup is not None:
            options.setdefault(option.lastgroup, option[option.lastgroup])
    if sizes is None or len(options) < len(rest):
        forms = "+raw, +checked, +normalized, +share0.9, +learned, +ridge100, +norelu, +linear, +unmirrored"
        raise ValueError(f"horses has the nets default, wN-S and wN-S-dK, each also with {forms}, got {name!r}")
    net = Net(
        *(int(sizes[1]), int(sizes[2]), int(sizes[3] or 4)),
        options.get("definite", "bounded"),
        float(options.get("share", 0.5)),
        "learned" in options,
        float(options.get("ridge", 1.0)),
        "unmirrored" not in options,
        ENDS.get(options.get("end", ""), "relu"),
    )
    if net.size % 2**net.depth:
        raise ValueError(f"a side of {net.size} pixels cannot be halved {net.depth} times, got {name!r}")
    if not 0 < net.share < 1 or not net.ridge > 0:
        raise ValueError(f"share must be above 0 and below 1, and ridge positive, got {name!r}")
    return net


class Horses:
    name = "horses"
    title = "Horse segmentation"
    metric = "IoU"
    unit = "intersection over union, %"
    folds = FOLDS
    objectives = ("marginal",)
    nets: ClassVar[dict[str, str]] = {
        "default": DEFAULT,
        "wN-S": "a UNet of width N at S x S pixels",
        "wN-S-dK": "the same, halved K times",
        "+raw +checked +normalized +shareX +learned +ridgeX +norelu +linear +unmirrored": "appended to a name: the "
        "form of the CRF",
    }
    settings = SETTINGS
    ratio_is_telling = False  # every pixel interacts with all others, so the ratio alone does not show the balance

    def __init__(
        self, net: str = "default", device: torch.device | str = "cpu", data_dir: str | Path | None = None
    ) -> None:
        """Reads no data yet: prediction alone needs no data folder."""
        self.wanted, self.device, self.data_dir = parse(net), torch.device(device), data_dir
        width, self.size, depth = self.wanted[:3]
        self.energy = GaussianEnergy(self.wanted.definite, self.wanted.ridge)
        self.parts = {"unary": UNet(width, depth, LABELS), "pairwise": UNet(width, depth, end=self.wanted.end)}
        self.at_once = max(1, NUMBERS_AT_ONCE // (width * self.size**2))
        self.replicas_at_once = max(1, NUMBERS_IN_TRAINING // (width * self.size**2))

    @cached_property
    def data(self) -> horses.Horses:
        return horses.load(self.size, self.data_dir)

    @cached_property
    def images(self) -> Tensor:
        """(656, S, S, 3), bytes: the pictures, then their mirror images."""
        pictures = self.data.images.permute(0, 2, 3, 1)
        return torch.cat([pictures, pictures.flip(2)]).to(self.device)

    @cached_property
    def masks(self) -> Tensor:
        """(656, S, S), bytes."""
        return torch.cat([self.data.masks, self.data.masks.flip(2)]).to(self.device)

    def split(self, fold: int, seed: int) -> Split:
        if not 0 <= fold < FOLDS:
            raise ValueError(f"horses has test folds 0 to {FOLDS - 1}, got {fold}")
        shuffled = torch.randperm(COUNT, generator=torch.Generator().manual_seed(0))
        rest = shuffled[VALIDATION:]
        rest = rest[torch.randperm(len(rest), generator=torch.Generator().manual_seed(1 + seed))]
        parts = list(rest.tensor_split(FOLDS))
        test = parts.pop(fold).sort().values
        train = torch.cat(parts).sort().values
        if self.wanted.mirrored:
            train = torch.cat([train, COUNT + train])
        return Split(train, shuffled[:VALIDATION].sort().values, test)

    def init(self, generator: torch.Generator) -> Parameters:
        drawn: Parameters = {}
        for part, net in self.parts.items():
            drawn |= {f"{part}.{name}": x for name, x in net.init(generator).items()}
            drawn |= {f"statistics.{part}.{name}": x for name, x in net.statistics().items()}
        if self.wanted.learned:
            drawn["pairwise.share"] = torch.tensor(math.log(self.wanted.share / (1 - self.wanted.share)))
        return drawn

    def room(self, examples: Tensor) -> int:
        """All pictures have the same size."""
        return self.size**2

    def batch(self, examples: Tensor, room: int) -> Batch:
        """A batch that is not full is filled with its own examples again, which count in batch norm only."""
        there = examples >= 0
        first = (~there).long().argsort(dim=-1, stable=True)  # the positions of examples come before those of fillers
        again = torch.arange(examples.shape[1], device=examples.device) % there.sum(-1, keepdim=True).clamp(min=1)
        number = examples.gather(1, torch.where(there, again.new_zeros(()), first.gather(1, again)))
        number = torch.where(there, examples, number).clamp(min=0)
        return Batch(examples, self.images[number], self.masks[number].long(), None)

    def unary(self, parameters: Parameters, batch: Batch) -> Tensor:
        return self._run("unary", parameters, batch)

    def pairwise(self, parameters: Parameters, batch: Batch) -> Embedded:
        embeddings = self._run("pairwise", parameters, batch)
        if self.wanted.learned:
            share = parameters["pairwise.share"].sigmoid()[:, None]
        else:
            share = torch.full_like(batch.weights[:, :1], self.wanted.share)
        return Embedded(embeddings, torch.ones_like(share), share, (self.size, self.size))

    def _run(self, part: str, parameters: Parameters, batch: Batch) -> Tensor:
        net, statistics = (
            {name.removeprefix(prefix): x for name, x in parameters.items() if name.startswith(prefix)}
            for prefix in (f"{part}.", f"statistics.{part}.")
        )
        moves = (batch.weights.sum(-1) > 0).to(torch.get_default_dtype()) if batch.learning else None
        return self.parts[part](net, statistics, batch.inputs, moves)

    def scores(self, predictions: Tensor, batch: Batch) -> Tensor:
        return with_count(iou(predictions > 0, batch.labels > 0))

    def measure(self, sums: Tensor) -> Tensor:
        return mean(sums)

    def predict(self, model: Predictor, request: Request) -> Any:
        from .predict import predict

        return predict(model, request)

    def details(self, model: Predictor) -> tuple[list[str], dict[str, Any]]:
        return [], {}


def iou(predicted: Tensor, true: Tensor) -> Tensor:
    """|P and T| / |P or T| of masks (*batch, H, W), (*batch,); 1 where both are empty.

    >>> iou(torch.tensor([[True, True, False]]), torch.tensor([[True, False, True]]))
    tensor(0.3333)
    """
    both, either = (predicted & true).sum((-2, -1)), (predicted | true).sum((-2, -1))
    return torch.where(either > 0, both / either.clamp(min=1), 1.0)
