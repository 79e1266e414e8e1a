"""One step of gradient descent of a whole stack: a batch for every replica, its loss, gradients, the optimizer.

On a GPU a step is several hundred small kernels, and launching them would take longer than running them. So a step is
recorded once as a CUDA graph and replayed. It is recorded on a batch of fillers, which changes no parameter.

A task whose batches need very different room has the attribute `graphs_per_room`. Then a step is recorded for each room
that occurs more than once, and all graphs share their memory.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from equipoise.scaling import leading

from ..schemes import SCHEMES
from . import clipping, optimizers, schedules
from .groups import paced, with_gradient
from .stack import Stack
from .start import head

Step = Callable[[int, int], None]
"""Called after each batch with the number of batches of this epoch so far and their total."""


class Stepper:
    """Trains a stack in place. Create a new one when the replicas of the stack change."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.names = [name for name in stack.parameters if name.startswith(_trained(stack))]
        self.paced = set(paced())
        e = len(stack.replicas)
        self.rate = torch.zeros(e, device=stack.device)
        self.linear = any(replica.recipe.schedule == "linear" for replica in stack.replicas)
        self.warmup, self.last = torch.zeros(2, e, device=stack.device)
        self.decay = torch.tensor([replica.recipe.weight_decay for replica in stack.replicas], device=stack.device)
        alone = [float(replica.phase.trained == "unary") for replica in stack.replicas]
        self.net_alone = torch.tensor(alone, device=stack.device)
        recipes = [replica.recipe for replica in stack.replicas]
        self.limit = _unless_all([recipe.clip for recipe in recipes], 0.0, stack.device)
        schemes = [SCHEMES[recipe.scheme] for recipe in recipes]
        self.with_pairwise = _unless_all([float(scheme.pairwise) for scheme in schemes], 1.0, stack.device)
        each = {optimizers.PAIRWISE: [scheme.pairwise_rate for scheme in schemes]}
        if any(recipe.head_rate != 1 for recipe in recipes):
            each[head(stack.task)] = [recipe.head_rate for recipe in recipes]
        rates = {name: _unless_all(factors, 1.0, stack.device) for name, factors in each.items()}
        self.factors = {name: factors for name, factors in rates.items() if factors is not None}
        self.total, self.count = torch.zeros(2, e, device=stack.device)
        size = stack.replicas[0].recipe.batch_size if stack.replicas else 0
        self.examples = torch.full((e, size), -1, device=stack.device)
        self.room = -1
        self.graph: torch.cuda.CUDAGraph | None = None
        self.per_room = stack.device.type == "cuda" and getattr(stack.task, "graphs_per_room", False)
        self.graphs: dict[int, torch.cuda.CUDAGraph | None] = {}
        self.pool = torch.cuda.graph_pool_handle() if self.per_room else None

    def run(self, orders: list[Tensor], report: Step | None = None) -> None:
        """One epoch: batches of the examples of each replica, in the given order, padded with fillers.

        On a GPU a batch is reported when it is launched, so `report` never waits for the device.
        """
        self.rate.copy_(torch.tensor([replica.learning_rate for replica in self.stack.replicas]))
        if self.linear:
            self._plan(orders)
        self.total.zero_()
        self.count.zero_()
        size = self.examples.shape[1]
        table = torch.nn.utils.rnn.pad_sequence(orders, batch_first=True, padding_value=-1)
        table = torch.nn.functional.pad(table, (0, -table.shape[1] % size), value=-1)
        batches = table.to(self.stack.device).split(size, 1)
        if self.stack.device.type == "cuda" and not self.per_room:
            self._make_room(self.stack.task.room(table.unflatten(1, (-1, size))))
        for number, (batch, here) in enumerate(zip(batches, table.split(size, 1), strict=True), 1):
            self.examples.copy_(batch)
            if self.per_room:
                self._step_in(self.stack.task.room(here))
            elif self.graph is None:
                self._step(self.stack.task.room(here))
            else:
                self.graph.replay()
            if report is not None:
                report(number, len(batches))

    def _plan(self, orders: list[Tensor]) -> None:
        """Set the number of steps of this phase, and of its warm-up, for the linear schedule."""
        each = [
            (replica.recipe, replica.recipe.max_epochs * math.ceil(len(order) / self.examples.shape[1]))
            for replica, order in zip(self.stack.replicas, orders, strict=True)
        ]
        self.last.copy_(torch.tensor([total for _, total in each]))
        self.warmup.copy_(torch.tensor([schedules.warmup_steps(recipe.warmup, total) for recipe, total in each]))

    def _make_room(self, room: int) -> None:
        """Record a step that has room for every batch of the epoch, unless the last recorded step has."""
        if room > self.room:
            self.room, self.graph = room, None  # free the memory of the old graph before recording the new one
            self.graph = self._record(room)

    def _step_in(self, room: int) -> None:
        """A step with the graph of this room, which is recorded at its second use; the first compiles the kernels."""
        if room not in self.graphs:
            self.graphs[room] = None
            return self._step(room)
        graph = self.graphs[room]
        if graph is None:
            graph = self.graphs[room] = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self.pool):
                self._step(room)
        return graph.replay()

    def mean_losses(self) -> list[float]:
        """The mean over the batches of the last epoch."""
        return (self.total / self.count.clamp(min=1)).tolist()

    def _step(self, room: int) -> None:
        stack = self.stack
        batch = stack.task.batch(self.examples, room)
        leaves = {name: stack.parameters[name].detach().requires_grad_() for name in self.names}
        losses = stack.losses(stack.parameters | leaves, batch)
        each = torch.autograd.grad(losses.sum(), list(leaves.values()), materialize_grads=True, allow_unused=True)
        moves = (batch.weights.sum(-1) > 0).to(losses.dtype)
        gradients = dict(zip(self.names, each, strict=True))
        for group in stack.groups:
            group.move(stack.parameters, gradients, moves)
        gradients = {name: gradient for name, gradient in gradients.items() if name not in self.paced}
        if self.with_pairwise is not None:  # what is not trained does not count in clipping
            for name in (name for name in gradients if name.startswith(optimizers.PAIRWISE)):
                gradients[name] = gradients[name] * leading(self.with_pairwise, gradients[name].ndim)
        rate = self.rate
        if self.linear:  # from the steps of this phase so far, which checkpoints store
            rate = rate * schedules.linear(stack.steps, self.warmup, self.last)
        optimizers.step(
            stack.optimizer,
            stack.parameters,
            gradients,
            stack.state,
            stack.steps,
            rate,
            moves,
            self.decay,
            self.net_alone,
            factors=self.factors,
            clip=None if self.limit is None else clipping.factor(gradients, self.limit),
        )
        self.total += losses.detach() * moves
        self.count += moves

    def _record(self, room: int) -> torch.cuda.CUDAGraph:
        self.examples.fill_(-1)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):  # kernels are compiled and libraries initialised before recording
                self._step(room)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._step(room)
        return graph


def _unless_all(each: list[float], usual: float, device: torch.device) -> Tensor | None:
    """One number per replica, or None if all have the usual one: then the step does no work for it."""
    return None if all(x == usual for x in each) else torch.tensor(each, device=device)


def _trained(stack: Stack) -> tuple[str, ...]:
    """Prefixes of the parameters that are trained in this phase. A net alone has no gradient in the other parts."""
    frozen = any(replica.phase.trained == "pairwise" for replica in stack.replicas)
    return ("pairwise.",) if frozen else ("unary.", "pairwise.", *with_gradient())
