"""The pipeline "equipoise-spans": its spans are those that the CRF decodes, for texts, words and long documents."""

from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers")
pytest.importorskip("tokenizers")

import tiny_encoder
from transformers import BertForTokenClassification, pipeline

from equipoise import SpanDecoder
from equipoise.integrations.transformers import (
    CRFConfig,
    CRFForTokenClassification,
    DataCollatorForWords,
    SpanPipeline,
    predict_spans,
    tokenize_words,
)
from equipoise.labels import to_spans

BIOES = ("O", "B-X", "I-X", "E-X", "S-X", "B-Y", "I-Y", "E-Y", "S-Y")
TEXT = "Anna went to New York. "


def crf(**fields: Any) -> CRFForTokenClassification:
    torch.manual_seed(0)
    config = {"encoder_config": tiny_encoder.config(), "id2label": dict(enumerate(BIOES)), "scheme": "BIOES", **fields}
    model = CRFForTokenClassification(CRFConfig(**config)).eval()
    for parameter in (model.classifier.weight, model.crf.pairwise):
        torch.nn.init.normal_(parameter)
    torch.nn.init.zeros_(model.backbone.embeddings.position_embeddings.weight)  # padding on the left moves positions
    return model


def softmax(labels: tuple[str, ...] = BIOES) -> BertForTokenClassification:
    torch.manual_seed(0)
    config = tiny_encoder.config()
    config.id2label = dict(enumerate(labels))
    model = BertForTokenClassification(config).eval()
    torch.nn.init.normal_(model.classifier.weight)
    return model


def sentences(count: int) -> list[list[str]]:
    generator = torch.Generator().manual_seed(1)
    sizes = torch.randint(1, 13, (count,), generator=generator).tolist()
    return [
        [tiny_encoder.WORDS[i] for i in torch.randint(len(tiny_encoder.WORDS), (size,), generator=generator)]
        for size in sizes
    ]


@pytest.mark.parametrize(("side", "count"), [("right", 500), ("left", 40)])
def test_the_spans_of_sentences_are_those_that_the_model_decodes(side: str, count: int, tmp_path: Path) -> None:
    """Labels are BIOES, which the stock pipeline cannot read. Texts and words, in batches of unequal lengths."""
    model, tokenizer, data = crf(), tiny_encoder.tokenizer(), sentences(count)
    model.save_pretrained(tmp_path)
    tokenizer.padding_side = side
    tokenizer.save_pretrained(tmp_path)
    features = [tokenize_words(tokenizer, words) for words in data]
    batch = DataCollatorForWords(tokenizer)(features)
    with torch.no_grad():
        labels = model(**batch).labels
    tagger = pipeline("equipoise-spans", str(tmp_path), batch_size=32, device="cpu")
    assert type(tagger) is SpanPipeline
    by_text = tagger([" ".join(words) for words in data])
    by_words = tagger(data)
    total = 0
    for words, row, on, from_text, from_words in zip(data, labels, batch["word_mask"], by_text, by_words, strict=True):
        expected = to_spans([BIOES[i] for i in row[on]], "BIOES")
        assert [(x["entity_group"], x["start"], x["end"]) for x in from_words] == expected
        assert [(x["entity_group"], x["word"]) for x in from_text] == [
            (span.kind, " ".join(words[span.start : span.stop])) for span in expected
        ]
        assert [x["score"] for x in from_text] == pytest.approx([x["score"] for x in from_words], abs=1e-4)
        total += len(expected)
    assert total > count


def test_a_long_text_is_one_chain_and_scores_are_those_of_the_decoder() -> None:
    model, tokenizer = crf(), tiny_encoder.tokenizer()
    text = TEXT * 40
    tagger = pipeline("token-classification", model, tokenizer=tokenizer, pipeline_class=SpanPipeline, device="cpu")
    for options in ({}, {"stride": 2, "max_length": 12}):
        expected = predict_spans(model, tokenizer, text, **options)
        for batch_size in (1, 8):
            found = tagger(text, batch_size=batch_size, **options)
            assert [(x["start"], x["end"], x["entity_group"], x["runner_up"]) for x in found] == [
                (x.start, x.end, x.label, x.runner_up) for x in expected
            ]
            assert [x["score"] for x in found] == pytest.approx([x.probability for x in expected], abs=1e-4)
            assert all(x["word"] == text[x["start"] : x["end"]] for x in found)
    words = text.split()
    assert tagger(words, is_split_into_words=True) == tagger([words])[0] != []
    assert tagger(["", "  "]) == [[], []]
    assert tagger([[]]) == [[]]


def test_any_token_classifier_has_valid_spans_under_any_scheme() -> None:
    tokenizer = tiny_encoder.tokenizer()
    options = {"tokenizer": tokenizer, "device": "cpu"}
    tagger = pipeline("equipoise-spans", softmax(), **options)
    expected = predict_spans(tagger.model, tokenizer, TEXT)
    assert [(x["start"], x["end"], x["entity_group"]) for x in tagger(TEXT)] == [x[:3] for x in expected]
    eager = SpanDecoder(BIOES, biases={"enter": 20.0})
    assert [x["start"] for x in tagger(TEXT, decoder=eager)] == [
        x.start for x in predict_spans(tagger.model, tokenizer, TEXT, eager)
    ]
    pieces = tagger("Bob", whole_words=False, decoder=SpanDecoder(BIOES, scheme="none", biases={"stay": -99.0}))
    assert all(x["end"] - x["start"] == 1 for x in pieces)

    bio = pipeline("equipoise-spans", softmax(tiny_encoder.LABELS), **options)
    with pytest.raises(ValueError, match="fit IOB2 and IOB1"):
        bio(TEXT)
    iob1 = predict_spans(bio.model, tokenizer, TEXT, SpanDecoder(tiny_encoder.LABELS, "IOB1"))
    assert [(x["start"], x["end"]) for x in bio(TEXT, scheme="IOB1")] == [(x.start, x.end) for x in iob1]
    with pytest.raises(TypeError, match="the pipeline equipoise-spans has no argument 'aggregation_strategy'"):
        bio(TEXT, aggregation_strategy="first")


def test_a_pipeline_is_saved_as_its_model(tmp_path: Path) -> None:
    """No file of the library is copied, and no task that asks for trust is written."""
    tagger = pipeline("equipoise-spans", crf(), tokenizer=tiny_encoder.tokenizer(), device="cpu")
    tagger.save_pretrained(str(tmp_path))
    assert [path.name for path in tmp_path.glob("*.py")] == ["modeling_equipoise.py"]
    assert "custom_pipelines" not in (tmp_path / "config.json").read_text()
    again = pipeline("equipoise-spans", str(tmp_path), device="cpu")
    assert again(TEXT) == tagger(TEXT)
