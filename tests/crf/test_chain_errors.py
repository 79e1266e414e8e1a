"""Bad input of `ChainCRF` is an error of one line, which names the argument, the place and what is there."""

import re

import pytest
import torch

from equipoise import ChainCRF, constraints, scaling

LABELS = ["O", "B-X", "I-X", "B-Y", "I-Y"]

BIO = constraints.from_labels(LABELS, "BIO")


@pytest.mark.parametrize("validate", [None, True])
@pytest.mark.parametrize(
    ("labels", "mask", "message"),
    [
        ([[0, 1, 2], [0, 2, 2]], None, "labels[1, 1] is 2 (I-X), which may not follow 0 (O)"),
        ([[0, 1, 2], [4, 0, 0]], None, "labels[1, 0] is 4 (I-Y), which may not come first"),
        ([[0, 1, 2], [0, 9, 2]], [[1, 1, 1], [1, 0, 1]], "labels[1, 2] is 2 (I-X), which may not follow 0 (O)"),
    ],
)
def test_gold_labels_that_violate_the_constraints(labels, mask, message: str, validate: bool | None) -> None:
    crf = ChainCRF(5, constraints=BIO, validate=validate)
    mask = None if mask is None else torch.tensor(mask)
    for objective in ("likelihood", "marginal", "margin"):
        with pytest.raises(ValueError, match=re.escape(message)):
            crf.loss(torch.zeros(2, 3, 5), torch.tensor(labels), mask, objective=objective)


def test_gold_labels_that_end_inside_a_chunk() -> None:
    crf = ChainCRF(4, constraints=constraints.from_labels(["B", "M", "E", "S"], "BMES"))
    labels = torch.tensor([[0, 2, 3], [3, 0, -100]])
    with pytest.raises(ValueError, match=re.escape("labels[1, 1] is 0 (B), which may not come last")):
        crf.loss(torch.zeros(2, 3, 4), labels)


def test_unchecked_invalid_labels_give_an_infinite_loss() -> None:
    crf = ChainCRF(5, constraints=BIO, validate=False)
    assert crf.loss(torch.zeros(1, 2, 5), torch.tensor([[0, 2]]), objective="likelihood") == torch.inf


def test_the_loss_explains_bad_values() -> None:
    crf = ChainCRF(3)
    unary, labels = torch.zeros(2, 4, 3), torch.zeros(2, 4, dtype=torch.int64)
    unary[1, 2] = -torch.inf
    for objective in ("likelihood", "marginal", "margin"):
        with pytest.raises(ValueError, match=re.escape("sequence unary[1] has no allowed labelling")):
            crf.loss(unary, labels, objective=objective)
    unary[1, 2, 1] = 0
    with pytest.raises(ValueError, match=re.escape("labels[1, 2] is 0, whose unary score there is -inf")):
        crf.loss(unary, labels)
    unary[1, 2] = torch.tensor([0, torch.nan, 0])
    with pytest.raises(ValueError, match=re.escape("unary[1, 2, 1] is nan")):
        crf.loss(unary, labels)
    assert crf.loss(unary, labels.index_fill(1, torch.tensor([2]), -100)).isfinite()  # the NaN is masked
    with torch.no_grad():
        crf.pairwise[0, 1] = torch.nan
    with pytest.raises(ValueError, match=re.escape("pairwise[0, 1] is nan: has training diverged?")):
        crf.loss(torch.zeros(2, 4, 3), labels)


def test_validate_checks_scores_in_decoding() -> None:
    unary = torch.zeros(2, 4, 3)
    unary[0, 1, 2] = torch.nan
    with pytest.raises(ValueError, match=re.escape("unary[0, 1, 2] is nan")):
        ChainCRF(3, validate=True).decode(unary)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda c, u, y: c.loss(u, y, objective="crf"), ValueError, "objective must be one of likelihood, marginal"),
        (
            lambda c, u, y: c.loss(u[..., :2], y),
            ValueError,
            "unary has shape (2, 4, 2), but the last size must be 3 labels",
        ),
        (lambda c, u, y: c.loss(u.long(), y), TypeError, "unary must have a floating-point dtype"),
        (lambda c, u, y: c.loss(u, y[:, :2]), ValueError, "labels has shape (2, 2), but unary (2, 4, 3) needs (2, 4)"),
        (lambda c, u, y: c.loss(u, y + 3), ValueError, "labels[0, 0] is 3"),
        (lambda c, u, y: c.loss(u, y - 2), ValueError, "labels[0, 0] is -2"),
        (lambda c, u, y: c.loss(u, y, torch.ones(2, 3)), TypeError, "mask must be boolean, got torch.float32"),
        (
            lambda c, u, y: c.decode(u, torch.ones(2, 3) > 0),
            ValueError,
            "mask has shape (2, 3), but unary (2, 4, 3) needs",
        ),
        (lambda c, u, y: c.decode(u, (y == 0).to("meta")), ValueError, "mask is on meta, but unary is on cpu"),
        (
            lambda c, u, y: c.loss(u, y, reduction="batchmean"),
            ValueError,
            "reduction must be one of mean, sum, none, token_mean, got 'batchmean'",
        ),
        (
            lambda c, u, y: ChainCRF(3, on_invalid="ignore"),
            ValueError,
            "on_invalid must be one of raise, warn, repair, got 'ignore'",
        ),
        (
            lambda c, u, y: c.decode(u, rule="best"),
            ValueError,
            "rule must be one of map, marginal, mean_field, unary, got 'best'",
        ),
        (lambda c, u, y: ChainCRF(0), ValueError, "num_labels must be at least 1, got 0"),
        (
            lambda c, u, y: ChainCRF(3, constraints=BIO),
            ValueError,
            "constraints.transitions must be boolean of shape (3, 3)",
        ),
        (
            lambda c, u, y: ChainCRF(5, constraints=BIO).loss(u, y, objective="mean_field"),
            ValueError,
            "mean_field treats labels as independent",
        ),
        (
            lambda c, u, y: scaling.Fixed(0.0),
            ValueError,
            "alpha must be a positive number, or one per rep",
        ),
    ],
)
def test_bad_input(call, error, message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        call(ChainCRF(3), torch.zeros(2, 4, 3), torch.zeros(2, 4, dtype=torch.int64))
