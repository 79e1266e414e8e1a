"""E runs of one net side by side: their parameters, each (E, ...), and what is computed from them.

A stack holds runs that share net, optimiser and batch size, and may differ in everything else. Runs that also share the
loss and the form of the scaling are one `Group`, a slice of the stack; for all groups of one loss the CRF is one call.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor

from ... import energies, scaling
from ...energies.energy import Pairwise
from ...scaling.method import leading
from ..recipe import Recipe
from ..schemes import learned_fields
from ..tasks import Batch, Parameters, Split, Task
from ..tasks.task import at_once
from .optimizers import Optimizer, fresh
from .phases import kind, method
from .replica import Replica
from .tensors import BadFileError

PREFIX = "scaling."
"""How the names of scaling's state begin, among a replica's parameters."""

ALPHA = "scaling.alpha"
"""The factor of the unary part: kept with a replica's parameters, and not trained by gradient descent."""

EXAMPLES_AT_ONCE = 65536
"""In evaluation, over all replicas: enough to keep a device busy, unless the task says otherwise."""


def scaling_state(recipe: Recipe) -> Parameters:
    """The initial state of scaling of one replica: alpha, and every field that some method learns."""
    how = method([recipe])
    learned = {PREFIX + name: torch.zeros(()) for name in learned_fields()}
    learned |= {PREFIX + name: getattr(how, name).detach()[0] for name in how.learned}
    return learned | {ALPHA: torch.tensor(recipe.factor)}


@dataclass(frozen=True)
class Group:
    members: slice
    objective: str
    method: scaling.Scaling

    def state(self, parameters: Parameters) -> scaling.State:
        """The method's state, with what is learned taken from the stack's parameters."""
        learned = {name: parameters[PREFIX + name][self.members] for name in self.method.learned}
        return self.method.state()._replace(**learned)


class Scored(NamedTuple):
    """The replicas of one objective: their balanced scores, and the penalties of scaling."""

    objective: str
    batch: Batch
    unary: Tensor
    pairwise: Pairwise
    penalty: Tensor  # (e, B)


