"""Each scaling method against its formula (§5, Appendix A.2), example by example."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from seeded import normal, seeded
from torch import Tensor
from torch.autograd import gradcheck

from equipoise import ChainCRF, chain, objectives, scaling
from equipoise.scaling.broadcasting import multiply

Formula = Callable[[float, float], tuple[float, float, float]]


def learned(u: float, w: float, size: float) -> scaling.Learned:
    """After training: with these log-scales, and this running average of ||U||."""
    method = scaling.Learned().double().eval()
    method.log_scales.copy_(torch.tensor([u, w]))
    method.size.fill_(size)
    return method


METHODS: dict[str, tuple[Callable[[], scaling.Scaling], Formula]] = {
    "fixed": (lambda: scaling.Fixed(0.25), lambda u, w: (0.25, 1, 0)),
    "online": (lambda: scaling.Online(alpha=0.5), lambda u, w: (0.5, 1, 0)),
    "offline": (lambda: scaling.Offline(4.0), lambda u, w: (4 / u, 1 / w, 0)),
    "regularized": (lambda: scaling.Regularized(3.0, 0.5), lambda u, w: (1, 1, 0.5 * (u / w - 3) ** 2)),
    "temperature": (lambda: scaling.Temperature(3.0), lambda u, w: (3, 3, 0)),
    "normalized": (lambda: scaling.Temperature(3.0, normalize=True), lambda u, w: (3 / u, 3 / w, 0)),
    "learned": (lambda: learned(0.5, -1.5, 2.5), lambda u, w: (math.exp(0.5) / 2.5, math.exp(-1.5) / w, 0)),
}
CHECKED = ["offline", "regularized", "normalized"]
NORMALIZING = [*CHECKED, "learned"]


def size(rows: Tensor) -> float:
    """The mean absolute value of all entries except -inf, computed in plain Python."""
    entries = [abs(x) for x in rows.flatten().tolist() if x != -math.inf]
    return sum(entries) / len(entries)


@pytest.mark.parametrize("name", METHODS)
@given(seed=st.integers(0, 2**31), shared=st.booleans(), ragged=st.booleans(), forbid=st.booleans())
def test_formula(name: str, seed: int, shared: bool, ragged: bool, forbid: bool) -> None:
    make, formula = METHODS[name]
    generator = seeded(seed)
    b, length, m = 4, 5, 3
    unary = 10 * torch.randn(b, length, m, generator=generator, dtype=torch.float64)
    pairwise = torch.randn((m, m) if shared else (b, m, m), generator=generator, dtype=torch.float64)
    if forbid:
        unary[torch.rand(unary.shape, generator=generator) < 0.2] = -torch.inf
        pairwise[torch.rand(pairwise.shape, generator=generator) < 0.2] = -torch.inf
        unary[:, 0, 0] = pairwise[..., 0, 0] = 1.5  # at least one entry is finite
    lengths = torch.randint(1, length + 1, (b,), generator=generator) if ragged else None

    method = make()
    got_unary, got_pairwise = method(unary, pairwise, lengths)
    penalties = []
    for i in range(b):
        n = length if lengths is None else int(lengths[i])
        w = pairwise if shared else pairwise[i]
        a, c, penalty = formula(size(unary[i, :n]), size(w))
        torch.testing.assert_close(got_unary[i], a * unary[i])
        torch.testing.assert_close(got_pairwise if shared else got_pairwise[i], c * w)
        penalties.append(penalty)
    got = method.penalty(unary, pairwise, lengths)
    torch.testing.assert_close(got, torch.tensor(sum(penalties) / b, dtype=torch.float64))


@given(seed=st.integers(0, 2**31), shared=st.booleans())
def test_ratio_is_the_mean_over_examples(seed: int, shared: bool) -> None:
    unary, pairwise = normal(4, 5, 3, seed=seed), normal(*(() if shared else (4,)), 3, 3, seed=seed + 1)
    lengths = torch.randint(1, 6, (4,), generator=seeded(seed))
    each = zip(unary, pairwise.expand(4, 3, 3), lengths, strict=True)
    want = sum(size(u[:n]) / size(w) for u, w, n in each) / 4
    torch.testing.assert_close(scaling.ratio(unary, pairwise, lengths), torch.tensor(want, dtype=torch.float64))


ALPHAS = torch.tensor([0.25, 1.0, 4.0])
REPLICAS: dict[str, tuple[Callable[[Tensor], scaling.Scaling], Callable[[float], scaling.Scaling]]] = {
    "fixed": (scaling.Fixed, scaling.Fixed),
    "online": (lambda a: scaling.Online(alpha=a), lambda a: scaling.Online(alpha=a)),
    "offline": (scaling.Offline, scaling.Offline),
    "regularized": (lambda a: scaling.Regularized(a, 2 * a), lambda a: scaling.Regularized(a, 2 * a)),
    "temperature": (scaling.Temperature, scaling.Temperature),
    "normalized": (lambda a: scaling.Temperature(a, True), lambda a: scaling.Temperature(a, True)),
    "learned": (lambda a: scaling.Learned(start=a).double(), lambda a: scaling.Learned(start=a).double()),
}


@pytest.mark.parametrize("b", [1, 3, 4])
@pytest.mark.parametrize("own", [False, True], ids=["one matrix per replica", "one per sequence"])
@pytest.mark.parametrize("name", REPLICAS)
def test_replicas_equal_separate_methods(name: str, own: bool, b: int) -> None:
    """Several batch sizes: with as many examples as replicas, a factor on the wrong dimension would be hidden."""
    many, one = REPLICAS[name]
    unary, pairwise = normal(3, b, 5, 2), normal(3, b if own else 1, 2, 2, seed=1)
    lengths = torch.randint(1, 6, (3, b), generator=seeded())
    method = many(ALPHAS)
    got_unary, got_pairwise = method(unary, pairwise, lengths)
    means = []
    for e, alpha in enumerate(ALPHAS.tolist()):
        alone = one(alpha)
        want_unary, want_pairwise = alone(unary[e], pairwise[e], lengths[e])
        torch.testing.assert_close(got_unary[e], want_unary)
        torch.testing.assert_close(got_pairwise[e], want_pairwise)
        means.append(alone.penalty(unary[e], pairwise[e], lengths[e]))
    torch.testing.assert_close(method.penalty(unary, pairwise, lengths), torch.stack(means).mean())


def test_replicas_with_one_shared_matrix() -> None:
    unary, labels = normal(3, 2, 5, 2).float(), torch.zeros(3, 2, 5, dtype=torch.int64)
    crf = ChainCRF(2, scaling.Fixed(ALPHAS), generator=seeded())
    want = []
    for e, alpha in enumerate(ALPHAS.tolist()):
        alone = ChainCRF(2, scaling.Fixed(alpha), generator=seeded())
        want.append(alone.loss(unary[e], labels[e]))
    torch.testing.assert_close(crf.loss(unary, labels), torch.stack(want).mean())


@pytest.mark.parametrize("name", NORMALIZING)
def test_the_matrices_of_all_edges_are_measured_together(name: str) -> None:
    """With one matrix per edge, (B, L-1, M, M), the pairwise part of an example is all of its matrices."""
    make, formula = METHODS[name]
    unary, pairwise = normal(2, 4, 3), normal(2, 3, 3, 3, seed=1)
    method = make()
    got = method(unary, pairwise)[1]
    for i in range(2):
        _, c, _ = formula(size(unary[i]), size(pairwise[i]))
        torch.testing.assert_close(got[i], c * pairwise[i])
    want = sum(formula(size(unary[i]), size(pairwise[i]))[2] for i in range(2)) / 2
    torch.testing.assert_close(method.penalty(unary, pairwise), torch.tensor(want, dtype=torch.float64))


@pytest.mark.parametrize("objective", ["likelihood", "marginal", "margin", "mean_field"])
@pytest.mark.parametrize("name", METHODS)
def test_chain_crf_with_each_method(name: str, objective: str) -> None:
    """The loss is that of the scaled scores plus the penalty; masked positions are ignored."""
    make, formula = METHODS[name]
    crf = ChainCRF(3, make(), generator=seeded()).double()
    unary, labels = normal(4, 5, 3), torch.randint(3, (4, 5), generator=seeded())
    mask = torch.arange(5) < torch.tensor([5, 1, 3, 4])[:, None]
    losses = []
    for u, y, on in zip(unary, labels, mask, strict=True):
        a, c, penalty = formula(size(u[on]), size(crf.pairwise))
        losses.append(getattr(objectives, objective)(a * u[on], c * crf.pairwise, y[on]) + penalty)
    torch.testing.assert_close(crf.loss(unary, labels, mask, objective=objective), torch.stack(losses).mean())


@pytest.mark.parametrize("name", METHODS)
def test_a_prediction_does_not_depend_on_the_rest_of_the_batch(name: str) -> None:
    crf = ChainCRF(3, METHODS[name][0](), generator=seeded()).double()
    unary = normal(4, 5, 3) * torch.tensor([0.01, 1.0, 10.0, 100.0], dtype=torch.float64)[:, None, None]
    mask = torch.arange(5) < torch.tensor([5, 2, 3, 4])[:, None]
    together = crf.log_marginals(unary, mask)
    unary[~mask] = 1e4
    for i in range(4):
        n = int(mask[i].sum())
        torch.testing.assert_close(crf.log_marginals(unary[i : i + 1, :n])[0], together[i, :n])
        assert torch.equal(crf.decode(unary, mask)[i, :n], crf.decode(unary[i : i + 1, :n])[0])


@pytest.mark.parametrize("name", CHECKED)
def test_zero_scores_raise_if_the_method_divides_by_their_size(name: str) -> None:
    method, unary, pairwise = METHODS[name][0](), torch.ones(2, 4, 3), torch.ones(3, 3)
    call = method.penalty if name == "regularized" else method
    unary[1] = 0
    with pytest.raises(ValueError, match="unary scores are all 0 in at least one example") as caught:
        call(unary, pairwise)
    assert "initialise them with small random values" in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="pairwise scores are all 0"):
        call(torch.ones(2, 4, 3), 0 * pairwise)
    unary[1, 3] = 7  # beyond the length
    with pytest.raises(ValueError, match="unary scores are all 0"):
        call(unary, pairwise, torch.tensor([4, 3]))
    crf = ChainCRF(3, method)
    torch.nn.init.zeros_(crf.pairwise)
    with pytest.raises(ValueError, match="pairwise scores are all 0"):
        crf.loss(torch.ones(2, 4, 3), torch.zeros(2, 4, dtype=torch.int64))


@pytest.mark.parametrize("name", sorted(METHODS.keys() - set(CHECKED)))
def test_zero_scores_are_allowed_otherwise(name: str) -> None:
    unary, pairwise = METHODS[name][0]()(torch.zeros(2, 4, 3), torch.zeros(3, 3))
    assert not unary.any()
    assert not pairwise.any()


@pytest.mark.parametrize("name", NORMALIZING)
def test_unchecked_zero_scores_stay_zero_with_a_finite_gradient(name: str) -> None:
    """Where values cannot be read (in vmap, on a device), zeros must not become NaN."""
    method = METHODS[name][0]()
    unary = torch.zeros(2, 4, 3, dtype=torch.float64)
    unary[1] = 2

    def total(u: Tensor, w: Tensor) -> Tensor:
        return sum(x.sum() for x in method(u, w)) + method.penalty(u, w)

    pairwise = torch.zeros(3, 3, dtype=torch.float64)
    values, (g_u, g_w) = torch.func.vmap(torch.func.grad_and_value(total, (0, 1)), (0, None))(unary, pairwise)[::-1]
    assert bool(values.isfinite().all())
    assert bool(g_u.isfinite().all())
    assert bool(g_w.isfinite().all())
    a, b = method.factors(method.state(), lambda: (torch.zeros(2), torch.zeros(())))
    assert bool(a.isfinite().all())
    assert bool(b.isfinite().all())


@pytest.mark.parametrize("name", NORMALIZING)
def test_gradients_against_finite_differences(name: str) -> None:
    method = METHODS[name][0]()
    lengths = torch.tensor([4, 2])

    def function(u: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        return *method(u, w, lengths), method.penalty(u, w, lengths)

    assert gradcheck(function, (normal(2, 4, 3).requires_grad_(), normal(3, 3, seed=1).requires_grad_()))
    assert not list(method.parameters())


@pytest.mark.parametrize("part", ["unary", "pairwise"])
@pytest.mark.parametrize("name", METHODS)
def test_forbidden_entries_do_not_affect_other_gradients(name: str, part: str) -> None:
    """Entries of -inf are not measured: the gradient is the same if they are inserted after scaling."""
    method = METHODS[name][0]()
    forbidden = torch.zeros(3, 3, dtype=torch.bool)
    forbidden[1, 2] = True
    results = []
    for before in (True, False):
        unary, pairwise = normal(1, 3, 3).requires_grad_(), normal(3, 3, seed=1).requires_grad_()
        u, w = unary, pairwise
        if before:
            u = u.masked_fill(forbidden, -torch.inf) if part == "unary" else u
            w = w.masked_fill(forbidden, -torch.inf) if part == "pairwise" else w
            scaled_u, scaled_w = method(u, w)
            penalty = method.penalty(u, w)
        else:
            count = (~forbidden).double()
            measured = [x * count if part == kind else x for x, kind in ((u, "unary"), (w, "pairwise"))]
            share = [count.mean() if part == kind else 1.0 for kind in ("unary", "pairwise")]
            norms = (measured[0].abs().mean((-2, -1)) / share[0], measured[1].abs().mean((-2, -1)) / share[1])
            a, b = method.factors(method.state(), lambda norms=norms: norms)
            scaled_u, scaled_w = multiply(a, u), multiply(b, w)
            if part == "unary":
                scaled_u = scaled_u.masked_fill(forbidden, -torch.inf)
            else:
                scaled_w = scaled_w.masked_fill(forbidden, -torch.inf)
            penalty = method.penalty_of(method.state(), lambda norms=norms: norms).mean()
        loss = chain.log_partition(scaled_u, scaled_w).sum() + penalty
        results.append([loss, *torch.autograd.grad(loss, (unary, pairwise))])
    for got, want in zip(*results, strict=True):
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("name", METHODS)
def test_state_dict_of_each_method(name: str) -> None:
    source = METHODS[name][0]()
    target = type(source)()
    if name == "normalized":
        target.normalize = True
    target.load_state_dict(source.state_dict())
    unary, pairwise = normal(2, 4, 3), normal(3, 3, seed=1)
    for got, want in zip(target.double()(unary, pairwise), source(unary, pairwise), strict=True):
        assert torch.equal(got, want)
    assert torch.equal(target.penalty(unary, pairwise), source.penalty(unary, pairwise))
    assert float(target.alpha) == float(source.alpha)


def test_methods_that_need_no_norms_do_not_compute_them() -> None:
    def norms() -> tuple[Tensor, Tensor]:
        raise AssertionError

    for name in METHODS.keys() - set(NORMALIZING):
        method = METHODS[name][0]()
        method.factors(method.state(), norms)
        assert not method.penalty_of(method.state(), norms).any()


@pytest.mark.parametrize("name", METHODS)
def test_an_empty_batch_has_no_loss(name: str) -> None:
    crf = ChainCRF(3, METHODS[name][0]())
    assert float(crf.loss(torch.zeros(0, 4, 3), torch.zeros(0, 4, dtype=torch.int64)).detach()) == 0
