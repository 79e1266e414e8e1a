"""GaussianCRF: scores, losses and gradients by definition, scaling, replicas, and input checks."""

import warnings

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

from equipoise import GaussianCRF, gaussian
from equipoise.scaling import Fixed, Offline, Online, Regularized, Temperature

M, D, H, W = 3, 4, 5, 7


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(dtype)


UNARY, EMBEDDINGS = normal(2, M, H, W), normal(2, D, H, W, seed=1)
LABELS = torch.randint(M, (2, H, W), generator=torch.Generator().manual_seed(2))


def rows(x: Tensor) -> Tensor:
    return x.flatten(-2).mT


def expected(unary: Tensor, embeddings: Tensor, a: Tensor, b: Tensor, ridge: float, **bound: object) -> Tensor:
    """By definition: multiply both parts, bound the embeddings, and solve the full system."""
    u, e = a[:, None, None] * rows(unary), b.sqrt()[:, None, None] * rows(embeddings)
    e = gaussian.bounded(e, ridge, **bound) if bound else e
    return gaussian.solve(u, e, ridge, method="dense").mT.reshape(unary.shape)


@pytest.mark.parametrize("method", [Fixed(2.0), Offline(3.0), Temperature(0.5)], ids=lambda x: type(x).__name__)
@pytest.mark.parametrize("definite", ["bounded", "normalized", "raw"])
def test_scores_of_scaled_and_bounded_potentials(method, definite: str) -> None:
    crf = GaussianCRF(M, ridge=2.0, scaling=method, definite=definite, share=0.3, pairs=None)
    for size in (0.001, 10.0):  # far below and far above the bound
        embeddings = size * EMBEDDINGS
        norms = rows(UNARY).abs().mean((1, 2)), (rows(embeddings) @ rows(embeddings).mT).abs().mean((1, 2))
        a, b = (x.double().expand(2) for x in method.factors(method.state(), lambda norms=norms: norms))
        bound = {} if definite == "raw" else {"share": 0.3, "grow": definite == "normalized"}
        want = expected(UNARY, embeddings, a, b, 2.0, **bound)
        torch.testing.assert_close(crf.scores(UNARY, embeddings), want, rtol=1e-5, atol=1e-9)


def test_balance_is_measured_after_scaling_and_bound() -> None:
    crf = GaussianCRF(M, ridge=2.0, scaling=Fixed(3.0), share=0.3, pairs=None)
    bounded = gaussian.bounded(rows(100 * EMBEDDINGS), 2.0, 0.3)
    want = 3 * rows(UNARY).abs().mean((1, 2)) / gaussian.mean_abs(bounded)
    torch.testing.assert_close(crf.balance(UNARY, 100 * EMBEDDINGS), want.mean(), rtol=1e-5, atol=0)


def test_pixels_with_similar_embeddings_get_the_same_label() -> None:
    """Two regions with noisy unary scores."""
    truth = torch.zeros(20, 20, dtype=torch.int64)
    truth[:, 10:] = 1
    embeddings = torch.nn.functional.one_hot(truth, 2).permute(2, 0, 1).float()
    unary = embeddings + normal(2, 20, 20, dtype=torch.float32)
    alone = (unary.argmax(0) == truth).float().mean()
    assert alone < 0.85
    assert (GaussianCRF(2, share=0.95).decode(unary, embeddings) == truth).float().mean() > alone
    assert bool((GaussianCRF(2, share=0.9999).decode(unary, embeddings) == truth).all())


def test_the_loss_is_the_mean_over_labelled_pixels_then_over_images() -> None:
    crf = GaussianCRF(M)
    labels = LABELS.clone()
    labels[0, 1:] = -100
    log_p = crf.log_marginals(UNARY, EMBEDDINGS)
    torch.testing.assert_close(log_p.exp().sum(1), torch.ones(2, H, W, dtype=torch.float64))
    picked = -log_p.gather(1, LABELS[:, None])[:, 0]
    want = (picked[0, :1].mean() + picked[1].mean()) / 2
    torch.testing.assert_close(crf.loss(UNARY, EMBEDDINGS, labels), want)
    torch.testing.assert_close(crf(UNARY, EMBEDDINGS, labels), want)
    labels[0] = -100  # an image without labels is ignored
    torch.testing.assert_close(crf.loss(UNARY, EMBEDDINGS, labels), picked[1].mean())
    assert torch.equal(crf.decode(UNARY, EMBEDDINGS), log_p.argmax(1))


def test_without_labels_loss_and_gradient_are_0() -> None:
    unary = UNARY.clone().requires_grad_()
    loss = GaussianCRF(M).loss(unary, EMBEDDINGS, torch.full((2, H, W), -100))
    loss.backward()
    assert float(loss.detach()) == 0
    assert bool((unary.grad == 0).all())
    empty = GaussianCRF(M).loss(UNARY[:0], EMBEDDINGS[:0], LABELS[:0])
    assert float(empty) == 0


