"""The C backend beyond the contract: underflow, threads, kept graphs, NaN."""

import ctypes
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from equipoise import objectives
from equipoise.chain import reference
from equipoise.chain.cpu import backend as compiled
from equipoise.chain.cpu import library as library_module
from equipoise.chain.cpu.library import lanes, library, library_for
from equipoise.chain.problem import Problem
from equipoise.chain.scoring import mean_loss

if library(torch.float32) is None:
    pytest.skip("needs a C compiler (cc, gcc, clang, or set CC)", allow_module_level=True)

INF = torch.inf


def double(*tensors: Tensor) -> list[Tensor]:
    return [x.double() if x.is_floating_point() else x for x in tensors]


def assert_close(actual: Tensor, expected: Tensor, tolerance: float) -> None:
    torch.testing.assert_close(actual.double(), expected, rtol=tolerance, atol=tolerance)


def in_log_domain(message: Tensor) -> bool:
    """The first number of alpha is 1 in the exp domain and 0 in the log domain (chain.c)."""
    return bool((message[..., 0, 0] == 0).all())


ISOLATED = torch.tensor([[0.0, -INF], [-INF, 0.0]])  # the label never changes
ONE_WAY = torch.tensor([[0.0, 0.0], [-INF, 0.0]])  # label 1 is never left


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_label_that_underflows_may_win_later(dtype: torch.dtype) -> None:
    # Label 1 falls behind by e^-30 per step, to e^-750, below any float, and then gains e^30 per step.
    unary = torch.zeros(1, 60, 2, dtype=dtype)
    unary[:, :25, 1], unary[:, 25:, 1] = -30, 30
    chain = Problem(unary, ISOLATED.to(dtype)[None, None], torch.tensor([60]))
    assert in_log_domain(compiled.messages(*chain).alpha)
    log_z, alpha = compiled.forward(*chain)
    torch.testing.assert_close(log_z, torch.tensor([300.0], dtype=dtype))
    nodes, edges = compiled.marginals(torch.ones(1, dtype=dtype), *chain, alpha)
    torch.testing.assert_close(nodes[..., 1], torch.ones(1, 60, dtype=dtype))
    torch.testing.assert_close(edges[0, 0], torch.tensor([[0.0, 0.0], [0.0, 59.0]], dtype=dtype))
    torch.testing.assert_close(compiled.messages(*chain).log_p[..., 0], torch.full((1, 60), -300.0, dtype=dtype))


def test_only_the_backward_pass_underflows() -> None:
    # Label 1 is never left and costs e^-20 per step. Forward, label 0 keeps feeding it; backward, it only decays.
    unary = torch.tensor([0.0, -20.0]).expand(1, 40, 2)
    chain = Problem(unary, ONE_WAY[None, None], torch.tensor([40]))
    weight = torch.ones(1)
    _, alpha = compiled.forward(*chain)
    known, wanted = compiled.messages(*chain), reference.messages(*double(*chain))
    assert in_log_domain(known.alpha)
    assert_close(known.log_p, wanted.log_p, 1e-5)
    assert known.log_p[0, 0, 1] < -700
    for got, expected in zip(
        compiled.marginals(weight, *chain, alpha),
        reference.marginals(*double(weight, *chain, wanted.alpha)),
        strict=True,
    ):
        assert_close(got, expected, 1e-5)


def test_messages_that_are_small_at_every_step() -> None:
    # The only good transition is unreachable, so every step multiplies all entries by e^-55.
    length, pairwise = 12, torch.full((3, 3), -55.0)
    pairwise[2, 2] = 0
    unary = torch.zeros(1, length, 3)
    unary[..., 2] = -INF
    chain = Problem(unary, pairwise[None, None], torch.tensor([length]))
    log_z, nodes, edges = compiled.loss_and_gradient("likelihood", *chain, None)
    expected = torch.tensor([length * math.log(2) - 55 * (length - 1)])
    torch.testing.assert_close(log_z, expected)
    torch.testing.assert_close(compiled.forward(*chain)[0], expected)
    torch.testing.assert_close(nodes[..., :2], torch.full((1, length, 2), 0.5))
    torch.testing.assert_close(edges[0, 0, :2, :2], torch.full((2, 2), (length - 1) / 4))
    assert not in_log_domain(compiled.messages(*chain).alpha)


