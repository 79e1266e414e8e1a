"""Handwritten words (§6.1, "Optical Character Recognition"): 6,877 words of 52,152 letters, 26 labels, ten folds.

Fold 9 is the validation fold: never trained on, never tested on. Test fold f of 0..8 leaves the other eight for
training. The metric is the share of right letters of a word, averaged over words.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor

from equipoise.energies import ChainEnergy

from ...data import ocr
from ...nets import lenet
from ...recipe import OBJECTIVES
from ..predicting import Predictor, Request
from ..task import Batch, Parameters, Split, mean, share_right, with_count
from .settings import SETTINGS

VALIDATION_FOLD = 9
ROOM = 16
"""Batches hold letters, not words; their number is rounded up to a multiple of this, so that few shapes occur.
A batch of one word has room for the longest word."""


class OCR:
    name = "ocr"
    title = "Handwritten words"
    metric = "accuracy"
    unit = "% of letters read right"
    folds = 9
    objectives = OBJECTIVES
    nets: ClassVar[dict[str, str]] = {
        "default": "LeNet, as in the paper",
        "sigmoid": "LeNet with a sigmoid at the top",
        "layernorm": "LeNet with layer normalisation",
    }
    settings = SETTINGS
    ratio_is_telling = True
    replicas_at_once = 512
    energy = ChainEnergy()

    def __init__(self, net: str = "default", device: torch.device | str = "cpu") -> None:
        if net not in self.nets:
            raise ValueError(f"ocr has the nets {', '.join(self.nets)}, got {net!r}")
        self.net = lenet.LeNet("relu" if net == "default" else net)
        letters = ocr.load()
        self.fold_of = letters.folds
        self.lengths_here = letters.lengths
        longest = int(letters.lengths.max())
        place = torch.arange(longest)
        within = place < letters.lengths[:, None]
        at = torch.where(within, letters.starts[:, None] + place, 0)  # (words, longest): a word's letters
        self.windows = lenet.windows(letters.pixels.to(torch.float32)).to(device)
        self.letters = at.to(device)
        self.labels = torch.where(within, letters.labels[at], 0).to(device)
        self.lengths = letters.lengths.to(device)

    def split(self, fold: int, seed: int) -> Split:
        """The folds are the publisher's and do not depend on the seed."""
        if not 0 <= fold < self.folds:
            raise ValueError(f"ocr has test folds 0 to {self.folds - 1}, got {fold}")
        train = (self.fold_of != fold) & (self.fold_of != VALIDATION_FOLD)
        parts = (train, self.fold_of == VALIDATION_FOLD, self.fold_of == fold)
        return Split(*(part.nonzero()[:, 0] for part in parts))

    def init(self, generator: torch.Generator) -> Parameters:
        net = {f"unary.{name}": x for name, x in self.net.init(generator).items()}
        return net | {"pairwise.matrix": 0.1 * torch.randn(lenet.LABELS, lenet.LABELS, generator=generator)}

    def room(self, examples: Tensor) -> int:
        letters = torch.where(examples >= 0, self.lengths_here[examples], 1).sum(-1)
        return min(-(-int(letters.max()) // ROOM) * ROOM, examples.shape[-1] * self.letters.shape[1])

    def batch(self, examples: Tensor, room: int) -> Batch:
        """Words packed letter by letter: `room` letters per replica, so that padding occurs at the end only."""
        word = examples.clamp(min=0)
        lengths = torch.where(examples >= 0, self.lengths[word], 1)
        place = torch.arange(self.letters.shape[1], device=word.device)
        slot = (lengths.cumsum(-1) - lengths)[..., None] + place  # (E, B, L): where a letter goes
        slot = torch.where(place < lengths[..., None], slot, room)
        packed = word.new_zeros(len(word), room + 1)  # one place more, for positions beyond the length
        packed.scatter_(1, slot.flatten(1), self.letters[word].flatten(1))
        inputs = self.windows[packed[:, :room]], slot.clamp(max=room - 1)
        return Batch(examples, inputs, self.labels[word], lengths)

    def unary(self, parameters: Parameters, batch: Batch) -> Tensor:
        windows, slot = batch.inputs
        net = {name.removeprefix("unary."): x for name, x in parameters.items() if name.startswith("unary.")}
        scores = self.net(net, windows)  # (E, room, 26)
        index = slot.flatten(1)[..., None].expand(-1, -1, scores.shape[-1])
        return scores.gather(1, index).reshape(*slot.shape, -1)

    def pairwise(self, parameters: Parameters, batch: Batch) -> Tensor:
        return parameters["pairwise.matrix"][:, None]

    def scores(self, predictions: Tensor, batch: Batch) -> Tensor:
        assert batch.lengths is not None
        return with_count(share_right(predictions, batch.labels, batch.lengths))

    def measure(self, sums: Tensor) -> Tensor:
        return mean(sums)

    def predict(self, model: Predictor, request: Request) -> Any:
        from .predict import predict

        return predict(model, request)

    def details(self, model: Predictor) -> tuple[list[str], dict[str, Any]]:
        return [], {}
