"""The bidirectional LSTMs equal PyTorch's LSTM on each sequence alone, in float64."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from lab.nets.rows import consecutive
from torch import Tensor, nn
from torch.func import functional_call

from equipoise_lab.nets import bilstm
from equipoise_lab.nets.bilstm import BiLSTM
from equipoise_lab.nets.recurrence import Rows

WAYS = {"packed": bilstm.packed, "together": bilstm.together}


def drawn(net: BiLSTM, replicas: int) -> dict[str, Tensor]:
    return {n: torch.randn(replicas, *shape, dtype=torch.float64) for n, shape in net.shapes.items()}


def one_by_one(net: BiLSTM, parameters: dict[str, Tensor], x: Tensor, where: Rows) -> Tensor:
    """PyTorch's LSTM on each sequence of each replica alone; 0 in rows outside any sequence."""
    plain = nn.LSTM(x.shape[-1], net.state, len(net.layers), batch_first=True, bidirectional=True).to(x.dtype)
    found = []
    for e in range(len(x)):
        own = {n.split(".")[-1].replace("_l0", f"_l{n.split('.')[1]}"): p[e] for n, p in parameters.items()}
        states = x.new_zeros(x.shape[1], 2 * net.state)
        for start, n in zip(where.starts[e].tolist(), where.lengths[e].tolist(), strict=True):
            if n > 0:
                read = functional_call(plain, own, (x[e : e + 1, start : start + n],))[0][0]
                states = states.index_copy(0, torch.arange(start, start + n), read)
        found.append(states)
    return torch.stack(found)


@pytest.mark.parametrize("way", WAYS)
@given(st.lists(st.lists(st.integers(0, 5), min_size=3, max_size=3), min_size=1, max_size=3), st.integers(0, 2))
def test_each_sequence_equals_a_run_alone(way: str, lengths: list[list[int]], gap: int) -> None:
    """Values and the gradients of inputs and weights; each replica has its own weights and lengths."""
    where, count = consecutive([[*each, 1] for each in lengths], gap)
    net, x = BiLSTM(3, 4), torch.randn(len(lengths), count, 3, dtype=torch.float64).requires_grad_()
    parameters = {name: p.requires_grad_() for name, p in drawn(net, len(lengths)).items()}
    layers = [[parameters[f"{i}.{p}_l0{s}"] for s in bilstm.SIDES for p in bilstm.PARTS] for i in net.layers]
    got, want = WAYS[way](layers, x, where), one_by_one(net, parameters, x, where)
    torch.testing.assert_close(got, want)
    weights = torch.randn_like(want)
    a, b = (torch.autograd.grad((states * weights).sum(), [x, *parameters.values()]) for states in (got, want))
    for mine, theirs in zip(a, b, strict=True):
        torch.testing.assert_close(mine, theirs)


def test_batches_without_any_sequence() -> None:
    """As for idle replicas in a stack."""
    net, where = BiLSTM(3, 4), Rows(torch.zeros(2, 3, dtype=torch.long), torch.zeros(2, 3, dtype=torch.long), 5)
    states = net(drawn(net, 2), torch.randn(2, 6, 3, dtype=torch.float64), where)
    assert states.shape == (2, 6, 8)
    assert not bool(states.any())


def test_ends_are_the_last_states_of_both_directions() -> None:
    net, (where, count) = BiLSTM(3, 4, layers=1), consecutive([[5, 1, 3], [2, 2, 4]], gap=1)
    parameters, x = drawn(net, 2), torch.randn(2, count, 3, dtype=torch.float64)
    got = bilstm.ends(net(parameters, x, where), where)
    plain = nn.LSTM(3, 4, batch_first=True, bidirectional=True).double()
    for e in range(2):
        own = {n.removeprefix("layers.0."): p[e] for n, p in parameters.items()}
        for i, (start, n) in enumerate(zip(where.starts[e].tolist(), where.lengths[e].tolist(), strict=True)):
            _, (last, _) = functional_call(plain, own, (x[e : e + 1, start : start + n],))
            torch.testing.assert_close(got[e, i], last[:, 0].flatten())