@pytest.mark.parametrize("objective", [objectives.likelihood, objectives.marginal])
@pytest.mark.parametrize("reduce", [torch.sum, torch.mean, lambda x: (x * torch.tensor([1.0, 2.0, 0.0])).sum()])
def test_a_retained_graph_gives_the_same_gradient_again(
    objective: Callable[..., Tensor], reduce: Callable[[Tensor], Tensor]
) -> None:
    generator = torch.Generator().manual_seed(0)
    unary, pairwise = (torch.randn(*n, generator=generator, requires_grad=True) for n in ((3, 5, 4), (4, 4)))
    loss = reduce(objective(unary, pairwise, torch.randint(4, (3, 5), generator=generator)))
    first = torch.autograd.grad(loss, (unary, pairwise), retain_graph=True)
    kept = [x.clone() for x in first]
    for x in first:
        x.zero_()  # the caller may modify its gradients
    for k in range(2):
        torch.testing.assert_close(list(torch.autograd.grad(loss, (unary, pairwise), retain_graph=k == 0)), kept)


def test_the_log_domain_is_used_only_if_needed() -> None:
    generator = torch.Generator().manual_seed(0)
    unary, pairwise = torch.randn(4, 50, 5, generator=generator), torch.randn(1, 1, 5, 5, generator=generator)
    lengths = torch.full((4,), 50)
    assert not in_log_domain(compiled.messages(unary, pairwise, lengths).alpha)
    assert not in_log_domain(compiled.messages(10 * unary.clamp(-3, 3), pairwise, lengths).alpha)
    assert in_log_domain(compiled.messages(100 * unary, pairwise, lengths).alpha)
    assert not in_log_domain(compiled.messages(100 * unary.double(), pairwise.double(), lengths).alpha)


def test_log_marginals_below_the_smallest_float() -> None:
    unary = torch.tensor([[0.0, -50.0], [0.0, -50.0]])  # p_1(1) = e^-100, from both scores
    copy = torch.tensor([[0.0, -60.0], [-60.0, 0.0]])[None]
    log_p = compiled.messages(unary, copy, torch.tensor(2)).log_p
    assert_close(log_p, reference.messages(*double(unary, copy), torch.tensor(2)).log_p, 1e-6)


def test_float32_gradient_of_long_chains() -> None:
    generator = torch.Generator().manual_seed(0)
    unary, nodes = torch.randn(2, 8, 1024, 23, generator=generator).unbind()
    chain = Problem(unary, torch.randn(1, 1, 23, 23, generator=generator), torch.full((8,), 1024))
    gradients = []
    for fields in (chain, double(*chain)):
        one = torch.ones_like(fields[0][:, 0, 0])
        gradients.append(
            compiled.transport(nodes.to(fields[0].dtype), None, one, *fields, compiled.messages(*fields))[:2]
        )
    for got, exact in zip(*gradients, strict=True):
        assert (got - exact).norm() / exact.norm() < 1e-6


@pytest.mark.parametrize("per_edge", [False, True])
def test_results_do_not_depend_on_threads(per_edge: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "MIN_THREADED_WORK", 0)
    generator = torch.Generator().manual_seed(0)
    unary, nodes = torch.randn(2, 33, 20, 40, generator=generator).unbind()
    pairwise = torch.randn(1, 19 if per_edge else 1, 40, 40, generator=generator)
    chain = Problem(unary, pairwise, torch.randint(1, 21, (33,), generator=generator))

    def results() -> list[Tensor]:
        log_z, alpha = compiled.forward(*chain)
        known = compiled.messages(*chain)
        return [
            log_z,
            known.log_p,
            *compiled.marginals(torch.ones(33), *chain, alpha),
            *compiled.transport(nodes, pairwise, torch.ones(33), *chain, known),
            *compiled.decode(*chain),
            *compiled.top_k(*chain, 7),
            compiled.sample(*chain, 3, torch.Generator().manual_seed(1)),
            compiled.edge_marginals(*chain),
        ]

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        expected = results()
        for threads in (2, 3, 2):
            torch.set_num_threads(threads)
            assert all(torch.equal(a, b) for a, b in zip(results(), expected, strict=True))
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("labels", [5, 26, 70, 133, 1030])
def test_a_sequence_does_not_depend_on_its_group(labels: int) -> None:
    """Sequences are computed in groups: of different lengths, in both domains, one of them invalid."""
    generator = torch.Generator().manual_seed(labels)
    unary, nodes = torch.randn(2, 7, 9, labels, generator=generator).unbind()
    unary[2] *= 100  # too large a range for the exp domain
    unary[4, 1, 3] = torch.nan
    pairwise = torch.randn(1, 1, labels, labels, generator=generator)
    gold = torch.randint(labels, (7, 9), generator=generator)
    chain = Problem(unary, pairwise, torch.tensor([9, 3, 6, 1, 9, 8, 2]))
    weight = torch.rand(7, generator=generator)

    def results(chain: Problem, rows: slice) -> list[Tensor]:
        known = compiled.messages(*chain)
        parts = [*known, *compiled.decode(*chain), *compiled.top_k(*chain, 3), compiled.forward(*chain)[0]]
        parts += compiled.loss_and_gradient("likelihood", *chain, gold[rows], weight[rows])[:2]
        parts += compiled.loss_and_gradient("cross_entropy", *chain, gold[rows], weight[rows])[:2]
        parts += [compiled.edge_marginals(*chain)] if labels < 1000 else []
        parts += [compiled.transport(nodes[rows], None, weight[rows], *chain, known)[0]]
        return parts

    together = results(chain, slice(None))
    for b, n in enumerate(chain.lengths.tolist()):
        one = slice(b, b + 1)
        alone = results(Problem(unary[one], pairwise, chain.lengths[one]), one)
        for got, want in zip(together, alone, strict=True):
            got, want = (
                (got[b][:n], want[0][:n]) if got.ndim > 1 else (got[b], want[0])
            )  # alpha and beta are not filled beyond the length
            assert torch.equal(got.nan_to_num(9.9), want.nan_to_num(9.9))


