"""Every backend equals the reference, in all its functions, on every chain it would be chosen for."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import Chain, chains

from equipoise import chain
from equipoise.chain import backends, exponential, reference
from equipoise.chain.checks import problem
from equipoise.chain.cpu.library import library

NO_COMPILER = pytest.mark.skipif(library(torch.float64) is None, reason="needs a C compiler")
OTHERS = [
    pytest.param(name, marks=NO_COMPILER if name == "cpu" else ())
    for name in backends.BACKENDS
    if name not in ("reference", "gpu")
]


@pytest.mark.parametrize("name", OTHERS)
@given(drawn=chains(max_length=6, max_labels=5), steady=st.booleans())
def test_equals_the_reference(name: str, drawn: Chain, steady: bool) -> None:
    backend, scores = backends.load(name), problem(*drawn.args).clean()
    weight = torch.ones_like(scores.unary[..., 0, 0]) if steady else torch.randn_like(scores.unary[..., 0, 0])
    labels = drawn.labels()
    for y in (None, labels):
        (value, alpha), (want, want_alpha) = backend.forward(*scores, y), reference.forward(*scores, y)
        torch.testing.assert_close(value, want)
        gradient = backend.marginals(weight, *scores, alpha, y)
        torch.testing.assert_close(gradient, reference.marginals(weight, *scores, want_alpha, y))

    known, want_known = backend.messages(*scores), reference.messages(*scores)
    there = scores.valid[..., None]
    torch.testing.assert_close(known.log_p * there, want_known.log_p * there)
    nodes, edges = torch.randn_like(scores.unary), torch.randn_like(scores.pairwise)
    for e in (None, edges):
        moved = backend.transport(nodes, e, weight, *scores, known)
        torch.testing.assert_close(moved, reference.transport(nodes, e, weight, *scores, want_known))

    (loss, known), (want, want_known) = (b.cross_entropy(*scores, labels) for b in (backend, reference))
    torch.testing.assert_close(loss, want)
    gradient = backend.cross_entropy_gradient(weight, *scores, labels, known)
    torch.testing.assert_close(gradient, reference.cross_entropy_gradient(weight, *scores, labels, want_known))

    path, best = backend.decode(*scores)
    torch.testing.assert_close(best, reference.decode(*scores)[1])
    torch.testing.assert_close(chain.score(*drawn.args[:2], path.clamp(min=0), drawn.lengths), best)
    assert torch.equal(path == -100, ~scores.valid)


def test_the_exp_domain_is_left_where_it_could_underflow() -> None:
    """Label 1 falls to e^-60 and is then favoured by e^30 for five steps: it wins, unless it was lost on the way."""
    unary = torch.zeros(7, 2)
    unary[0, 1], unary[1, 1] = -60.0, -60.0
    unary[2:, 1] = 30.0
    stay = torch.tensor([[0.0, -40.0], [-40.0, 0.0]])
    assert backends.choose(problem(unary, stay))[1] != "exponential"
    log_p = chain.log_marginals(unary, stay)
    torch.testing.assert_close(log_p.double(), chain.log_marginals(unary.double(), stay.double()), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("unary", "pairwise", "answer"),
    [
        (torch.zeros(2, 3, 4), torch.zeros(4, 4), True),
        (torch.tensor([[0.0, 79.0], [0.0, 0.0]]), torch.tensor([[0.0, 0.0], [0.0, 0.5]]), True),
        (torch.tensor([[0.0, 79.0], [0.0, 0.0]]), torch.tensor([[0.0, 0.0], [0.0, 1.5]]), False),
        (torch.zeros(2, 2), torch.tensor([[0.0, -torch.inf], [0.0, 0.0]]), False),
        (torch.tensor([[0.0, -torch.inf], [0.0, 0.0]]), torch.zeros(2, 2), False),
        (torch.tensor([[-torch.inf, -torch.inf], [0.0, 0.0]]), torch.zeros(2, 2), False),
        (torch.tensor([[0.0, torch.nan], [0.0, 0.0]]), torch.zeros(2, 2), False),
        (torch.zeros(0, 2, 2), torch.zeros(2, 2), False),
    ],
)
def test_fits(unary: torch.Tensor, pairwise: torch.Tensor, answer: bool) -> None:
    assert exponential.fits(unary, pairwise) is answer
