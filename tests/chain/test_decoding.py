"""The best labellings and samples, against the enumeration of all labellings."""

from unittest import mock

import torch
from enumeration import chains
from hypothesis import given
from hypothesis import strategies as st
from strategies import Chain
from strategies import chains as random_chains

from equipoise import chain
from equipoise.chain import decoding


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


@given(problem=random_chains(forbid=True), k=st.integers(1, 12))
def test_top_k_are_the_k_highest_and_distinct(problem: Chain, k: int) -> None:
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
    want = chain.top_k(*problem.args, k=k)
    with mock.patch.object(decoding, "MAX_WAYS", ways):
        got = chain.top_k(*problem.args, k=k)
    for x, y in zip(got, want, strict=True):
        assert torch.equal(x, y)


@given(problem=random_chains())
def test_the_gradient_of_the_best_score_is_one_hot_at_the_best_labelling(problem: Chain) -> None:
    problem.unary.requires_grad_()
    labels, scores = chain.decode(*problem.args)
    (gradient,) = torch.autograd.grad(scores.sum(), problem.unary)
    want = torch.nn.functional.one_hot(labels.clamp(min=0), gradient.shape[-1]) * (labels >= 0)[..., None]
    assert torch.equal(gradient, want.to(gradient.dtype))


@given(problem=random_chains(forbid=True, max_length=3, max_labels=2))
def test_samples_follow_the_distribution(problem: Chain) -> None:
    n = 4000
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


def test_samples_are_reproducible_from_a_seed() -> None:
    unary, pairwise = torch.randn(3, 5, 4), torch.randn(4, 4)
    draws = [chain.sample(unary, pairwise, n=6, generator=torch.Generator().manual_seed(s)) for s in (1, 1, 2)]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def test_long_chains_decode_without_losing_small_differences() -> None:
    """Scores of one path add up to 1e6, where float32 has steps of 0.06; the choice depends on 0.01."""
    unary = torch.full((1000, 2), 1000.0)
    unary[:, 1] += torch.where(torch.arange(1000) % 2 == 0, 0.01, -0.01)
    labels, _ = chain.decode(unary, torch.zeros(2, 2))
    assert torch.equal(labels, (torch.arange(1000) % 2 == 0).long())
