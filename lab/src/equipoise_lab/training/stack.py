"""E runs of one net side by side: their parameters, each (E, ...), and what is computed from them.

The runs of a stack have the net, the optimizer and the batch size in common, and may differ in everything else. Runs
that also share the loss and the form of the scaling are one `Group`, a slice of the stack; the CRF is one call for all
groups of one loss.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby

import torch
from torch import Tensor

from equipoise import scaling
from equipoise.energies import Factors, Pairwise, scaled
from equipoise.scaling import leading

from ..tasks import Batch, Parameters, Split, Task
from ..tasks.task import at_once
from .groups import ALPHA, Scored, groups
from .optimizers import Optimizer, fresh
from .phases import kind
from .replica import Replica
from .tensors import BadFileError

EXAMPLES_AT_ONCE = 65536
"""Examples per batch in evaluation, over all replicas: enough to keep a device busy."""


class Stack:
    """The tensors of E runs. `best` and `best_alpha` are the parameters with the best validation metric so far.

    With the linear schedule the last parameters count, so `best` is empty, which saves a copy of all parameters.
    """

    def __init__(
        self,
        task: Task,
        optimizer: Optimizer,
        replicas: list[Replica],
        parameters: Parameters,
        device: torch.device,
        half: bool = False,
    ) -> None:
        """Replicas are sorted by `kind`; parameters are in the same order and include the factors alpha.

        With `half`, the matrix products of the nets are in bfloat16; parameters, scores and losses are not.
        """
        self.task, self.optimizer, self.device, self.half = task, optimizer, device, half
        self.replicas = replicas
        self.parameters = {name: x.to(device).clone() for name, x in parameters.items() if name != ALPHA}
        self.state = fresh(optimizer, self.parameters)
        self.steps = torch.zeros(len(replicas), device=device)
        self.alpha = parameters[ALPHA].to(device).clone()
        last_counts = all(replica.recipe.schedule == "linear" for replica in replicas)
        self.best = {} if last_counts else {name: x.clone() for name, x in self.parameters.items()}
        self.best_alpha = self.alpha.clone()
        self.frozen_unary: Tensor | None = None
        """Unary scores of all examples, (E, examples, ...), in a phase that does not train the net."""
        self.groups = groups(replicas, self.alpha)

    def tensors(self) -> dict[str, Tensor]:
        """All tensors of the replicas by name: the content of a checkpoint."""
        stored = {"steps": self.steps, "alpha": self.alpha, "best_alpha": self.best_alpha}
        stored |= {f"parameters/{name}": x for name, x in self.parameters.items()}
        stored |= {f"best/{name}": x for name, x in self.best.items()}
        stored |= {f"state/{name}/{slot}": x for name, state in self.state.items() for slot, x in state.items()}
        if self.frozen_unary is not None:
            stored["memory"] = self.frozen_unary
        return stored

    def restore(self, stored: dict[str, Tensor]) -> None:
        """Load what `tensors` returned."""
        if "memory" in stored:
            self.frozen_unary = stored["memory"].to(self.device)
        mine = self.tensors()
        if mine.keys() != stored.keys() or any(mine[name].shape != x.shape for name, x in stored.items()):
            raise BadFileError("the checkpoint belongs to a different net")
        for name, x in stored.items():
            mine[name].copy_(x)

    def take(self, index: list[int]) -> "Stack":
        """The stack of some of the replicas."""
        where = torch.tensor(index, dtype=torch.long, device=self.device)
        return self._with([self.replicas[i] for i in index], {name: x[where] for name, x in self.tensors().items()})

    def merge(self, other: "Stack") -> tuple["Stack", list[int]]:
        """Both as one stack, and the origin of its replicas: numbers of this stack's, then of the other's."""
        theirs = other.tensors()
        both = {name: torch.cat([x, theirs[name]]) for name, x in self.tensors().items() if name in theirs}
        replicas = [*self.replicas, *other.replicas]
        kinds = [str(kind(replica.recipe, replica.phase)) for replica in replicas]
        order = sorted(range(len(kinds)), key=lambda place: (kinds[place], place))
        return self._with(replicas, both).take(order), order

    def _with(self, replicas: list[Replica], stored: dict[str, Tensor]) -> "Stack":
        """A stack like this one, of these replicas and tensors."""
        made = Stack.__new__(Stack)
        made.task, made.optimizer, made.device, made.half = self.task, self.optimizer, self.device, self.half
        made.replicas = replicas
        made.steps, made.alpha, made.best_alpha = stored["steps"], stored["alpha"], stored["best_alpha"]
        made.parameters = {name: stored[f"parameters/{name}"] for name in self.parameters}
        made.best = {name: stored[f"best/{name}"] for name in self.best}
        made.state = {
            name: {slot: stored[f"state/{name}/{slot}"] for slot in state} for name, state in self.state.items()
        }
        made.frozen_unary = stored.get("memory")
        made.groups = groups(replicas, made.alpha)
        return made

    def alphas(self) -> list[float]:
        """The factor of the unary part relative to the pairwise part, of each replica."""
        each = [group.method.alpha_of(group.state(self.parameters)) for group in self.groups]
        return torch.cat(each).tolist() if each else []

    @property
    def final_parameters(self) -> Parameters:
        """The parameters with which a finished replica is tested."""
        return self.best or self.parameters

    def keep_best(self, index: list[int]) -> None:
        """Store the current parameters of these replicas as their best."""
        if not index:
            return
        where = torch.tensor(index, device=self.device)
        for name, x in self.best.items():
            x[where] = self.parameters[name][where]
        self.best_alpha[where] = self.alpha[where]

    @torch.no_grad()
    def freeze(self, splits: list[Split]) -> None:
        """Compute the unary scores of all examples once, for a phase that does not train the net."""
        room = 1 + max(int(numbers.max()) for split in splits for numbers in split)
        for batch in self.batches([torch.cat([split.train, split.valid]) for split in splits]):
            unary = self._net(self.parameters, batch)
            if self.frozen_unary is None:
                self.frozen_unary = unary.new_zeros(unary.shape[0], room, *unary.shape[2:])
            e, b = (batch.examples >= 0).nonzero(as_tuple=True)
            self.frozen_unary[e, batch.examples[e, b]] = unary[e, b]

    def unary(self, parameters: Parameters, batch: Batch) -> Tensor:
        """The unary scores of a batch: by the net, or the stored ones where it is frozen."""
        if self.frozen_unary is None:
            return self._net(parameters, batch)
        replica = torch.arange(len(self.frozen_unary), device=self.device)[:, None]
        return self.frozen_unary[replica, batch.examples.clamp(min=0)]

    def _net(self, parameters: Parameters, batch: Batch) -> Tensor:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.half):
            return self.task.unary(parameters, batch).to(self.alpha.dtype)

    def _pairwise(self, parameters: Parameters, batch: Batch) -> Pairwise:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.half):
            return self.task.pairwise(parameters, batch)

    def balanced(self, parameters: Parameters, batch: Batch) -> Iterator[Scored]:
        """Balanced scores, for all replicas of one objective at a time: the CRF is one call for them.

        Groups are sorted by objective, so the replicas of one objective are neighbours.
        """
        unary, energy = self.unary(parameters, batch), self.task.energy
        for objective, same in groupby(self.groups, key=lambda group: group.objective):
            members = list(same)
            where = slice(members[0].members.start, members[-1].members.stop)
            part, u = batch.of(where), unary[where]
            alone = batch.learning and objective == "unary"  # then the loss does not use the pairwise part
            w = None if alone else self._pairwise(self._of(parameters, where), part)
            factors = []
            for group in members:
                own = slice(group.members.start - where.start, group.members.stop - where.start)
                pairwise, lengths = None if w is None else w[own], None if part.lengths is None else part.lengths[own]
                norms = energy.norms(u[own], pairwise, lengths)
                of_group = group.factors(energy, parameters, norms, part.weights[own] if batch.learning else None)
                factors.append([_per_replica(x, len(u[own])) for x in of_group])
            each = Factors(*(_stacked(same) for same in zip(*factors, strict=True)))  # type: ignore[arg-type]
            yield Scored(objective, part, *scaled(energy, u, w, each), each.penalty)

    def losses(self, parameters: Parameters, batch: Batch) -> Tensor:
        """The mean loss of each replica over its examples of the batch, penalties included, (E,)."""
        means = []
        for objective, part, u, w, penalty in self.balanced(parameters, replace(batch, learning=True)):
            each = self.task.energy.losses(objective, u, w, part.labels, part.lengths) + penalty  # (e, B)
            means.append((each * part.weights).sum(-1) / part.weights.sum(-1).clamp(min=1))
        return torch.cat(means)

    @torch.no_grad()
    def evaluate(self, parameters: Parameters, examples: list[Tensor]) -> tuple[list[float], list[float]]:
        """Of each replica on its examples: the metric, and the mean ratio ||U|| / ||W|| after scaling."""
        energy = self.task.energy
        sums, total = torch.zeros(()), torch.zeros(len(self.replicas), device=self.device)
        for batch in self.batches(examples):
            scores, ratios = [], []
            for objective, part, u, w, _ in self.balanced(parameters, batch):
                predictions = energy.predict(objective, u, w, part.lengths).reshape(part.labels.shape)
                scores.append((self.task.scores(predictions, part) * part.weights[..., None]).sum(1))
                size_u, size_w = energy.norms(u, w, part.lengths)()
                ratios.append((size_u / size_w * part.weights).sum(-1))
            sums = sums + torch.cat(scores)  # (E, K)
            total += torch.cat(ratios)
        count = torch.tensor([len(x) for x in examples], device=self.device)
        return self.task.measure(sums).tolist(), (total / count).tolist()

    @torch.no_grad()
    def predict(self, parameters: Parameters, batch: Batch) -> Tensor:
        """Labels for the examples of every replica, (E, B, ...)."""
        alphas = [
            self.task.energy.predict(objective, u, w, part.lengths).reshape(part.labels.shape)
            for objective, part, u, w, _ in self.balanced(parameters, batch)
        ]
        return torch.cat(alphas)

    def _of(self, parameters: Parameters, where: slice) -> Parameters:
        """The parameters of some replicas, as views, so that in-place updates reach the stack."""
        everyone = where == slice(0, len(self.replicas))  # a view would cost a copy of each gradient
        return parameters if everyone else {name: x[where] for name, x in parameters.items()}

    @torch.no_grad()
    def search(self, subset: list[Tensor], time: str = "epoch") -> None:
        """Algorithm 1, line 11, for the replicas of `online` that search at this time: the best factor on a subset."""
        energy = self.task.energy
        for group in self.groups:
            if not isinstance(group.method, scaling.Online):
                continue
            if self.replicas[group.members.start].recipe.search_time != time:
                continue
            total = torch.zeros(())
            grid = group.method.grid[:, None].expand(-1, group.members.stop - group.members.start)
            one = torch.ones_like(grid[0])
            parameters = self._of(self.parameters, group.members)
            for batch in self.batches(subset[group.members]):
                u, w = self._net(parameters, batch), self._pairwise(parameters, batch)
                u, w = energy.scaled(u, w, one, one)
                tried = energy.losses_for_each(grid, group.objective, u, w, batch.labels, batch.lengths)  # (G, e, B)
                total = total + (tried * batch.weights).sum(-1)
            group.method.choose(partial(_given, total))

    def batches(self, examples: list[Tensor]) -> Iterator[Batch]:
        """The examples of each replica in batches, padded with -1."""
        table = torch.nn.utils.rnn.pad_sequence(examples, batch_first=True, padding_value=-1)
        size = min(max(at_once(self.task, EXAMPLES_AT_ONCE) // len(examples), 32), 512)
        fitting = getattr(self.task, "fitting", lambda part: [part])
        for part in table.split(size, 1):
            for some in fitting(part):
                yield self.task.batch(some.to(self.device), self.task.room(some))


def _per_replica(x: Tensor | None, count: int) -> Tensor | int:
    """A factor as (e, 1), or (e, B) where it has one value per example; the number e alone for None."""
    return count if x is None else leading(x, 2).expand(count, -1)


def _stacked(each: Sequence[Tensor | int]) -> Tensor | None:
    """The factors of several groups, (e, 1) or (e, B), as one: (E, 1), or (E, B) where a group has one per example."""
    tensors = [x for x in each if isinstance(x, Tensor)]
    if not tensors:
        return None
    if len(each) == 1:
        return tensors[0]
    width = max(x.shape[1] for x in tensors)
    return torch.cat([x.expand(-1, width) if isinstance(x, Tensor) else tensors[0].new_ones(x, width) for x in each])


def _given(losses: Tensor, grid: Tensor) -> Tensor:
    """The losses on the whole grid, which were summed batch by batch."""
    return losses
