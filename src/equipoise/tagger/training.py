"""Train a tagger: batches of sentences of similar length, AdamW, a learning rate that falls linearly to 0.

A batch has up to `batch` sentences, and up to `batch * WORDS` words with padding.

The best parameters by F1 on the validation sentences are the result, in memory or in the folder of the model. There,
after each epoch the whole state is written beside them (`training_state`), so an interrupted training continues with
identical results: the order of sentences and the dropout of an epoch depend only on the seed and the number of the
epoch.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn.utils import clip_grad_norm_

from ..crf.counted import BY_DEFAULT
from .batches import cut
from .columns import Sentence
from .evaluation import evaluate
from .folder import STATE
from .model import NoScoresError, TaggingModel, save
from .training_state import Epoch, digest, finish, resumed, write

POOL = 20
"""Sentences of this many batches are sorted by length before they are cut into batches."""
WORDS = 512
"""Words per sentence of a full batch, with padding: only a batch with longer sentences has fewer of them."""
HIGHEST_RATE = 1e30
"""AdamW divides the rate by numbers down to 0.1, in float32."""


@dataclass(frozen=True)
class Settings:
    epochs: int
    learning_rate: float
    batch: int = 32
    warmup: float = 0.0  # share of the steps in which the learning rate rises
    decay: float = 0.0
    clip: float = 5.0
    seed: int = 0
    start_from_labels: bool = BY_DEFAULT
    optimizer: str = "adamw"  # or "adagrad", which takes sparse gradients, without clip and decay
    bf16: bool = False  # whether the net computes in bfloat16 in training
    patience: int = 0  # epochs without a better F1 that end the training; 0: none do

    def __post_init__(self) -> None:
        for name in ("epochs", "learning_rate", "batch"):
            if not getattr(self, name) > 0:
                raise ValueError(f"--{name.replace('_', '-')} must be positive, got {getattr(self, name)}")
        if self.patience < 0:
            raise ValueError(f"--patience must not be negative, got {self.patience}")
        if not self.learning_rate <= HIGHEST_RATE:
            raise ValueError(f"--learning-rate must be at most {HIGHEST_RATE:g}, got {self.learning_rate}")


class DivergenceError(ValueError):
    """The training has no result, because its numbers are no longer finite."""


def default_epochs(sentences: int, batch: int, steps: int = 2500, least: int = 10, most: int = 100) -> int:
    """The number of epochs that gives about this many steps.

    >>> default_epochs(8936, 32), default_epochs(200, 32)
    (10, 100)
    """
    return min(max(math.ceil(steps / math.ceil(sentences / max(batch, 1))), least), most)


def default_patience(epochs: int) -> int:
    """Half of the epochs: the best one is long past then, and the learning rate has fallen since.

    >>> default_patience(100), default_patience(10)
    (50, 10)
    """
    return max(epochs // 2, 10)


def best_epoch(history: Sequence[Epoch]) -> int:
    """The epoch with the highest F1, from 1, of equal ones the last; 0 if there is none."""
    return max(range(1, len(history) + 1), key=lambda i: (history[i - 1].f1 or 0, i), default=0)


def without_gain(history: Sequence[Epoch]) -> int:
    """The number of epochs since the F1 was last better than before; 0 if it was never above 0."""
    scores = [epoch.f1 or 0 for epoch in history]
    return len(scores) - 1 - scores.index(max(scores)) if any(scores) else 0


def fit(
    tagger: TaggingModel,
    train: Sequence[Sentence],
    valid: Sequence[Sentence],
    settings: Settings,
    folder: Path | None = None,
    *,
    resume: bool = False,
    watch: Callable[[Sequence[Epoch]], None] = lambda _: None,
    step: Callable[[int, int, float], None] = lambda *_: None,
) -> list[Epoch]:
    """Train. Returns the history of all epochs; `tagger.about` is what `save` writes about the training.

    The best model by F1 on `valid` is written to the folder; without a folder, `tagger` is this model. Without
    validation sentences it is that of the last epoch. `watch` is called after each epoch with the history, `step` after
    each batch with its number, the number of batches and the loss.
    """
    optimizer = _optimizer(tagger, settings, train)
    shapes = {name: tuple(x.shape) for name, x in tagger.state_dict().items()}
    own = {name: value for name, value in asdict(settings).items() if name != "patience"}
    key = {**own, "data": digest(train, valid), "model": digest(tagger.tags, shapes)}
    history = resumed(tagger, optimizer, key, folder) if resume and folder else []
    if settings.start_from_labels and not history:
        tagger.start_from_labels([x.tags for x in train])
    about: dict[str, Any] = {"settings": key, "sentences": [len(train), len(valid)], "finished": False}
    best = {}
    for number in range(len(history), settings.epochs):
        if 0 < settings.patience <= without_gain(history):
            break
        began = time.monotonic()
        try:
            loss = _epoch(tagger, train, settings, number, optimizer, step)
            f1 = _f1(tagger, valid) if valid else None
        except (DivergenceError, NoScoresError) as error:
            raise DivergenceError(_diverged(number, error, history, folder)) from None
        ratio = tagger.balance([x.words for x in valid or train])
        history.append(Epoch(loss, f1, ratio, time.monotonic() - began))
        if f1 is None or best_epoch(history) == number + 1:
            about |= {"epoch": number + 1, "valid_f1": f1}
            if folder:
                save(tagger, folder, about)
            elif valid:
                best = {name: x.clone() for name, x in tagger.state_dict().items()}
        if folder:
            write(tagger, optimizer, key, history, folder)
        watch(history)
    if folder:
        finish(folder, history)
    elif best:
        tagger.load_state_dict(best)
    tagger.about = about | {"finished": True, "history": [asdict(epoch) for epoch in history]}
    return history


def _optimizer(tagger: TaggingModel, settings: Settings, train: Sequence[Sentence]) -> torch.optim.Optimizer:
    if settings.optimizer == "adamw":
        return torch.optim.AdamW(tagger.parameters(), settings.learning_rate, weight_decay=settings.decay)
    optimizer = torch.optim.Adagrad(tagger.parameters(), settings.learning_rate)
    for parameter in tagger.net.parameters():
        optimizer.state[parameter]["sum"].fill_(typical_gradient(train, settings.batch) ** 2)
    return optimizer


def typical_gradient(sentences: Sequence[Sentence], batch: int) -> float:
    """The mean of (1 - p) / batch over words, where p is the frequency of the word's tag.

    This is about the first gradient of a feature that occurs once in a batch. The sums of squares of Adagrad start at
    its square. If they started at 0, the first step of every feature would have the same size, and rare features would
    have too much weight: on CoNLL-2000 that costs a point of F1.

    >>> typical_gradient([Sentence(("in", "Rome"), ("O", "B-LOC"))], 10)
    0.05
    """
    counts = Counter(tag for sentence in sentences for tag in sentence.tags)
    return (1 - sum((count / counts.total()) ** 2 for count in counts.values())) / batch


def _f1(tagger: TaggingModel, sentences: Sequence[Sentence]) -> float:
    tagged = [one.tags for one in tagger.tag([x.words for x in sentences], probabilities=False)]
    return evaluate(tagger.tags, sentences, tagged).overall.f1


def _epoch(
    tagger: TaggingModel,
    train: Sequence[Sentence],
    settings: Settings,
    number: int,
    optimizer: torch.optim.Optimizer,
    step: Callable[[int, int, float], None],
) -> float:
    """The mean loss per sentence of one epoch."""
    tagger.train()
    total = 0.0
    with torch.random.fork_rng():
        torch.manual_seed(1_000_003 * settings.seed + number)
        batches = shuffled(train, settings.batch)
        for place, batch in enumerate(batches):
            share = (number + place / len(batches)) / settings.epochs
            for group in optimizer.param_groups:
                group["lr"] = settings.learning_rate * rate(share, settings.warmup)
            optimizer.zero_grad()
            loss = tagger.loss([x.words for x in batch], [x.tags for x in batch], bf16=settings.bf16)
            loss.backward()
            norm = clip_grad_norm_(tagger.parameters(), settings.clip) if settings.clip < math.inf else 0.0
            if not (math.isfinite(loss.item()) and math.isfinite(norm)):
                raise DivergenceError(f"the loss is {loss.item():g} and the norm of its gradient {norm:g}")
            with torch.sparse.check_sparse_tensor_invariants(enable=False):  # torch warns if nobody decides
                optimizer.step()
            total += loss.item() * len(batch)
            step(place + 1, len(batches), loss.item())
    if not all(x.isfinite().all() for x in tagger.state_dict().values()):
        raise DivergenceError("a parameter is not finite")
    return total / len(train)


def _diverged(number: int, error: Exception, history: Sequence[Epoch], folder: Path | None) -> str:
    """What happened, and what the folder has. The state goes: to continue from it would diverge again."""
    what = f"training diverged in epoch {number + 1}: {error}; lower --learning-rate"
    if folder is None:
        return what
    (folder / STATE).unlink(missing_ok=True)
    best = best_epoch(history)
    saved = f"{folder} has the model of epoch {best}, the best before" if best else "nothing was saved"
    return f"{what}; {saved}"


def rate(share: float, warmup: float) -> float:
    """The factor of the learning rate after this share of the training: it rises, then falls linearly to 0.

    >>> [round(rate(share, 0.2), 2) for share in (0.0, 0.1, 0.2, 0.6)]
    [0.0, 0.5, 1.0, 0.5]
    """
    return share / warmup if share < warmup else (1 - share) / (1 - warmup)


def shuffled(sentences: Sequence[Sentence], size: int) -> list[list[Sentence]]:
    """Batches in random order, each of sentences of similar length, by torch's random numbers."""
    order = [sentences[i] for i in torch.randperm(len(sentences)).tolist()]
    batches: list[list[Sentence]] = []
    for start in range(0, len(order), POOL * size):
        pool = sorted(order[start : start + POOL * size], key=lambda x: len(x.words))
        batches += cut(((x.words, x) for x in pool), size, size * WORDS)
    return [batches[i] for i in torch.randperm(len(batches)).tolist()]
