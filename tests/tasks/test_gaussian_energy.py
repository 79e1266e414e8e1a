"""A Gaussian CRF as the engine sees it: what `GaussianCRF` says of each image, one by one."""

from collections.abc import Callable, Iterator
from functools import partial

import pytest
import torch
from torch import Tensor

from equipoise import GaussianCRF, gaussian, scaling
from equipoise.tasks.gaussian_energy import DEFINITE, Embedded, GaussianEnergy
from equipoise.tasks.task import Batch

E, B, S, M, D = 2, 3, 6, 2, 4


@pytest.fixture(autouse=True)
def _double() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


KINDS = ["bounded", "normalized", "raw"]


def problem(size: float = 1.0, side: int = S) -> tuple[Tensor, Embedded, Batch]:
    generator = torch.Generator().manual_seed(0)
    unary = torch.randn(E, B, side**2, M, generator=generator)
    embeddings = size * torch.randn(E, B, side**2, D, generator=generator)
    embeddings[1] *= 0.01  # in one replica the bound is at work, in the other it is not
    labels = torch.randint(M, (E, B, side, side), generator=generator)
    share = torch.tensor([[0.3], [0.8]])
    batch = Batch(torch.arange(E * B).reshape(E, B), None, labels, None)
    return unary, Embedded(embeddings, torch.ones(E, 1), share), batch


def image(x: Tensor) -> Tensor:
    """(L, C) to (C, H, W)."""
    side = round(len(x) ** 0.5)
    return x.mT.reshape(-1, side, side)


@pytest.mark.parametrize("ridge", [1.0, 3.0])
@pytest.mark.parametrize("definite", KINDS)
@pytest.mark.parametrize("make", [partial(scaling.Fixed, 2.0), partial(scaling.Offline, 3.0), scaling.Learned])
def test_the_module_image_by_image(make: Callable[[], scaling.Scaling], definite: str, ridge: float) -> None:
    """Scores, losses, labels and the ratio after scaling and bound."""
    unary, pairwise, batch = problem()
    energy, method = GaussianEnergy(definite, ridge), make()
    a, b = method.factors(energy.norms(unary, pairwise, batch))
    u, w = energy.scaled(unary, pairwise, a.expand(E, 1) if a.ndim == 0 else a, b.expand(E, 1) if b.ndim == 0 else b)
    losses, labels = energy.losses("marginal", u, w, batch), energy.predict("marginal", u, w, batch)
    norm_u, norm_w = energy.norms(u, w, batch)()
    for e in range(E):
        share = float(pairwise.share[e, 0])
        crf = GaussianCRF(M, ridge, method, definite=definite, share=share, pairs=None)
        for i in range(B):
            parts = image(unary[e, i]), image(pairwise.embeddings[e, i])
            torch.testing.assert_close(image(energy.scores(u, w)[e, i]), crf.scores(*parts))
            torch.testing.assert_close(losses[e, i], crf.loss(*parts, batch.labels[e, i]))
            assert torch.equal(labels[e, i], crf.decode(*parts))
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
    unary, pairwise, batch = problem()
    one = torch.ones(E, 1)
    energy, raw = GaussianEnergy("checked"), GaussianEnergy("raw")
    checked = energy.losses("marginal", *energy.scaled(unary, pairwise, one, one), batch)
    plain = raw.losses("marginal", *raw.scaled(unary, pairwise, one, one), batch)
    assert bool(checked[0].isnan().all())
    torch.testing.assert_close(checked[1], plain[1])


def test_the_net_alone_is_scored_by_its_softmax() -> None:
    unary, pairwise, batch = problem()
    got = GaussianEnergy().losses("unary", unary, pairwise, batch)
    for e in range(E):
        for i in range(B):
            want = torch.nn.functional.cross_entropy(image(unary[e, i])[None], batch.labels[e, i][None])
            torch.testing.assert_close(got[e, i], want)
    labels = GaussianEnergy().predict("unary", unary, pairwise, batch)
    assert torch.equal(labels.flatten(2), unary.argmax(-1))


@pytest.mark.parametrize("definite", KINDS)
def test_many_factors_are_tried_with_one_solve(definite: str) -> None:
    unary, pairwise, batch = problem()
    one = torch.ones(E, 1)
    energy = GaussianEnergy(definite)
    unary, pairwise = energy.scaled(unary, pairwise, one, one)
    factors = torch.tensor([[0.5, 1.0], [1.0, 4.0], [0.01, 100.0]])
    got = energy.tried("marginal", unary, pairwise, factors, batch)
    for factor, row in zip(factors, got, strict=True):
        want = energy.losses("marginal", factor[:, None, None, None] * unary, pairwise, batch)
        torch.testing.assert_close(row, want)


@pytest.mark.parametrize("broken", [torch.nan, torch.inf])
def test_a_replica_that_is_not_finite_does_not_disturb_the_others(broken: float) -> None:
    unary, pairwise, batch = problem()
    one, energy = torch.ones(E, 1), GaussianEnergy()
    want = energy.losses("marginal", *energy.scaled(unary, pairwise, one, one), batch)
    for part in (unary, pairwise.embeddings):
        spoilt = part[0, 1, 2, 0].clone()
        part[0, 1, 2, 0] = broken
        got = energy.losses("marginal", *energy.scaled(unary, pairwise, one, one), batch)
        part[0, 1, 2, 0] = spoilt
        assert not bool(got[0, 1].isfinite())
        keep = torch.ones(E, B, dtype=torch.bool)
        keep[0, 1] = False
        torch.testing.assert_close(got[keep], want[keep])


def test_large_images_are_measured_on_a_grid() -> None:
    """256 of 4,096 pixels, evenly spread: near the whole for embeddings that vary smoothly over the image."""
    y, x = torch.meshgrid(*(torch.linspace(0, 3, 64),) * 2, indexing="ij")
    waves = torch.stack([torch.sin((k + 1) * x + y * k) + 0.3 for k in range(D)], -1).reshape(1, 1, -1, D)
    one = torch.ones(1, 1)
    _, w = GaussianEnergy().norms(torch.ones(1, 1, 4096, 2), Embedded(waves, one, one), problem()[2])()
    torch.testing.assert_close(w, gaussian.mean_abs(waves), rtol=0.02, atol=0)


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match=f"definite must be one of {', '.join(DEFINITE)}, got 'hoped'"):
        GaussianEnergy("hoped")
    with pytest.raises(ValueError, match="the Gaussian CRF has the objective marginal alone, got 'margin'"):
        GaussianEnergy().losses("margin", *problem())
