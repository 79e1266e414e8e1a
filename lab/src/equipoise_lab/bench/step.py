"""A training step and an inference of a whole tagger: what a user waits for, with a net in front of the CRF.

    training     zero gradients, net, loss, backward, clip at 1, AdamW
    inference    net, labels

The net is a BiLSTM on the CPU, and on a GPU a transformer of the size of MiniLM-L6, both with random weights. A batch
has 32 sentences of 8 to 64 words and 23 labels. The peers differ in the last layer only. Their calls alternate in one
run, and each is compared with the call of the softmax in the same round. No call is left out.
"""

import importlib.util
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from equipoise import scaling
from equipoise.compat import torchcrf
from equipoise.crf import ChainCRF

from .measurements import Measurements
from .peers import Call
from .timing import Times, measure_warm

BATCH, LENGTH, LABELS, WORDS = 32, 64, 23, 10_000
BASE = "softmax"
"""The peer without a CRF, to which the others are compared."""


class Inputs(NamedTuple):
    words: Tensor  # (B, L)
    labels: Tensor  # (B, L), -100 where there is no word
    mask: Tensor  # (B, L)


class BiLSTM(nn.Module):
    """Word vectors of 100 numbers, and a bidirectional LSTM of 128 per direction."""

    size = 256

    def __init__(self) -> None:
        super().__init__()
        self.vectors = nn.Embedding(WORDS, 100)
        self.lstm = nn.LSTM(100, 128, bidirectional=True, batch_first=True)

    def forward(self, words: Tensor, mask: Tensor) -> Tensor:
        states: Tensor = self.lstm(self.vectors(words))[0]
        return states


class Transformer(nn.Module):
    """As large as MiniLM-L6: 6 layers, 384 numbers per word, 12 heads, 1,536 hidden units."""

    size = 384

    def __init__(self) -> None:
        super().__init__()
        self.vectors, self.places = nn.Embedding(30_522, self.size), nn.Embedding(512, self.size)
        layer = nn.TransformerEncoderLayer(self.size, 12, 1536, activation="gelu", batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)

    def forward(self, words: Tensor, mask: Tensor) -> Tensor:
        places = torch.arange(words.shape[-1], device=words.device)
        states: Tensor = self.layers(self.vectors(words) + self.places(places), src_key_padding_mask=~mask)
        return states


class Head(NamedTuple):
    """The last layer of a tagger: a module, its loss and its labels from scores (B, L, M)."""

    module: nn.Module
    loss: Callable[[Tensor, Inputs], Tensor]
    labels: Callable[[Tensor, Inputs], Any]


def softmax() -> Head:
    def loss(scores: Tensor, given: Inputs) -> Tensor:
        return nn.functional.cross_entropy(scores.flatten(0, 1), given.labels.flatten())

    return Head(nn.Identity(), loss, lambda scores, given: scores.argmax(-1))


def softmax_with_lists() -> Head:
    """A softmax whose labels are lists of numbers, as those of pytorch-crf are, so that it waits for a GPU too."""
    return softmax()._replace(labels=lambda scores, given: scores.argmax(-1).tolist())


def chain_crf(method: type[scaling.Scaling]) -> Callable[[], Head]:
    def make() -> Head:
        crf = ChainCRF(LABELS, method(), boundaries=True)
        return Head(
            crf,
            lambda scores, given: crf.loss(scores, given.labels, given.mask),
            lambda scores, given: crf.decode(scores, given.mask),
        )

    return make


def like_torchcrf(module: Any) -> Callable[[], Head]:
    """pytorch-crf's interface."""

    def make() -> Head:
        crf = module.CRF(LABELS, batch_first=True)
        return Head(
            crf,
            lambda scores, given: -crf(scores, given.labels.clamp(min=0), given.mask, reduction="mean"),
            lambda scores, given: crf.decode(scores, given.mask),
        )

    return make


def pytorch_crf() -> Head:
    import torchcrf as peer

    return like_torchcrf(peer)()


def torchcrf_package() -> Head:
    import TorchCRF

    crf = TorchCRF.CRF(LABELS, use_gpu=torch.cuda.is_available())
    return Head(
        crf,
        lambda scores, given: -crf(scores, given.labels.clamp(min=0), given.mask).mean(),
        lambda scores, given: crf.viterbi_decode(scores, given.mask),
    )


HEADS: dict[str, tuple[str, Callable[[], Head]]] = {
    BASE: ("torch", softmax),
    "softmax, lists": ("torch", softmax_with_lists),
    "ChainCRF, Fixed": ("torch", chain_crf(scaling.Fixed)),
    "ChainCRF, Learned": ("torch", chain_crf(scaling.Learned)),
    "drop-in": ("torch", like_torchcrf(torchcrf)),
    "pytorch-crf": ("torchcrf", pytorch_crf),
    "TorchCRF": ("TorchCRF", torchcrf_package),
}


def inputs(device: str) -> Inputs:
    """A batch of sentences of different lengths, the same in every run."""
    fixed = torch.Generator().manual_seed(0)
    lengths = torch.randint(8, LENGTH + 1, (BATCH,), generator=fixed)
    lengths[0] = LENGTH
    mask = torch.arange(LENGTH) < lengths[:, None]
    words = torch.randint(WORDS, (BATCH, LENGTH), generator=fixed)
    labels = torch.randint(LABELS, (BATCH, LENGTH), generator=fixed).masked_fill(~mask, -100)
    return Inputs(words.to(device), labels.to(device), mask.to(device))


def steps(make: Callable[[], Head], given: Inputs, device: str) -> dict[str, Call]:
    """A training step and an inference of one tagger.

    >>> sorted(steps(softmax, inputs("cpu"), "cpu"))
    ['inference', 'training']
    """
    torch.manual_seed(0)
    net, head = (BiLSTM() if device == "cpu" else Transformer()).to(device), make()
    scores = nn.Linear(net.size, LABELS).to(device)
    model = nn.ModuleList([net, scores, head.module.to(device)])
    optimizer = torch.optim.AdamW(model.parameters(), 3e-5)

    def training() -> None:
        model.train()
        optimizer.zero_grad()
        head.loss(scores(net(given.words, given.mask)), given).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    @torch.no_grad()
    def inference() -> Any:
        model.eval()
        return head.labels(scores(net(given.words, given.mask)), given)

    return {"training": training, "inference": inference}


@dataclass(frozen=True)
class Row:
    step: str
    peer: str
    milliseconds: float | None
    """The median of all calls."""
    times_base: float | None
    """The time relative to softmax: the median ratio of turns that followed each other."""
    slowed: float | None
    note: str = ""


class Report(Measurements):
    rows: list[Row]


def run(device: str, seconds: float = 1.0) -> Iterator[Report]:
    """Measure all peers that are installed; yields the report after each kind of step."""
    report, given = Report.start(device), inputs(device)
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    calls = {
        name: steps(make, given, device)
        for name, (module, make) in HEADS.items()
        if importlib.util.find_spec(module) is not None
    }
    for step in ("training", "inference"):
        measured = measure_warm({name: both[step] for name, both in calls.items()}, seconds, wait)
        base = measured[BASE]
        for name, times in measured.items():
            if isinstance(times, str):
                report.rows.append(Row(step, name, None, None, None, times))
                continue
            ratio = round(times.turn_by_turn(base), 3) if isinstance(base, Times) else None
            median = round(1000 * statistics.median(times.every), 3)
            report.rows.append(Row(step, name, median, ratio, round(times.slowed, 3)))
        yield report
