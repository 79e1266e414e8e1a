"""top_k, sample, entropy and score of ChainCRF: those of `chain` on the kept positions, put back in place."""

import pytest
import torch
from seeded import seeded
from torch import Tensor

from equipoise import ChainCRF, chain, constraints, scaling

BIO = constraints.from_labels(["O", "B-X", "I-X", "B-Y", "I-Y"], "BIO")
MASK = torch.tensor([[1, 1, 1, 1, 1], [0, 1, 0, 1, 1], [0, 0, 0, 0, 0], [1, 0, 0, 0, 0]], dtype=torch.bool)


@pytest.fixture
def crf() -> ChainCRF:
    return ChainCRF(5, scaling.Offline(2.0), BIO, boundaries=True, generator=seeded()).double()


def example() -> Tensor:
    return torch.randn(4, 5, 5, dtype=torch.float64, generator=seeded(1))


def alone(unary: Tensor, b: int) -> Tensor:
    """The kept positions of one sequence, as a batch of one."""
    return unary[b, MASK[b]][None]


def test_top_k(crf: ChainCRF) -> None:
    unary = example()
    labels, scores = crf.top_k(unary, MASK, k=3)
    assert labels.shape == (4, 3, 5)
    assert bool((labels.masked_select(~MASK[:, None]) == -100).all())
    for b in (0, 1, 3):
        best, values = chain.top_k(*crf.potentials(alone(unary, b)), k=3)
        assert torch.equal(labels[b][:, MASK[b]], best[0])
        torch.testing.assert_close(scores[b], values[0])
    assert scores[2].tolist() == [0, 0, 0]
    assert torch.equal(labels[:2, 0], crf.decode(unary, MASK)[:2])


def test_samples(crf: ChainCRF) -> None:
    unary = example()
    draws = crf.sample(unary, MASK, n=2000, generator=seeded(2))
    assert draws.shape == (4, 2000, 5)
    assert bool((draws.masked_select(~MASK[:, None]) == -100).all())
    p = crf.log_marginals(unary, MASK).exp()
    for j in range(5):
        shares = (draws == j).double().mean(1)
        torch.testing.assert_close(shares[MASK], p[..., j][MASK], rtol=0, atol=0.05)
    assert torch.equal(draws, crf.sample(unary, MASK, n=2000, generator=seeded(2)))


def test_entropy(crf: ChainCRF) -> None:
    unary = example()
    found = crf.entropy(unary, MASK)
    want = [chain.entropy(*crf.potentials(alone(unary, b)))[0] if b != 2 else found.new_zeros(()) for b in range(4)]
    torch.testing.assert_close(found, torch.stack(want))


def test_score(crf: ChainCRF) -> None:
    unary = example()
    labels = crf.decode(unary, MASK)
    found = crf.score(unary, labels, MASK)
    torch.testing.assert_close(found, crf.top_k(unary, MASK, k=1)[1][:, 0])
    torch.testing.assert_close(crf.score(unary, labels), found)  # -100 removes the same positions
    for b in (0, 1, 3):
        want = chain.score(*crf.potentials(alone(unary, b))[:2], labels[b, MASK[b]][None])
        torch.testing.assert_close(found[b], want[0])
    likelihood = crf.loss(unary, labels, MASK, reduction="none")[:2]
    log_z = chain.log_partition(*crf.potentials(unary, MASK))[:2]
    torch.testing.assert_close(likelihood, log_z - found[:2])


def test_the_score_of_forbidden_labels_is_minus_infinity(crf: ChainCRF) -> None:
    assert crf.score(example()[:1], torch.tensor([[0, 2, 0, 0, 0]])).tolist() == [-torch.inf]


def test_without_a_mask(crf: ChainCRF) -> None:
    unary = example()
    potentials = crf.potentials(unary)
    for got, want in zip(crf.top_k(unary, k=2), chain.top_k(*potentials, k=2), strict=True):
        assert torch.equal(got, want)
    assert torch.equal(crf.entropy(unary), chain.entropy(*potentials))
    draws = crf.sample(unary, n=3, generator=seeded(3))
    assert torch.equal(draws, chain.sample(*potentials, n=3, generator=seeded(3)))
    labels = crf.decode(unary)
    assert torch.equal(crf.score(unary, labels), chain.score(potentials.unary, potentials.pairwise, labels))
