"""Pairwise scores from label counts: brute-force counts, the exact case, and every kind of layer."""

import copy
import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from equipoise import UNKNOWN, ChainCRF, constraints, scaling
from equipoise.crf.counts import Counts, association, count, count_all

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def by_hand(sequences: list[list[int]], m: int, smoothing: float) -> tuple[dict[tuple[int, int], float], list[float]]:
    """W and start, in plain Python."""
    flat = [label for sequence in sequences for label in sequence]
    pairs = [pair for sequence in sequences for pair in itertools.pairwise(sequence)]
    firsts = [sequence[0] for sequence in sequences if sequence]
    p = [(flat.count(i) + 0.5) / (len(flat) + 0.5 * m) for i in range(m)]
    w = {}
    for i, j in itertools.product(range(m), repeat=2):
        joint = (pairs.count((i, j)) + smoothing * p[i] * p[j]) / (len(pairs) + smoothing)
        w[i, j] = math.log(joint) - math.log(p[i]) - math.log(p[j])
    start = [
        math.log((firsts.count(i) + smoothing * p[i]) / (len(firsts) + smoothing)) - math.log(p[i]) for i in range(m)
    ]
    return w, start


@given(
    st.lists(st.lists(st.sampled_from([-100, 0, 1, 2, 3]), min_size=5, max_size=5), max_size=6),
    st.integers(0, 2**30 - 1),
    st.sampled_from([0.1, 1.0, 10.0]),
    st.booleans(),
)
def test_scores_are_those_of_brute_force(rows: list[list[int]], bits: int, smoothing: float, masked: bool) -> None:
    """Also of labels that never occur, of empty sequences, and of no data at all."""
    labels = torch.tensor(rows, dtype=torch.long).reshape(-1, 5)
    mask = torch.tensor([bits >> i & 1 for i in range(labels.numel())]).view(labels.shape) if masked else None
    on = labels != -100 if mask is None else (labels != -100) & (mask > 0)
    before = labels.clone()
    found = association(count(labels, mask, num_labels=5), smoothing)
    kept = [row[keep].tolist() for row, keep in zip(labels, on, strict=True)]
    w, start = by_hand(kept, 5, smoothing)
    _, end = by_hand([sequence[::-1] for sequence in kept], 5, smoothing)
    wanted = torch.tensor([w[i, j] for i in range(5) for j in range(5)], dtype=torch.float64).view(5, 5)
    torch.testing.assert_close(found.pairwise, wanted)
    torch.testing.assert_close(found.start, torch.tensor(start, dtype=torch.float64))
    torch.testing.assert_close(found.end, torch.tensor(end, dtype=torch.float64))
    assert all(bool(x.isfinite().all()) for x in found)
    assert torch.equal(labels, before)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_any_integer_type_and_any_division_into_batches(dtype: torch.dtype) -> None:
    labels = torch.randint(4, (2, 3, 6), generator=torch.Generator().manual_seed(0))
    lengths = torch.tensor([[6, 0, 3], [1, 2, 6]])
    mask = torch.arange(6) < lengths[..., None]
    whole = count(labels.masked_fill(~mask, -100), num_labels=4)
    parts = count_all([(labels[0].to(dtype), mask[0]), [labels[1].to(dtype), mask[1].int()]], 4)
    for one, other in zip(whole, parts, strict=True):
        assert torch.equal(one, other)


def test_invalid_labels_are_errors() -> None:
    with pytest.raises(ValueError, match=r"labels must be from 0 to 2, -1 or -100, got 3"):
        count(torch.tensor([[0, 3]]), num_labels=3)
    with pytest.raises(ValueError, match=r"labels must be from 0 to 2, -1 or -100, got -2"):
        count(torch.tensor([[0, -2]]), num_labels=3)
    with pytest.raises(ValueError, match=r"labels must be integers of shape .* torch.float32"):
        count(torch.zeros(2, 3), num_labels=3)
    with pytest.raises(ValueError, match=r"mask has shape \(3,\), but labels \(2, 3\)"):
        count(torch.zeros(2, 3, dtype=torch.long), torch.ones(3), num_labels=3)
    with pytest.raises(ValueError, match="labels or \\(labels, mask\\), got 3 elements"):
        count_all([(torch.zeros(2, 3, dtype=torch.long),) * 3], 3)
    with pytest.raises(ValueError, match="smoothing must be positive, got 0"):
        association(count(torch.tensor([[0, 1]]), num_labels=2), 0)


