"""How good are the spans of a softmax classifier: of its argmax, of the constrained decoder, of the calibrated one?

    python3 studies/spans.py train FOLDER --minutes 8        fine-tunes MiniLM, and writes the scores of held-out words
    python3 studies/spans.py measure FOLDER RECORDS.jsonl    adds a line for each run
    python3 studies/spans.py page RECORDS.jsonl              writes the tables and figures of docs/guides/spans.md

The classifier is trained by cross-entropy. Beside it are two linear-chain CRFs that are trained jointly with the same
encoder, `learned`, with and without the constraints of BIO in training; each is decoded with and without them.
The decoder is calibrated on development sentences, and everything is measured on test sentences. `train` and `measure`
leave out runs that have their file or line, so the same command continues. Both need torch and numpy only.
"""

import argparse
import functools
import json
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import spans_page
import torch
from spans_measure import measure
from torch import Tensor

from equipoise.constraints import Constraints, from_labels
from equipoise.energies import ChainEnergy
from equipoise.files import tensors
from equipoise_lab import tasks
from equipoise_lab.plan.frozen import DEFAULT
from equipoise_lab.plan.methods import recipe
from equipoise_lab.recipe import Recipe
from equipoise_lab.tasks import tagging
from equipoise_lab.training import Model, Run, checkpoint, train

CORPORA = ("wnut17", "conll2000", "bc5cdr")
SHARES = {1.0: 1, 0.1: 5}
"""Shares of the training sentences, and how many times more epochs they get."""
RATE = 3e-5
CONSTRAINED = " with constraints"
METHODS = {"softmax": "softmax", "CRF": DEFAULT, "CRF" + CONSTRAINED: DEFAULT}


class Rules(ChainEnergy):
    """A chain whose potentials are -inf where the scheme forbids a transition, or a first label."""

    def __init__(self, rules: Constraints, device: torch.device) -> None:
        self.transitions, self.start = rules.transitions.to(device), rules.start.to(device)

    def norms(self, unary: Tensor, pairwise: Tensor, lengths: Tensor | None = None) -> Any:
        return super().norms(unary, pairwise.masked_fill(~self.transitions, -torch.inf), lengths)

    def losses(self, objective: Any, unary: Tensor, pairwise: Tensor, *labels_and_lengths: Any) -> Tensor:
        return super().losses(objective, *self.restricted(unary, pairwise), *labels_and_lengths)

    def predict(self, objective: Any, unary: Tensor, pairwise: Tensor, lengths: Tensor | None = None) -> Tensor:
        return super().predict(objective, *self.restricted(unary, pairwise), lengths)

    def restricted(self, unary: Tensor, pairwise: Tensor) -> tuple[Tensor, Tensor]:
        first = torch.arange(unary.shape[-2], device=unary.device)[:, None] == 0
        return (
            unary.masked_fill(first & ~self.start, -torch.inf),
            pairwise.masked_fill(~self.transitions, -torch.inf),
        )


def constrained(task: type[tagging.task.Tagging]) -> type[tagging.task.Tagging]:
    """The same task, whose CRFs are trained with the constraints of BIO."""

    class Constrained(task):  # type: ignore[misc, valid-type]
        name = task.name + CONSTRAINED

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.energy = Rules(from_labels(self.tags, "BIO"), self.device)

    return Constrained


tasks.TASKS |= {kind.name: kind for kind in [constrained(tasks.TASKS[f"tagging-{corpus}"]) for corpus in CORPORA]}


class TimeUpError(Exception):
    """The time limit."""


def groups(options: argparse.Namespace) -> Iterator[dict[str, Recipe]]:
    """Runs by name, those together that are trained together."""
    for share in SHARES:
        for corpus in options.corpora:
            for methods in (("softmax", "CRF"), ("CRF" + CONSTRAINED,)):
                runs = {}
                for method in methods:
                    task = f"tagging-{corpus}"
                    epochs = tasks.task_by_name(task).settings.base.max_epochs * SHARES[share]
                    made = recipe(task, METHODS[method], RATE, epochs, share=share, tested=False)
                    if method.endswith(CONSTRAINED):
                        made = replace(made, task=task + CONSTRAINED)
                    for seed in range(options.seeds):
                        runs[name(corpus, share, method, seed)] = replace(made, seed=seed)
                yield runs


def name(corpus: str, share: float, method: str, seed: int) -> str:
    return f"{corpus}, {share:g}, {method}, {seed}"


