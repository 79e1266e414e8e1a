"""ChainCRF: masks of any pattern, constraints, and behaviour as a module."""

import copy
import itertools
import pickle

import pytest
import torch
from enumeration import Enumeration
from hypothesis import given
from hypothesis import strategies as st
from seeded import seeded
from torch import Tensor

from equipoise import ChainCRF, chain, constraints, objectives, scaling

LABELS = ["O", "B-X", "I-X", "B-Y", "I-Y"]
BIO = constraints.from_labels(LABELS, "BIO")


def example(b: int = 3, length: int = 5, m: int = 4, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = seeded(seed)
    return torch.randn(b, length, m, generator=generator), torch.randint(m, (b, length), generator=generator)


def kept_rows(x: Tensor, mask: Tensor) -> list[Tensor]:
    return [row[on] for row, on in zip(x, mask, strict=True)]


@pytest.mark.parametrize("objective", ["likelihood", "marginal", "margin", "mean_field"])
@pytest.mark.parametrize("boundaries", [False, True])
@given(seed=st.integers(0, 2**31))
def test_a_mask_with_holes_gives_the_chain_of_kept_positions(objective: str, boundaries: bool, seed: int) -> None:
    unary, labels = example(seed=seed)
    mask = torch.rand(labels.shape, generator=seeded(seed)) < 0.6
    mask[:, 2] = True
    crf = ChainCRF(4, boundaries=boundaries, generator=seeded(seed))
    unary.requires_grad_()
    alone = [
        crf.loss(u[None], y[None], objective=objective)
        for u, y in zip(kept_rows(unary, mask), kept_rows(labels, mask), strict=True)
    ]
    got = crf.loss(unary, labels, mask, objective=objective)
    torch.testing.assert_close(got, torch.stack(alone).mean())
    for a, b in zip(
        *(torch.autograd.grad(x, (unary, crf.pairwise)) for x in (got, torch.stack(alone).mean())), strict=True
    ):
        torch.testing.assert_close(a, b)
    assert torch.equal(crf.loss(unary, labels.masked_fill(~mask, -100), objective=objective), got)

    for rule in ("map", "marginal", "mean_field"):
        decoded = crf.decode(unary, mask, rule)
        assert (decoded[~mask] == -100).all()
        for row, u in zip(kept_rows(decoded, mask), kept_rows(unary, mask), strict=True):
            assert torch.equal(row, crf.decode(u[None], rule=rule)[0])
    log_p = crf.log_marginals(unary, mask)
    assert not log_p[~mask].any()
    for row, u in zip(kept_rows(log_p, mask), kept_rows(unary, mask), strict=True):
        torch.testing.assert_close(row, crf.log_marginals(u[None])[0])


def test_loss_is_the_mean_over_sequences_of_each_objective() -> None:
    crf = ChainCRF(4, scaling.Fixed(0.5), generator=seeded())
    unary, labels = example()
    for name in ("likelihood", "marginal", "margin", "mean_field"):
        want = getattr(objectives, name)(0.5 * unary, crf.pairwise, labels).mean()
        torch.testing.assert_close(crf.loss(unary, labels, objective=name), want)
        torch.testing.assert_close(crf(unary, labels, objective=name), want)


def test_start_and_end_scores() -> None:
    crf = ChainCRF(3, boundaries=True, generator=seeded()).double()
    unary, labels = example(1, 3, 3)
    unary = unary.double()
    one = Enumeration(unary[0], crf.pairwise.expand(2, 3, 3))
    assert crf.start is not None
    assert crf.end is not None
    one.scores = one.scores + crf.start[one.labels[:, 0]] + crf.end[one.labels[:, -1]]
    want = one.log_partition() - one.score(labels[0])
    got = crf.loss(unary, labels, objective="likelihood")
    torch.testing.assert_close(got, want)
    for a, b in zip(*(torch.autograd.grad(x, (crf.start, crf.end, crf.pairwise)) for x in (got, want)), strict=True):
        torch.testing.assert_close(a, b)


def legal(row: list[int]) -> bool:
    steps = all(BIO.transitions[a, b] for a, b in itertools.pairwise(row))
    return bool(BIO.start[row[0]] and steps and BIO.end[row[-1]])


@given(seed=st.integers(0, 2**31))
def test_constraints_hold_in_training_and_in_decoding(seed: int) -> None:
    unary, _ = example(4, 4, 5, seed)
    crf = ChainCRF(5, constraints=BIO, generator=seeded(seed)).double()
    lengths = torch.randint(1, 5, (4,), generator=seeded(seed))
    mask = torch.arange(4) < lengths[:, None]
    decoded = crf.decode(unary.double(), mask)
    for u, row, n in zip(unary.double(), decoded, lengths, strict=True):
        one = Enumeration(u[:n], crf.pairwise.expand(n - 1, 5, 5))
        allowed = torch.tensor([legal(y) for y in one.labels.tolist()])
        one.labels, one.scores = one.labels[allowed], one.scores[allowed]
        torch.testing.assert_close(one.score(row[:n]), one.scores.max())
        gold = one.labels[seed % len(one.labels)]
        loss = crf.loss(u[None, :n], gold[None], objective="likelihood")
        torch.testing.assert_close(loss, one.log_partition() - one.score(gold))


@pytest.mark.parametrize(
    "method", [scaling.Fixed, scaling.Offline, scaling.Learned, scaling.Regularized], ids=lambda x: x.__name__
)
def test_nan_in_padding_does_not_reach_loss_or_gradient(method) -> None:
    unary, labels = example()
    mask = torch.arange(5) < torch.tensor([[5], [3], [1]])
    results = []
    for padding in (0.0, torch.nan):
        crf = ChainCRF(4, method(), generator=seeded())
        scores = unary.masked_fill(~mask[..., None], padding).requires_grad_()
        loss = crf.loss(scores, labels, mask)
        results.append((loss, *torch.autograd.grad(loss, (scores, *crf.parameters()))))
    torch.testing.assert_close(*results)


def test_initial_values_are_small_normal_and_seedable() -> None:
    a, b = (ChainCRF(100, boundaries=True, generator=seeded(3)) for _ in range(2))
    for x, y in zip(a.parameters(), b.parameters(), strict=True):
        assert torch.equal(x, y)
    torch.manual_seed(1)
    c = ChainCRF(100)
    torch.manual_seed(1)
    assert torch.equal(c.pairwise, ChainCRF(100).pairwise)
    assert 0.095 < float(c.pairwise.detach().std()) < 0.105
    assert abs(float(c.pairwise.detach().mean())) < 0.005


def test_state_dict() -> None:
    source, target = ChainCRF(5, scaling.Fixed(0.25), BIO, boundaries=True), ChainCRF(5, None, BIO, boundaries=True)
    target.load_state_dict(source.state_dict())
    unary, _ = example(m=5)
    assert torch.equal(source.decode(unary), target.decode(unary))
    assert float(target.scaling.alpha) == 0.25
    assert torch.equal(source.log_marginals(unary), target.log_marginals(unary))


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["deepcopy", "pickle"])
def test_copies_are_independent(clone) -> None:
    crf = ChainCRF(5, constraints=BIO, boundaries=True)
    cloned = clone(crf)
    unary, _ = example(m=5)
    assert torch.equal(crf.log_marginals(unary), cloned.log_marginals(unary))
    with torch.no_grad():
        cloned.pairwise += 1
    assert not torch.equal(crf.pairwise, cloned.pairwise)