@pytest.mark.parametrize("definite", ["bounded", "normalized", "raw"])
@pytest.mark.parametrize("method", [Fixed(2.0), Offline(1.0), Regularized(2.0, 0.1)], ids=lambda x: type(x).__name__)
def test_the_gradient_of_the_loss_against_finite_differences(definite: str, method) -> None:
    crf = GaussianCRF(2, definite=definite, share=0.6, learn_share=True, scaling=method, pairs=None).double()
    unary, embeddings = normal(2, 2, 2, 3).requires_grad_(), normal(2, 2, 2, 3, seed=3).requires_grad_()
    labels = LABELS[:, :2, :3] % 2

    def loss(u: Tensor, e: Tensor, share: Tensor) -> Tensor:
        return torch.func.functional_call(crf, {"share_logit": share}, (u, e, labels))

    share = crf.share_logit.detach().clone().requires_grad_()
    assert gradcheck(loss, (unary, embeddings, share))


def test_the_penalty_of_the_scaling_method_is_added() -> None:
    plain, penalised = GaussianCRF(M), GaussianCRF(M, scaling=Regularized(alpha=5.0, weight=0.5), pairs=None)
    ratio = rows(UNARY).abs().mean((1, 2)) / gaussian.mean_abs(rows(EMBEDDINGS))
    want = plain.loss(UNARY, EMBEDDINGS, LABELS) + (0.5 * (ratio - 5) ** 2).mean()
    torch.testing.assert_close(penalised.loss(UNARY, EMBEDDINGS, LABELS), want)


def test_replicas_are_a_leading_dimension_with_separate_factors() -> None:
    unary, embeddings, labels = (torch.stack([x, x.flip(0)]) for x in (UNARY, EMBEDDINGS, LABELS))
    ridge, share, alpha = torch.tensor([1.0, 3.0]), torch.tensor([0.2, 0.7]), torch.tensor([1.0, 4.0])
    together = GaussianCRF(M, ridge, Offline(alpha), share=share, pairs=None)
    scores = together.scores(unary, embeddings)
    losses = []
    for n in range(2):
        alone = GaussianCRF(M, float(ridge[n]), Offline(float(alpha[n])), share=float(share[n]), pairs=None)
        torch.testing.assert_close(alone.scores(unary[n], embeddings[n]), scores[n])
        losses.append(alone.loss(unary[n], embeddings[n], labels[n]))
    torch.testing.assert_close(together.loss(unary, embeddings, labels), torch.stack(losses).mean())


def test_scores_of_an_image_do_not_depend_on_its_batch() -> None:
    unary, embeddings = normal(3, M, 20, 20), normal(3, D, 20, 20, seed=1)
    crf = GaussianCRF(M, scaling=Offline(2.0), definite="raw", pairs=1000)
    together = crf.scores(unary, embeddings)
    assert torch.equal(crf.scores(unary, embeddings), together)
    torch.testing.assert_close(crf.scores(unary[1:2], embeddings[1:2]), together[1:2])
    torch.testing.assert_close(crf.scores(unary[2], embeddings[2]), together[2])


def test_the_pairwise_norm_is_sampled_in_large_images_and_only_if_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    exact, sampled = (GaussianCRF(M, definite="raw", pairs=pairs) for pairs in (None, 10))
    small = 4, 7  # 28 pixels have 784 pairs, all 35 have 1225; all pairs are measured up to 100 times 10
    cut = UNARY[..., : small[0], : small[1]], EMBEDDINGS[..., : small[0], : small[1]]
    torch.testing.assert_close(sampled.balance(*cut), exact.balance(*cut))
    got, want = sampled.balance(UNARY, EMBEDDINGS), exact.balance(UNARY, EMBEDDINGS)
    assert got != want
    torch.testing.assert_close(got, want, rtol=0.9, atol=0)

    def refuse(*_: object) -> None:
        raise AssertionError("takes time of order L^2, and is not needed")

    monkeypatch.setattr("equipoise.energies.size.mean_abs", refuse)
    exact.loss(UNARY, EMBEDDINGS, LABELS)


def test_online_rebalancing_finds_the_best_factor_of_the_grid() -> None:
    unary, embeddings = normal(6, M, H, W), normal(6, D, H, W, seed=1)
    labels = torch.where(torch.rand(6, H, W) < 0.6, unary.argmax(1), torch.randint(M, (6, H, W)))
    grid = tuple(2.0**n for n in range(-3, 4))
    crf = GaussianCRF(M, scaling=Online(grid, subset=6))
    best = min(grid, key=lambda a: float(GaussianCRF(M, scaling=Fixed(a)).loss(unary, embeddings, labels)))
    batches = [(x[:4], y[:4], z[:4]) for x, y, z in [(unary, embeddings, labels)]]
    batches += [(unary[4:], embeddings[4:], labels[4:])]
    assert float(crf.rebalance(batches)) == best
    assert min(grid) < best < max(grid)
    assert float(crf.scaling.alpha) == best
    newton = GaussianCRF(M, scaling=Online(grid, subset=6, exact=True))
    assert best / 2 < float(newton.rebalance(batches)) < best * 2
    with pytest.warns(UserWarning, match="the search needs 6 images, got 4"):
        crf.rebalance(batches[:1])
    with pytest.raises(TypeError, match=r"rebalance needs scaling=Online\(...\), but this layer has Fixed"):
        GaussianCRF(M).rebalance(batches)


