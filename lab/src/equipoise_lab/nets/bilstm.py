"""Bidirectional LSTMs over sequences of different lengths, for E replicas at once.

Sequences are stored as rows, one per position (`recurrence.Rows`), so no padding is needed. On the CPU, each replica
runs alone on PyTorch's packed sequences. On other devices all replicas run together, and no shape depends on tensor
values, so the GPU needs no synchronisation and the step can be captured in a CUDA graph.
"""

import torch
from torch import Tensor

from . import recurrence
from .recurrence import Rows

PARTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
SIDES = ("", "_reverse")


class BiLSTM:
    """A stack of bidirectional LSTM layers; each layer reads both directions of the previous one.

    Parameters have the names and shapes of PyTorch's layers, with the replica dimension first.

    >>> net = BiLSTM(3, 5)
    >>> one = {name: torch.zeros(1, *shape) for name, shape in net.shapes.items()}
    >>> rows = Rows(torch.tensor([[0, 4]]), torch.tensor([[4, 1]]), longest=4)
    >>> net(one, torch.randn(1, 5, 3), rows).shape
    torch.Size([1, 5, 10])
    """

    def __init__(self, inputs: int, state: int, layers: int = 2) -> None:
        self.state = state
        self.layers = [f"layers.{i}" for i in range(layers)]
        sizes = [inputs] + [2 * state] * (layers - 1)
        self.shapes: dict[str, tuple[int, ...]] = {
            f"{layer}.{part}_l0{side}": (4 * state, *last)
            for layer, size in zip(self.layers, sizes, strict=True)
            for side in SIDES
            for part, last in zip(PARTS, ((size,), (state,), (), ()), strict=True)
        }

    def __call__(self, parameters: dict[str, Tensor], x: Tensor, rows: Rows) -> Tensor:
        """The states of both directions, (E, R, 2 * state), for x (E, R, inputs); 0 in rows outside any sequence."""
        weights = [
            [parameters[f"{layer}.{part}_l0{side}"] for side in SIDES for part in PARTS] for layer in self.layers
        ]
        return (packed if x.device.type == "cpu" else together)(weights, x, rows)


def packed(weights: list[list[Tensor]], x: Tensor, rows: Rows) -> Tensor:
    """Each replica alone, with PyTorch's LSTM on packed sequences."""
    position, outputs = torch.arange(rows.longest)[:, None], []
    for e, inputs in enumerate(x):
        states = inputs.new_zeros(len(inputs), 2 * weights[-1][1].shape[-1])
        lengths, order = rows.lengths[e].sort(descending=True, stable=True)
        live = position < lengths  # (T, N)
        if live.any():
            where, sizes = (rows.starts[e, order] + position)[live], live.sum(1)
            output = _run(inputs[where], sizes[sizes > 0], [[weight[e] for weight in layer] for layer in weights])
            states = states.index_copy(0, where, output)
        outputs.append(states)
    return torch.stack(outputs)


def _run(x: Tensor, sizes: Tensor, weights: list[list[Tensor]]) -> Tensor:
    """All layers over packed sequences x (sum of sizes, inputs); sizes[t] sequences are longer than t."""
    for layer in weights:
        start = x.new_zeros(2, int(sizes[0]), layer[1].shape[-1])
        x = torch.lstm(x, sizes, (start, start), layer, True, 1, 0.0, torch.is_grad_enabled(), True)[0]
    return x


def together(weights: list[list[Tensor]], x: Tensor, rows: Rows) -> Tensor:
    """All replicas at once: for each layer one product over all rows, then the recurrence."""
    for weight_ih, weight_hh, bias_ih, bias_hh, *reverse in weights:
        both = torch.cat([weight_ih, reverse[0]], 1)  # (E, 8H, inputs)
        biases = torch.cat([bias_ih + bias_hh, reverse[2] + reverse[3]], 1)
        gates = torch.baddbmm(biases[:, None], x, both.transpose(1, 2)).unflatten(-1, (2, -1))  # (E, R, 2, 4H)
        x = recurrence.run(gates, torch.stack([weight_hh, reverse[1]], 1), rows).flatten(2)
    return x


def ends(states: Tensor, rows: Rows) -> Tensor:
    """The final state of each direction, (E, N, 2 * state): forward at the last position, backward at the first."""
    half = states.shape[-1] // 2
    sides = ((rows.starts + rows.lengths - 1).clamp(min=0), slice(half)), (rows.starts, slice(half, None))
    return torch.cat([states[..., side].gather(1, at[..., None].expand(-1, -1, half)) for at, side in sides], -1)
