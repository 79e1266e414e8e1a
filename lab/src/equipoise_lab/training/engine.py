"""Train many recipes at once: every seed, fold, learning rate and scheme of a net is a replica in one stack.

    for each phase:   stack the replicas that have it
        each epoch:   all batches; search alpha (online); validate; cut rates; remove finished replicas
    then:             test each replica with the parameters that were best on validation

With the linear schedule, replicas are validated once at the end of each phase, and the last parameters are kept.

The random numbers of a replica depend on its own seed and fold only, so its result does not depend on the others in the
stack. A single run is a stack of one.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor

from equipoise.files import WritingError

from .. import tasks
from ..recipe import Recipe
from ..tasks import Parameters, Split, Task
from . import optimizers, start
from .checkpoint import Journal
from .examples import Examples, examples
from .groups import ALPHA
from .phases import groups_for_testing, phases, shared_first_phase, stack_groups
from .precision import matmul_precision
from .replica import Epoch, Replica, Run
from .stack import Stack
from .steps import Step, Stepper

Watch = Callable[[Sequence[Replica]], None]
"""Called with all replicas after each epoch."""

Done = Callable[[Run, Parameters], None]
"""Called with each finished run and its parameters (without the dimension of replicas)."""

STACK_SIZE = {"cpu": 8, "cuda": 512}
COMPACT = 0.85
"""On a GPU a stack is rebuilt when only this share of its replicas is unfinished: recording its step takes time."""


def train(
    recipes: Sequence[Recipe],
    *,
    device: torch.device | str = "cpu",
    stack_size: int | None = None,
    precision: str = "float32",
    checkpoint: Path | None = None,
    checkpoint_seconds: float = 0.0,
    watch: Watch | None = None,
    step: Step | None = None,
    done: Done | None = None,
) -> list[Run]:
    """Train every recipe, and return the runs in the same order.

    Args:
        recipes: any mixture of schemes, objectives, seeds, folds and rates; compatible ones are trained together.
        device: the device.
        stack_size: the maximum number of replicas in a stack.
        precision: of the matrix products of the nets: "float32"; "tf32", inputs rounded to 10 bits, on GPUs that have
            it; or "bfloat16", to 7 bits. Parameters, scores and losses are always float32.
        checkpoint: a file for all progress. If it exists, training continues from it. The file stays when training is
            complete, and the same call returns its runs. Remove it with `remove_checkpoint` when they are saved.
        checkpoint_seconds: the minimum time between two checkpoints, which are written at the end of an epoch. With 0
            every epoch is written; otherwise writing takes at most 5 % of the time.
        watch: called after each epoch, to show progress.
        step: called after each batch of an epoch, to show progress within it.
        done: called with each finished run. After a restart, it is called again for the runs in the checkpoint.

    >>> (run,) = train([Recipe("ocr", scheme="learned", max_epochs=14)])  # doctest: +SKIP
    >>> run.test, run.ratio, len(run.history)  # doctest: +SKIP
    """
    with matmul_precision(precision):
        return _Trainer(
            list(recipes),
            torch.device(device),
            stack_size,
            precision == "bfloat16",
            Journal(checkpoint, checkpoint_seconds),
            watch,
            step,
            done,
        ).run()


class _Trainer:
    def __init__(
        self,
        recipes: list[Recipe],
        device: torch.device,
        stack_size: int | None,
        half: bool,
        journal: Journal,
        watch: Watch | None,
        step: Step | None,
        done: Done | None,
    ) -> None:
        self.recipes, self.device, self.half, self.journal = recipes, device, half, journal
        self.watch, self.step, self.done = watch, step, done
        self.tasks: dict[tuple[str, str], Task] = {}
        self.examples: dict[tuple[object, ...], Examples] = {}
        self.stack_size = stack_size or STACK_SIZE.get(device.type, 8)
        for recipe in recipes:
            _check(recipe, self.split(recipe))
            start.check(recipe, self.task(recipe))
        self.progress = journal.resume(recipes)

    def run(self) -> list[Run]:
        for i in self.progress.runs:
            self._hand_out(i)
        for depth in range(max((len(phases(recipe)) for recipe in self.recipes), default=0)):
            for members in stack_groups(self.recipes, depth):
                self._train(members, depth)
            if depth == 0:
                self._copy_first_phases()
        return [self.progress.runs[i] for i in range(len(self.recipes))]

    def task(self, recipe: Recipe) -> Task:
        key = recipe.task, recipe.net
        if key not in self.tasks:
            self.tasks[key] = tasks.load(*key, self.device)
        return self.tasks[key]

    def split(self, recipe: Recipe) -> Split:
        return self._examples(recipe).split

    def _examples(self, recipe: Recipe) -> Examples:
        whole = recipe.task, recipe.net, recipe.fold, recipe.seed
        key = *whole, recipe.share, recipe.halves_validation, recipe.add_searched
        if key not in self.examples:
            self.examples[key] = examples(recipe, self.task(recipe).split(recipe.fold, recipe.seed))
        return self.examples[key]

    def _max_replicas(self, recipe: Recipe) -> int:
        return min(self.stack_size, self.task(recipe).replicas_at_once)

    def _train(self, group: list[int], depth: int) -> None:
        """Train the replicas of a group in this phase, as many at once as fit, and test those that are complete."""
        progress = self.progress
        # A stack that a checkpoint has stored in this phase continues first.
        members = [i for i in progress.members if i in group and progress.replicas[i].depth == depth]
        stack = self._stack(members, progress.stack) if members else None
        waiting = [i for i in group if i not in members and progress.replicas[i].depth == depth]
        room = self._max_replicas(self.recipes[group[0]])
        while waiting or stack is not None:
            if waiting and len(members) < room:
                new, waiting = waiting[: room - len(members)], waiting[room - len(members) :]
                stack, members = self._join(stack, members, new)
            assert stack is not None
            stepper = Stepper(stack)
            while not self._shrinks(stack):
                self._epoch(stack, stepper)
                progress.members, progress.stack = members, stack.tensors()
                self.journal.write(progress)
                if self.watch is not None:
                    self.watch(progress.replicas)
            left = [place for place, replica in enumerate(stack.replicas) if not replica.finished]
            self._advance_finished(stack, members)
            stack, members = (stack.take(left) if left else None), [members[place] for place in left]
            progress.members, progress.stack = members, {} if stack is None else stack.tensors()
            self._test()

    def _shrinks(self, stack: Stack) -> bool:
        """Whether enough replicas are finished to rebuild the stack without them."""
        left, size = sum(not replica.finished for replica in stack.replicas), len(stack.replicas)
        return left == 0 or left <= (COMPACT * size if self.device.type == "cuda" else size - 1)

    def _join(self, stack: Stack | None, members: list[int], new: list[int]) -> tuple[Stack, list[int]]:
        joined = self._stack(new)
        if stack is None:
            return joined, new
        joined, order = stack.merge(joined)
        return joined, [[*members, *new][place] for place in order]

    def _stack(self, members: list[int], stored: dict[str, Tensor] | None = None) -> Stack:
        """A stack at the start of its phase, or for testing after the last, or as a checkpoint has stored it."""
        replicas = [self.progress.replicas[i] for i in members]
        recipe = replicas[0].recipe
        each = [self.progress.parameters.get(i) or self._start(self.progress.replicas[i]) for i in members]
        optimizer = optimizers.make(recipe.optimizer, recipe.momentum)
        stack = Stack(self.task(recipe), optimizer, replicas, _stack_parameters(each), self.device, self.half)
        if stored:
            stack.restore(stored)
        elif replicas[0].phase.trained == "pairwise":
            stack.freeze([self.split(replica.recipe) for replica in replicas])
        return stack

    def _start(self, replica: Replica) -> Parameters:
        return start.start(replica, self.task(replica.recipe), self.split(replica.recipe).train)

    def _epoch(self, stack: Stack, stepper: Stepper) -> None:
        """One pass over the training examples, with validation where it is due."""
        begin = time.perf_counter()
        active = [place for place, replica in enumerate(stack.replicas) if not replica.finished]
        stepper.run([self._order(replica) for replica in stack.replicas], self.step)
        losses = stepper.mean_losses()
        stack.search([self._subset(replica) for replica in stack.replicas], "epoch")
        due = [place for place in active if stack.replicas[place].validates]
        valid = ratio = [math.nan] * len(stack.replicas)
        if due:
            held_out = [self.split(replica.recipe).valid for replica in stack.replicas]
            valid, ratio = stack.evaluate(stack.parameters, held_out)
        alphas, seconds = stack.alphas(), (time.perf_counter() - begin) / len(active)
        better = []
        for place in active:
            replica = stack.replicas[place]
            measured = (valid[place], ratio[place]) if place in due else (math.nan, math.nan)
            epoch = Epoch(replica.depth, losses[place], *measured, alphas[place], replica.learning_rate, seconds)
            if replica.record(epoch):
                better.append(place)
        stack.keep_best(better)

    def _order(self, replica: Replica) -> Tensor:
        """The training examples in the order of this epoch; none for a finished replica."""
        train = self.split(replica.recipe).train
        if replica.finished:
            return train[:0]
        return train[torch.randperm(len(train), generator=replica.generator(f"order/{replica.depth}/{replica.epochs}"))]

    def _subset(self, replica: Replica) -> Tensor:
        """The examples D of the next search for alpha."""
        searched = self._examples(replica.recipe).searched
        generator = replica.generator(f"subset/{replica.depth}/{replica.epochs}")
        return searched[torch.randperm(len(searched), generator=generator)[: replica.recipe.subset]]

    def _advance_finished(self, stack: Stack, members: list[int]) -> None:
        """Finished replicas advance to their next phase, with the parameters that this one keeps."""
        places = [place for place, replica in enumerate(stack.replicas) if replica.finished]
        best = {name: x[places].cpu() for name, x in (stack.final_parameters | {ALPHA: stack.best_alpha}).items()}
        for row, place in enumerate(places):
            replica = stack.replicas[place]
            self.progress.parameters[members[place]] = {name: x[row].clone() for name, x in best.items()}
            replica.advance()

    def _groups_for_testing(self, numbers: list[int]) -> Iterator[list[int]]:
        """Replicas that can be tested together, as many at once as fit."""
        for group in groups_for_testing([self.recipes[i] for i in numbers]):
            room = self._max_replicas(self.recipes[numbers[group[0]]])
            for begin in range(0, len(group), room):
                yield [numbers[place] for place in group[begin : begin + room]]

    def _copy_first_phases(self) -> None:
        """Copy the result of a first phase to all replicas that share it."""
        for copy, original in shared_first_phase(self.recipes).items():
            source, replica = self.progress.replicas[original], self.progress.replicas[copy]
            if replica.depth == 0 and copy not in self.progress.runs:
                replica.history = [epoch for epoch in source.history if epoch.phase == 0]
                replica.failed = source.failed
                replica.best = max((epoch.valid for epoch in replica.history if epoch.measured), default=replica.best)
                self.progress.parameters[copy] = self.progress.parameters[original]
                replica.advance()
        self._test()

    @torch.no_grad()
    def _test(self) -> None:
        """Test every complete replica with the parameters that its last phase kept."""
        progress = self.progress
        ready = [i for i, replica in enumerate(progress.replicas) if replica.complete and i not in progress.runs]
        for i in ready:
            if not (replica := progress.replicas[i]).recipe.tested:
                progress.runs[i] = replica.untested_run()
                self._hand_out(i)
        for numbers in self._groups_for_testing([i for i in ready if progress.replicas[i].recipe.tested]):
            stack = self._stack(numbers)
            stack.search([self._subset(replica) for replica in stack.replicas], "end")
            splits = [self.split(replica.recipe) for replica in stack.replicas]
            test, ratio = stack.evaluate(stack.parameters, [split.test for split in splits])
            train, _ = stack.evaluate(stack.parameters, [split.train for split in splits])
            for place, (i, replica) in enumerate(zip(numbers, stack.replicas, strict=True)):
                run = replica.run(test[place], train[place], stack.alphas()[place], ratio[place])
                progress.runs[i] = run
                progress.parameters[i] = progress.parameters[i] | {ALPHA: stack.alpha[place].cpu()}
                self._hand_out(i)
        self.journal.write(progress, now=len(progress.runs) == len(self.recipes))

    def _hand_out(self, i: int) -> None:
        """Call `done` with a finished run. If that fails, as on a full disk, the checkpoint keeps the run if it can."""
        if self.done is None:
            return
        try:
            self.done(self.progress.runs[i], self.progress.parameters[i])
        except Exception:
            with suppress(WritingError):
                self.journal.write(self.progress, now=True)
            raise


def _stack_parameters(each: list[Parameters]) -> Parameters:
    return {name: torch.stack([parameters[name] for parameters in each]) for name in each[0]}


def _check(recipe: Recipe, split: Split) -> None:
    if recipe.scheme == "online" and recipe.search == "train" and recipe.subset > len(split.train):
        raise ValueError(f"subset is {recipe.subset}, but there are only {len(split.train)} training examples")