def chain(seed: int, m: int, stationary: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """First labels, transitions, ends of a random Markov chain, and the expected number of each label."""
    generator = torch.Generator().manual_seed(seed)
    every = torch.rand(m, m + 1, generator=generator, dtype=torch.float64) + 0.1
    every[:, -1] = 0.4 if stationary else every[:, -1]
    every = every / every.sum(1, keepdim=True)
    if stationary:
        every[:, :-1] *= 0.8 / every[:, :-1].sum(1, keepdim=True)
        every[:, -1] = 0.2
    transitions, end = every[:, :-1], every[:, -1]
    first = torch.rand(m, generator=generator, dtype=torch.float64)
    first = first / first.sum()
    if stationary:
        for _ in range(500):
            first = first @ (transitions / 0.8)
    number, now = torch.zeros(m, dtype=torch.float64), first
    for _ in range(2000):
        number, now = number + now, now @ transitions
    return first, transitions, end, number


@given(st.integers(0, 1000), st.integers(2, 4), st.booleans())
def test_with_exact_net_scores_the_score_is_the_log_probability(seed: int, m: int, boundaries: bool) -> None:
    """Up to a constant. Without boundary scores the chain must be stationary."""
    first, transitions, end, number = chain(seed, m, stationary=not boundaries)
    many = 1e15  # smoothing does not count
    counts = Counts(many * number, many * number[:, None] * transitions, many * first, many * number * end)
    found = association(counts, smoothing=1e-3)
    crf = ChainCRF(m, boundaries=boundaries).double()
    with torch.no_grad():
        crf.pairwise.copy_(found.pairwise)
        if crf.start is not None and crf.end is not None:
            crf.start.copy_(found.start)
            crf.end.copy_(found.end)
    emission = torch.rand(m, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 0.05
    emission = emission / emission.sum(1, keepdim=True)  # p(x | y)
    posterior = number[:, None] * emission
    posterior = posterior / posterior.sum(0)  # p(y | x)
    x = torch.randint(5, (4,), generator=torch.Generator().manual_seed(seed))
    labellings = torch.tensor(list(itertools.product(range(m), repeat=4)))
    scores = crf.score(posterior[:, x].T.log().expand(len(labellings), -1, -1), labellings)
    log_p = first[labellings[:, 0]].log() + end[labellings[:, -1]].log() + emission[labellings, x].log().sum(1)
    log_p = log_p + transitions[labellings[:, :-1], labellings[:, 1:]].log().sum(1)
    difference = scores - log_p
    torch.testing.assert_close(difference, difference.mean().expand_as(difference), rtol=0, atol=1e-8)


LABELS = torch.tensor([[0, 0, 1, 2, 0, 1], [1, 2, 2, 0, -100, -100], [0, 0, 0, 0, 0, -100]])
UP_TO_SCALE = (scaling.Offline(alpha=2.0), scaling.Temperature(3.0, normalize=True))
METHODS = (
    *(scaling.Fixed(0.25), scaling.Online(), scaling.Regularized(2.0), scaling.Temperature(3.0)),
    *(scaling.Learned(), scaling.Learned(start=0.3), *UP_TO_SCALE),
)


@pytest.mark.parametrize("boundaries", [False, True])
@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize("method", METHODS, ids=lambda method: f"{type(method).__name__}-{float(method.alpha):g}")
def test_the_scaled_part_is_that_of_the_counts(method: scaling.Scaling, constrained: bool, boundaries: bool) -> None:
    """Of every method; up to scale where it fixes the size. Forbidden scores stay as they were."""
    rules = constraints.from_labels(["O", "B-X", "I-X"], "BIO") if constrained else None
    crf = ChainCRF(3, copy.deepcopy(method), rules, boundaries=boundaries)
    before = {name: x.detach().clone() for name, x in crf.named_parameters()}
    crf.eval().start_from_labels([LABELS[:1], (LABELS[1:], LABELS[1:] != -100)])
    unary = torch.randn(1, 4, 3, generator=torch.Generator().manual_seed(0))
    wanted, found = association(count(LABELS, num_labels=3)), crf.potentials(unary)
    allowed = found.pairwise.isfinite()
    assert bool(allowed.all()) != constrained
    ratio = (found.pairwise[allowed] / wanted.pairwise[allowed].float()).detach()
    if type(method) not in map(type, UP_TO_SCALE) or (isinstance(method, scaling.Temperature) and not method.normalize):
        assert ratio.tolist() == pytest.approx([1.0] * len(ratio), rel=1e-5)
    assert ratio.tolist() == pytest.approx([float(ratio[0])] * len(ratio), rel=1e-5)
    assert torch.equal(crf.pairwise[~allowed], before["pairwise"][~allowed])
    assert bool(crf.pairwise.isfinite().all())
    if boundaries:
        without = scaled_unary(crf, unary)
        start = (found.unary - without)[0, 0] / ratio[0]
        inside = start.isfinite()
        assert start[inside].tolist() == pytest.approx(wanted.start[inside].tolist(), rel=1e-4, abs=1e-5)
        end = (found.unary - without)[0, -1] / ratio[0]
        assert end.tolist() == pytest.approx(wanted.end.tolist(), rel=1e-4, abs=1e-5)
    crf.train().loss(unary, torch.tensor([[0, 1, 2, 0]])).backward()
    assert bool(crf.pairwise.grad.isfinite().all())  # type: ignore[union-attr]


def scaled_unary(crf: ChainCRF, unary: Tensor) -> Tensor:
    """The unary scores after scaling, without boundary scores."""
    bare = copy.deepcopy(crf).eval()
    with torch.no_grad():
        row = bare._row()
        norms = bare.energy.norms(unary, bare._counted(row))
        a, _ = bare.scaling.factors(bare.scaling.state(), norms)
    return scaling.multiply(a, unary)


def test_the_start_is_in_checkpoints_and_one_factor_per_replica_is_refused() -> None:
    crf, other = (ChainCRF(3, scaling.Learned()) for _ in range(2))
    crf.start_from_labels([LABELS])
    other.load_state_dict(crf.state_dict())
    unary = torch.randn(2, 5, 3)
    assert torch.equal(crf.eval().decode(unary), other.eval().decode(unary))
    with pytest.raises(ValueError, match="one scaling for all examples, not one per replica"):
        ChainCRF(3, scaling.Temperature(torch.tensor([1.0, 2.0]))).start_from_labels([LABELS])
    size = float(association(count(LABELS, num_labels=3)).pairwise.abs().mean())
    assert float(crf.pairwise.detach().abs().mean()) == pytest.approx(0.01)
    many = ChainCRF(3, scaling.Learned(start=torch.tensor([1.0, 0.3])))
    many.start_from_labels([LABELS])
    assert many.scaling.state().log_scales[:, 1].exp().tolist() == pytest.approx([size] * 2)


def test_no_labels_give_no_scores() -> None:
    crf = ChainCRF(3, scaling.Learned(), boundaries=True)
    crf.start_from_labels([])
    assert not bool(crf.pairwise.any())
    loss = crf.loss(torch.randn(2, 4, 3, requires_grad=True), torch.zeros(2, 4, dtype=torch.long))
    loss.backward()
    assert bool(loss.isfinite())
    assert bool(crf.pairwise.grad.isfinite().all())  # type: ignore[union-attr]


def test_unknown_labels_are_not_counted_and_keep_their_place() -> None:
    """0 ? 1 has no pair; with -100 in the middle 0 and 1 are neighbours. An unknown end is no last label."""
    counts = count(torch.tensor([[0, UNKNOWN, 1, 1, UNKNOWN], [0, -100, 1, -100, -100]]), num_labels=2)
    assert counts.labels.tolist() == [2, 3]
    assert counts.pairs.tolist() == [[0, 1], [0, 1]]
    assert (counts.first.tolist(), counts.last.tolist()) == ([2, 0], [0, 1])
