"""One step of gradient descent of a whole stack: a batch for every replica, its loss, gradients, the optimiser.

On a GPU a step is some hundred small kernels whose launches would take longer than their work, so it is recorded once
as a CUDA graph and replayed. A graph is recorded on a batch of fillers, which moves nothing.
"""

import torch
from torch import Tensor

from . import optimizers
from .stack import Stack


class Stepper:
    """Steps a stack in place. Make a new one when the stack has changed its members."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.names = [name for name in stack.parameters if name.startswith(_trained(stack))]
        e = len(stack.replicas)
        self.rate = torch.zeros(e, device=stack.device)
        self.decay = torch.tensor([replica.recipe.weight_decay for replica in stack.replicas], device=stack.device)
        alone = [float(replica.phase.trained == "unary") for replica in stack.replicas]
        self.net_alone = torch.tensor(alone, device=stack.device)
        self.total, self.count = torch.zeros(2, e, device=stack.device)
        size = stack.replicas[0].recipe.batch_size if stack.replicas else 0
        self.examples = torch.full((e, size), -1, device=stack.device)
        self.room = -1
        self.graph: torch.cuda.CUDAGraph | None = None

    def run(self, orders: list[Tensor]) -> None:
        """An epoch: batches of each replica's examples in the order given; who has fewer waits at the end."""
        self.rate.copy_(torch.tensor([replica.learning_rate for replica in self.stack.replicas]))
        self.total.zero_()
        self.count.zero_()
        size = self.examples.shape[1]
        table = torch.nn.utils.rnn.pad_sequence(orders, batch_first=True, padding_value=-1)
        table = torch.nn.functional.pad(table, (0, -table.shape[1] % size), value=-1)
        batches = table.to(self.stack.device).split(size, 1)
        if self.stack.device.type == "cuda":
            self._make_room(self.stack.task.room(table.unflatten(1, (-1, size))))
        for batch, here in zip(batches, table.split(size, 1), strict=True):
            self.examples.copy_(batch)
            if self.graph is None:
                self._step(self.stack.task.room(here))
            else:
                self.graph.replay()

    def _make_room(self, room: int) -> None:
        """Record a step that has room for every batch of the epoch; one recorded before serves if it has."""
        if room > self.room:
            self.room, self.graph = room, None  # the old one's memory is free before the new one wants as much
            self.graph = self._record(room)

    def mean_losses(self) -> list[float]:
        """Over the batches of the last epoch, each counted once."""
        return (self.total / self.count.clamp(min=1)).tolist()

    def _step(self, room: int) -> None:
        stack = self.stack
        batch = stack.task.batch(self.examples, room)
        leaves = {name: stack.parameters[name].detach().requires_grad_() for name in self.names}
        losses = stack.losses(stack.parameters | leaves, batch)
        gradients = torch.autograd.grad(losses.sum(), list(leaves.values()), materialize_grads=True, allow_unused=True)
        moves = (batch.weights.sum(-1) > 0).to(losses.dtype)
        optimizers.step(
            stack.optimizer,
            stack.parameters,
            dict(zip(self.names, gradients, strict=True)),
            stack.state,
            stack.steps,
            self.rate,
            moves,
            self.decay,
            self.net_alone,
        )
        self.total += losses.detach() * moves
        self.count += moves

    def _record(self, room: int) -> torch.cuda.CUDAGraph:
        self.examples.fill_(-1)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):  # kernels compile and libraries set themselves up before anything is recorded
                self._step(room)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._step(room)
        return graph


def _trained(stack: Stack) -> tuple[str, ...]:
    """How the names of the parameters begin that move in this phase. A net alone has no gradient in the other parts."""
    frozen = any(replica.phase.trained == "pairwise" for replica in stack.replicas)
    return ("pairwise.",) if frozen else ("unary.", "pairwise.", "scaling.")
