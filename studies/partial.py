"""Fine-tune MiniLM with a CRF where labels are missing in training: which loss of the missing labels is best?

    python studies/partial.py run OUT --processes 8 --minutes 5     writes OUT/partial.jsonl, the same command continues
    python studies/partial.py run OUT --device cpu --precision float32 --sentences 40 --epochs 1 --seeds 1

What is missing, in a share of the training labels, drawn by seed; a larger share contains a smaller one:

    words        the labels of random words
    entities     the labels of all words of random entities or chunks
    positive     the labels of random entities, and every label outside of entities: only entities are labelled

How the loss treats a missing label:

    any          any label is allowed: log Z - log Z(A), `objectives.partial`
    removed      the word is removed from the chain, as by -100
    outside      the label is O
    complete     only sentences without a missing label are trained on, more often
    some         as "any", but a tenth of the sentences have all of their labels
    soft         O with probability 0.9, and any other label with the same probability: `objectives.soft`

All runs of a corpus have the same number of steps and the recipe of the tables of tagging, with `learned` scaling at
the rate 1e-4. Nothing is tuned.
"""

import argparse
import fcntl
import functools
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from equipoise import __version__, labels, objectives
from equipoise.chain.problem import IGNORE, positions
from equipoise.energies import ChainEnergy
from equipoise.masking import read_mask
from equipoise.objectives import UNKNOWN
from equipoise_lab import tasks
from equipoise_lab.plan.methods import recipe as recipe_of
from equipoise_lab.tasks import Batch
from equipoise_lab.training import optimizers, start
from equipoise_lab.training.replica import Replica
from equipoise_lab.training.stack import Stack
from equipoise_lab.training.steps import Stepper

TASKS = ("tagging-wnut17", "tagging-conll2000", "tagging-bc5cdr")
SHARES = (0.5, 0.9, 0.1), (0.3, 0.7)
RATE = 1e-4
SOFT = -2  # in the tables of labels: O as a soft label
OUTSIDE = 0.9  # the probability of O in a soft label
COMPLETE = 0.1  # the share of complete sentences of "some"


class Run(NamedTuple):
    task: str
    seed: int
    missing: str
    share: float
    treatment: str

    @property
    def key(self) -> str:
        return json.dumps(self)


def groups(seeds: range) -> Iterator[list[Run]]:
    """Runs that are trained in one stack, the most important first."""
    for some in (seeds[:3], seeds[3:]):
        for shares in SHARES:
            for seed, share, task in product(some, shares, TASKS):
                yield [
                    Run(task, seed, missing, share, treatment)
                    for missing in ("words", "entities")
                    for treatment in ("any", "removed", "outside", "complete")
                ]
            if shares != SHARES[0]:
                continue
            for seed, task in product(some, TASKS):
                positive = [Run(task, seed, "positive", 0.5, treatment) for treatment in ("any", "outside", "some")]
                yield [Run(task, seed, "words", 0.0, "any"), *positive]
            for task in TASKS:
                yield [Run(task, seed, "positive", 0.5, "soft") for seed in some]


class IncompleteEnergy(ChainEnergy):
    """The chain with the loss of the labels in the tables: UNKNOWN, IGNORE, SOFT, or the number of a label."""

    def __init__(self, tags: list[str], device: torch.device) -> None:
        m, self.has_soft = len(tags), False
        soft = torch.full((m,), (1 - OUTSIDE) / (m - 1))
        soft[tags.index("O")] = OUTSIDE
        self.m, self.soft = m, soft.to(device)

    def losses(self, objective: Any, unary: Tensor, pairwise: Any, labels: Tensor, lengths: Any = None) -> Tensor:
        unmasked = read_mask(positions(unary, lengths) & (labels != IGNORE))
        unary, labels = unmasked.blank(unmasked.compact(unary), 0), unmasked.blank(unmasked.compact(labels), UNKNOWN)
        if self.has_soft:
            one_hot = objectives.sets_of(labels, self.m).to(unary.dtype)
            targets = torch.where((labels == SOFT)[..., None], self.soft, one_hot)
            losses = objectives.soft(unary, pairwise, targets, unmasked.lengths)
        else:
            losses = objectives.partial(unary, pairwise, objectives.sets_of(labels, self.m), unmasked.lengths)
        return unmasked.blank(losses, 0)


