"""The model for transformers: which tokens are in the chain, and what comes out."""

from pathlib import Path

import pytest
import torch

pytest.importorskip("transformers")
pytest.importorskip("tokenizers")

import tiny_encoder
from integrations.tiny_model import ATTENDED, IDS, LABELS, model
from torch import Tensor
from torch.export import Dim, export
from transformers import AutoTokenizer, pipeline

from equipoise import chain
from equipoise.integrations.transformers import CRFForTokenClassification


@pytest.mark.parametrize("objective", ["likelihood", "marginal", "margin"])
def test_the_output_is_that_of_the_chain_of_words(objective: str) -> None:
    """Each sentence by itself, without the tokens that are not in the chain."""
    made = model(objective=objective)
    output = made(IDS, ATTENDED, labels=LABELS)
    unary, total = made.unary(input_ids=IDS, attention_mask=ATTENDED), 0.0
    for row in range(2):
        on = LABELS[row] != -100
        alone, gold = unary[row, on][None], LABELS[row, on][None]
        length = 1 if objective != "marginal" else int(on.sum())  # a mean over positions
        total = total + length * made.crf.loss(alone, gold)
        torch.testing.assert_close(output.logits[row, on], made.crf.log_marginals(alone)[0])
        assert torch.equal(output.labels[row, on], made.crf.decode(alone)[0])
        assert bool((output.labels[row, ~on] == -100).all())
    torch.testing.assert_close(output.loss, total / int((LABELS != -100).sum()))


def test_logits_of_other_tokens_repeat_those_of_the_word_before() -> None:
    output = model()(IDS, ATTENDED, word_mask=LABELS != -100)
    source = torch.tensor([[1, 1, 2, 2, 4, 5, 5], [1, 1, 1, 3, 3, 3, 3]])
    expected = output.logits.gather(1, source[..., None].expand(2, 7, 5))
    assert torch.equal(output.logits, expected)
    empty = model()(IDS, ATTENDED, word_mask=torch.zeros_like(IDS))
    assert bool(empty.logits.exp().allclose(torch.tensor(0.2)))
    assert bool((empty.labels == -100).all())


def test_a_mask_finds_the_words_as_labels_do() -> None:
    made = model()
    by_labels, by_mask = made(IDS, ATTENDED, labels=LABELS), made(IDS, ATTENDED, word_mask=(LABELS != -100).int())
    assert torch.equal(by_labels.labels, by_mask.labels)
    assert torch.equal(by_labels.logits, by_mask.logits)
    assert by_mask.loss is None


def test_without_mask_and_labels_the_chain_has_all_tokens_but_special_ones() -> None:
    made = model(special_token_ids=[0, 2, 3])
    output = made(IDS, ATTENDED)
    assert torch.equal(output.labels != -100, IDS > 3)
    unary = made.unary(input_ids=IDS, attention_mask=ATTENDED)
    best = chain.decode(*made.crf.potentials(unary[:1, 1:6]))[0]
    assert torch.equal(output.labels[0, 1:6], best[0])


def test_special_tokens_come_from_the_tokenizer_and_unknown_words_are_not_special(tmp_path: Path) -> None:
    folder = tiny_encoder.save(tmp_path)
    made = CRFForTokenClassification.from_encoder(folder, tiny_encoder.LABELS)
    assert made.config.special_token_ids == [0, 2, 3]


def test_hidden_states_attentions_and_tuples_are_returned_if_asked_for() -> None:
    made = model(attn_implementation="eager")
    output = made(IDS, ATTENDED, output_hidden_states=True, output_attentions=True)
    assert [len(output.hidden_states), len(output.attentions)] == [3, 2]
    loss, logits, labels = made(IDS, ATTENDED, labels=LABELS, return_dict=False)
    assert (loss.shape, logits.shape, labels.shape) == ((), (2, 7, 5), (2, 7))


def test_logits_have_a_gradient_only_without_labels() -> None:
    made = model()
    assert made(IDS, ATTENDED, word_mask=LABELS != -100).logits.requires_grad
    assert not made(IDS, ATTENDED, labels=LABELS).logits.requires_grad


def accumulated(made: CRFForTokenClassification, size: int) -> dict[str, Tensor]:
    """Gradients of one step over four sentences, in batches of this size, as the Trainer computes them."""
    ids, attended, labels = (x.repeat(2, 1) for x in (IDS, ATTENDED, LABELS))
    labels[2, 4:] = -100
    made.zero_grad()
    for start in range(0, 4, size):
        part = slice(start, start + size)
        items = (labels != -100).sum()
        made(ids[part], attended[part], labels=labels[part], num_items_in_batch=items).loss.backward()
    return {name: parameter.grad.clone() for name, parameter in made.named_parameters() if parameter.grad is not None}


