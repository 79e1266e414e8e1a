"""The Triton backend beyond the contract: shapes, scales, many labels, launches. Interpreted if there is no GPU."""

import importlib
from typing import Any

import pytest
import torch
from contract import MIXING, Case, distant_positions, fused_total, use_chunks
from torch import Tensor
from triton_chains import DEVICE, GPU, check, gpu, make, on_device, replay, strict_memory

from equipoise.chain import reference
from equipoise.chain.checks import problem
from equipoise.chain.problem import Problem
from equipoise.chain.totals import Total

wide, launch = (importlib.import_module(f"equipoise.chain.gpu.{name}") for name in ("wide", "launch"))
start = importlib.import_module("equipoise.native.triton_start")

__all__ = ["strict_memory"]  # a fixture
pytestmark = [
    pytest.mark.usefixtures("strict_memory"),
    pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning"),  # log 0 is -inf in the kernels
]


@pytest.fixture(params=["sequential", "in chunks"])
def in_time(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Positions one after the other, and chunks of them in parallel."""
    use_chunks(monkeypatch, request.param == "in chunks")


SHAPES: list[tuple[tuple[int, ...], int, int, Any]] = [
    ((2,), 4, 3, ()),
    ((2,), 4, 3, (2,)),
    ((2,), 4, 3, "edge"),
    ((2, 1, 2), 2, 2, (2, 1, 1)),
    ((0,), 4, 3, ()),
    ((2,), 1, 3, ()),
    ((2,), 2, 20, ()),
    ((), 4, 3, ()),
    ((2, 2), 3, 2, (1, 2)),
    ((2, 2), 3, 2, (2, 1)),
    ((2, 2, 2), 2, 2, (2, 1, 2)),  # pairwise varies in batch dimensions that are not adjacent
    ((2,), 1, 3, "edge"),
    ((2,), 3, 1, ()),
]


@pytest.mark.parametrize(("batch", "length", "m", "own"), SHAPES)
def test_contract_in_every_shape(batch: tuple[int, ...], length: int, m: int, own: Any) -> None:
    check(make(batch, length, m, own))


@pytest.mark.parametrize(("batch", "length", "m", "own"), SHAPES[:7])
def test_contract_in_chunks(batch: tuple[int, ...], length: int, m: int, own: Any, monkeypatch: Any) -> None:
    use_chunks(monkeypatch, True)
    check(make(batch, length, m, own))


@pytest.mark.parametrize(
    ("scale", "forbidden", "chunks"),
    [
        *((1e-3, 0.0, False), (10.0, 0.0, False), (100.0, 0.0, False), (10.0, 0.4, False), (1e4, 0.4, False)),
        *((10.0, 0.0, True), (100.0, 0.0, True), (1e4, 0.4, True)),
    ],
)
def test_contract_at_every_scale(scale: float, forbidden: float, chunks: bool, monkeypatch: Any) -> None:
    use_chunks(monkeypatch, chunks)
    check(make((2,), 4, 3, scale=scale, forbidden=forbidden), scale)


def test_chunks_beyond_the_end_of_a_chain_read_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first sequence of the batch is the shortest, so that what they read would lie before all scores."""
    use_chunks(monkeypatch, True)
    check(make((2,), 4, 2)._replace(lengths=torch.tensor([1, 4], device=DEVICE)).clean())


@pytest.mark.parametrize("own", [(), "edge"])
def test_contract_with_several_programs_per_sequence(own: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "POSITIONS_PER_PROGRAM", 4)
    check(make((3,), 9, 3, own))


@pytest.fixture
def tiny_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels for many labels, in the interpreter in tiles smaller than the matrix, which a GPU cannot multiply."""
    monkeypatch.setattr(wide, "MIN_LABELS", 1)
    tiny = {"SMALL_SUM": wide.Tile(2, 2, 2, 1), "SMALL_BEST": wide.Tile(2, 2, 2, 1), "TILE": 2, "POSITIONS": 2}
    for name, size in tiny.items() if DEVICE == "cpu" else ():
        monkeypatch.setattr(wide, name, size)


@pytest.mark.usefixtures("tiny_tiles")
@pytest.mark.parametrize(
    ("batch", "length", "m", "own", "scale", "forbidden"),
    [
        ((3,), 3, 3, (), 1.0, 0.0),
        ((2,), 2, 3, "edge", 1.0, 0.0),
        ((2, 2), 2, 2, (1, 2), 1.0, 0.0),
        ((2, 2, 2), 2, 1, (2, 1, 2), 1.0, 0.0),  # pairwise varies in batch dimensions that are not adjacent
        ((0,), 4, 3, (), 1.0, 0.0),
        ((), 1, 3, (), 1.0, 0.0),
        ((2,), 1, 3, "edge", 1.0, 0.0),
        ((2,), 3, 2, (), 1e4, 0.4),
        ((2,), 2, 3, "edge", 10.0, 0.4),
    ],
)
def test_contract_with_many_labels(
    batch: tuple[int, ...], length: int, m: int, own: Any, scale: float, forbidden: float
) -> None:
    check(make(batch, length, m, own, scale=scale, forbidden=forbidden), scale)


@pytest.mark.usefixtures("tiny_tiles")
@pytest.mark.parametrize("kind", MIXING)
def test_rounding_errors_of_mass_decay_with_many_labels(kind: str) -> None:
    distant_positions(GPU, kind)


def test_an_improbable_label_can_become_the_best() -> None:
    """A label of relative probability e^-200, which a sum in the exp domain would lose, is the only way on."""
    unary = torch.tensor([[0.0, -200.0], [0.0, 0.0], [0.0, 0.0]])
    check(problem(unary.to(DEVICE), torch.tensor([[0.0, -torch.inf], [-torch.inf, 0.0]]).to(DEVICE)))
    last = torch.tensor([[0.0, -200.0], [0.0, 0.0], [-torch.inf, 0.0]])
    check(problem(last.to(DEVICE), torch.tensor([[0.0, -torch.inf], [-torch.inf, 0.0]]).to(DEVICE)))


@pytest.mark.gpu
@pytest.mark.parametrize("m", [3, 23])
@pytest.mark.parametrize("share", [0.01, 1.0])
def test_nan_scores_give_no_labels(m: int, share: float) -> None:
    """One replica of a stack may have diverged; the others must continue."""
    p = make((8,), 9, m)
    p.unary[torch.rand(p.unary.shape, generator=torch.Generator().manual_seed(1)).to(DEVICE) < share] = torch.nan
    labels, best = gpu.decode(*p)
    invalid = (p.unary.isnan().any(-1) & p.valid).any(-1)
    assert torch.equal(best.isnan(), invalid)
    assert torch.equal(labels >= 0, p.valid & ~invalid[:, None])


@pytest.mark.usefixtures("in_time")
@pytest.mark.parametrize("m", [3, 20])
def test_the_likeliest_labels_are_those_of_the_marginals(m: int) -> None:
    """-100 beyond the length, and in a sequence with a score of NaN."""
    p = make((4,), 5, m)
    p.unary[3, 0, 1] = torch.nan
    labels = gpu.likeliest(*p)
    log_p = reference.messages(*(x.cpu() for x in p)).log_p
    shown = p.valid.cpu()
    shown[3] = False
    assert torch.equal(labels.cpu(), torch.where(shown, log_p.argmax(-1), -100))


def test_the_cross_entropy_of_a_label_out_of_range_is_nan() -> None:
    p = make((3,), 4, 3, ragged=False)
    labels = torch.zeros(3, 4, dtype=torch.int64, device=DEVICE)
    labels[0, 2], labels[1, 0] = 3, -100
    assert gpu.cross_entropy(*p, labels)[0].isnan().tolist() == [True, True, False]


@pytest.mark.usefixtures("in_time")
def test_repeated_launches_equal_recorded_ones() -> None:
    """For other tensors of the same shapes, without labels, with gaps in memory, and with one tensor given twice."""
    p, labels = make((), 2, 2, scale=3.0), torch.tensor([1, 0], device=DEVICE)
    u, w = p.unary, p.pairwise.view(2, 2)
    spaced = torch.stack([u, u], -1)[..., 0]

    def results(u: Tensor, w: Tensor, y: Tensor | None) -> list[Tensor]:
        found = list(gpu.decode(u, w, p.lengths))
        for total in (None, Total("sum"), Total("mean", empty=torch.tensor(False, device=DEVICE))):
            value, weighted = gpu.fused_loss("likelihood", u, w, p.lengths, y, total)
            found += [value, *weighted(torch.tensor(2.0, device=DEVICE))]
        return found

    problems = [(w, w, labels), (u, w, labels), (2 * u, w + 1, labels), (spaced, w.mT, labels), (w, u, None)]
    repeated = [results(*x) for x in problems]
    assert len(replay.replays) == 1 + 2 * 3  # with and without labels
    for x, got in zip(problems, repeated, strict=True):
        replay.replays.clear()
        assert all(map(torch.equal, got, results(*x)))


def test_a_total_of_many_losses_is_summed_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "MAX_BLOCK", 4)
    p = make((3, 3), 2, 2)
    fused_total(GPU, Case(Problem(*(x.cpu() for x in p))))


def test_weights_may_have_any_strides() -> None:
    p = make((2, 2), 3, 2)
    state, known = gpu.forward(*p)[1], gpu.messages(*p)
    labels = p.unary.argmax(-1)
    one = torch.ones((), device=DEVICE)
    for weight in (one.expand(2, 2), torch.arange(4.0, device=DEVICE).view(2, 2).mT):
        for function, args in (
            (gpu.marginals, (state, labels)),
            (gpu.cross_entropy_gradient, (labels, known)),
        ):
            got, want = function(weight, *p, *args), function(weight.contiguous(), *p, *args)
            assert all(map(torch.equal, got, want))


@on_device
@pytest.mark.usefixtures("in_time")
@pytest.mark.parametrize("own", [(), (4,), "edge"])
@pytest.mark.parametrize(("length", "m"), [(14, 26), (70, 23), (40, 128)])
@pytest.mark.parametrize("scale", [1.0, 10.0, 1e3])
def test_contract_on_the_device(length: int, m: int, own: Any, scale: float) -> None:
    check(make((4,), length, m, own, scale=scale), scale)


@on_device
@pytest.mark.parametrize("own", [(), "edge"])
@pytest.mark.parametrize(("length", "m", "scale", "forbidden"), [(5, 150, 1.0, 0.0), (4, 150, 10.0, 0.3)])
@pytest.mark.parametrize("large_tiles", [False, True])
def test_contract_with_many_labels_on_the_device(
    length: int, m: int, scale: float, forbidden: float, own: Any, large_tiles: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if large_tiles:
        monkeypatch.setattr(wide, "FEWER_LABELS", m - 1)
    check(make((20,), length, m, own, scale=scale, forbidden=forbidden), scale)


@on_device
def test_contract_with_many_programs_per_matrix() -> None:
    check(make((64,), 30, 26))


@on_device
@pytest.mark.parametrize("direct", [True, False])
def test_later_launches_equal_the_first(direct: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton launches a kernel the first time, `start` afterwards, by address or by Triton's interface."""
    monkeypatch.setattr(start, "compiled", {})
    monkeypatch.setattr(start, "DIRECT_LAUNCH", direct and start.DIRECT_LAUNCH)
    p, weight = make((4,), 7, 5), torch.arange(4.0, device=DEVICE)
    results = []
    for _ in range(3):
        value, weighted = gpu.fused_loss("likelihood", *p, None)
        results.append([value, *weighted(weight), *gpu.decode(*p)])
    for later in results[1:]:
        assert all(map(torch.equal, later, results[0]))


@on_device
def test_a_prepared_launch_keeps_its_tensors_alive() -> None:
    p, weight = make((4,), 7, 5), torch.arange(4.0, device=DEVICE)
    for _ in range(3):  # recorded, repeated, and repeated without Triton's dispatcher
        want = [x.clone() for x in gpu.fused_loss("cross_entropy", *p, p.unary.argmax(-1))[1](weight)]
    _, weighted = gpu.fused_loss("cross_entropy", *p, p.unary.argmax(-1))
    sizes = 4 * 5 * 5, p.unary.numel()  # of the gradients of matrices and positions
    blockers = [torch.full((n,), torch.nan, device=DEVICE) for n in 8 * sizes]  # would reuse freed memory
    assert all(map(torch.equal, weighted(weight), want))
    del blockers
