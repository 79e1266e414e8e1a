"""Words, tokens and metrics of the transformers integration, and texts longer than the encoder's window."""

import subprocess
import sys
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("transformers")
pytest.importorskip("tokenizers")

import tiny_encoder
from hypothesis import given
from hypothesis import strategies as st
from transformers import EvalPrediction

from equipoise import constraints
from equipoise.integrations.transformers import (
    CRFConfig,
    CRFForTokenClassification,
    DataCollatorForWords,
    compute_metrics,
    predict_document,
    tokenize_words,
)
from equipoise.integrations.transformers.documents import document_scores
from equipoise.integrations.transformers.windows import window

WORDS = ["Anna", "met", "Bob", "."]  # "met" and "Bob" are three tokens each


def test_the_first_token_of_each_word_has_its_label() -> None:
    tokenizer = tiny_encoder.tokenizer()
    found = tokenize_words(tokenizer, WORDS, [1, 0, 3, 0])
    tokens = tokenizer.convert_ids_to_tokens(found["input_ids"])
    assert tokens == ["[CLS]", "anna", "m", "##e", "##t", "b", "##o", "##b", ".", "[SEP]"]
    assert found["labels"] == [-100, 1, 0, -100, -100, 3, -100, -100, 0, -100]
    assert found["word_mask"] == [0, 1, 1, 0, 0, 1, 0, 0, 1, 0]
    assert found.word_ids() == [None, 0, 1, 1, 1, 2, 2, 2, 3, None]


def test_several_sentences_give_the_same_as_each_alone() -> None:
    tokenizer = tiny_encoder.tokenizer()
    both = tokenize_words(tokenizer, [WORDS, ["to"]], [[1, 0, 3, 0], [2]])
    for i, alone in enumerate((tokenize_words(tokenizer, WORDS, [1, 0, 3, 0]), tokenize_words(tokenizer, ["to"], [2]))):
        for name in ("input_ids", "labels", "word_mask"):
            assert both[name][i] == alone[name]


def test_labels_of_another_length_are_an_error() -> None:
    with pytest.raises(ValueError, match="labels must have one index per word"):
        tokenize_words(tiny_encoder.tokenizer(), WORDS, [1, 0])


def test_truncated_words_have_no_position() -> None:
    found = tokenize_words(tiny_encoder.tokenizer(), WORDS, [1, 0, 3, 0], truncation=True, max_length=6)
    assert found["word_mask"] == [0, 1, 1, 0, 0, 0]
    assert len(found["labels"]) == 6


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("multiple", [None, 16])
def test_the_collator_pads_the_word_mask_as_the_labels(side: str, multiple: int | None) -> None:
    tokenizer = tiny_encoder.tokenizer()
    tokenizer.padding_side = side
    features = [tokenize_words(tokenizer, WORDS, [1, 0, 3, 0]), tokenize_words(tokenizer, ["to"], [0])]
    batch = DataCollatorForWords(tokenizer, pad_to_multiple_of=multiple)(features)
    assert batch["word_mask"].shape == batch["input_ids"].shape == (2, 16 if multiple else 10)
    assert torch.equal(batch["word_mask"], batch["labels"] != -100)
    unlabelled = [{"input_ids": x["input_ids"], "word_mask": x["word_mask"]} for x in features]
    alone = DataCollatorForWords(tokenizer, pad_to_multiple_of=multiple)(unlabelled)
    assert torch.equal(alone["word_mask"], batch["word_mask"])
    assert "labels" not in alone


LABELS = ("O", "B-X", "I-X", "B-Y", "I-Y")
ROWS = st.lists(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=8), min_size=1, max_size=4
)


@given(ROWS)
@pytest.mark.filterwarnings("ignore")
def test_metrics_equal_those_of_seqeval(rows: list[list[tuple[int, int]]]) -> None:
    """Also where labels break the scheme."""
    seqeval = pytest.importorskip("seqeval.metrics")
    gold, predicted = (np.full((len(rows), 9), -100) for _ in range(2))
    for i, row in enumerate(rows):
        gold[i, 1 : 1 + len(row)], predicted[i, 1 : 1 + len(row)] = zip(*row, strict=True)
    found = compute_metrics(dict(enumerate(LABELS)), metric_labels="decoded")(EvalPrediction(predicted, gold))
    names = [[[LABELS[pair[side]] for pair in row] for row in rows] for side in (0, 1)]
    assert found["precision"] == pytest.approx(seqeval.precision_score(*names))
    assert found["recall"] == pytest.approx(seqeval.recall_score(*names))
    assert found["f1"] == pytest.approx(seqeval.f1_score(*names))
    assert found["accuracy"] == pytest.approx(seqeval.accuracy_score(*names))


