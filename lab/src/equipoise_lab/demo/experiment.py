"""The paper's experiment in a few minutes: one fold of handwriting, seven schemes, and the ratio of the two parts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from equipoise.scaling import Verdict, verdict

from ..data import ocr
from ..tasks import task_by_name
from ..training import Model, Recipe, Run, train
from ..training.engine import Watch
from ..training.steps import Step

SCHEMES = ("unary", "joint", "stage", "online", "offline", "offline_reg", "learned")
EPOCHS = 8
"""Epochs of each stage: enough to tell the schemes apart, few enough for two cores."""

RATE = 3e-3
"""The learning rate of every scheme with one phase, so that none wins by a better rate."""


@dataclass(frozen=True)
class Word:
    """A test word: its letters as drawn, and how the net and the CRF read them."""

    pixels: list[list[list[int]]]
    truth: str
    unary: str
    crf: str

    @property
    def repaired(self) -> list[bool]:
        """The letters that the net alone reads wrong and the CRF right."""
        return [u != t and c == t for t, u, c in zip(self.truth, self.unary, self.crf, strict=True)]


@dataclass(frozen=True)
class Outcome:
    runs: dict[str, Run]
    verdicts: dict[str, Verdict]
    transitions: list[list[float]]
    """The transition scores of the learned model."""
    words: list[Word]
    """The words in which its CRF repaired the most letters."""
    counts: dict[str, int]
    """Letters in the test fold: all, and those that the CRF repaired or spoilt."""


def recipes(epochs: int = EPOCHS, fold: int = 0, seed: int = 0) -> list[Recipe]:
    """Seven short recipes: the learning rate falls, and training stops, as soon as an epoch gains little."""
    short: dict[str, Any] = {"max_epochs": epochs, "threshold": 5e-3, "plateau": 1, "stop": 3}
    settings = task_by_name("ocr").settings
    short |= {"fold": fold, "seed": seed, "patience": "exact", "subset": settings.base.subset}
    chosen = [settings.recipe("marginal", scheme, **short) for scheme in SCHEMES]
    return [recipe if recipe.scheme == "stage" else replace(recipe, learning_rates=(RATE,)) for recipe in chosen]


def run(which: Sequence[Recipe], watch: Watch | None = None, step: Step | None = None, pictures: int = 12) -> Outcome:
    """Train them together, and compare the learned model with the net alone on the test words."""
    models: dict[str, Model] = {}
    finished = train(
        which,
        watch=watch,
        step=step,
        done=lambda run, parameters: models.update({run.recipe.scheme: Model(run.recipe, parameters)}),
    )
    runs = {run.recipe.scheme: run for run in finished}
    verdicts = {
        scheme: verdict([epoch.ratio for epoch in run.history if epoch.phase == run.history[-1].phase])
        for scheme, run in runs.items()
        if scheme != "unary" and run.failed is None
    }
    words = _read(models["unary"], models["learned"])
    counts = {
        "letters": sum(len(word.truth) for word in words),
        "repaired": sum(sum(word.repaired) for word in words),
        "spoilt": sum(u == t != c for word in words for t, u, c in zip(word.truth, word.unary, word.crf, strict=True)),
    }
    words.sort(key=lambda word: -sum(word.repaired))
    matrix = models["learned"].parameters["pairwise.matrix"].tolist()
    return Outcome(runs, verdicts, matrix, words[:pictures], counts)


def _read(net: Model, crf: Model) -> list[Word]:
    """The test fold as read by the net trained alone, and by the model with a CRF."""
    letters = ocr.load()
    test = crf.task.split(crf.recipe.fold, crf.recipe.seed).test
    words = []
    for number, by_net, by_crf in zip(test.tolist(), net.predict(test), crf.predict(test), strict=True):
        start, length = int(letters.starts[number]), int(letters.lengths[number])
        here = slice(start, start + length)
        texts = (letters.labels[here], by_net[:length], by_crf[:length])
        truth, unary, together = ("".join(chr(97 + label) for label in text.tolist()) for text in texts)
        words.append(Word(letters.pixels[here].tolist(), truth, unary, together))
    return words