class IncompleteTask:
    """A task of tagging whose labels of training examples differ by replica: `table` is (E, S, W)."""

    def __init__(self, task: Any) -> None:
        self.task, self.energy = task, IncompleteEnergy(task.tags, task.device)
        self.table: Tensor | None = None
        self.sums = torch.zeros(0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.task, name)

    def batch(self, examples: Tensor, room: int) -> Batch:
        batch: Batch = self.task.batch(examples, room)
        assert self.table is not None
        replica = torch.arange(len(examples), device=examples.device)[:, None]
        labels = self.table[replica, examples.clamp(min=0)].long()
        return Batch(batch.examples, batch.inputs, labels, batch.lengths, batch.learning)

    def measure(self, sums: Tensor) -> Tensor:
        """F1; the sums are kept: right, predicted and true entities, (E, 3)."""
        self.sums = sums
        f1: Tensor = self.task.measure(sums)
        return f1


@functools.cache
def missing_in(task: Any, run: Run, every: int) -> Tensor:
    """Which labels are missing, (S, W), from random numbers that depend on the seed only."""
    gone = torch.zeros(task.sentences.labels.shape, dtype=torch.bool)
    draws, numbers = torch.Generator().manual_seed(run.seed), task.split(0, 0).train[::every]
    for i in numbers.tolist():
        tags = task.order[i].tags
        units = [(t, t + 1) for t in range(len(tags))]
        if run.missing != "words":
            units = [(span.start, span.stop) for span in labels.to_spans(tags, "BIO", on_invalid="repair")]
        if run.missing == "positive":
            gone[i, : len(tags)] = torch.tensor([tag == "O" for tag in tags])
        for (begin, end), drawn in zip(units, torch.rand(len(units), generator=draws).tolist(), strict=True):
            if drawn < run.share:
                gone[i, begin:end] = True
    if run.treatment == "some":
        complete = torch.randperm(len(numbers), generator=draws)[: round(COMPLETE * len(numbers))]
        gone[numbers[complete]] = False
    return gone


def prepare(run: Run, task: Any, every: int) -> tuple[Tensor, Tensor]:
    """The labels of all examples, (S, W), and the training examples."""
    drawn = run._replace(treatment="some" if run.treatment == "some" else "any")  # the same for other treatments
    gone, gold = missing_in(task, drawn, every), task.sentences.labels.cpu()
    codes = {"removed": IGNORE, "outside": task.tags.index("O"), "soft": SOFT}
    table, train = gold.masked_fill(gone, codes.get(run.treatment, UNKNOWN)).short(), task.split(0, 0).train[::every]
    if run.treatment == "complete":
        train = train[~gone[train].any(-1)]
    return table, train