def test_data_parallel_replicas() -> None:
    """As in nn.DataParallel: the parameters of a replica are plain tensors computed from those of the original."""
    crf = ChainCRF(4, boundaries=True, generator=seeded())
    replica = crf._replicate_for_data_parallel()
    for name, parameter in crf.named_parameters():
        setattr(replica, name, parameter * 1)
    unary, labels = example()
    loss = replica(unary, labels)
    torch.testing.assert_close(loss, crf(unary, labels))
    loss.backward()
    assert crf.pairwise.grad is not None
    assert crf.pairwise.grad.any()


def test_potentials_are_arguments_for_any_chain_function() -> None:
    crf = ChainCRF(5, constraints=BIO, boundaries=True, generator=seeded())
    unary, _ = example(m=5)
    mask = torch.tensor([[1, 1, 1, 1, 1], [0, 1, 0, 1, 1], [1, 0, 0, 0, 0]])
    energy = crf.potentials(unary, mask)
    assert energy.lengths.tolist() == [5, 3, 1]
    for row in chain.sample(*energy, n=50).flatten(0, 1).tolist():
        assert legal([y for y in row if y >= 0])


def test_balance_is_the_ratio_of_mean_absolute_scores() -> None:
    crf = ChainCRF(2, scaling.Fixed(3.0))
    with torch.no_grad():
        crf.pairwise.copy_(torch.tensor([[1.0, -1.0], [3.0, -3.0]]))
    unary = torch.tensor([[[1.0, -1.0], [100.0, 100.0]], [[2.0, -2.0], [4.0, -4.0]]])
    mask = torch.tensor([[True, False], [True, True]])
    assert float(crf.balance(unary, mask)) == 3 * (1 / 2 + 3 / 2) / 2


def test_an_empty_batch_has_no_loss_and_no_labels() -> None:
    crf = ChainCRF(3)
    loss = crf.loss(torch.zeros(0, 4, 3), torch.zeros(0, 4, dtype=torch.int64))
    loss.backward()
    assert float(loss.detach()) == 0
    assert crf.decode(torch.zeros(0, 4, 3)).shape == (0, 4)


def test_leading_dimensions_are_free() -> None:
    crf = ChainCRF(4, generator=seeded())
    unary, labels = example(6)
    wide = crf.loss(unary.reshape(2, 3, 5, 4), labels.reshape(2, 3, 5))
    torch.testing.assert_close(wide, crf.loss(unary, labels))
    assert torch.equal(crf.decode(unary.reshape(2, 3, 5, 4)).reshape(6, 5), crf.decode(unary))
    assert torch.equal(crf.decode(unary[0]), crf.decode(unary)[0])


def test_half_precision_unary_from_autocast() -> None:
    crf = ChainCRF(4, boundaries=True, generator=seeded())
    net = torch.nn.Linear(3, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        unary = net(torch.randn(2, 5, 3))
        assert unary.dtype == torch.bfloat16
        loss = crf.loss(unary, torch.zeros(2, 5, dtype=torch.int64))
    assert loss.dtype == torch.float32
    loss.backward()
    assert crf.pairwise.grad is not None
    assert crf.decode(unary).shape == (2, 5)


def test_training_learns_transitions() -> None:
    """Labels alternate, and only the first position has an informative input: unary scores alone get half right."""
    torch.manual_seed(0)
    start = torch.randint(2, (64, 1))
    labels = (start + torch.arange(6)) % 2
    features = torch.zeros(64, 6, 2)
    features[:, 0] = torch.nn.functional.one_hot(start[:, 0], 2).float()
    net, crf = torch.nn.Linear(2, 2), ChainCRF(2)
    optimizer = torch.optim.Adam([*net.parameters(), *crf.parameters()], lr=0.1)
    for _ in range(60):
        optimizer.zero_grad()
        crf.loss(net(features), labels).backward()
        optimizer.step()
    assert torch.equal(crf.decode(net(features)), labels)
