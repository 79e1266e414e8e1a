"""Errors name the argument, its value or shape, and the valid ones."""

import re

import pytest
import torch

from equipoise import chain, objectives

UNARY, PAIRWISE = torch.zeros(2, 4, 3), torch.zeros(3, 3)
LABELS = torch.zeros(2, 4, dtype=torch.int64)


@pytest.mark.parametrize(
    ("unary", "pairwise", "lengths", "error", "message"),
    [
        (torch.zeros(3), PAIRWISE, None, ValueError, "unary must have shape (*batch, L, M), got (3,)"),
        (torch.zeros(2, 0, 3), PAIRWISE, None, ValueError, "at least one position and one label, got shape (2, 0, 3)"),
        ([[0.0]], PAIRWISE, None, TypeError, "unary must be a tensor, got list"),
        (UNARY.long(), PAIRWISE, None, TypeError, "unary must have a floating-point dtype, got torch.int64"),
        (UNARY, PAIRWISE.long(), None, TypeError, "pairwise must have a floating-point dtype, got torch.int64"),
        (
            UNARY,
            torch.zeros(4, 4),
            None,
            ValueError,
            "pairwise has shape (4, 4), but unary (2, 4, 3) needs (3, 3) for all, (2, 3, 3) for each sequence or "
            "(2, 3, 3, 3) for each edge",
        ),
        (UNARY, torch.zeros(3), None, ValueError, "pairwise has shape (3,)"),
        (UNARY, torch.zeros(5, 3, 3), None, ValueError, "pairwise has shape (5, 3, 3)"),
        (UNARY, torch.zeros(2, 4, 3, 3), None, ValueError, "pairwise has shape (2, 4, 3, 3)"),
        (UNARY, torch.zeros(1, 2, 3, 3, 3), None, ValueError, "pairwise has shape (1, 2, 3, 3, 3)"),
        (UNARY, PAIRWISE.to("meta"), None, ValueError, "pairwise is on meta, but unary is on cpu"),
        (UNARY, PAIRWISE, torch.tensor([4]), ValueError, "lengths has shape (1,), but unary (2, 4, 3) needs (2,)"),
        (UNARY, PAIRWISE, [4, 1], TypeError, "lengths must be a tensor, got list"),
        (UNARY, PAIRWISE, torch.tensor([4.0, 1.0]), TypeError, "lengths must be integers, got torch.float32"),
        (UNARY, PAIRWISE, torch.tensor([True, True]), TypeError, "lengths must be integers, got torch.bool"),
        (UNARY, PAIRWISE, torch.tensor([4, 0]), ValueError, "lengths[1] is 0, but must be from 1 to L = 4"),
        (UNARY, PAIRWISE, torch.tensor([5, 1]), ValueError, "lengths[0] is 5, but must be from 1 to L = 4"),
        (UNARY, PAIRWISE, torch.tensor([1, 1], device="meta"), ValueError, "lengths is on meta, but unary is on cpu"),
    ],
)
def test_scores_and_lengths(unary, pairwise, lengths, error, message) -> None:
    for function in (chain.log_partition, chain.log_marginals, chain.edge_marginals, chain.entropy, chain.decode):
        with pytest.raises(error, match=re.escape(message)):
            function(unary, pairwise, lengths)


@pytest.mark.parametrize(
    ("labels", "lengths", "error", "message"),
    [
        (LABELS[0], None, ValueError, "labels has shape (4,), but unary (2, 4, 3) needs (2, 4)"),
        ([[0] * 4] * 2, None, TypeError, "labels must be a tensor, got list"),
        (LABELS.double(), None, TypeError, "labels must be integers, got torch.float64"),
        (LABELS + 3, None, ValueError, "labels[0, 0] is 3, but labels of valid positions must be from 0 to 2"),
        (LABELS - 100, torch.tensor([1, 1]), ValueError, "labels[0, 0] is -100"),
        (LABELS.to("meta"), None, ValueError, "labels is on meta, but unary is on cpu"),
    ],
)
def test_labels(labels, lengths, error, message) -> None:
    for function in (chain.score, objectives.likelihood, objectives.marginal, objectives.margin, objectives.mean_field):
        with pytest.raises(error, match=re.escape(message)):
            function(UNARY, PAIRWISE, labels, lengths)


def test_labels_beyond_the_length_are_not_read() -> None:
    labels = torch.tensor([[0, 1, -100, 99], [2, 2, 2, 2]])
    assert chain.score(UNARY, PAIRWISE, labels, torch.tensor([2, 4])).tolist() == [0, 0]


def test_counts_and_names() -> None:
    with pytest.raises(ValueError, match="k must be at least 1, got 0"):
        chain.top_k(UNARY, PAIRWISE, k=0)
    with pytest.raises(ValueError, match="n must be at least 1, got -1"):
        chain.sample(UNARY, PAIRWISE, n=-1)
    with pytest.raises(ValueError, match="schedule must be 'sequential' or 'parallel', got 'both'"):
        chain.mean_field(UNARY, PAIRWISE, schedule="both")
    with pytest.raises(ValueError, match="iterations must be at least 0, got -1"):
        chain.mean_field(UNARY, PAIRWISE, iterations=-1)
    with pytest.raises(ValueError, match=re.escape("log_q has shape (4, 3), but unary has (2, 4, 3)")):
        chain.mean_field_bound(UNARY[0], UNARY, PAIRWISE)


def test_check_names_bad_values() -> None:
    for value in (torch.nan, torch.inf):
        unary, pairwise = UNARY.clone(), PAIRWISE.clone()
        unary[1, 3, 2] = value
        with pytest.raises(ValueError, match=re.escape(f"unary[1, 3, 2] is {value}")):
            chain.check(unary, PAIRWISE)
        chain.check(unary, PAIRWISE, lengths=torch.tensor([4, 3]))  # beyond the length
        pairwise[2, 0] = value
        with pytest.raises(ValueError, match=re.escape(f"pairwise[2, 0] is {value}")):
            chain.check(UNARY, pairwise)
    with pytest.raises(ValueError, match=re.escape("labels[1, 1] is 7")):
        chain.check(UNARY, PAIRWISE, torch.tensor([[0, 1, 2, 0], [0, 7, 0, 0]]))
    with pytest.raises(ValueError, match=re.escape("lengths[1] is 9")):
        chain.check(UNARY, PAIRWISE, lengths=torch.tensor([1, 9]))
    unary = UNARY.clone()
    unary[0, 0, 0] = -torch.inf
    chain.check(unary, PAIRWISE)  # a forbidden label is valid
