"""Sums over many labels or positions lose no small terms: one large term comes first, then many that are tiny.

The sum of a tile of tiny terms is less than half a unit in the last place of the large one, so that a plain sum of
tiles in float32 would ignore all of them. Together they are 1 to 2 millionths.
"""

import importlib

import pytest
import torch
from triton_chains import DEVICE, strict_memory

from equipoise import chain

wide = importlib.import_module("equipoise.chain.gpu.wide")

__all__ = ["strict_memory"]  # a fixture
LABELS, TERMS, TILES = wide.MIN_LABELS, 16, 24  # terms are those of a tile
LABELS_SUMMED = 40 * TERMS
TINY = 0.9 * 2**-24 / TERMS


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of few terms, and of many results: the interpreter's time is that of its programs."""
    monkeypatch.setattr(wide, "SMALL_SUM", wide.Tile(16, 128, TERMS, 4))
    monkeypatch.setattr(wide, "TILE", 128)
    monkeypatch.setattr(wide, "POSITIONS", TERMS)


pytestmark = [
    pytest.mark.gpu,
    pytest.mark.usefixtures("strict_memory"),
    pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning"),  # log 0 is -inf in the kernels
]


@pytest.mark.slow
def test_transitions_of_many_sequences() -> None:
    """Pairs of positions without any preference; each sequence goes from label 0 to label 0."""
    weight = torch.full((TILES * TERMS,), TINY, device=DEVICE)
    weight[0] = 1
    n, total = len(weight), float(weight.double().sum())
    assert total > 1 + 1e-6
    unary, pairwise = torch.zeros(n, 2, LABELS, device=DEVICE), torch.zeros(LABELS, LABELS, device=DEVICE)
    chains = wide.Wide(unary, pairwise, torch.full((n,), 2, device=DEVICE))
    labels = torch.zeros(n, 2, dtype=torch.int64, device=DEVICE)
    got = chains.marginals(weight, chains.forward()[1], labels)[1].double().flatten().cpu()
    want = torch.full_like(got, total / LABELS**2)
    want[0] -= total
    torch.testing.assert_close(got, want, rtol=3e-7, atol=0)


def test_messages_of_many_labels() -> None:
    m = LABELS_SUMMED
    unary = torch.zeros(1, 2, m, dtype=torch.float64)
    unary[0, 0, 1:] = torch.tensor(TINY).log()
    unary[0, 1, 1:] = -200.0  # then log Z is the log of the sum, which is nearly 0
    pairwise = torch.zeros(m, m, dtype=torch.float64)
    want = chain.log_partition(unary, pairwise)
    assert want > 2e-6
    scores = unary.float().to(DEVICE), pairwise.float().to(DEVICE)
    got = wide.Wide(*scores, torch.tensor([2], device=DEVICE)).forward()[0]
    torch.testing.assert_close(got.double().cpu(), want, rtol=0, atol=2e-7)


@pytest.mark.parametrize("leftwards", [False, True])
def test_mass_of_many_labels(leftwards: bool) -> None:
    """Mass leaves all labels. That of the last, which keeps the sum at 0, mostly goes to the last label."""
    m = LABELS_SUMMED
    nodes = torch.full((1, 2, m), TINY, dtype=torch.float64)
    nodes[0, 0, 0] = 1
    nodes[0, 0, -1] = -nodes[0, 0, :-1].sum()
    nodes[0, 1] = 0
    pairwise = torch.zeros(m, m, dtype=torch.float64)
    pairwise[-1, -1] = 20.0
    unary = torch.zeros(1, 2, m, dtype=torch.float64)
    if leftwards:
        nodes, pairwise = nodes.flip(1), pairwise.mT
    arrived = 0 if leftwards else 1
    unary.requires_grad_()
    (want,) = torch.autograd.grad((nodes * chain.log_marginals(unary, pairwise)).sum(), unary)
    scores = unary.detach().float().to(DEVICE), pairwise.float().to(DEVICE)
    chains = wide.Wide(*scores, torch.tensor([2], device=DEVICE))
    state = chains.forward()[1]
    weight = torch.ones(1, device=DEVICE)
    moved, _ = chains.transport(nodes.float().to(DEVICE), None, weight, chains.log_marginals(state)[0], state)
    got = moved[0, arrived, 0].double().cpu()
    torch.testing.assert_close(got, want[0, arrived, 0], rtol=5e-7, atol=0)