def test_metrics_read_what_they_are_told_and_nothing_else() -> None:
    gold, predicted = np.array([[-100, 1, 2]]), np.array([[-100, 1, 2]])
    logits, names = np.eye(5)[[[0, 1, 2]]], dict(enumerate(LABELS))
    argmax, decoded = compute_metrics(names), compute_metrics(names, metric_labels="decoded")
    assert argmax(EvalPrediction(logits, gold))["f1"] == decoded(EvalPrediction(predicted, gold))["f1"] == 1
    for metrics, wrong in ((argmax, predicted), (decoded, logits), (argmax, (logits, predicted)), (decoded, [logits])):
        with pytest.raises(ValueError, match="predictions must be"):
            metrics(EvalPrediction(wrong, gold))
    own = CRFConfig(id2label={0: "NOUN", 1: "VERB", 2: "X"}, scheme=None, metric_labels="decoded")
    assert compute_metrics(own)(EvalPrediction(predicted, gold)) == {"accuracy": 1}


def model(**kwargs: Any) -> CRFForTokenClassification:
    torch.manual_seed(0)
    config = CRFConfig(encoder_config=tiny_encoder.config(), id2label=dict(enumerate(LABELS)), **kwargs)
    made = CRFForTokenClassification(config).eval()
    with torch.no_grad():
        made.classifier.weight.mul_(50)
        made.crf.pairwise.normal_()
    return made


def text(count: int) -> list[str]:
    generator = torch.Generator().manual_seed(0)
    return [tiny_encoder.WORDS[i] for i in torch.randint(10, (count,), generator=generator)]


def test_a_document_that_fits_one_window_has_the_labels_of_the_model() -> None:
    made, tokenizer, words = model(), tiny_encoder.tokenizer(), text(12)
    batch = DataCollatorForWords(tokenizer)([tokenize_words(tokenizer, words)])
    labels = made(**batch).labels[batch["word_mask"]]
    assert predict_document(made, tokenizer, words) == [LABELS[i] for i in labels]


@pytest.mark.parametrize("stride", [1, 5, None])
def test_a_long_document_has_one_label_per_word_and_obeys_the_constraints(stride: int | None) -> None:
    made, tokenizer, words = model(), tiny_encoder.tokenizer(), text(300)
    found = predict_document(made, tokenizer, words, stride=stride, max_length=16, batch_size=3)
    assert len(found) == 300
    rules, index = constraints.from_labels(LABELS, "BIO"), [LABELS.index(label) for label in found]
    assert bool(rules.start[index[0]])
    assert all(rules.transitions[a, b] for a, b in pairwise(index))
    unary = document_scores(made, tokenizer, words, stride=stride, max_length=16)
    assert index == made.crf.decode(unary[None])[0].tolist()


def test_scores_come_from_the_window_with_the_most_context() -> None:
    """Compared with windows that are cut by hand: each word is one token here, so windows of 8 have 6 words."""
    made, tokenizer = model(), tiny_encoder.tokenizer()
    words = [tiny_encoder.WORDS[i % 5] for i in range(14)]
    found = document_scores(made, tokenizer, words, stride=2, max_length=8)
    windows = {
        start: made.unary(**tokenizer(words[start : start + 6], is_split_into_words=True, return_tensors="pt"))
        for start in (0, 4, 8)
    }
    source = [0, 0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 8]  # words 4 and 5 are in two windows
    for i, start in enumerate(source):
        torch.testing.assert_close(found[i], windows[start][0, 1 + i - start], msg=str(i))


def test_a_word_without_a_token_gets_a_label_from_its_neighbours() -> None:
    found = predict_document(model(), tiny_encoder.tokenizer(), ["anna", "", "went"])
    assert len(found) == 3
    assert predict_document(model(), tiny_encoder.tokenizer(), []) == []


def test_the_library_does_not_import_transformers() -> None:
    code = "import sys, equipoise, equipoise.integrations; assert 'transformers' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_roberta_reads_fewer_tokens_than_it_has_positions() -> None:
    """Its positions begin after the number of the padding token. The tokenizer does not limit the length."""
    from transformers import RobertaConfig

    tokenizer = tiny_encoder.tokenizer(10**30)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    encoder = RobertaConfig(vocab_size=128, max_position_embeddings=34, pad_token_id=1, **sizes)
    model = CRFForTokenClassification(
        CRFConfig(encoder_config=encoder, id2label=dict(enumerate(tiny_encoder.LABELS)))
    ).eval()
    assert window(model, tokenizer) == 32
    assert len(predict_document(model, tokenizer, ["anna", "went"] * 60)) == 120