def test_replicas_are_rebalanced_separately() -> None:
    unary, embeddings = normal(2, 4, M, H, W), normal(2, 4, D, H, W, seed=1)
    unary[1] *= 16
    labels = torch.where(torch.rand(2, 4, H, W) < 0.6, unary.argmax(2), torch.randint(M, (2, 4, H, W)))
    together = GaussianCRF(M, scaling=Online(alpha=torch.ones(2), subset=8))
    found = together.rebalance([(unary, embeddings, labels)])
    for n in range(2):
        alone = GaussianCRF(M, scaling=Online(subset=4)).rebalance([(unary[n], embeddings[n], labels[n])])
        assert float(found[n]) == float(alone)
    assert found[0] != found[1]


def test_all_methods_give_the_same_scores() -> None:
    want = GaussianCRF(M).scores(UNARY, EMBEDDINGS)
    torch.testing.assert_close(GaussianCRF(M, method="dense").scores(UNARY, EMBEDDINGS), want)
    iterated = GaussianCRF(M, method="cg", tolerance=1e-10).scores(UNARY, EMBEDDINGS)
    torch.testing.assert_close(iterated, want, rtol=1e-6, atol=1e-9)


def test_a_solver_that_does_not_converge_warns() -> None:
    with pytest.warns(RuntimeWarning, match="did not converge in 2 of 2 systems"):
        GaussianCRF(M, definite="raw", method="cg").scores(UNARY, EMBEDDINGS)
    with pytest.warns(RuntimeWarning, match="did not converge"):
        GaussianCRF(M, share=0.9, method="cg", max_iterations=2).scores(UNARY, EMBEDDINGS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        GaussianCRF(M, method="cg").scores(UNARY, EMBEDDINGS)


def test_checked_raises_for_an_indefinite_system() -> None:
    GaussianCRF(M, ridge=200.0, definite="checked").scores(UNARY, EMBEDDINGS)
    message = r"sigma_max\(A\^T A\) of embeddings\[0\] is .*, but must be below ridge, which is 1$"
    with pytest.raises(ValueError, match=message):
        GaussianCRF(M, definite="checked").scores(UNARY, EMBEDDINGS)


def test_zero_embeddings_leave_the_unary_scores() -> None:
    for definite in ("bounded", "normalized"):
        crf = GaussianCRF(M, ridge=2.0, definite=definite)
        torch.testing.assert_close(crf.scores(UNARY, 0 * EMBEDDINGS), UNARY / 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dtypes_and_memory_formats(dtype: torch.dtype) -> None:
    unary, embeddings = UNARY.to(dtype), EMBEDDINGS.to(dtype)
    crf = GaussianCRF(M)
    scores = crf.scores(unary, embeddings)
    assert scores.dtype == torch.float32
    torch.testing.assert_close(scores.double(), crf.scores(unary.double(), embeddings.double()), rtol=1e-5, atol=1e-5)
    last = (x.to(memory_format=torch.channels_last) for x in (unary, embeddings))
    torch.testing.assert_close(crf.scores(*last), scores)


def test_state_dict_has_share_and_ridge() -> None:
    crf = GaussianCRF(M, ridge=2.0, share=0.3, learn_share=True)
    other = GaussianCRF(M, learn_share=True)
    other.load_state_dict(crf.state_dict())
    assert torch.equal(other.scores(UNARY, EMBEDDINGS), crf.scores(UNARY, EMBEDDINGS))
    assert "draws" not in crf.state_dict()
    assert [name for name, _ in crf.named_parameters()] == ["share_logit"]
    assert not list(GaussianCRF(M).parameters())
    assert repr(crf).startswith("GaussianCRF(\n  3, definite=bounded, share=0.3, solver=Direct")


def test_any_image_size_one_label_and_more_dimensions_than_pixels() -> None:
    for h, w, m, d in ((1, 1, 2, 3), (1, 9, 1, 2), (3, 2, 2, 20)):
        unary, embeddings = normal(2, m, h, w), normal(2, d, h, w)
        scores = GaussianCRF(m).scores(unary, embeddings)
        e = gaussian.bounded(rows(embeddings), 1.0)
        torch.testing.assert_close(gaussian.potts(rows(scores), e, 1.0), rows(unary), rtol=1e-5, atol=1e-6)