@pytest.mark.parametrize(("count", "length", "labels"), [(9, 6, 70), (9, 6, 300), (9, 150, 40), (9, 6, 1100)])
@pytest.mark.parametrize("loss_name", ["likelihood", "cross_entropy"])
def test_many_labels_equal_float64(count: int, length: int, labels: int, loss_name: str) -> None:
    generator = torch.Generator().manual_seed(labels)
    unary, pairwise = (torch.randn(*size, labels, generator=generator) for size in ((count, length), (labels,)))
    gold = torch.randint(labels, (count, length), generator=generator)
    lengths = torch.tensor([6, 5, 1, 6, 2, 3, 6, 4, 6])[:count] * length // 6
    got = compiled.loss_and_gradient(loss_name, unary, pairwise, lengths, gold)
    u, w = unary.double().requires_grad_(), pairwise.double().requires_grad_()
    chain = Problem(u, w[None, None], lengths)
    if loss_name == "likelihood":
        loss = reference.forward(*chain, gold)[0]
    else:
        log_p = reference.messages(*chain.clean()).log_p
        loss = mean_loss(log_p, lengths, gold)
    want = loss, *torch.autograd.grad(loss.sum(), (u, w))
    for a, b in zip(got, want, strict=True):
        assert (a - b).norm() / b.norm() < 1e-6
    path, best = compiled.decode(unary, pairwise, lengths)
    assert torch.equal(path, reference.decode(u.detach(), w.detach()[None, None], lengths)[0])
    assert torch.allclose(best.double(), reference.decode(u.detach(), w.detach()[None, None], lengths)[1])


@pytest.mark.parametrize("labels", [5, 40, 133])
@pytest.mark.parametrize("scale", [1.0, 100.0])  # in the exp domain and in the log domain
@pytest.mark.parametrize("per_edge", [False, True])
def test_edge_marginals_equal_gradients_in_float64(per_edge: bool, scale: float, labels: int) -> None:
    generator = torch.Generator().manual_seed(labels)
    unary = scale * torch.randn(4, 6, labels, generator=generator)
    pairwise = torch.randn(4, 5 if per_edge else 1, labels, labels, generator=generator)
    pairwise[..., 0, 1:3] = -INF
    lengths = torch.tensor([6, 1, 4, 6])
    matrices = pairwise.double().expand(4, 5, labels, labels).clone().requires_grad_()
    log_z = reference.forward(unary.double(), matrices, lengths)[0]
    (want,) = torch.autograd.grad(log_z.sum(), matrices)
    assert_close(compiled.edge_marginals(unary, pairwise, lengths), want, 1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_many_labels_use_the_registers_of_the_processor(dtype: torch.dtype) -> None:
    """Vectors of 64 bytes with many labels, and of 32 with few, whose rows would have more padding."""
    largest = ctypes.c_int64.in_dll(library(dtype), "register_bytes").value
    for labels, size in ((3, min(32, largest)), (63, min(32, largest)), (64, largest), (2000, largest)):
        assert lanes(library_for(dtype, labels)) * dtype.itemsize == size


def test_without_large_vectors_many_labels_use_the_usual_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library_module, "_wide", lambda dtype: None)  # as if the compiler failed
    found = library_module.library_for.__wrapped__(torch.float32, 100)
    assert found is library(torch.float32)


def test_nan_propagates() -> None:
    unary = torch.zeros(2, 3, 4)
    unary[0, 1, 2] = torch.nan
    log_z, _ = compiled.forward(unary, torch.zeros(1, 1, 4, 4), torch.tensor([3, 3]))
    assert log_z.isnan().tolist() == [True, False]
    labels, best = compiled.decode(torch.full((1, 3, 4), torch.nan), torch.zeros(1, 1, 4, 4), torch.tensor([3]))
    assert labels.tolist() == [[-100, -100, -100]]
    assert best.isnan().all()
