"""Bad input of `GaussianCRF` is an error of one line, which names the argument and what is there."""

import pytest
import torch
from torch import Tensor

from equipoise import GaussianCRF

M, D, H, W = 3, 4, 5, 7
UNARY, EMBEDDINGS = torch.randn(2, M, H, W), torch.randn(2, D, H, W)
LABELS = torch.zeros(2, H, W, dtype=torch.int64)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_labels": 0}, "num_labels must be at least 1, got 0"),
        ({"ridge": -1.0}, "ridge must be a positive number"),
        ({"definite": "yes"}, "definite must be one of bounded, normalized, checked, raw, got 'yes'"),
        ({"method": "lu"}, "method must be one of direct, cg, dense, or a solver, got 'lu'"),
        ({"share": 1.0}, "share must be above 0 and below 1, got 1.0"),
        ({"pairs": 1}, "pairs must be at least 2, got 1"),
    ],
)
def test_bad_settings(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GaussianCRF(**{"num_labels": M, **change})


@pytest.mark.parametrize(
    ("unary", "embeddings", "message"),
    [
        (UNARY[:, :2], EMBEDDINGS, r"unary has shape \(2, 2, 5, 7\), but its size in dimension -3 must be 3"),
        (UNARY, EMBEDDINGS[..., 1:], r"embeddings has shape \(2, 4, 5, 6\), but unary \(2, 3, 5, 7\) needs the same"),
        (UNARY, EMBEDDINGS[:1], r"embeddings has shape \(1, 4, 5, 7\), but unary \(2, 3, 5, 7\) needs the same"),
        (UNARY[..., :0], EMBEDDINGS[..., :0], r"unary must have shape \(\*batch, M, H, W\)"),
        (UNARY, EMBEDDINGS[:, :0], r"embeddings must have shape \(\*batch, D, H, W\)"),
        (UNARY[0, 0], EMBEDDINGS, r"unary must have shape \(\*batch, M, H, W\)"),
        (UNARY, EMBEDDINGS.to("meta"), "embeddings is on meta, but unary is on cpu"),
        (UNARY * torch.nan, EMBEDDINGS, r"unary\[0, 0, 0, 0\] is nan: it must be finite"),
        (UNARY, EMBEDDINGS * torch.nan, r"embeddings\[0, 0, 0, 0\] is nan: it must be finite"),
    ],
)
def test_bad_images(unary: Tensor, embeddings: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GaussianCRF(M).scores(unary, embeddings)
    with pytest.raises(ValueError, match=message):
        GaussianCRF(M, method="cg", validate=True).scores(unary, embeddings)


def test_validate_reads_values_that_are_not_read_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, where reading values waits for the device."""
    for module in ("solving", "definite", "inputs"):
        monkeypatch.setattr(f"equipoise.gaussian.{module}.readable", lambda *_: False)
    unary = UNARY.clone()
    unary[1, 2, 3, 4] = torch.nan
    scores = GaussianCRF(M).scores(unary, EMBEDDINGS)
    assert bool(scores[1].isnan().all())
    assert bool(scores[0].isfinite().all())
    with pytest.raises(ValueError, match=r"unary\[1, 2, 3, 4\] is nan: it must be finite"):
        GaussianCRF(M, validate=True).scores(unary, EMBEDDINGS)


def test_bad_labels() -> None:
    crf = GaussianCRF(M)
    for labels in (LABELS.float(), LABELS[:, 1:], LABELS > 0):
        with pytest.raises(ValueError, match=r"labels must be integers of shape \(2, 5, 7\), got"):
            crf.loss(UNARY, EMBEDDINGS, labels)
    for wrong in (M, -1):
        labels = LABELS.clone()
        labels[1, 2, 3] = wrong
        with pytest.raises(ValueError, match=rf"labels\[1, 2, 3\] is {wrong}, but must be from 0 to 2, or -100"):
            crf.loss(UNARY, EMBEDDINGS, labels)
        with pytest.raises(ValueError, match="must be from 0 to 2"):
            GaussianCRF(M, validate=True).loss(UNARY, EMBEDDINGS, labels)
        with pytest.raises(Exception, match="out of bounds"):
            GaussianCRF(M, validate=False).loss(UNARY, EMBEDDINGS, labels)
