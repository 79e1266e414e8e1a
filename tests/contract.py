"""The contract of a chain backend: properties that every backend must have, on any chain that it supports.

The truth is the reference in float64, or all labellings written out (`enumeration`). A property takes a backend and a
`Case`. `tests/chain/test_contract.py` draws the cases with hypothesis; `tests/chain/test_gpu.py` uses fixed ones.
"""

import importlib
import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from equipoise.chain import reference, scoring
from equipoise.chain.checks import problem
from equipoise.chain.problem import Problem
from equipoise.chain.totals import Total

INF = torch.inf


class Backend(NamedTuple):
    name: str
    module: Any
    device: str = "cpu"
    dtypes: tuple[torch.dtype, ...] = (torch.float32, torch.float64)
    kernels: bool = False  # reads nothing beyond a length, and has `fused_loss`


class Case(NamedTuple):
    """A problem on the CPU with pairwise spread, and the scale of its scores, to which rounding errors are relative."""

    problem: Problem
    scale: float = 1.0

    def on(self, backend: Backend) -> Problem:
        """The problem for a backend: kernels get NaN beyond the length, plain torch 0."""
        p = self.problem
        beyond = torch.nan if backend.kernels else 0
        return Problem(*(x.to(backend.device) for x in p._replace(unary=_beyond(p, beyond))))

    def exact(self) -> Problem:
        p = self.problem
        return Problem(_beyond(p, 0).double(), p.pairwise.double(), p.lengths)

    def labels(self) -> Tensor:
        """Random labels, -100 beyond the length."""
        p = self.problem
        labels = torch.randint(p.unary.shape[-1], p.unary.shape[:-1], generator=torch.Generator().manual_seed(1))
        return labels.masked_fill(~p.valid, -100)

    def normal(self, *shape: int) -> Tensor:
        numbers = torch.randn(shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
        return numbers.to(self.problem.unary.dtype)

    def weight(self) -> Tensor:
        return self.normal(*self.problem.lengths.shape)

    def tolerance(self, backend: Backend) -> float:
        scale = max(1.0, self.scale)
        return (
            2e-6 * scale if backend.name.startswith("gpu") else 100 * torch.finfo(self.problem.unary.dtype).eps * scale
        )


def use_chunks(monkeypatch: Any, chunks: bool) -> None:
    """Let the GPU backend process all chains in chunks, or none."""
    scan, replay = map(importlib.import_module, ("equipoise.chain.gpu.scan", "equipoise.native.triton_replay"))

    def chunk(unary: Tensor, pairwise: Tensor) -> int:
        return math.isqrt(unary.shape[-2]) if chunks and unary.shape[-2] > 1 else 0

    monkeypatch.setattr(scan, "chunk_for_sums", chunk)
    monkeypatch.setattr(scan, "chunk_for_decode", chunk)
    replay.replays.clear()


def _beyond(p: Problem, value: float) -> Tensor:
    return p.unary.masked_fill(~p.valid[..., None], value)


def close(got: Tensor, want: Tensor, atol: float) -> None:
    torch.testing.assert_close(got.cpu().double(), want, rtol=max(atol, 1e-14), atol=atol)


# ---- equal to the reference in float64


def log_partition_and_marginals(b: Backend, case: Case) -> None:
    """log Z and, with labels, -log P(labels); their gradients are the marginals, minus the labels."""
    p, exact, weight = case.on(b), case.exact(), case.weight()
    for y in (None, case.labels()):
        labels = None if y is None else y.to(b.device)
        value, alpha = b.module.forward(*p, labels)
        want, want_alpha = reference.forward(*exact, y)
        close(value, want, case.tolerance(b))
        got = b.module.marginals(weight.to(b.device), *p, alpha, labels)
        for x, z in zip(got, reference.marginals(weight.double(), *exact, want_alpha, y), strict=True):
            close(x, z, case.tolerance(b))


def log_marginals_and_transport(b: Backend, case: Case) -> None:
    """log p, and the gradients of functions of log p and of the transition marginals."""
    p, exact, weight = case.on(b), case.exact(), case.weight()
    nodes, edges = case.normal(*exact.unary.shape), case.normal(*exact.pairwise.shape)
    known, want_known = b.module.messages(*p), reference.messages(*exact)
    close(known.log_p, want_known.log_p, case.tolerance(b))
    if b.name == "cpu":
        close(b.module.log_marginals(*p), want_known.log_p, case.tolerance(b))
    atol = case.tolerance(b) * (40 + nodes.numel())  # every gradient is a sum over the nodes
    clean = p if b.name == "cpu" else Case(p).on(Backend("plain torch", None, b.device))  # others use the reference
    for e, given in ((None, p), (edges, clean)):
        directions = nodes.to(b.device), None if e is None else e.to(b.device), weight.to(b.device)
        got = b.module.transport(*directions, *given, known)
        want = reference.transport(
            nodes.double(), None if e is None else e.double(), weight.double(), *exact, want_known
        )
        for x, z in zip(got, want, strict=True):
            close(x, z, atol)


def steps_to_the_right(b: Backend, case: Case) -> None:
    """log p and beta give P(y_t = i) P(y_{t+1} = j | y_t = i), of which samples and the entropy are made."""
    p, exact = case.on(b), case.exact()
    known, want = b.module.messages(*p), reference.messages(*exact)
    beta = b.module.log_beta(known).cpu().double()
    for t in range(exact.unary.shape[-2] - 1):
        exists = (t + 1 < exact.lengths)[..., None, None]
        pairs = [
            here.exp()[..., t, :, None] * reference.log_step_right(*exact[:2], there, t).exp()
            for here, there in ((known.log_p.cpu().double(), beta), (want.log_p, want.beta))
        ]
        got, true = (torch.where(exists, x, 0) for x in pairs)
        close(got, true, case.tolerance(b))


MIXING = {
    "one matrix": lambda w: w,
    "a large range": lambda w: w.index_fill(-1, torch.tensor([2]), -60.0),  # for kernels, the log domain
    "a matrix per edge": lambda w: w.expand(1, 19, 3, 3),
}
"""Pairwise scores with which labels forget their neighbours within a few positions."""


def distant_positions(b: Backend, kind: str) -> None:
    """The gradient of log p at one end of a chain is 0 at the other: no rounding error is carried all the way."""
    generator = torch.Generator().manual_seed(0)
    unary, pairwise = torch.randn(2, 20, 3, generator=generator), 0.3 * torch.randn(3, 3, generator=generator)
    case = Case(problem(unary, MIXING[kind](pairwise)))
    p, weight = case.on(b), torch.ones(2, device=b.device)
    known = b.module.messages(*p)
    for end, other in ((0, -1), (-1, 0)):
        nodes = torch.zeros(2, 20, 3)
        nodes[:, end] = 1e3 * torch.randn(2, 3, generator=generator)
        moved, *_ = b.module.transport(nodes.to(b.device), None, weight, *p, known)
        assert float(moved[:, end].abs().max()) > 1
        assert float(moved[:, other].abs().max()) < 1e-6, (end, moved[:, other])


def cross_entropy(b: Backend, case: Case) -> None:
    """The mean of -log p at the labels, and its gradient."""
    p, exact, weight, labels = case.on(b), case.exact(), case.weight(), case.labels()
    loss, known = b.module.cross_entropy(*p, labels.to(b.device))
    want, want_known = reference.cross_entropy(*exact, labels)
    close(loss, want, case.tolerance(b))
    close(known.log_p, want_known.log_p, case.tolerance(b))
    got = b.module.cross_entropy_gradient(weight.to(b.device), *p, labels.to(b.device), known)
    gradient = reference.cross_entropy_gradient(weight.double(), *exact, labels, want_known)
    for x, z in zip(got, gradient, strict=True):
        close(x, z, case.tolerance(b) * (40 + exact.unary.numel()))


def fused_loss(b: Backend, case: Case) -> None:
    """A loss, and its gradient for weights that are known later; C supports equal weights only."""
    p, exact, labels = case.on(b), case.exact(), case.labels()
    weight = torch.full_like(case.weight(), 0.5) if b.name == "cpu" else case.weight()
    for name, y in (("likelihood", None), ("likelihood", labels), ("cross_entropy", labels)):
        value, weighted = b.module.fused_loss(name, *p, None if y is None else y.to(b.device))
        got = weighted(weight.to(b.device))
        if name == "likelihood":
            want, alpha = reference.forward(*exact, y)
            gradient = reference.marginals(weight.double(), *exact, alpha, y)
        else:
            want, known = reference.cross_entropy(*exact, labels)
            gradient = reference.cross_entropy_gradient(weight.double(), *exact, labels, known)
        close(value, want, case.tolerance(b))
        for x, z in zip(got, gradient, strict=True):
            close(x, z, case.tolerance(b) * (40 + exact.unary.numel()))


def fused_total(b: Backend, case: Case) -> None:
    """The total of losses, and its gradient."""
    p, exact, labels = case.on(b), case.exact(), case.labels()
    losses, known = reference.cross_entropy(*exact, labels)
    empty = case.weight() > 0
    for reduction, of_means in (("sum", False), ("mean", False), ("token_mean", False), ("token_mean", True)):
        for left_out in (None, empty):
            counts = torch.ones_like(losses) if left_out is None else 1.0 - left_out.double()
            positions = (counts * exact.lengths).sum()
            weight = counts * (exact.lengths if of_means else 1.0)
            if reduction != "sum":
                weight = weight / (positions if reduction == "token_mean" else counts.sum()).clamp(min=1)
            on_device = None if left_out is None else left_out.to(b.device)
            total = Total(reduction, of_means, on_device)
            value, weighted = b.module.fused_loss("cross_entropy", *p, labels.to(b.device), total)
            close(value, torch.where(counts > 0, weight * losses, 0).sum(), case.tolerance(b) * max(1, losses.numel()))
            got = weighted(torch.tensor(-0.5, dtype=p.unary.dtype, device=b.device))
            gradient = reference.cross_entropy_gradient(-0.5 * weight, *exact, labels, known)
            for x, z in zip(got, gradient, strict=True):
                close(x, z, case.tolerance(b) * (40 + exact.unary.numel()))


def decode(b: Backend, case: Case) -> None:
    """The best score is that of the reference, and the labels attain it; -100 elsewhere."""
    exact = case.exact()
    labels, best = (x.cpu() for x in b.module.decode(*case.on(b)))
    _, want = reference.decode(*exact)
    close(best, want, case.tolerance(b))
    possible = want > -INF
    there = exact.valid & possible[..., None]
    assert torch.equal(labels >= 0, there)
    assert (labels[~there] == -100).all()
    attained = scoring.score(*exact, labels.clamp(min=0))
    close(torch.where(possible, attained, -INF), want, case.tolerance(b))


# ---- facts


def marginals_are_probabilities(b: Backend, case: Case) -> None:
    """They lie in [0, 1], and sum to 1 at every position of a sequence with an allowed labelling."""
    p, exact = case.on(b), case.exact()
    log_z, alpha = b.module.forward(*p)
    nodes, edges = (x.cpu().double() for x in b.module.marginals(torch.ones_like(log_z), *p, alpha))
    possible = (reference.forward(*exact)[0] > -INF)[..., None]
    slack = case.tolerance(b)
    assert ((nodes >= 0) & (nodes <= 1 + slack)).all()
    close(nodes.sum(-1), (exact.valid & possible).double(), slack)
    assert (edges >= 0).all()
    steps = (exact.valid[..., 1:] & possible).sum().double()  # edges sum to 1 each
    close(edges.sum(), steps, slack * (1 + float(steps)))


def zero_scores_count_labellings(b: Backend, case: Case) -> None:
    """With all scores 0, log Z = n log M."""
    p = case.problem._replace(
        unary=torch.zeros_like(case.problem.unary), pairwise=torch.zeros_like(case.problem.pairwise)
    )
    log_z, _ = b.module.forward(*Case(p).on(b))
    close(log_z, p.lengths.double() * math.log(p.unary.shape[-1]), Case(p).tolerance(b) * p.unary.shape[-2])


def same_input_same_bits(b: Backend, case: Case) -> None:
    p, weight, labels = case.on(b), case.weight().to(b.device), case.labels().to(b.device)
    nodes = case.normal(*p.unary.shape).to(b.device)

    def results() -> list[Tensor]:
        value, alpha = b.module.forward(*p, labels)
        known = b.module.messages(*p)
        loss, known_loss = b.module.cross_entropy(*p, labels)
        return [
            *(value, *b.module.marginals(weight, *p, alpha, labels), known.log_p),
            *b.module.transport(nodes, None, weight, *p, known),
            *(loss, *b.module.cross_entropy_gradient(weight, *p, labels, known_loss), *b.module.decode(*p)),
        ]

    for x, y in zip(results(), results(), strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=0, equal_nan=True)


EQUALITIES = [log_partition_and_marginals, log_marginals_and_transport, steps_to_the_right, cross_entropy, decode]
FACTS = [marginals_are_probabilities, zero_scores_count_labellings, same_input_same_bits]


# ---- equal to the enumeration of all labellings
