"""Losses and predictions of a layer from sets of labels, soft labels and weights."""

import warnings
from typing import Any

import pytest
import torch
from enumeration import Enumeration
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from equipoise import UNKNOWN, ChainCRF, constraints, objectives, scaling
from equipoise.objectives import Objective

M = 3
RULES = constraints.from_labels(["O", "B-X", "I-X"], "BIO")
METHODS = [
    scaling.Fixed,
    lambda: scaling.Online(subset=2),
    lambda: scaling.Offline(0.5),
    lambda: scaling.Regularized(0.5, weight=0.1),
    lambda: scaling.Temperature(2.0, normalize=True),
    scaling.Learned,
]


def layer(method: Any = scaling.Fixed, **options: Any) -> ChainCRF:
    options = {"boundaries": True} | options
    return ChainCRF(M, method(), generator=torch.Generator().manual_seed(0), **options).double()


def batch(seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Scores, labels with -100, a mask with holes and an empty sequence, and sets that have the labels."""
    draws = torch.Generator().manual_seed(seed)
    unary = torch.randn(2, 3, 5, M, dtype=torch.float64, generator=draws)
    labels = torch.randint(M, (2, 3, 5), generator=draws)
    mask = torch.rand(2, 3, 5, generator=draws) < 0.7
    mask[0, 0] = False
    sets = (torch.rand(unary.shape, generator=draws) < 0.4) | one_hot(labels, M).bool()
    labels[1, 1, 2] = -100
    return unary, labels, mask, sets


@pytest.mark.parametrize("objective", ["likelihood", "marginal", "margin", "unary"])
@pytest.mark.parametrize("method", METHODS)
def test_one_label_per_set_is_the_hard_loss(method: Any, objective: str) -> None:
    """Values, gradients and what the scaling method learns, in every reduction; targets too."""
    unary, labels, mask, _ = batch()
    exact = one_hot(labels.clamp(min=0), M).bool()
    for reduction in ("mean", "sum", "none", "token_mean"):
        kinds: list[dict[str, Any]] = [{"labels": labels}, {"allowed": exact}, {"weights": torch.ones(2, 3)}]
        kinds[2]["labels"] = labels
        if objective != "margin":
            kinds.append({"targets": exact.double()})
        results = []
        for kind in kinds:
            crf, inputs = layer(method, objective=objective), unary.clone().requires_grad_()
            on = mask if "labels" in kind else mask & (labels != -100)
            loss = crf.loss(inputs, mask=on, reduction=reduction, **kind)
            loss.sum().backward()
            own = {name: x.grad for name, x in crf.named_parameters() if x.grad is not None}
            results.append((loss, inputs.grad, own, dict(crf.named_buffers())))
        for other in results[1:]:
            torch.testing.assert_close(other, results[0], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("objective", ["likelihood", "marginal", "margin"])
def test_masks_and_both_kinds_of_missing_labels(objective: str) -> None:
    """Each sequence alone, without the positions that are off, and the set of all labels for UNKNOWN."""
    unary, labels, mask, sets = batch()
    labels[0, 2, ::2] = UNKNOWN
    crf = layer(objective=objective)
    loss = {"likelihood": "partial", "marginal": "partial_marginal", "margin": "partial_margin"}[objective]
    got = crf.loss(unary, labels, mask, allowed=sets, reduction="none")
    both = sets & ((labels == UNKNOWN)[..., None] | (labels[..., None] == torch.arange(M)))
    for i in torch.ones(2, 3).nonzero().tolist():
        there = mask[*i] & (labels[*i] != -100)
        if not there.any():
            assert got[*i] == 0
            continue
        u, w, _ = crf.potentials(unary[*i][there][None])
        want = getattr(objectives, loss)(u, w, both[*i][there][None])
        torch.testing.assert_close(got[*i], want[0])
    assert torch.equal(crf.loss(unary, labels, mask, allowed=sets), got.sum() / 5)  # one sequence is empty


def test_unknown_keeps_its_position_and_minus_100_removes_it() -> None:
    """O ? I-X: the unknown label must lead from O to I-X. Without the position I-X follows O, which is forbidden."""
    crf = layer(constraints=RULES)
    unary = torch.zeros(1, 3, M, dtype=torch.float64)
    for parameter in crf.parameters():
        torch.nn.init.zeros_(parameter)
    loss = crf.loss(unary, torch.tensor([[0, UNKNOWN, 2]]))
    assert f"{loss.exp():.4f}" == "13.0000"  # only O B-X I-X, of 13 labellings that BIO allows
    with pytest.raises(ValueError, match=r"labels\[0, 2\] is 2 \(I-X\), which may not follow 0 \(O\)"):
        crf.loss(unary, torch.tensor([[0, -100, 2]]))
    assert torch.equal(loss, crf.loss(unary, torch.tensor([[0, UNKNOWN, 2]]), unknown=True))
    assert crf.loss(unary, torch.full((1, 3), UNKNOWN)) == 0


def test_sets_without_a_labelling_name_their_place() -> None:
    unary, crf = torch.zeros(2, 3, M, dtype=torch.float64), layer(constraints=RULES)
    sets = torch.ones(2, 3, M, dtype=torch.bool)
    sets[1, 1] = False
    for call in (crf.loss, crf.decode, crf.log_marginals, crf.entropy):
        with pytest.raises(ValueError, match=r"allowed\[1, 1\] is empty"):
            call(unary, allowed=sets)
    mask = torch.tensor([[True, True, True], [True, False, True]])
    assert crf.loss(unary, mask=mask, allowed=sets).isfinite()  # the position is off
    sets[1, 1] = torch.tensor([True, False, False])
    sets[1, 2] = torch.tensor([False, False, True])
    text = r"allowed\[1, 2\] is 2 \(I-X\), which may not follow 0 \(O\)"
    for call in (crf.loss, crf.decode, crf.log_marginals):
        with pytest.raises(ValueError, match=text):
            call(unary, allowed=sets)
    with pytest.raises(ValueError, match=r"allowed\[0, 0\] is 2 \(I-X\), which may not come first"):
        crf.loss(unary, torch.tensor([[2, 2, 2], [0, 0, 0]]), allowed=torch.ones_like(sets))
    with pytest.raises(ValueError, match=r"labels\[1, 0\] is 7"):
        crf.loss(unary, torch.tensor([[-1, 0, 0], [7, 0, 0]]))


@pytest.mark.parametrize("policy", ["warn", "repair"])
def test_policies(policy: str) -> None:
    """Sequences without a labelling are left out, or their sets are replaced where the nearest labelling is outside."""
    unary = torch.randn(2, 3, M, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([[0, 2, UNKNOWN], [0, UNKNOWN, 1]])  # O I-X ?
    crf = layer(constraints=RULES, on_invalid=policy)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        got = crf.loss(unary, labels, reduction="none")
    good = crf.loss(unary[1:], labels[1:])
    if policy == "warn":
        assert "1 of 2 sequences are left out: labels[0, 1] is 2 (I-X)" in str(caught[0].message)
        assert caught[0].filename == __file__
        want = torch.stack([torch.zeros_like(good), good])
    else:
        want = torch.stack([crf.loss(unary[:1], torch.tensor([[0, 1, UNKNOWN]])), good])  # O B-X ?
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("method", [scaling.Fixed, METHODS[3]])
def test_weights_of_sequences(method: Any) -> None:
    unary, labels, mask, sets = batch()
    weights = torch.tensor([[1.0, 2.0, 0.0], [0.5, 0.0, 3.0]], dtype=torch.float64)
    for objective, answer in (("likelihood", {}), ("mean_field", {}), ("margin", {"allowed": sets})):
        crf = layer(method, objective=objective)
        each = crf.loss(unary, labels, mask, reduction="none", **answer)
        count = (mask & (labels != -100)).sum(-1)
        got = {
            name: crf.loss(unary, labels, mask, weights=weights, reduction=name, **answer)
            for name in ("mean", "sum", "none", "token_mean")
        }
        torch.testing.assert_close(got["none"], weights * each)
        torch.testing.assert_close(got["sum"], (weights * each).sum())
        torch.testing.assert_close(got["mean"], (weights * each).sum() / weights[count > 0].sum())
        n = count if objective == "mean_field" else 1
        if method is scaling.Fixed:  # the penalty of others has its own mean
            torch.testing.assert_close(got["token_mean"], (n * weights * each).sum() / (count * weights).sum())
        assert crf.loss(unary, labels, mask, weights=0 * weights, **answer) == 0


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_weights_of_classes_and_positions(smoothing: float) -> None:
    """As torch's cross-entropy, whose logits are log-probabilities here."""
    unary, labels, mask, _ = batch()
    draws = torch.Generator().manual_seed(1)
    classes, each = (torch.rand(shape, generator=draws, dtype=torch.float64) for shape in ((M,), labels.shape))
    there = mask & (labels != -100)
    for objective in ("unary", "marginal"):
        crf = layer(objective=objective, boundaries=False)
        log_p = unary.log_softmax(-1) if objective == "unary" else crf.log_marginals(unary, there)
        flat = log_p[there], labels[there], classes
        got = crf.loss(unary, labels, mask, class_weights=classes, label_smoothing=smoothing, reduction="token_mean")
        torch.testing.assert_close(got, cross_entropy(*flat, label_smoothing=smoothing))
        got = crf.loss(unary, labels, mask, weights=each, label_smoothing=smoothing, reduction="token_mean")
        loss = cross_entropy(*flat[:2], reduction="none", label_smoothing=smoothing)
        torch.testing.assert_close(got, (each[there] * loss).sum() / each[there].sum())
        soft = one_hot(labels.clamp(min=0), M).double()
        again = crf.loss(
            unary, mask=there, targets=soft, weights=each, label_smoothing=smoothing, reduction="token_mean"
        )
        torch.testing.assert_close(again, got)
    labels[1, 0, 1] = UNKNOWN
    unsure = crf.loss(unary, labels, mask, class_weights=classes, reduction="none")[1, 0]
    p, y, length = log_p[1, 0], labels[1, 0], there[1, 0].sum()
    known = there[1, 0] & (y != UNKNOWN)
    torch.testing.assert_close(unsure, -(classes[y[known]] * p[known, y[known]]).sum() / length)


@pytest.mark.parametrize("objective", ["likelihood", "marginal"])
def test_soft_labels_under_constraints(objective: str) -> None:
    """Independent soft labels give a probability to forbidden transitions, whose constant part of the loss is left out.

    So the gradient is p - q for unary scores, and xi minus q q of those neighbours that are allowed.
    """
    unary = batch()[0].requires_grad_()
    crf, targets = layer(objective=objective, constraints=RULES), unary.detach().softmax(-1)
    loss = crf.loss(unary, targets=targets, reduction="sum")
    loss.backward()
    assert loss.isfinite()
    if objective == "likelihood":
        p = crf.log_marginals(unary).exp()
        torch.testing.assert_close(unary.grad, torch.where(p > 0, p - targets, 0))
        assert crf.pairwise.grad is not None
        assert crf.pairwise.grad[0, 2] == 0
    else:
        log_p = crf.log_marginals(unary)
        want = -torch.where(log_p > -torch.inf, targets * log_p, 0).sum((-1, -2)).sum() / 5
        torch.testing.assert_close(loss, want)


def test_conditional_answers() -> None:
    """P(Y | X, A) by enumeration: forced decoding, marginals, entropy, samples and scores."""
    unary, _, _, sets = batch()
    crf = layer()
    u, w, _ = crf.potentials(unary)
    one = Enumeration(u.detach(), w.detach().expand(2, 3, 4, M, M))
    inside = sets[..., torch.arange(5), one.labels].all(-1)
    one.scores = one.scores.masked_fill(~inside, -torch.inf)
    torch.testing.assert_close(crf.log_marginals(unary, allowed=sets).exp(), one.marginals())
    torch.testing.assert_close(crf.entropy(unary, allowed=sets), one.entropy())
    best = crf.decode(unary, allowed=sets)
    assert torch.equal(best, one.labels[one.scores.argmax(-1)])
    torch.testing.assert_close(crf.score(unary, best, allowed=sets), one.scores.amax(-1))
    _labels, scores = crf.top_k(unary, allowed=sets, k=2)
    torch.testing.assert_close(scores, one.scores.topk(2, -1).values)
    drawn = crf.sample(unary, n=20, allowed=sets, generator=torch.Generator().manual_seed(0))
    assert sets.gather(-1, drawn.mT).all()
    assert (crf.score(unary, (best + 1) % M, allowed=one_hot(best, M).bool()) == -torch.inf).all()
    assert sets.gather(-1, crf.decode(unary, rule="marginal", allowed=sets)[..., None]).all()


@pytest.mark.parametrize(
    ("arguments", "objective", "text"),
    [
        ({}, "likelihood", "loss needs labels, allowed or targets"),
        ({"allowed": "sets"}, "mean_field", "mean_field is defined for one label per position"),
        ({"allowed": "sets"}, Objective(lambda *x: x[0].sum((-1, -2)), "map"), "your own is defined for one label"),
        ({"targets": "soft"}, "margin", "targets need the objective likelihood, marginal or unary; margin"),
        ({"labels": "labels", "targets": "soft"}, "likelihood", "targets take the place of labels and allowed"),
        ({"labels": "labels", "class_weights": "classes"}, "likelihood", "likelihood is the loss of a whole labelling"),
        ({"labels": "labels", "label_smoothing": 0.1}, "margin", "margin is the loss of a whole labelling"),
        ({"allowed": "sets", "label_smoothing": 0.1}, "marginal", "a set has no class"),
        ({"labels": "labels", "label_smoothing": 2.0}, "marginal", "label_smoothing must be from 0 to 1, got 2"),
        ({"labels": "labels", "weights": "classes"}, "marginal", r"weights has shape \(3,\)"),
        ({"labels": "labels", "weights": "negative"}, "likelihood", r"weights\[0, 0\] is -1.0"),
        ({"targets": "unary"}, "likelihood", r"targets\[0, 0, 0\] is no distribution"),
    ],
)
def test_errors(arguments: dict[str, Any], objective: Any, text: str) -> None:
    unary, labels, _, sets = batch()
    named = {
        "unary": unary,
        "labels": labels,
        "sets": sets,
        "soft": unary.softmax(-1),
        "classes": torch.ones(M),
        "negative": -torch.ones(2, 3),
    }
    given = {name: named.get(value, value) if isinstance(value, str) else value for name, value in arguments.items()}
    with pytest.raises((ValueError, TypeError), match=text):
        layer(objective=objective).loss(unary, **given)