def train(group: list[Run], task: Any, options: argparse.Namespace, in_time: Any) -> Iterator[dict[str, Any]]:
    """Train the runs of a group as one stack, and yield their records."""
    begin, device = time.monotonic(), torch.device(options.device)
    ours, split = IncompleteTask(task), task.split(0, 0)
    every = max(1, len(split.train) // options.sentences) if options.sentences else 1
    numbers, test = split.train[::every], split.test[::every]
    prepared = [prepare(run, task, every) for run in group]
    empty = [run for run, (_, examples) in zip(group, prepared, strict=True) if not len(examples)]
    for run in empty:
        yield record(run, None, 0, options) | {"failed": "no sentence is complete"}
    pairs = [(run, one) for run, one in zip(group, prepared, strict=True) if len(one[1])]
    ours.table = torch.stack([table for _, (table, _) in pairs]).to(device)
    ours.energy.has_soft = any(run.treatment == "soft" for run, _ in pairs)
    replicas = [
        Replica(recipe_of(run.task, "learned", RATE, options.epochs or None, seed=run.seed)) for run, _ in pairs
    ]
    started = [start.start(replica, task, numbers) for replica in replicas]
    parameters = {name: torch.stack([one[name] for one in started]) for name in started[0]}
    optimizer = optimizers.make("adam", 0.9)
    stack = Stack(ours, optimizer, replicas, parameters, device, options.precision == "bfloat16")  # type: ignore[arg-type]
    stepper = Stepper(stack)
    for epoch in range(replicas[0].recipe.max_epochs):
        orders = []
        for replica, (_, (_, examples)) in zip(replicas, pairs, strict=True):
            draws = replica.generator(f"order/0/{epoch}")
            times = -(-len(numbers) // len(examples))
            order = torch.cat([examples[torch.randperm(len(examples), generator=draws)] for _ in range(times)])
            orders.append(order[: len(numbers)])
        stepper.run(orders, lambda number, total: in_time())
    scores, _ = stack.evaluate(stack.parameters, [test] * len(replicas))
    seconds = (time.monotonic() - begin) / len(pairs)
    ratios = (ours.sums[:, 1] / ours.sums[:, 2]).tolist()
    for (run, (_, examples)), score, ratio in zip(pairs, scores, ratios, strict=True):
        found = {"predicted": round(ratio, 4), "seconds": round(seconds, 3)}  # predicted entities for each true one
        yield record(run, score, len(examples), options) | found


def record(run: Run, score: float | None, sentences: int, options: argparse.Namespace) -> dict[str, Any]:
    name = torch.cuda.get_device_name() if options.device == "cuda" else options.device
    about = {"device": name, "precision": options.precision, "version": __version__}
    about |= {"tiny": True} if options.sentences or options.epochs else {}
    test = None if score is None else round(score, 6)
    return run._asdict() | {"test": test, "sentences": sentences} | about


class TimeUpError(Exception): ...


def recorded(path: Path) -> set[str]:
    """The keys of the runs in a file."""
    if not path.exists():
        return set()
    lines = (json.loads(line) for line in path.read_text().splitlines() if line.endswith("}"))
    return {Run(**{name: line[name] for name in Run._fields}).key for line in lines}


def work(options: argparse.Namespace) -> None:
    """Train groups until the time is up. Processes share a file with the number of the next group."""
    begin = time.monotonic()
    load = functools.cache(tasks.load)

    def minutes() -> float:
        return (time.monotonic() - begin) / 60

    def in_time() -> None:
        if minutes() > options.minutes:
            raise TimeUpError

    done = recorded(options.out / "partial.jsonl") | recorded(Path("results/partial.jsonl"))
    wanted = [[run for run in group if run.key not in done] for group in groups(range(options.seeds))]
    wanted = [group for group in wanted if group and group[0].task in options.tasks]
    while (number := taken(options.queue)) < len(wanted) and minutes() < options.minutes - options.last:
        group = wanted[number]
        print(f"{minutes():5.2f} min: group {number} of {len(wanted)}, {group[0]}", flush=True)
        try:
            made = list(train(group, load(group[0].task, "default", options.device), options, in_time))
        except TimeUpError:
            break
        with (options.out / "partial.jsonl").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write("".join(json.dumps(one) + "\n" for one in made))
    print(f"{minutes():5.2f} min: the end", flush=True)


def taken(queue: Path) -> int:
    """The number of the next group."""
    with queue.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        number = int(file.read() or 0)
        file.seek(0)
        file.write(str(number + 1))
    return number


def run(options: argparse.Namespace) -> None:
    """Start the processes, and wait for them."""
    options.out.mkdir(parents=True, exist_ok=True)
    queue = options.out / "partial.queue"
    queue.write_text("0")
    arguments = [sys.executable, __file__, "work", *sys.argv[2:], "--queue", str(queue)]
    with (options.out / "partial.log").open("w") as log:
        workers = [subprocess.Popen(arguments, stdout=log, stderr=log) for _ in range(options.processes)]
        codes = [worker.wait() for worker in workers]
    queue.unlink()
    print(f"{len(recorded(options.out / 'partial.jsonl'))} runs in {options.out / 'partial.jsonl'}")
    sys.exit(max(codes))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for name, do in (("run", run), ("work", work)):
        command = commands.add_parser(name)
        command.add_argument("out", type=Path)
        command.add_argument("--processes", type=int, default=1)
        command.add_argument("--minutes", type=float, default=60.0, help="stop after this many minutes")
        command.add_argument("--last", type=float, default=0.5, help="begin no group in this many last minutes")
        command.add_argument("--seeds", type=int, default=8)
        command.add_argument("--tasks", nargs="*", default=TASKS)
        command.add_argument("--device", default="cuda")
        command.add_argument("--precision", default="bfloat16")
        command.add_argument("--sentences", type=int, default=0, help="for a trial, the number of training sentences")
        command.add_argument("--epochs", type=int, default=0, help="for a trial")
        command.add_argument("--queue", type=Path, help=argparse.SUPPRESS)
        command.set_defaults(do=do)
    options = parser.parse_args()
    options.do(options)


if __name__ == "__main__":
    main()
