"""`equipoise train` and `equipoise predict`: one recipe to a file, and the file put to use."""

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console

from ..plan import tables
from ..recipe import Recipe
from ..tasks import Parameters
from ..training import BalanceMonitor, Model, Run
from ..training import train as engine_train
from ..training.replica import Replica
from . import pictures, tagging, words
from .progress import training

Scheme = Literal["unary", "stage", "joint", "online", "offline", "offline_reg", "temperature", "learned"]
Objective = Literal["marginal", "margin", "likelihood", "mean_field"]
Json = Annotated[bool, tyro.conf.arg(name="json")]
Source = Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="[FILE|FOLDER]")]


def train(
    task: tyro.conf.Positional[str],
    /,
    *,
    scheme: Scheme = "learned",
    objective: Objective = "marginal",
    optimizer: Literal["adam", "sgd"] = "adam",
    learning_rates: tuple[float, ...] | None = None,
    alpha: float | None = None,
    weight: float | None = None,
    net: str = "default",
    seed: int = 0,
    fold: int = 0,
    epochs: int | None = None,
    device: Literal["cpu", "cuda"] = "cpu",
    data_dir: Path | None = None,
    out: Path = Path("model.safetensors"),
    checkpoint: Path | None = None,
    as_json: Json = False,
) -> None:
    """Train one model and write it to a file.

    What is not said is as the experiments have it: learning rates, alpha and weight as chosen on validation. ocr comes
    with the package; `equipoise data` gets what other tasks read. For chunking, precision, recall and F1 on the test
    part are printed, overall and for each type of chunk.

    Args:
        task: What to learn: ocr (handwritten words), chunking (phrases of a sentence), horses (where in a picture).
        scheme: How: all at once with learned scales, in stages, ...
        objective: The loss.
        optimizer: The rule.
        learning_rates: One; three for the stages of stage.
        alpha: The factor of the unary part, or the ratio aimed at.
        weight: Of the penalty of offline_reg.
        net: Which of the task's nets: default; ocr has also sigmoid and layernorm, chunking linear-N for N hidden units
            and bilstm, each with +senna for the paper's word vectors.
        seed: Of the start and the order of examples; in chunking also of what is kept for validation.
        fold: Which fold to keep for testing; chunking has 0 alone.
        epochs: At most so many, of each stage.
        device: Where.
        data_dir: The data folder; else EQUIPOISE_DATA, else the user's own.
        out: The model's file.
        checkpoint: Save progress here after each epoch, and go on from it if it is there.
        as_json: Print the result as JSON.
    """
    recipe = _recipe(task, objective, scheme, optimizer, net)
    given = {"learning_rates": learning_rates, "alpha": alpha, "weight": weight, "max_epochs": epochs}
    changed: dict[str, Any] = {name: x for name, x in given.items() if x is not None}
    recipe = replace(recipe, seed=seed, fold=fold, **changed)
    _use(data_dir)
    console = Console(stderr=True)
    models: list[Model] = []

    def done(run: Run, parameters: Parameters) -> None:
        models.append(Model(run.recipe, parameters, device))
        if run.failed is None:
            models[0].save(out)

    with training(f"{task} {scheme}", quiet=as_json) as progress:
        monitor = BalanceMonitor(lambda text: console.print(f"[yellow]{text}"))

        def watch(replicas: Sequence[Replica]) -> None:
            progress(replicas)
            if task != "horses":  # where every pixel sees all others, a ratio says nothing by itself
                monitor(replicas)

        (run,) = engine_train([recipe], device=device, checkpoint=checkpoint, watch=watch, done=done)
    if run.failed is not None:
        raise ValueError(f"training failed: {run.failed}; try a smaller learning rate")
    _say(run, models[0], out, as_json)


def _recipe(task: str, objective: str, scheme: str, optimizer: str, net: str) -> Recipe:
    if task not in tables.BASES:
        raise ValueError(f"there is no task {task!r}; have {', '.join(tables.BASES)}")
    return tables.setting(task, objective, scheme, optimizer, net=net)


def _use(data_dir: Path | None) -> None:
    """Tasks look for their data where the environment says, and so do worker processes."""
    if data_dir is not None:
        os.environ["EQUIPOISE_DATA"] = str(data_dir)


