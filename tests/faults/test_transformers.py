"""The model of transformers: steps without a label, and damaged weights."""

import re

import pytest
import torch
from torch import Tensor

pytest.importorskip("transformers")
import tiny_encoder
from transformers import BertConfig

from equipoise.integrations.transformers import CRFConfig, CRFForTokenClassification, predict_document
from equipoise.integrations.transformers.metrics import predicted_labels
from equipoise.integrations.transformers.output import repeat_at_other_tokens

IDS = torch.randint(128, (3, 6), generator=torch.Generator().manual_seed(0))


def model() -> CRFForTokenClassification:
    encoder = BertConfig(vocab_size=128, hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
    return CRFForTokenClassification(CRFConfig(encoder_config=encoder, id2label={0: "O", 1: "B-X", 2: "I-X"})).eval()


@pytest.mark.parametrize("items", [0, torch.tensor(0), 5, None])
def test_a_step_without_labels_has_a_loss_of_0(items: int | Tensor | None) -> None:
    """Its gradients are 0, as the Trainer adds them to those of other batches."""
    made = model().train()
    loss = made(IDS, labels=torch.full((3, 6), -100), num_items_in_batch=items).loss
    loss.backward()
    assert float(loss.detach()) == 0
    assert not any(x.grad.any() for x in made.parameters() if x.grad is not None)


def test_items_divide_the_loss() -> None:
    made, labels = model(), torch.zeros(3, 6, dtype=torch.int64)
    own = made(IDS, labels=labels).loss
    for items in (9, torch.tensor(9)):
        torch.testing.assert_close(made(IDS, labels=labels, num_items_in_batch=items).loss, 2 * own)


@pytest.mark.parametrize("damaged", ["net", "crf"])
def test_documents_with_scores_of_nan(damaged: str) -> None:
    made = model()
    if damaged == "net":
        made.classifier.bias.data[1] = torch.nan
    else:
        made.crf.pairwise.data[1, 1] = torch.nan
    reason = "words[0], 'anna', has a score of nan" if damaged == "net" else "the CRF has scores of NaN or infinity"
    with pytest.raises(ValueError, match=re.escape(reason)):
        predict_document(made, tiny_encoder.tokenizer(), ["anna", "went"])


def test_metrics_give_no_label_where_log_marginals_are_nan() -> None:
    log_p = torch.tensor([[[-1.0, -0.5], [torch.nan, torch.nan]]])
    assert predicted_labels(log_p.numpy(), "argmax").tolist() == [[1, -100]]


@pytest.mark.parametrize("mask", [[0, 1, 0, 0, 1, 0], [1, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 1], [1] * 6])
def test_other_tokens_repeat_the_word_before_them(mask: list[int]) -> None:
    log_p = torch.randn(1, 6, 3)
    found = repeat_at_other_tokens(log_p, torch.tensor([mask]) != 0)[0]
    places = [max((i for i in range(t + 1) if mask[i]), default=mask.index(1)) for t in range(6)]
    assert torch.equal(found, log_p[0, places])
