"""The best labellings and samples, in C and in torch, against the enumeration of all labellings."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import pytest
import torch
from enumeration import chains
from hypothesis import given
from hypothesis import strategies as st
from strategies import Chain
from strategies import chains as random_chains

from equipoise import chain
from equipoise.chain import backends, decoding, samples
from equipoise.chain.cpu.library import library


@contextmanager
def computed_in(language: str) -> Iterator[None]:
    if language == "C" and library(torch.float64) is None:
        pytest.skip("needs a C compiler (cc, gcc, clang, or set CC)")
    with mock.patch.object(backends, "library", library if language == "C" else mock.Mock(return_value=None)):
        if language != "maps":
            yield
            return
        with mock.patch.object(decoding, "sample", samples.sample):
            yield


in_both = pytest.mark.parametrize("language", ["C", "torch"])
in_all = pytest.mark.parametrize("language", ["C", "torch", "maps"])
"""Samples are also drawn from maps, as on a GPU."""


@given(problem=random_chains(forbid=True))
def test_decode_finds_the_highest_score(problem: Chain) -> None:
    labels, scores = chain.decode(*problem.args)
    for index, one in chains(*problem.args):
        n, best = one.labels.shape[1], one.scores.max()
        torch.testing.assert_close(scores[index], best)
        if best == -torch.inf:
            assert (labels[index] == -100).all()
        else:
            torch.testing.assert_close(one.score(labels[index][:n]), best)
            assert (labels[index][n:] == -100).all()


@in_both
@given(problem=random_chains(forbid=True), k=st.integers(1, 12))
def test_top_k_are_the_k_highest_and_distinct(language: str, problem: Chain, k: int) -> None:
    with computed_in(language):
        labels, scores = chain.top_k(*problem.args, k=k)
    assert labels.shape == (*problem.unary.shape[:-2], k, problem.unary.shape[-2])
    for index, one in chains(*problem.args):
        n = one.labels.shape[1]
        allowed = one.scores[one.scores > -torch.inf].sort(descending=True).values[:k]
        found = len(allowed)
        torch.testing.assert_close(scores[index][:found], allowed)
        assert (scores[index][found:] == -torch.inf).all()
        assert (labels[index][found:] == -100).all()
        assert (labels[index][:, n:] == -100).all()
        rows = [tuple(row) for row in labels[index][:found, :n].tolist()]
        assert len(set(rows)) == found
        for row, score in zip(rows, allowed, strict=True):
            torch.testing.assert_close(one.score(torch.tensor(row)), score)


@given(problem=random_chains(forbid=True, max_labels=4), k=st.integers(1, 12), ways=st.integers(1, 100))
def test_top_k_for_a_few_labels_at_a_time(problem: Chain, k: int, ways: int) -> None:
    with computed_in("torch"):
        want = chain.top_k(*problem.args, k=k)
        with mock.patch.object(decoding, "MAX_WAYS", ways):
            got = chain.top_k(*problem.args, k=k)
    for x, y in zip(got, want, strict=True):
        assert torch.equal(x, y)


@pytest.mark.parametrize("k", [1, 3, 50])
@pytest.mark.parametrize("labels", [3, 26, 40, 130])
@pytest.mark.parametrize("kind", ["shared", "sequence", "edge"])
def test_top_k_of_larger_chains(kind: str, labels: int, k: int) -> None:
    """In C and in torch: the same scores, and distinct labellings that have them. Whole numbers have ties."""
    generator = torch.Generator().manual_seed(labels)
    shape = {"shared": (), "sequence": (5,), "edge": (5, 11)}[kind]
    unary = torch.randint(-4, 4, (5, 12, labels), generator=generator).double()
    pairwise = torch.randint(-4, 4, (*shape, labels, labels), generator=generator).double()
    pairwise = pairwise.masked_fill(torch.rand(pairwise.shape, generator=generator) < 0.2, -torch.inf)
    lengths = torch.tensor([12, 1, 7, 2, 12])
    with computed_in("C"):
        found, scores = chain.top_k(unary, pairwise, lengths, k=k)
    with computed_in("torch"):
        want = chain.top_k(unary, pairwise, lengths, k=k)[1]
    assert torch.equal(scores, want)
    for b, n in enumerate(lengths.tolist()):
        rows = found[b][scores[b] > -torch.inf]
        assert (found[b][len(rows) :] == -100).all()
        assert (rows[:, n:] == -100).all()
        assert len(rows[:, :n].unique(dim=0)) == len(rows)
        own = pairwise if kind == "shared" else pairwise[b]
        each = own.expand(len(rows), *own.shape) if kind != "shared" else own
        got = chain.score(unary[b].expand(len(rows), -1, -1), each, rows.clamp(min=0), lengths[b].expand(len(rows)))
        assert torch.equal(got, scores[b][: len(rows)])


def test_more_labellings_than_can_be_numbered() -> None:
    """Their ways have numbers of 32 bits. The result alone takes 9 GB, which are never written."""
    with computed_in("C"), pytest.raises((MemoryError, RuntimeError), match="memory"):
        chain.top_k(torch.zeros(1, 2, 2), torch.zeros(2, 2), k=2**29)


@given(problem=random_chains())
def test_the_gradient_of_the_best_score_is_one_hot_at_the_best_labelling(problem: Chain) -> None:
    problem.unary.requires_grad_()
    labels, scores = chain.decode(*problem.args)
    (gradient,) = torch.autograd.grad(scores.sum(), problem.unary)
    want = torch.nn.functional.one_hot(labels.clamp(min=0), gradient.shape[-1]) * (labels >= 0)[..., None]
    assert torch.equal(gradient, want.to(gradient.dtype))


@in_all
@given(problem=random_chains(forbid=True, max_length=3, max_labels=2))
def test_samples_follow_the_distribution(language: str, problem: Chain) -> None:
    n = 4000
    with computed_in(language):
        draws = chain.sample(*problem.args, n=n, generator=torch.Generator().manual_seed(problem.seed))
    for index, one in chains(*problem.args):
        length = one.labels.shape[1]
        if one.log_partition() == -torch.inf:
            assert (draws[index] == -100).all()
            continue
        assert (draws[index][:, length:] == -100).all()
        same = (draws[index][:, None, :length] == one.labels).all(-1)
        assert same.any(-1).all()
        probability = one.log_probabilities().exp()
        share = same.double().mean(0)
        assert (share[probability == 0] == 0).all()
        deviation = (probability * (1 - probability) / n).sqrt()
        assert ((share - probability).abs() <= 5 * deviation + 3 / n).all()  # counts are integers


@in_all
def test_samples_are_reproducible_from_a_seed(language: str) -> None:
    unary, pairwise = torch.randn(3, 5, 4), torch.randn(4, 4)
    with computed_in(language):
        draws = [chain.sample(unary, pairwise, n=6, generator=torch.Generator().manual_seed(s)) for s in (1, 1, 2)]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def test_long_chains_decode_without_losing_small_differences() -> None:
    """Scores of one path add up to 1e6, where float32 has steps of 0.06; the choice depends on 0.01."""
    unary = torch.full((1000, 2), 1000.0)
    unary[:, 1] += torch.where(torch.arange(1000) % 2 == 0, 0.01, -0.01)
    labels, _ = chain.decode(unary, torch.zeros(2, 2))
    assert torch.equal(labels, (torch.arange(1000) % 2 == 0).long())


@in_all
@pytest.mark.parametrize("per_edge", [False, True])
@pytest.mark.parametrize("gap", [0.0, 100.0])
@pytest.mark.parametrize("labels", [3, 40])
def test_samples_have_the_marginals_of_edges(labels: int, gap: float, per_edge: bool, language: str) -> None:
    """Two labels have most of the mass. With the gap, sequences are computed in the log domain."""
    generator, n = torch.Generator().manual_seed(0), 20_000
    unary = torch.randn(2, 5, labels, generator=generator)
    unary[..., 1:-1] -= gap + 2 + torch.arange(labels - 2.0)
    pairwise = torch.randn(*((2, 4) if per_edge else ()), labels, labels, generator=generator)
    lengths, end = torch.tensor([5, 4]), labels - 1
    with computed_in(language):
        draws = chain.sample(unary, pairwise, lengths, n=n, generator=generator)
    p = chain.edge_marginals(unary.double(), pairwise.double(), lengths)
    for b, t in ((0, 0), (0, 3), (1, 0), (1, 2)):
        for i, j in ((0, 0), (0, end), (end, 0), (end, end), (1, 0)):
            share = ((draws[b, :, t] == i) & (draws[b, :, t + 1] == j)).double().mean()
            deviation = (p[b, t, i, j] * (1 - p[b, t, i, j]) / n).sqrt()
            assert (share - p[b, t, i, j]).abs() <= 5 * deviation + 3 / n


@in_all
@pytest.mark.parametrize("per_edge", [False, True])
@pytest.mark.parametrize("gap", [0.0, 100.0])
def test_a_constant_in_all_scores_changes_no_sample(gap: float, per_edge: bool, language: str) -> None:
    """Even if the exponentials of all scores underflow. Multiples of 1/64 are added without rounding."""
    generator = torch.Generator().manual_seed(0)
    unary = torch.randint(-99, 99, (5, 9, 4), generator=generator) / 64
    unary[..., 1] -= gap  # then sequences are computed in the log domain
    pairwise = torch.randint(-99, 99, ((5, 8, 4, 4) if per_edge else (4, 4)), generator=generator) / 64
    with computed_in(language):
        draws = [
            chain.sample(unary + c, pairwise + c, n=50, generator=torch.Generator().manual_seed(1)) for c in (0, -512)
        ]
    assert torch.equal(*draws)


@pytest.mark.parametrize(("uniform", "ends"), [(0.0, {2, 3}), (1 - 2**-53, {9, 10})])
@pytest.mark.parametrize("gap", [0.0, 100.0])  # in the exp domain and in the log domain
@pytest.mark.parametrize("language", ["C", "maps"])
def test_no_number_draws_a_forbidden_label(language: str, gap: float, uniform: float, ends: set[int]) -> None:
    """The first and the last labels are forbidden, so that neither end of [0, 1) may lead to them."""
    generator = torch.Generator().manual_seed(0)
    unary, pairwise = torch.randn(6, 9, 13, generator=generator), torch.randn(13, 13, generator=generator)
    unary[..., [0, 1, 11, 12]] = -torch.inf
    unary[..., 6] += gap
    pairwise[torch.eye(13, dtype=torch.bool)] = -torch.inf
    numbers = torch.full((6, 1, 9), uniform, dtype=torch.float64)
    with computed_in(language), mock.patch.object(torch, "rand", return_value=numbers):
        draws = chain.sample(unary, pairwise, n=1)[:, 0]
    assert (chain.score(unary, pairwise, draws) > -torch.inf).all()
    if gap == 0:  # every allowed label has mass, so it is the first or the last one that may stand before the next
        assert set(draws.unique().tolist()) == ends


@pytest.mark.parametrize("per_edge", [False, True])
@pytest.mark.parametrize("length", [1, 2, 3, 8, 37, 64])
def test_maps_give_the_labels_that_one_step_after_the_other_gives(length: int, per_edge: bool) -> None:
    """Also if samples and positions are divided into blocks."""
    generator = torch.Generator().manual_seed(length)
    unary = torch.randn(3, length, 5, generator=generator, dtype=torch.double)
    pairwise = torch.randn(*((3, length - 1) if per_edge else (1,)), 5, 5, generator=generator, dtype=torch.double)
    numbers = torch.rand(3, 4, length, generator=generator, dtype=torch.float64)
    first = torch.randn(3, 5, generator=generator, dtype=torch.double)
    with mock.patch.object(torch, "rand", return_value=numbers), mock.patch.multiple(samples, BLOCK=200, MAPS=100):
        lengths = torch.full((3,), length)
        edges = pairwise if per_edge else pairwise[None]
        log_p = torch.cat([first[:, None], first.new_zeros(3, length - 1, 5)], 1)
        got = samples.sample(unary, edges, lengths, log_p, torch.zeros_like(unary), 4)
    for b in range(3):
        for n in range(4):
            p, path = first[b].softmax(-1), []
            for t in range(length):
                path.append(int((p.cumsum(-1) <= numbers[b, n, t]).sum()))
                if t + 1 < length:
                    row = (pairwise[b, t] if per_edge else pairwise[0])[path[-1]]
                    p = (row + unary[b, t + 1]).softmax(-1)
            assert got[b, n].tolist() == path