def _say(run: Run, model: Model, out: Path, as_json: bool) -> None:
    scores = tagging.after_training(model) if run.recipe.task == "chunking" else None
    if as_json:
        names = ("test", "valid", "train", "epochs", "seconds", "alpha", "ratio")
        fields: dict[str, Any] = {name: getattr(run, name) for name in names}
        fields |= {"recipe": run.recipe.to_json(), "model": str(out)}
        json.dump(fields | (tagging.details(scores) if scores else {}), sys.stdout, indent=1)
        print()
        return
    if scores is not None:
        tagging.show(scores)
    Console().print(
        f"test {100 * run.test:.2f} %, validation {100 * run.valid:.2f} %, training {100 * run.train:.2f} % after "
        f"{run.epochs} epochs in {run.seconds:.0f} s; ratio {run.ratio:.2f}\nmodel: [bold]{out}[/bold]"
    )


@dataclass(frozen=True)
class Asked:
    """What `predict` was told besides the model."""

    source: Path | None
    out: Path | None
    marginals: bool
    fold: int | None
    limit: int
    as_json: bool

    def only(self, what: str, *names: str) -> None:
        """Refuse what was said and means nothing to a model of this kind."""
        given = {"file": self.source, "--out": self.out, "--marginals": self.marginals or None, "--fold": self.fold}
        for name, value in given.items():
            if value is not None and name not in names:
                raise ValueError(f"{what} takes no {name}")


def _read_words(model: Model, asked: Asked) -> None:
    asked.only("a model of ocr reads the words of its own data set, and", "--fold")
    words.read(model, asked.fold, asked.limit, asked.as_json)


def _tag(model: Model, asked: Asked) -> None:
    if asked.source is None:
        asked.only("a model of chunking without a file is tested, and")
        tagging.evaluate(model, asked.as_json)
    else:
        asked.only("a model of chunking that tags a file", "file", "--out", "--marginals")
        tagging.tag(model, asked.source, asked.out, asked.marginals, asked.as_json)


def _segment(model: Model, asked: Asked) -> None:
    if asked.source is None:
        asked.only("a model of horses without pictures is tested, and", "--fold")
        pictures.evaluate(model, asked.fold, as_json=asked.as_json)
        return
    asked.only("a model of horses that looks at pictures", "file", "--out")
    if asked.out is None:
        raise ValueError("name a folder for the masks with --out")
    pictures.segment(model, asked.source, asked.out, as_json=asked.as_json)


PREDICT: dict[str, Callable[[Model, Asked], None]] = {"ocr": _read_words, "chunking": _tag, "horses": _segment}
"""What a model of each task does with a question."""


def predict(
    model: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")],
    source: Source = None,
    /,
    *,
    out: Path | None = None,
    marginals: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    fold: int | None = None,
    limit: int = 10,
    device: Literal["cpu", "cuda"] = "cpu",
    data_dir: Path | None = None,
    as_json: Json = False,
) -> None:
    """Put a trained model to use.

    A model of ocr reads the words of its test fold, or of another. A model of chunking tags a FILE with a word and its
    part of speech a line, blank lines between sentences (a third column is not looked at), and writes lines of word,
    part of speech and tag; without a FILE it is tested on the publisher's test part. A model of horses writes masks of
    a picture, or of all in a folder; without pictures it is tested on its test fold.

    Args:
        model: A file written by `equipoise train`.
        source: What to read; for chunking, a text file in CoNLL columns, plain or gzipped; for horses, pictures.
        out: Write tags to this file instead of to the terminal; or masks into this folder.
        marginals: Add to each tag how likely it is, by the model.
        fold: Which test fold to read; the model's own if not given, which it has never seen.
        limit: How many words of ocr to print; 0 for all.
        device: Where.
        data_dir: The data folder; else EQUIPOISE_DATA, else the user's own.
        as_json: Print what was found as JSON.
    """
    _use(data_dir)
    found = Model.load(model, device)
    PREDICT[found.recipe.task](found, Asked(source, out, marginals, fold, limit, as_json))