def do_train(options: argparse.Namespace) -> None:
    begin = time.monotonic()
    checkpoint.LARGEST_BYTES = 0  # a group takes seconds
    tasks.load = functools.cache(tasks.load)
    options.folder.mkdir(parents=True, exist_ok=True)
    done = {line["run"] for line in lines(options.done)}

    def minutes() -> float:
        return (time.monotonic() - begin) / 60

    def check(*_: Any) -> None:
        if minutes() > options.minutes:
            raise TimeUpError

    for runs in groups(options):
        wanted = {made: run for run, made in runs.items() if run not in done and not path(options.folder, run).exists()}
        if not wanted:
            continue
        if options.tiny:
            wanted = {replace(made, share=0.01, max_epochs=1): run for made, run in wanted.items()}

        def write(run: Run, parameters: dict[str, Tensor], wanted: dict[Recipe, str] = wanted) -> None:
            if run.failed:
                sys.exit(f"{wanted[run.recipe]}: {run.failed}")
            task = tasks.load(run.recipe.task, run.recipe.net, torch.device(options.device))  # the one that was trained
            model = Model(run.recipe, parameters, options.device, task)
            target = path(options.folder, wanted[run.recipe])
            tensors.save(target, scores(model, options.tiny), json.dumps({"tags": task.tags}))

        try:
            train(list(wanted), device=options.device, precision=options.precision, watch=check, step=check, done=write)
        except TimeUpError:
            print(f"{minutes():5.1f} min: the time is up", flush=True)
            return
        print(f"{minutes():5.1f} min: {len(wanted)} runs, the last is {list(wanted.values())[-1]}", flush=True)


def path(folder: Path, run: str) -> Path:
    return folder / f"{run.replace(', ', '-').replace(' ', '-')}.safetensors"


def lines(files: Iterable[Path]) -> list[dict[str, Any]]:
    return [json.loads(line) for file in files if file.exists() for line in file.read_text().splitlines()]


@torch.no_grad()
def scores(model: Model, tiny: bool) -> dict[str, Tensor]:
    """Balanced scores, (words, M), gold labels, and lengths of the sentences of both held-out parts."""
    named, split = {}, model.task.split(0, 0)
    for part, examples in (("valid", split.valid), ("test", split.test)):
        rows = []
        for some in (examples[:200] if tiny else examples).split(64):
            batch = model.task.batch(some[None].to(model.task.device), model.task.room(some[None]))
            found = model.scored(batch)
            inside = torch.arange(found.unary.shape[2], device=found.unary.device) < batch.lengths[0, :, None]
            rows.append((found.unary[0][inside], batch.labels[0][inside], batch.lengths[0]))
            named["pairwise"] = found.pairwise[0].reshape(found.pairwise.shape[-2:]).cpu()
        for key, each in zip(("unary", "labels", "lengths"), zip(*rows, strict=True), strict=True):
            named[f"{part}.{key}"] = torch.cat(each).cpu()
    return named


def do_measure(options: argparse.Namespace) -> None:
    done = {line["run"] for line in lines([options.records])}
    every = [run for runs in groups(options) for run in runs if run not in done and path(options.folder, run).exists()]
    with ProcessPoolExecutor(options.processes) as pool, options.records.open("a") as records:
        for run, found in zip(every, pool.map(measure, [path(options.folder, run) for run in every]), strict=True):
            corpus, share, method, seed = run.split(", ")
            where = {"run": run, "corpus": corpus, "share": float(share), "method": method, "seed": int(seed)}
            records.write(json.dumps(where | found) + "\n")
            records.flush()
            print(run, *(f"{key} {x['f1']:.4f}" for key, x in found.items() if isinstance(x, dict)), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpora", nargs="+", choices=CORPORA, default=CORPORA)
    parser.add_argument("--seeds", type=int, default=5)
    commands = parser.add_subparsers(required=True)
    training = commands.add_parser("train")
    training.add_argument("folder", type=Path, help="folder for files of scores, up to 10 MB each")
    training.add_argument("--done", type=Path, nargs="*", default=[], help="files with lines of runs to leave out")
    training.add_argument("--minutes", type=float, default=60.0, help="stop after this many minutes")
    training.add_argument("--device", default="cuda")
    training.add_argument("--precision", default="bfloat16")
    training.add_argument("--tiny", action="store_true", help="one epoch of 1 %% of the sentences, as a test")
    training.set_defaults(do=do_train)
    measuring = commands.add_parser("measure")
    measuring.add_argument("folder", type=Path)
    measuring.add_argument("records", type=Path)
    measuring.add_argument("--processes", type=int, default=2)
    measuring.set_defaults(do=do_measure)
    paging = commands.add_parser("page")
    paging.add_argument("records", type=Path)
    paging.set_defaults(do=lambda options: spans_page.write(lines([options.records])))
    options = parser.parse_args()
    options.do(options)


if __name__ == "__main__":
    main()