@pytest.mark.parametrize("objective", ["likelihood", "marginal"])
def test_accumulated_gradients_are_those_of_one_large_batch(objective: str) -> None:
    made = model(objective=objective, scaling={"name": "Fixed"}).double()
    whole, parts = accumulated(made, 4), accumulated(made, 1)
    assert whole.keys() == parts.keys()
    for name, gradient in whole.items():
        torch.testing.assert_close(parts[name], gradient, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_a_training_step_compiles_without_a_graph_break() -> None:
    made, twin = model().train(), model().train()
    for each in (made, twin):
        each.dropout.p = 0.0
        each.backbone.eval()
    compiled = torch.compile(made, fullgraph=True, backend="aot_eager")
    inputs = {"input_ids": IDS[:, :3], "attention_mask": ATTENDED[:, :3], "labels": LABELS[:, :3]}
    loss, expected = compiled(**inputs).loss, twin(**inputs).loss
    torch.testing.assert_close(loss, expected)
    loss.backward()
    expected.backward()
    for (name, mine), other in zip(made.named_parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, other.grad, rtol=1e-3, atol=1e-5, msg=name)
    torch.testing.assert_close(made.crf.scaling.state(), twin.crf.scaling.state())


@pytest.mark.slow
def test_prediction_exports_for_any_batch_size_and_length() -> None:
    made = model()
    shape = {0: Dim("batch"), 1: Dim("length", min=2, max=64)}
    shapes = dict.fromkeys(("input_ids", "attention_mask", "word_mask"), shape)
    program = export(made, (IDS, ATTENDED), {"word_mask": LABELS != -100}, dynamic_shapes=shapes).module()
    for size in ((2, 7), (3, 11), (1, 2)):
        ids, mask = torch.randint(4, 60, size), torch.rand(size) < 0.6
        expected, output = (x(ids, torch.ones_like(ids), word_mask=mask) for x in (made, program))
        torch.testing.assert_close(output.logits, expected.logits)
        assert torch.equal(output.labels, expected.labels)


@pytest.mark.parametrize("strategy", ["none", "simple", "first", "average", "max"])
def test_the_pipeline_of_transformers_runs_unchanged(strategy: str, tmp_path: Path) -> None:
    made = model(special_token_ids=[0, 2, 3])
    made.save_pretrained(tmp_path)
    tiny_encoder.tokenizer().save_pretrained(tmp_path)
    text = "Anna went to New York with Bob"
    tagger = pipeline("token-classification", str(tmp_path), aggregation_strategy=strategy, ignore_labels=[])
    found = tagger(text)
    tokens = AutoTokenizer.from_pretrained(tmp_path)(text, return_tensors="pt")
    if strategy == "none":
        log_p = made(**tokens).logits[0, 1:-1]
        assert [x["entity"] for x in found] == [tiny_encoder.LABELS[i] for i in log_p.argmax(-1)]
        torch.testing.assert_close(torch.tensor([x["score"] for x in found]), log_p.amax(-1).exp())
    assert found[0]["start"] == 0
    assert found[-1]["end"] == len(text)


def test_sets_and_unknown_labels() -> None:
    """The model passes them to the loss of the CRF, on the scores of its head."""
    made = model()
    unary = made.unary(input_ids=IDS, attention_mask=ATTENDED)
    labels = torch.where(LABELS == 2, -1, LABELS)
    on, weights = labels != -100, torch.tensor([1.0, 3.0])
    allowed = torch.ones(unary.shape, dtype=torch.bool)
    allowed[0, 2, 0] = False
    got = made(IDS, ATTENDED, labels=labels, allowed=allowed, weights=weights).loss
    want = made.crf.loss(unary, labels, on, allowed=allowed, weights=weights, reduction="token_mean")
    torch.testing.assert_close(got, want)
    assert got > made(IDS, ATTENDED, labels=labels, weights=weights).loss
    soft = made(IDS, ATTENDED, word_mask=on, targets=unary.softmax(-1), num_items_in_batch=2 * int(on.sum())).loss
    torch.testing.assert_close(
        soft * 2, made.crf.loss(unary, None, on, targets=unary.softmax(-1), reduction="token_mean")
    )