class Stack:
    """The tensors of E runs. `best` and `best_alpha` are what did best on validation so far."""

    def __init__(
        self,
        task: Task,
        optimizer: Optimizer,
        replicas: list[Replica],
        parameters: Parameters,
        device: torch.device,
        half: bool = False,
    ) -> None:
        """Replicas must come sorted by `kind`, parameters in the same order, the factors alpha among them.

        With `half`, the nets' products are in bfloat16; parameters, scores and losses never are.
        """
        e = len(replicas)
        self.task, self.optimizer, self.device, self.half = task, optimizer, device, half
        self.replicas = replicas
        self.parameters = {name: x.to(device).clone() for name, x in parameters.items() if name != ALPHA}
        self.state = fresh(optimizer, self.parameters)
        self.steps = torch.zeros(e, device=device)
        self.alpha = parameters[ALPHA].to(device).clone()
        self.best = {name: x.clone() for name, x in self.parameters.items()}
        self.best_alpha = self.alpha.clone()
        self.memory: Tensor | None = None
        self.groups = self._group()

    def _group(self) -> list[Group]:
        groups, start = [], 0
        for _, same in groupby(self.replicas, key=lambda replica: kind(replica.recipe, replica.phase)):
            members = list(same)
            where = slice(start, start + len(members))
            how = method([member.recipe for member in members]).to(self.device)
            if "alpha" in dict(how.named_buffers()):
                how.alpha = self.alpha[where]  # a view: the search writes into the stack
            groups.append(Group(where, members[0].phase.objective, how))
            start = where.stop
        return groups

    def tensors(self) -> dict[str, Tensor]:
        """Everything that a checkpoint must hold, by name."""
        named = {"steps": self.steps, "alpha": self.alpha, "best_alpha": self.best_alpha}
        named |= {f"parameters/{name}": x for name, x in self.parameters.items()}
        named |= {f"best/{name}": x for name, x in self.best.items()}
        named |= {f"state/{name}/{slot}": x for name, state in self.state.items() for slot, x in state.items()}
        if self.memory is not None:
            named["memory"] = self.memory
        return named

    def restore(self, named: dict[str, Tensor]) -> None:
        """Put back what `tensors` gave."""
        if "memory" in named:
            self.memory = named["memory"].to(self.device)
        mine = self.tensors()
        if mine.keys() != named.keys() or any(mine[name].shape != x.shape for name, x in named.items()):
            raise BadFileError("the checkpoint is of another net than this one")
        for name, x in named.items():
            mine[name].copy_(x)

    def alphas(self) -> list[float]:
        """The factor of the unary part relative to the pairwise part, of each replica."""
        found = [group.method.alpha_of(group.state(self.parameters)) for group in self.groups]
        return torch.cat(found).tolist() if found else []

    def take(self, index: list[int]) -> "Stack":
        """The stack of some of the replicas."""
        kept = Stack.__new__(Stack)
        kept.task, kept.optimizer, kept.device, kept.half = self.task, self.optimizer, self.device, self.half
        kept.replicas = [self.replicas[i] for i in index]
        where = torch.tensor(index, dtype=torch.long, device=self.device)
        kept.parameters = {name: x[where] for name, x in self.parameters.items()}
        kept.best = {name: x[where] for name, x in self.best.items()}
        kept.state = {n: {slot: x[where] for slot, x in state.items()} for n, state in self.state.items()}
        kept.steps, kept.alpha, kept.best_alpha = (x[where] for x in (self.steps, self.alpha, self.best_alpha))
        kept.memory = None if self.memory is None else self.memory[where]
        kept.groups = kept._group()
        return kept

    def merge(self, other: "Stack") -> tuple["Stack", list[int]]:
        """Both as one stack, and where its replicas come from: numbers of this one's, then of the other's."""
        both = Stack.__new__(Stack)
        both.task, both.optimizer, both.device, both.half = self.task, self.optimizer, self.device, self.half
        both.replicas = [*self.replicas, *other.replicas]
        both.parameters = {name: torch.cat([x, other.parameters[name]]) for name, x in self.parameters.items()}
        both.best = {name: torch.cat([x, other.best[name]]) for name, x in self.best.items()}
        both.state = {
            name: {slot: torch.cat([x, other.state[name][slot]]) for slot, x in state.items()}
            for name, state in self.state.items()
        }
        both.steps = torch.cat([self.steps, other.steps])
        both.alpha = torch.cat([self.alpha, other.alpha])
        both.best_alpha = torch.cat([self.best_alpha, other.best_alpha])
        both.memory = None
        if self.memory is not None and other.memory is not None:
            both.memory = torch.cat([self.memory, other.memory])
        kinds = [str(kind(replica.recipe, replica.phase)) for replica in both.replicas]
        order = sorted(range(len(kinds)), key=lambda place: (kinds[place], place))
        return both.take(order), order

    @torch.no_grad()
    def freeze(self, splits: list[Split]) -> None:
        """Compute the unary scores of each replica's examples once, for a phase that leaves the net as it is."""
        room = 1 + max(int(numbers.max()) for split in splits for numbers in split)
        for batch in self.batches([torch.cat([split.train, split.valid]) for split in splits]):
            unary = self._net(self.parameters, batch)
            if self.memory is None:
                self.memory = unary.new_zeros(unary.shape[0], room, *unary.shape[2:])
            e, b = (batch.examples >= 0).nonzero(as_tuple=True)
            self.memory[e, batch.examples[e, b]] = unary[e, b]

    def unary(self, parameters: Parameters, batch: Batch) -> Tensor:
        """By the net, or from memory where it is frozen."""
        if self.memory is None:
            return self._net(parameters, batch)
        replica = torch.arange(len(self.memory), device=self.device)[:, None]
        return self.memory[replica, batch.examples.clamp(min=0)]

    def keep_best(self, index: list[int]) -> None:
        """Remember the parameters of these replicas as their best."""
        if not index:
            return
        where = torch.tensor(index, device=self.device)
        for name, x in self.parameters.items():
            self.best[name][where] = x[where]
        self.best_alpha[where] = self.alpha[where]

    def _net(self, parameters: Parameters, batch: Batch) -> Tensor:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.half):
            return self.task.unary(parameters, batch).to(self.alpha.dtype)

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
        """Labels for every replica's examples, (E, B, ...)."""
        found = [
            self.task.energy.predict(objective, u, w, part.lengths).reshape(part.labels.shape)
            for objective, part, u, w, _ in self.balanced(parameters, batch)
        ]
        return torch.cat(found)

    def balanced(self, parameters: Parameters, batch: Batch) -> Iterator[Scored]:
        """Scores in balance, for all replicas of one objective at a time: the CRF is one call for them.

        Groups are sorted by objective, so the replicas of one objective are neighbours.
        """
        unary, energy = self.unary(parameters, batch), self.task.energy
        for objective, same in groupby(self.groups, key=lambda group: group.objective):
            groups = list(same)
            where = slice(groups[0].members.start, groups[-1].members.stop)
            part, u = batch.of(where), unary[where]
            alone = batch.learning and objective == "unary"  # then the loss does not use the pairwise part
            w = None if alone else self._pairwise(self._of(parameters, where), part)
            found = []
            for group in groups:
                own = slice(group.members.start - where.start, group.members.stop - where.start)
                pairwise, lengths = None if w is None else w[own], None if part.lengths is None else part.lengths[own]
                state = group.state(parameters)
                found.append(energies.balance(energy, group.method, u[own], pairwise, lengths, state))
            penalties = [leading(one.penalty, 2).expand(len(one.unary), part.examples.shape[1]) for one in found]
            if len(found) == 1:
                yield Scored(objective, part, found[0].unary, found[0].pairwise, penalties[0])
                continue
            pairwise = None if w is None else energy.join([one.pairwise for one in found])
            yield Scored(objective, part, torch.cat([one.unary for one in found]), pairwise, torch.cat(penalties))

    def _of(self, parameters: Parameters, where: slice) -> Parameters:
        """Those of some replicas, as views: what a net moves in place, it moves for the stack."""
        everyone = where == slice(0, len(self.replicas))  # a view would cost a copy of each gradient
        return parameters if everyone else {name: x[where] for name, x in parameters.items()}

    def _pairwise(self, parameters: Parameters, batch: Batch) -> Pairwise:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.half):
            return self.task.pairwise(parameters, batch)

    @torch.no_grad()
    def search(self, subset: list[Tensor]) -> None:
        """Algorithm 1, line 11, for the replicas of `online`: the best factor on a subset of the training examples."""
        energy = self.task.energy
        for group in self.groups:
            if not isinstance(group.method, scaling.Online):
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
            group.method.choose(partial(_answer, total))

    def batches(self, examples: list[Tensor]) -> Iterator[Batch]:
        """Examples of each replica, a share at a time, filled up with -1."""
        table = torch.nn.utils.rnn.pad_sequence(examples, batch_first=True, padding_value=-1)
        size = min(max(at_once(self.task, EXAMPLES_AT_ONCE) // len(examples), 32), 512)
        for part in table.split(size, 1):
            yield self.task.batch(part.to(self.device), self.task.room(part))


def _answer(losses: Tensor, grid: Tensor) -> Tensor:
    """The losses on the whole grid, summed beforehand batch by batch."""
    return losses
