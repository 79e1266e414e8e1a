"""`scaling.Learned` by itself: what it measures, its gradients and its modes, against plain loops and differences."""

import math
from collections.abc import Callable

import pytest
import torch
from seeded import normal, seeded
from torch import Tensor

from equipoise import objectives
from equipoise.scaling.learned import HORIZON, PAIRWISE_START, Learned, State, measured
from equipoise.scaling.pace import SMOOTHING, STEP


def fresh(*replicas: int) -> State:
    method = Learned(torch.ones(replicas, dtype=torch.float64)).double()
    return method.state()


def after(state: State, batches: list[Tensor], weights: list[Tensor] | None = None) -> State:
    for i, u in enumerate(batches):
        state = measured(state, lambda u=u: (u, torch.ones(())), None if weights is None else weights[i])
    return state


def by_hand(batches: list[list[float]]) -> tuple[float, float]:
    """The running average of the sizes of examples, and how many it covers."""
    size, examples = 1.0, 0
    for batch in batches:
        mean = sum(batch) / len(batch) if batch else 0.0
        if not (math.isfinite(mean) and mean > 0):
            continue
        examples = min(examples + len(batch), HORIZON)
        share = min(1.0, len(batch) / examples)
        size = (1 - share) * size + share * mean
    return size, examples


def drawn(seed: int, count: int = 60) -> list[list[float]]:
    """Batches of different sizes, some of which do not count: without examples, all 0, NaN or infinite."""
    generator = seeded(seed)
    sizes = torch.randint(0, 90, (count,), generator=generator).tolist()
    batches = [(1 + i) * torch.rand(n, generator=generator, dtype=torch.float64) for i, n in enumerate(sizes)]
    found = [batch.tolist() for batch in batches]
    found[3:6] = [[0.0] * 7, [math.nan, 1.0], [1.0, math.inf]]
    return found


@pytest.mark.parametrize("seed", range(4))
def test_the_running_average(seed: int) -> None:
    batches = drawn(seed)
    found = after(fresh(), [torch.tensor(batch, dtype=torch.float64) for batch in batches])
    size, examples = by_hand(batches)
    assert float(found.size) == pytest.approx(size, rel=1e-12)
    assert float(found.examples) == examples == HORIZON


def test_before_the_horizon_it_is_the_mean_of_all_examples() -> None:
    batches = [normal(n, seed=n).abs() for n in (1, 40, 7, 300)]
    found = after(fresh(), batches)
    torch.testing.assert_close(found.size, torch.cat(batches).mean())
    assert float(found.examples) == 348


def test_after_the_horizon_old_examples_fade() -> None:
    full = after(fresh(), [torch.ones(HORIZON, dtype=torch.float64)])
    later = after(full, [torch.full((100,), 2.0, dtype=torch.float64)] * 20)
    assert float(later.size) == pytest.approx(2 - 0.9**20)
    one = after(later, [torch.full((3 * HORIZON,), 5.0, dtype=torch.float64)])  # a batch beyond the horizon replaces it
    assert float(one.size) == 5


def test_examples_of_weight_0_do_not_count() -> None:
    u = normal(3, 4).abs()
    weights = torch.tensor([[1, 0, 1, 1], [0, 0, 0, 0], [1, 1, 1, 0]])
    u[0, 1] = torch.nan
    found = after(fresh(), [*u], [*weights.double()])
    size, examples = by_hand([row[on].tolist() for row, on in zip(u, weights.bool(), strict=True)])
    assert float(found.size) == pytest.approx(size)
    assert float(found.examples) == examples == 6


@pytest.mark.parametrize("batch", [[], [0.0, 0.0], [math.nan, 1.0], [math.inf]], ids=str)
def test_a_batch_that_cannot_be_measured_leaves_the_average(batch: list[float]) -> None:
    before = after(fresh(), [torch.full((5,), 3.0, dtype=torch.float64)])
    found = after(before, [torch.tensor(batch, dtype=torch.float64)])
    assert torch.equal(found.size, before.size)
    assert torch.equal(found.examples, before.examples)


def test_each_replica_has_its_own_average() -> None:
    batches = [normal(3, n, seed=n).abs() * torch.tensor([[1.0], [10.0], [0.0]]) for n in (4, 9, 2)]
    weights = [(torch.rand(x.shape, generator=seeded(n)) < 0.7).double() for n, x in enumerate(batches)]
    together = after(fresh(3), batches, weights)
    for e in range(3):
        alone = after(fresh(), [x[e] for x in batches], [x[e] for x in weights])
        torch.testing.assert_close(together.size[e], alone.size)
        assert together.examples[e] == alone.examples
    assert float(together.size[2]) == 1  # its scores were always 0


