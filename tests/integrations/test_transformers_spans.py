"""Spans of texts by any token classifier, also longer than a window, and by a model with a CRF."""

from pathlib import Path

import pytest
import torch
from tests import tiny_encoder
from transformers import BertForTokenClassification

from equipoise import SpanDecoder
from equipoise.integrations.transformers import CRFForTokenClassification, predict_document, predict_spans
from equipoise.labels import to_spans

BIOES = ("O", "B-X", "I-X", "E-X", "S-X", "B-Y", "I-Y", "E-Y", "S-Y")
TEXT = "Anna went to New York. "


def classifier() -> BertForTokenClassification:
    torch.manual_seed(0)
    config = tiny_encoder.config()
    config.id2label = dict(enumerate(BIOES))
    model = BertForTokenClassification(config).eval()
    torch.nn.init.normal_(model.classifier.weight)
    return model


@pytest.mark.parametrize("whole_words", [True, False])
def test_a_text_in_one_window_has_the_spans_of_its_logits(whole_words: bool) -> None:
    model, tokenizer = classifier(), tiny_encoder.tokenizer()
    batch = tokenizer(TEXT, return_offsets_mapping=True, return_tensors="pt")
    with torch.no_grad():
        logits = model(batch["input_ids"]).logits[0]
    words = [-1 if word is None else word for word in batch.word_ids()] if whole_words else None
    expected = SpanDecoder(BIOES)(logits, offsets=batch["offset_mapping"][0], words=words)
    found = predict_spans(model, tokenizer, TEXT, whole_words=whole_words)
    assert [span[:3] for span in found] == [span[:3] for span in expected]
    assert [span.probability for span in found] == pytest.approx([span.probability for span in expected], rel=1e-4)
    assert found
    assert all(TEXT[span.start : span.end].strip() == TEXT[span.start : span.end] for span in found)


@pytest.mark.parametrize("whole_words", [True, False])
def test_windows_of_a_long_text_are_one_chain(whole_words: bool) -> None:
    """Positions and weights make scores depend on the token alone, so windows give what one window would."""
    model, tokenizer = classifier(), tiny_encoder.tokenizer(max_length=10_000)
    for layer in model.bert.encoder.layer:
        torch.nn.init.zeros_(layer.attention.output.dense.weight)
    torch.nn.init.zeros_(model.bert.embeddings.position_embeddings.weight)
    short = predict_spans(model, tokenizer, TEXT * 4, max_length=64, whole_words=whole_words)
    assert short
    for size, stride in ((16, 4), (12, 0), (9, 6), (3, 0)):  # the last have one token each
        found = predict_spans(model, tokenizer, TEXT * 4, max_length=size, stride=stride, whole_words=whole_words)
        assert [span[:3] for span in found] == [span[:3] for span in short]
        expected = [span.probability for span in short]
        assert [span.probability for span in found] == pytest.approx(expected, rel=1e-3)
    assert predict_spans(model, tokenizer, "  ") == []
    with pytest.raises(ValueError, match="max_length must be at least 3, for a token beside 2 special ones, got 2"):
        predict_spans(model, tokenizer, TEXT, max_length=2)
    for stride in (-1, 6):
        with pytest.raises(ValueError, match=f"stride must be from 0 to 5 for windows of 8 tokens, got {stride}"):
            predict_spans(model, tokenizer, TEXT, max_length=8, stride=stride)


def test_a_model_with_a_crf_gives_its_potentials(tmp_path: Path) -> None:
    """Spans are those of its own decoding, probabilities those of its own chain."""
    torch.manual_seed(3)
    model = CRFForTokenClassification.from_encoder(tiny_encoder.save(tmp_path), BIOES, "BIOES", dropout=0.0)
    for parameter in (model.crf.pairwise, model.crf.start, model.crf.end, model.classifier.weight):
        torch.nn.init.normal_(parameter)
    tokenizer, words = tiny_encoder.tokenizer(), [*tiny_encoder.WORDS] * 12
    tags = predict_document(model, tokenizer, words)
    text = " ".join(words)
    starts = [len(" ".join(words[:i])) + (i > 0) for i in range(len(words))]
    found = predict_spans(model, tokenizer, text)
    expected = [
        (starts[span.start], starts[span.stop - 1] + len(words[span.stop - 1]), span.kind)
        for span in to_spans(tags, "BIOES")
    ]
    assert [span[:3] for span in found] == expected
    assert expected

    batch = tokenizer("anna went", return_tensors="pt")
    with torch.no_grad():
        logits, unary = model(batch["input_ids"]).logits[0], model.unary(input_ids=batch["input_ids"])[0]
    decoder = SpanDecoder.from_model(model)
    p = model.crf.log_marginals(unary[None, 1:3]).exp()[0]
    for span in decoder(unary[1:3]):
        if span.end - span.start == 1:
            assert span.probability == pytest.approx(float(p[span.start, BIOES.index(f"S-{span.label}")]), rel=1e-5)
    with pytest.raises(ValueError, match=r"but a model with a CRF needs model\.unary"):
        decoder(logits)
    with pytest.raises(ValueError, match="the decoder is that of a model with a CRF: export the model"):
        decoder.layer()
