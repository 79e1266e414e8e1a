"""Bidirectional LSTMs over sequences of different lengths, exactly: what fills up the shorter ones has no effect.

The danger is in the direction that runs backwards: it meets the filling first. There are two ways around it.

`packed`   PyTorch's packed sequences: each step works on the sequences that are so long. The least work, but the shapes
           of a step depend on the lengths, and the lengths must be known to Python.
`gated`    One input more says "beyond the end", and closes the input gate: i = sigmoid(... - 10^4) = 0. Then the cell
           c = f c + i g stays the 0 that it starts with, h = o tanh(c) is 0, and so are the gradients of all that went
           into them. Shapes depend on nothing, so that a GPU runs it without waiting, and can record it.
"""

import warnings

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

SHUT = -1e4


class BiLSTM(nn.Module):
    """Layers of LSTMs in both directions, each reading what both directions of the one before it say.

    >>> net = BiLSTM(3, 5)
    >>> net(torch.randn(2, 4, 3), torch.tensor([4, 1])).shape
    torch.Size([2, 4, 10])
    """

    def __init__(self, inputs: int, state: int, layers: int = 2) -> None:
        super().__init__()
        sizes = [inputs] + [2 * state] * (layers - 1)
        self.layers = nn.ModuleList(nn.LSTM(size, state, batch_first=True, bidirectional=True) for size in sizes)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Of x (N, T, inputs) and lengths (N,), at least 1, the states of both directions, (N, T, 2 * state).

        Beyond the lengths they say nothing.
        """
        run = packed if x.device.type == "cpu" else gated
        return run(self.layers, x, lengths)


def packed(layers: nn.ModuleList, x: Tensor, lengths: Tensor) -> Tensor:
    sequences = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
    for layer in layers:
        sequences, _ = layer(sequences)
    return pad_packed_sequence(sequences, batch_first=True, total_length=x.shape[1])[0]


def gated(layers: nn.ModuleList, x: Tensor, lengths: Tensor) -> Tensor:
    beyond = (torch.arange(x.shape[1], device=x.device) >= lengths[:, None])[..., None]
    for layer in layers:
        assert isinstance(layer, nn.LSTM)
        state = x.new_zeros(2, len(x), layer.hidden_size)
        x = torch.cat([x, beyond.to(x.dtype)], -1)
        x = _run(x, state, _with_gate(layer))
    return x


def _run(x: Tensor, state: Tensor, weights: list[Tensor]) -> Tensor:
    """One layer in both directions, by PyTorch's own function."""
    with warnings.catch_warnings():  # the weights are made anew at every call: that cuDNN copies them is no news
        warnings.filterwarnings("ignore", "RNN module weights are not part of single contiguous chunk")
        return torch.lstm(x, (state, state), weights, True, 1, 0.0, torch.is_grad_enabled(), True, True)[0]


def ends(states: Tensor, lengths: Tensor) -> Tensor:
    """Where each direction has read all: forward at the last position, backward at the first, (N, 2 * state)."""
    half = states.shape[-1] // 2
    last = (lengths - 1)[:, None, None].expand(-1, 1, half)
    return torch.cat([states[..., :half].gather(1, last)[:, 0], states[:, 0, half:]], -1)


def _with_gate(layer: nn.LSTM) -> list[Tensor]:
    """The layer's weights, with one more column for the input that says "beyond the end"."""
    weights = []
    for direction in ("", "_reverse"):
        into, *others = (
            getattr(layer, f"{name}_l0{direction}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        gates = torch.arange(len(into), device=into.device)[:, None]  # input, forget, cell, output, a quarter each
        column = torch.where(gates < layer.hidden_size, SHUT, 0.0).to(into.dtype)
        weights += [torch.cat([into, column], -1), *others]
    return weights