Problem = tuple[Tensor, Tensor, Tensor, Tensor]


def problem(seed: int, size: float = 1.0, b: int = 4) -> Problem:
    """Unary scores, pairwise scores, labels and lengths."""
    unary, pairwise = size * normal(b, 5, 3, seed=seed), normal(3, 3, seed=seed + 100)
    labels = torch.randint(3, (b, 5), generator=seeded(seed))
    return unary.requires_grad_(), pairwise.requires_grad_(), labels, torch.arange(b) % 5 + 1


def loss(method: Callable[..., tuple[Tensor, Tensor]], one: Problem) -> Tensor:
    unary, pairwise, labels, lengths = one
    return objectives.likelihood(*method(unary, pairwise, lengths), labels, lengths).mean()


@pytest.mark.parametrize("size", [1e-3, 1.0, 50.0])
def test_the_gradient_has_no_component_that_makes_all_scores_larger(size: float) -> None:
    """In every training step, also if the running average differs from the mean of the batch."""
    method = Learned().double()
    for seed in range(4):
        one = problem(seed, size * 3**seed)
        (gradient,) = torch.autograd.grad(loss(method, one), one[0])
        terms = gradient * one[0].detach()
        assert float(terms.abs().sum()) > 1e-6
        assert float(terms.sum().abs()) < 1e-12 * float(terms.abs().sum())


def sizes(one: Problem) -> Tensor:
    """||U|| of each example."""
    return torch.stack([u[:n].abs().mean() for u, n in zip(one[0], one[3].tolist(), strict=True)])


