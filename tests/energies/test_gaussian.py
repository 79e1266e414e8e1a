"""The Gaussian CRF as an energy: the same numbers as `GaussianCRF`, one image at a time."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from equipoise import GaussianCRF, gaussian, scaling
from equipoise.energies import Embedded, GaussianEnergy, PixelGrid, RandomPairs, balance
from equipoise.energies.gaussian import DEFINITE

pytestmark = pytest.mark.usefixtures("_double")
E, B, S, M, D = 2, 3, 6, 2, 4


KINDS = ["bounded", "normalized", "raw"]


def problem(size: float = 1.0, side: int = S) -> tuple[Tensor, Embedded, Tensor]:
    generator = torch.Generator().manual_seed(0)
    unary = torch.randn(E, B, side**2, M, generator=generator)
    embeddings = size * torch.randn(E, B, side**2, D, generator=generator)
    embeddings[1] *= 0.01  # in one replica the bound is at work, in the other it is not
    labels = torch.randint(M, (E, B, side, side), generator=generator)
    share = torch.tensor([[0.3], [0.8]])
    return unary, Embedded(embeddings, torch.ones(E, 1), share, (side, side)), labels


def image(x: Tensor) -> Tensor:
    """(L, C) to (C, H, W)."""
    side = round(len(x) ** 0.5)
    return x.mT.reshape(-1, side, side)


@pytest.mark.parametrize("ridge", [1.0, 3.0])
@pytest.mark.parametrize("definite", KINDS)
@pytest.mark.parametrize("make", [partial(scaling.Fixed, 2.0), partial(scaling.Offline, 3.0), scaling.Learned])
def test_the_module_image_by_image(make: Callable[[], scaling.Scaling], definite: str, ridge: float) -> None:
    """Scores, losses, labels and the ratio after scaling and bound."""
    unary, pairwise, gold = problem()
    energy, method = GaussianEnergy(definite, ridge), make()
    u, w, _ = balance(energy, method, unary, pairwise)
    losses, labels = energy.losses("marginal", u, w, gold), energy.predict("marginal", u, w)
    norm_u, norm_w = energy.norms(u, w)()
    for e in range(E):
        share = float(pairwise.share[e, 0])
        crf = GaussianCRF(M, ridge, method, definite=definite, share=share, pairs=None)
        for i in range(B):
            parts = image(unary[e, i]), image(pairwise.embeddings[e, i])
            torch.testing.assert_close(image(energy.scores("marginal", u, w)[e, i]), crf.scores(*parts))
            torch.testing.assert_close(losses[e, i], crf.loss(*parts, gold[e, i]))
            assert torch.equal(labels[e, i].reshape(S, S), crf.decode(*parts))
            torch.testing.assert_close(norm_u[e, i] / norm_w[e, i], crf.balance(*parts))


@pytest.mark.parametrize("definite", ["bounded", "normalized"])
def test_the_system_that_is_solved_is_definite(definite: str) -> None:
    unary, pairwise, _ = problem(size=100.0)
    one = torch.ones(E, 1)
    _, w = GaussianEnergy(definite, 2.0).scaled(unary, pairwise, one, 1e6 * one)
    found = gaussian.sigma_max(w.embeddings) * w.weight / 2.0
    assert bool((found <= pairwise.share + 1e-9).all())
    torch.testing.assert_close(found, pairwise.share.expand(E, B), rtol=0.01, atol=0)


def test_checked_is_nan_where_it_is_not_definite_and_raw_elsewhere() -> None:
    unary, pairwise, gold = problem()
    one = torch.ones(E, 1)
    energy, raw = GaussianEnergy("checked"), GaussianEnergy("raw")
    checked = energy.losses("marginal", *energy.scaled(unary, pairwise, one, one), gold)
    plain = raw.losses("marginal", *raw.scaled(unary, pairwise, one, one), gold)
    assert bool(checked[0].isnan().all())
    torch.testing.assert_close(checked[1], plain[1])


def test_the_net_alone_is_scored_by_its_softmax() -> None:
    unary, pairwise, gold = problem()
    got = GaussianEnergy().losses("unary", unary, pairwise, gold)
    for e in range(E):
        for i in range(B):
            want = torch.nn.functional.cross_entropy(image(unary[e, i])[None], gold[e, i][None])
            torch.testing.assert_close(got[e, i], want)
    labels = GaussianEnergy().predict("unary", unary, pairwise)
    assert torch.equal(labels, unary.argmax(-1))


@pytest.mark.parametrize("definite", KINDS)
def test_many_factors_are_tried_with_one_solve(definite: str) -> None:
    unary, pairwise, gold = problem()
    one = torch.ones(E, 1)
    energy = GaussianEnergy(definite)
    unary, pairwise = energy.scaled(unary, pairwise, one, one)
    factors = torch.tensor([[0.5, 1.0], [1.0, 4.0], [0.01, 100.0]])
    got = energy.losses_for_each(factors, "marginal", unary, pairwise, gold)
    for factor, row in zip(factors, got, strict=True):
        want = energy.losses("marginal", factor[:, None, None, None] * unary, pairwise, gold)
        torch.testing.assert_close(row, want)


@pytest.mark.parametrize("broken", [torch.nan, torch.inf])
def test_a_replica_that_is_not_finite_does_not_disturb_the_others(broken: float) -> None:
    unary, pairwise, gold = problem()
    one, energy = torch.ones(E, 1), GaussianEnergy()
    want = energy.losses("marginal", *energy.scaled(unary, pairwise, one, one), gold)
    for part in (unary, pairwise.embeddings):
        spoilt = part[0, 1, 2, 0].clone()
        part[0, 1, 2, 0] = broken
        got = energy.losses("marginal", *energy.scaled(unary, pairwise, one, one), gold)
        part[0, 1, 2, 0] = spoilt
        assert not bool(got[0, 1].isfinite())
        keep = torch.ones(E, B, dtype=torch.bool)
        keep[0, 1] = False
        torch.testing.assert_close(got[keep], want[keep])


WAYS = {
    "grid": PixelGrid(),
    "pairs": RandomPairs(torch.rand(2, 16384, dtype=torch.float64, generator=torch.Generator().manual_seed(0))),
    "all": RandomPairs(None),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("shape", [(64, 64), (37, 64), (20, 90), (16, 16), (3, 200)])
def test_every_way_to_measure_the_norm_is_near_that_of_all_pixels(shape: tuple[int, int], way: str) -> None:
    """For embeddings that vary smoothly over an image of any shape."""
    y, x = torch.meshgrid(*(torch.linspace(0, 3, side) for side in shape), indexing="ij")
    waves = torch.stack([torch.sin((k + 1) * x + y * k) + 0.3 for k in range(D)], -1).reshape(1, 1, -1, D)
    one = torch.ones(1, 1)
    energy = GaussianEnergy(size=WAYS[way])
    _, w = energy.norms(torch.ones(1, 1, waves.shape[2], 2), Embedded(waves, one, one, shape))()
    torch.testing.assert_close(w, gaussian.mean_abs(waves), rtol=0.03, atol=0)


def test_the_grid_is_all_pixels_of_a_small_image_and_few_of_a_large_one() -> None:
    small, large = torch.randn(2, 16 * 31, D), torch.randn(1, 512 * 300, D)
    assert torch.equal(PixelGrid().pixels(small, (16, 31)), small)
    assert PixelGrid().pixels(large, (512, 300)).shape == (1, 16 * 17, D)
    assert PixelGrid(places=2).pixels(torch.arange(12.0)[:, None], (3, 4)).flatten().tolist() == [1, 3, 5, 7, 9, 11]
    assert PixelGrid(places=2).pixels(torch.arange(36.0)[:, None], (6, 6)).flatten().tolist() == [7, 10, 25, 28]


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match=f"definite must be one of {', '.join(DEFINITE)}, got 'hoped'"):
        GaussianEnergy("hoped")
    with pytest.raises(ValueError, match="the Gaussian CRF has the objectives marginal and unary, got 'margin'"):
        GaussianEnergy().losses("margin", *problem())
