"""Train a tagger: batches of sentences of similar length, AdamW, a learning rate that falls linearly to 0.

A batch has up to `batch` sentences, and up to `batch * WORDS` words with padding.

The best parameters by F1 on the validation sentences are kept in the folder of the model. After each epoch the whole
state is written beside them, so an interrupted training continues with identical results: the order of sentences and
the dropout of an epoch depend only on the seed and the number of the epoch.
"""

import hashlib
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from ..crf.counted import BY_DEFAULT
from ..files import tensors
from ..files.errors import DataError
from ..files.writing import WritingError
from .batches import cut
from .columns import Sentence
from .evaluation import evaluate
from .folder import DESCRIPTION, STATE, change, describe, has_model
from .model import NoScoresError, Tagger, save

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

    def __post_init__(self) -> None:
        for name in ("epochs", "learning_rate", "batch"):
            if not getattr(self, name) > 0:
                raise ValueError(f"--{name.replace('_', '-')} must be positive, got {getattr(self, name)}")
        if not self.learning_rate <= HIGHEST_RATE:
            raise ValueError(f"--learning-rate must be at most {HIGHEST_RATE:g}, got {self.learning_rate}")


class DivergenceError(ValueError):
    """The training has no result, because its numbers are no longer finite."""


@dataclass(frozen=True)
class Epoch:
    loss: float
    f1: float  # on the validation sentences
    ratio: float  # ||U|| / ||W||
    seconds: float


def default_epochs(sentences: int, batch: int, steps: int = 2500, least: int = 10, most: int = 100) -> int:
    """The number of epochs that gives about this many steps.

    >>> default_epochs(8936, 32), default_epochs(200, 32)
    (10, 100)
    """
    return min(max(math.ceil(steps / math.ceil(sentences / max(batch, 1))), least), most)


def fit(
    tagger: Tagger,
    train: Sequence[Sentence],
    valid: Sequence[Sentence],
    settings: Settings,
    folder: Path,
    *,
    resume: bool = False,
    watch: Callable[[Sequence[Epoch]], None] = lambda _: None,
    step: Callable[[int, int, float], None] = lambda *_: None,
) -> list[Epoch]:
    """Train, and write the best model to the folder. Returns the history of all epochs.

    `watch` is called after each epoch with the history, `step` after each batch with its number, the number of batches
    and the loss.
    """
    optimizer = torch.optim.AdamW(tagger.parameters(), settings.learning_rate, weight_decay=settings.decay)
    shapes = {name: tuple(x.shape) for name, x in tagger.state_dict().items()}
    key = {**asdict(settings), "data": digest(train, valid), "model": digest(tagger.tags, shapes)}
    history = _resumed(tagger, optimizer, key, folder) if resume else []
    if settings.start_from_labels and not history:
        tagger.start_from_labels([x.tags for x in train])
    about: dict[str, Any] = {"settings": key, "sentences": [len(train), len(valid)], "finished": False}
    for number in range(len(history), settings.epochs):
        began = time.monotonic()
        try:
            loss = _epoch(tagger, train, settings, number, optimizer, step)
            found = [one.tags for one in tagger.tag([x.words for x in valid], probabilities=False)]
        except (DivergenceError, NoScoresError) as error:
            raise DivergenceError(_diverged(number, error, history, folder)) from None
        f1 = evaluate(tagger.tags, valid, found).overall.f1
        ratio = tagger.balance([x.words for x in valid])
        best = f1 >= max([epoch.f1 for epoch in history], default=0)
        history.append(Epoch(loss, f1, ratio, time.monotonic() - began))
        if best:
            save(tagger, folder, about | {"epoch": number + 1, "valid_f1": f1})
        _write(tagger, optimizer, key, history, folder)
        watch(history)
    _finish(folder, history)
    return history


def _epoch(
    tagger: Tagger,
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
            loss = tagger.loss([x.words for x in batch], [x.tags for x in batch])
            loss.backward()
            norm = clip_grad_norm_(tagger.parameters(), settings.clip)
            if not (math.isfinite(loss.item()) and math.isfinite(norm)):
                raise DivergenceError(f"the loss is {loss.item():g} and the norm of its gradient {norm:g}")
            optimizer.step()
            total += loss.item() * len(batch)
            step(place + 1, len(batches), loss.item())
    if not all(x.isfinite().all() for x in tagger.state_dict().values()):
        raise DivergenceError("a parameter is not finite")
    return total / len(train)


def _diverged(number: int, error: Exception, history: Sequence[Epoch], folder: Path) -> str:
    """What happened, and what the folder has. The state goes: to continue from it would diverge again."""
    (folder / STATE).unlink(missing_ok=True)
    best = max(range(len(history)), key=lambda i: (history[i].f1, i), default=None)
    what = "nothing was saved" if best is None else f"{folder} has the model of epoch {best + 1}, the best before"
    return f"training diverged in epoch {number + 1}: {error}; lower --learning-rate; {what}"


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


def digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _write(
    tagger: Tagger, optimizer: torch.optim.Optimizer, key: dict[str, Any], history: list[Epoch], folder: Path
) -> None:
    """Everything that the next epoch depends on."""
    named = {f"model.{name}": x for name, x in tagger.state_dict().items()}
    for i, state in optimizer.state_dict()["state"].items():
        named |= {f"optimizer.{i}.{name}": x for name, x in state.items()}
    text = json.dumps({"settings": key, "history": [asdict(epoch) for epoch in history]})
    try:
        tensors.save(folder / STATE, named, text)
    except OSError as error:
        raise WritingError(f"{folder / STATE} could not be written: {error.strerror or error}") from error


def _resumed(tagger: Tagger, optimizer: torch.optim.Optimizer, key: dict[str, Any], folder: Path) -> list[Epoch]:
    """Load the state in the folder, if there is one, and return its history."""
    path = folder / STATE
    try:
        if not path.exists():
            if not has_model(folder):
                return []
            path = folder / DESCRIPTION
            about = describe(folder)["training"]
            _check_settings(about["settings"], key, folder)
            return [Epoch(**epoch) for epoch in about.get("history", [])]
        named, text = tensors.load(path)
        known = json.loads(text)
        _check_settings(known["settings"], key, folder)
        tagger.load_state_dict({name[6:]: x for name, x in named.items() if name.startswith("model.")})
        state: dict[int, dict[str, Tensor]] = {}
        for name, x in named.items():
            if name.startswith("optimizer."):
                _, number, field = name.split(".")
                state.setdefault(int(number), {})[field] = x
        optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
        return [Epoch(**epoch) for epoch in known["history"]]
    except (AttributeError, KeyError, TypeError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{path} is not the state of this training ({reason}): use --overwrite") from None


def _check_settings(stored: dict[str, Any], key: dict[str, Any], folder: Path) -> None:
    changed = [name for name in key if stored.get(name) != key[name]]
    if changed:
        what = ", ".join(
            f"the {name}" if name in ("data", "model") else f"{name} {stored.get(name)}" for name in changed
        )
        raise DataError(f"{folder} was trained with other settings ({what}): repeat them, or choose another --out")


def _finish(folder: Path, history: list[Epoch]) -> None:
    """Mark the training as finished and remove its state."""
    fields = describe(folder)
    fields["training"] |= {"finished": True, "history": [asdict(epoch) for epoch in history]}
    change(folder, fields)
    (folder / STATE).unlink(missing_ok=True)
