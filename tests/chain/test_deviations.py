"""The k best labellings by deviations have the scores of those of the recursion, and are distinct."""

import importlib
import importlib.util

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from strategies import Chain
from strategies import chains as random_chains
from torch import Tensor

from equipoise import chain
from equipoise.chain import deviations
from equipoise.chain.decoding import score_found
from equipoise.chain.problem import Problem, spread, whole


def best_ways(unary: Tensor, pairwise: Tensor) -> tuple[Tensor, Tensor]:
    """The best scores up to each label, minus a constant of each position, and where they come from."""
    length, m = unary.shape[-2:]
    scores, pointers = [unary[..., 0, :]], [torch.full_like(unary[..., 0, :], 99).long()]
    for t in range(1, length):
        edge = pairwise[..., t - 1 if pairwise.shape[-3] > 1 else 0, :, :]
        best, pointer = (scores[-1][..., None] + edge).expand(*unary.shape[:-2], m, m).max(-2)
        scores.append(best + unary[..., t, :] + t)
        pointers.append(pointer)
    return torch.stack(scores, -2), torch.stack(pointers, -2)


def check(unary: Tensor, pairwise: Tensor, lengths: Tensor, found: Tensor, k: int) -> None:
    """`found` has the scores of the k best labellings, in their order, and each labelling once."""
    wanted = chain.top_k(unary, pairwise, lengths, k=k)[1]
    problem = Problem(unary, spread(pairwise, unary), lengths)
    torch.testing.assert_close(score_found(problem, found), wanted, rtol=1e-5, atol=1e-5)
    place = torch.arange(unary.shape[-2])
    exists = (wanted > -torch.inf)[..., None] & (place < lengths[..., None])[..., None, :]
    assert (found >= 0).equal(exists)
    assert (found[~exists] == -100).all()
    same = (found[..., None, :] == found[..., None, :, :]).all(-1) & exists[..., :1] & ~torch.eye(k).bool()
    assert not same.any()


@given(problem=random_chains(forbid=True), k=st.integers(1, 12))
def test_the_k_best_of_any_chain(problem: Chain, k: int) -> None:
    unary, pairwise, lengths = problem.args
    lengths = whole(unary) if lengths is None else lengths
    edges = spread(pairwise, unary)
    found = deviations.top_k(unary, edges, lengths, k, *best_ways(unary, edges))
    check(unary, pairwise, lengths, found, k)


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="the GPU backend is written in Triton")
@pytest.mark.parametrize("chunks", [False, True])
@pytest.mark.parametrize("own", ["shared", "sequence", "edge"])
def test_the_k_best_of_the_gpu(chunks: bool, own: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In Triton's interpreter, if there is no GPU."""
    from contract import use_chunks
    from triton_chains import DEVICE, gpu

    use_chunks(monkeypatch, chunks)
    for length, m in ((1, 3), (2, 2), (9, 3), (17, 5), *([(500, 23), (3000, 33)] if DEVICE == "cuda" else [])):
        chance = torch.Generator().manual_seed(length)
        shape = {"shared": (), "sequence": (4,), "edge": (4, length - 1)}[own]
        unary, pairwise = (torch.randn(s, generator=chance) for s in ((4, length, m), (*shape, m, m)))
        pairwise = torch.where(torch.rand(pairwise.shape, generator=chance) < 0.2, -torch.inf, pairwise)
        lengths = torch.tensor([length, 1 + length // 2, 1, max(1, length - 1)])
        given = (x.to(DEVICE) for x in (unary, spread(pairwise, unary), lengths))
        check(unary, pairwise, lengths, gpu.top_k(*given, 6)[0].cpu(), 6)