@pytest.mark.parametrize("size", [1e-3, 0.3, 50.0])
@pytest.mark.parametrize("b", [4, HORIZON])
def test_gradients_are_those_of_a_division_by_the_mean_of_the_batch(size: float, b: int) -> None:
    """Multiplied by the size of the part where that is below 1, in the first step or if the batch fills the horizon."""
    method = Learned().double()
    if b == HORIZON:
        loss(method, problem(7, 9.0)).backward()  # an earlier batch of other scores
    u, w = method.log_scales.clone().exp()

    def exact(unary: Tensor, pairwise: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        return u * unary / sizes((unary, pairwise, lengths, lengths)).mean(), w * pairwise / pairwise.abs().mean()

    one = problem(1, size, b)
    got, want = loss(method, one), loss(exact, one)
    torch.testing.assert_close(got, want)
    (of_u, of_w), (want_u, want_w) = (torch.autograd.grad(x, one[:2]) for x in (got, want))
    torch.testing.assert_close(of_u, sizes(one).mean().detach().clamp(max=1) * want_u, rtol=1e-8, atol=1e-12)
    torch.testing.assert_close(of_w, one[1].abs().mean().detach().clamp(max=1) * want_w, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("size", [1e-2, 0.5, 4.0])
def test_the_pairwise_gradient_against_finite_differences(size: float) -> None:
    """min(1, ||W||) times the derivative of e^w W / ||W||, in a later step of training."""
    method = Learned(start=2.0).double()
    loss(method, problem(0)).backward()
    unary, pairwise, labels, lengths = problem(1)
    pairwise = (size * pairwise.detach()).requires_grad_()
    log_scales = method.log_scales.clone()
    balanced, _ = method(unary, pairwise, lengths)
    unary = balanced.detach()

    def value(x: Tensor) -> Tensor:
        return objectives.likelihood(unary, log_scales[1].exp() * x / x.abs().mean(), labels, lengths).mean()

    step, want = 1e-6 * size, torch.zeros(3, 3, dtype=torch.float64)
    with torch.no_grad():
        for i, j in [(i, j) for i in range(3) for j in range(3)]:
            d = torch.zeros(3, 3, dtype=torch.float64)
            d[i, j] = step
            want[i, j] = (value(pairwise + d) - value(pairwise - d)) / (2 * step)
    found = objectives.likelihood(unary, method(unary, pairwise, lengths)[1], labels, lengths).mean()
    (got,) = torch.autograd.grad(found, pairwise)
    torch.testing.assert_close(got, pairwise.abs().mean().detach().clamp(max=1) * want, rtol=1e-5, atol=1e-8)


def test_gradients_of_the_log_scales_against_finite_differences() -> None:
    """The first step of pace is STEP against the sign of the gradient; squares are SMOOTHING times its square."""
    method, one = Learned().double(), problem(0, 3.0)
    u, w = start = method.log_scales.tolist()
    loss(method, one).backward()

    @torch.no_grad()
    def value(u: float, w: float) -> float:
        unary, pairwise, labels, lengths = one
        parts = math.exp(u) * unary / sizes(one).mean(), math.exp(w) * pairwise / pairwise.abs().mean()
        return float(objectives.likelihood(*parts, labels, lengths).mean())

    h = 1e-5
    slopes = [(value(u + h, w) - value(u - h, w)) / (2 * h), (value(u, w + h) - value(u, w - h)) / (2 * h)]
    want = [x - math.copysign(STEP, slope) for x, slope in zip(start, slopes, strict=True)]
    assert method.log_scales.tolist() == pytest.approx(want)
    assert method.squares.tolist() == pytest.approx([SMOOTHING * slope**2 for slope in slopes], rel=1e-6)
    assert float(method.steps) == 1


@pytest.mark.parametrize("own", [False, True], ids=["one matrix per replica", "one per sequence"])
def test_replicas_in_training_equal_separate_methods(own: bool) -> None:
    """Scores, gradients and state over several steps, in which the pairwise scores also move."""
    starts, b = torch.tensor([0.5, 1.0, 3.0], dtype=torch.float64), 4
    together = Learned(start=starts).double()
    alone = [Learned(start=float(x)).double() for x in starts]
    pairwise = 0.1 * normal(3, b if own else 1, 3, 3, seed=5)
    for step in range(5):
        unary = (normal(3, b, 5, 3, seed=step) * torch.tensor([0.1, 1.0, 20.0])[:, None, None, None]).requires_grad_()
        labels = torch.randint(3, (3, b, 5), generator=seeded(step))
        lengths = torch.randint(1, 6, (3, b), generator=seeded(step))
        leaf = pairwise.clone().requires_grad_()
        objectives.likelihood(*together(unary, leaf, lengths), labels, lengths).mean(-1).sum().backward()
        for e, one in enumerate(alone):
            u, w = (x[e].detach().clone().requires_grad_() for x in (unary, leaf))
            objectives.likelihood(*one(u, w, lengths[e]), labels[e], lengths[e]).mean().backward()
            torch.testing.assert_close(unary.grad[e], u.grad)
            torch.testing.assert_close(leaf.grad[e], w.grad)
            for got, want in zip(together.state(), one.state(), strict=True):
                torch.testing.assert_close(got[e], want)
        pairwise = pairwise - 0.1 * leaf.grad
    assert together.log_scales.unique().numel() > 3


def test_the_state_does_not_change_without_training() -> None:
    method = Learned().double()
    one = problem(0)
    before = [x.clone() for x in method.state()]
    method.eval()
    loss(method, one).backward()
    method.train()
    with torch.no_grad():
        loss(method, one)
    method(one[0].detach(), one[1].detach())
    method.penalty(*one[:2])
    assert all(torch.equal(old, new) for old, new in zip(before, method.state(), strict=True))
    loss(method, one).backward()
    assert not any(torch.equal(old, new) for old, new in zip(before, method.state(), strict=True))


def test_a_forward_pass_alone_leaves_the_state() -> None:
    method = Learned().double()
    for seed in range(3):
        loss(method, problem(seed)).backward()
    before = [x.clone() for x in method.state()]
    later = loss(method, problem(3, 40.0))
    assert later.requires_grad
    assert all(torch.equal(old, new) for old, new in zip(before, method.state(), strict=True))
    later.backward()
    assert not any(torch.equal(old, new) for old, new in zip(before, method.state(), strict=True))


def test_alpha_is_the_ratio_of_the_scales() -> None:
    method = Learned(start=torch.tensor([0.5, 2.0]))
    w = PAIRWISE_START
    torch.testing.assert_close(method.log_scales.exp(), torch.tensor([[0.5, 0.5 * w], [2.0, 2.0 * w]]))
    method.log_scales[1, 0] += math.log(3)
    torch.testing.assert_close(method.alpha, torch.tensor([1.0, 3.0]) / w)
