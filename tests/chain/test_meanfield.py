"""Mean field: its fixed point, its bound, and forbidden transitions."""

import pytest
import torch
from enumeration import chains
from hypothesis import given
from strategies import Chain
from strategies import chains as random_chains

from equipoise import chain


def positions(problem: Chain) -> torch.Tensor:
    length = problem.unary.shape[-2]
    lengths = torch.tensor(length) if problem.lengths is None else problem.lengths
    return (torch.arange(length) < lengths[..., None]).expand(problem.unary.shape[:-1])


@given(problem=random_chains())
def test_q_are_distributions(problem: Chain) -> None:
    log_q = chain.mean_field(*problem.args)
    total = log_q.exp().sum(-1)
    there = positions(problem)
    torch.testing.assert_close(total[there], torch.ones_like(total[there]))
    assert not log_q[~there].any()


@given(problem=random_chains())
def test_the_bound_rises_and_stays_below_log_z(problem: Chain) -> None:
    bounds = torch.stack(
        [chain.mean_field_bound(chain.mean_field(*problem.args, iterations=n), *problem.args) for n in range(6)]
    )
    assert (bounds.diff(dim=0) >= -1e-9).all()
    assert (bounds[-1] <= chain.log_partition(*problem.args) + 1e-9).all()


@given(problem=random_chains())
def test_the_bound_is_expected_score_plus_entropy(problem: Chain) -> None:
    log_q = chain.mean_field(*problem.args, iterations=1)
    got = chain.mean_field_bound(log_q, *problem.args)
    for index, one in chains(*problem.args):
        n = one.labels.shape[1]
        log_joint = log_q[index][torch.arange(n), one.labels].sum(-1)  # labels are independent under q
        want = (log_joint.exp() * (one.scores - log_joint)).sum()
        torch.testing.assert_close(got[index], want)


@pytest.mark.parametrize("schedule", ["sequential", "parallel"])
def test_the_fixed_point_solves_equation_6(schedule: str) -> None:
    generator = torch.Generator().manual_seed(0)
    unary = torch.randn(5, 3, generator=generator, dtype=torch.float64)
    pairwise = 0.3 * torch.randn(3, 3, generator=generator, dtype=torch.float64)
    q = chain.mean_field(unary, pairwise, iterations=200, schedule=schedule).exp()
    for t in range(5):
        right = pairwise @ q[t + 1] if t < 4 else 0
        left = q[t - 1] @ pairwise if t > 0 else 0
        torch.testing.assert_close(q[t], (unary[t] + right + left).softmax(-1))


def test_one_sequential_iteration_is_two_coordinate_steps() -> None:
    """Even positions use the initial q of their neighbours; odd ones use the new q of the even ones."""
    unary = torch.randn(3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    pairwise = torch.tensor([[1.0, -1.0], [0.5, 2.0]], dtype=torch.float64)
    start = unary.softmax(-1)
    first = (unary[0] + pairwise @ start[1]).softmax(-1)
    third = (unary[2] + start[1] @ pairwise).softmax(-1)
    second = (unary[1] + first @ pairwise + pairwise @ third).softmax(-1)
    q = chain.mean_field(unary, pairwise, iterations=1).exp()
    torch.testing.assert_close(q, torch.stack([first, second, third]))


def test_the_parallel_schedule_can_oscillate_where_the_sequential_one_converges() -> None:
    unary, disagree = torch.tensor([[0.0, 0.1], [0.0, 0.1]]), torch.tensor([[0.0, 8.0], [8.0, 0.0]])
    a, b = (chain.mean_field(unary, disagree, iterations=n, schedule="parallel").exp() for n in (100, 101))
    assert (a - b).abs().max() > 0.5
    a, b = (chain.mean_field(unary, disagree, iterations=n).exp() for n in (100, 101))
    torch.testing.assert_close(a, b)


def test_independent_labels_are_exact() -> None:
    unary = torch.randn(2, 6, 4)
    torch.testing.assert_close(chain.mean_field(unary, torch.zeros(4, 4)), unary.log_softmax(-1))


def test_forbidden_transitions_rule_labels_out_without_nan() -> None:
    unary = torch.tensor([[0.0, 0.0, -torch.inf], [0.0, 0.0, 0.0]], requires_grad=True)
    pairwise = torch.zeros(3, 3)
    pairwise[0, 2] = -torch.inf  # label 2 may not follow label 0, which has mass at the first position
    pairwise.requires_grad_()
    log_q = chain.mean_field(unary, pairwise, iterations=1, schedule="parallel")
    assert log_q[1, 2] == -torch.inf
    torch.testing.assert_close(log_q[1, :2].exp(), torch.tensor([0.5, 0.5]))
    for gradient in torch.autograd.grad(log_q[:, :2].sum(), (unary, pairwise)):
        assert bool(gradient.isfinite().all())


def test_q_is_unchanged_if_every_label_is_ruled_out() -> None:
    unary = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    log_q = chain.mean_field(unary, torch.full((2, 2), -torch.inf))
    torch.testing.assert_close(log_q, unary.log_softmax(-1))
