"""The model for transformers: any encoder, checkpoints, which tokens are in the chain, and what comes out."""

from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers")
pytest.importorskip("tokenizers")

import tiny_encoder
from torch import Tensor
from torch.export import Dim, export
from transformers import AutoConfig, AutoModel, AutoModelForTokenClassification, AutoTokenizer, pipeline

from equipoise import ChainCRF, chain, scaling
from equipoise.integrations.transformers import CRFConfig, CRFForTokenClassification
from equipoise.integrations.transformers.configuration import describe, make_scaling

SMALL = {"vocab_size": 60, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
ENCODERS: dict[str, dict[str, Any]] = {
    "bert": SMALL,
    "roberta": SMALL,
    "deberta-v2": SMALL,
    "distilbert": {"vocab_size": 60, "dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 32},
    "modernbert": {**SMALL, **{f"{name}_token_id": i for i, name in enumerate(("pad", "bos", "eos", "cls", "sep"))}},
    "t5": {"vocab_size": 60, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2},
    "gpt2": {"vocab_size": 60, "n_embd": 16, "n_layer": 1, "n_head": 2},
}
IDS = torch.tensor([[2, 9, 8, 7, 6, 5, 3], [2, 9, 9, 9, 3, 0, 0]])
ATTENDED = (IDS != 0).long()
LABELS = torch.tensor([[-100, 1, 2, -100, 0, 3, -100], [-100, 0, -100, 3, -100, -100, -100]])


def model(**kwargs: Any) -> CRFForTokenClassification:
    torch.manual_seed(0)
    arguments = {"encoder_config": tiny_encoder.config(), "id2label": dict(enumerate(tiny_encoder.LABELS)), **kwargs}
    made = CRFForTokenClassification(CRFConfig(**arguments)).eval()
    with torch.no_grad():
        made.classifier.weight.mul_(50)  # a random encoder has scores near 0
        made.crf.pairwise.normal_()
    return made


def trained(**kwargs: Any) -> CRFForTokenClassification:
    """After one step, so that the state of scaling has changed."""
    made = model(**kwargs).train()
    made(IDS, ATTENDED, labels=LABELS).loss.backward()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter -= 0.01 * parameter.grad
    return made.eval()


def equal(a: torch.nn.Module, b: torch.nn.Module) -> bool:
    """Whether all parameters and all buffers, also those that are not stored, are equal."""
    ours, others = ({**dict(x.named_parameters()), **dict(x.named_buffers())} for x in (a, b))
    return ours.keys() == others.keys() and all(torch.equal(value, others[name]) for name, value in ours.items())


@pytest.mark.parametrize("kind", ENCODERS)
def test_any_encoder_keeps_its_weights_and_survives_saving(kind: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    pretrained = AutoModel.from_config(AutoConfig.for_model(kind, **ENCODERS[kind]))
    pretrained.save_pretrained(tmp_path / "encoder")
    made = CRFForTokenClassification.from_encoder(str(tmp_path / "encoder"), tiny_encoder.LABELS)
    source = pretrained.get_encoder() if kind == "t5" else pretrained
    weights = dict(source.named_parameters())
    assert all(torch.equal(value, weights[name]) for name, value in made.backbone.named_parameters())

    made.train()(IDS, ATTENDED, labels=LABELS).loss.backward()
    assert all(parameter.grad is not None for parameter in made.parameters())  # as DistributedDataParallel requires

    made.eval().save_pretrained(tmp_path / "model")
    again = AutoModelForTokenClassification.from_pretrained(tmp_path / "model")
    assert type(again) is CRFForTokenClassification
    assert equal(made, again)
    assert (tmp_path / "model" / "model.safetensors").exists()
    for mine, other in zip(made(IDS, ATTENDED).to_tuple(), again(IDS, ATTENDED).to_tuple(), strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=0)


@pytest.mark.parametrize(
    "method",
    [scaling.Fixed(2.0), scaling.Offline(3.0), scaling.Learned(0.5), scaling.Online((1.0, 2.0), 7)],
    ids=lambda method: type(method).__name__,
)
def test_the_scaling_method_and_all_options_survive_saving(method: scaling.Scaling, tmp_path: Path) -> None:
    folder = tiny_encoder.save(tmp_path / "encoder")
    options = {"scheme": "BIO", "objective": "marginal", "scaling": method, "constraints": False, "boundaries": False}
    made = CRFForTokenClassification.from_encoder(folder, tiny_encoder.LABELS, on_invalid="repair", **options)
    made.save_pretrained(tmp_path / "model")
    again = CRFForTokenClassification.from_pretrained(tmp_path / "model")
    assert type(again.crf.scaling) is type(method)
    torch.testing.assert_close(again.crf.scaling.state(), method.state())
    assert again.crf.objective == "marginal"
    assert again.crf.on_invalid == "repair"
    assert again.crf.start is None
    assert again.crf.constraints is None
    assert equal(made, again)


def test_every_scaling_method_equals_the_one_made_from_its_description() -> None:
    for method in (scaling.Regularized(2.0, 0.5), scaling.Temperature(3.0, normalize=True), scaling.Learned()):
        again = make_scaling(describe(method))
        unary, pairwise = torch.randn(2, 3, 4), torch.randn(4, 4)
        torch.testing.assert_close(again(unary, pairwise), method(unary, pairwise))
    with pytest.raises(ValueError, match=r"must be a method of equipoise\.scaling .*got .*Nonsense"):
        describe("Nonsense")


def test_a_trained_state_survives_saving_bit_for_bit(tmp_path: Path) -> None:
    made = trained()
    assert float(made.crf.scaling.examples) == 2
    made.save_pretrained(tmp_path)
    again = CRFForTokenClassification.from_pretrained(tmp_path)
    assert equal(made, again)
    assert equal(CRFForTokenClassification.from_pretrained(tmp_path, device_map="cpu"), made)


def test_an_encoder_alone_loads_with_a_new_crf(tmp_path: Path) -> None:
    folder = tiny_encoder.save(tmp_path)
    config = CRFConfig(encoder_config=tiny_encoder.config(), id2label=dict(enumerate(tiny_encoder.LABELS)))
    torch.manual_seed(0)
    made, info = CRFForTokenClassification.from_pretrained(folder, config=config, output_loading_info=True)
    assert {name.split(".")[0] for name in info["missing_keys"]} == {"classifier", "crf"}
    weights = dict(AutoModel.from_pretrained(folder).named_parameters())
    assert all(torch.equal(value, weights[name]) for name, value in made.backbone.named_parameters())
    fresh = ChainCRF(5, scaling.Learned())
    torch.testing.assert_close(made.crf.scaling.state(), fresh.scaling.state())
    assert 0.1 < float(made.crf.pairwise.detach().std() / fresh.pairwise.detach().std()) < 10
    assert torch.equal(made.crf.allowed_transitions, made.crf.constraints.transitions)
    assert bool(made(IDS, ATTENDED).logits.exp().sum(-1).allclose(torch.ones(2, 7)))


def test_an_old_checkpoint_without_scaling_keeps_the_rest(tmp_path: Path) -> None:
    """What is missing gets initial values; what is there stays."""
    made = trained()
    made.save_pretrained(tmp_path)
    weights = {name: value for name, value in made.state_dict().items() if "scaling" not in name}
    again = CRFForTokenClassification.from_pretrained(None, config=made.config, state_dict=weights)
    assert torch.equal(again.crf.pairwise, made.crf.pairwise)
    assert float(again.crf.scaling.examples) == 0


def test_the_vocabulary_can_grow(tmp_path: Path) -> None:
    made = model()
    made.resize_token_embeddings(130)
    assert made.get_input_embeddings() is made.backbone.embeddings.word_embeddings
    made.save_pretrained(tmp_path)
    again = CRFForTokenClassification.from_pretrained(tmp_path)
    assert len(again.get_input_embeddings().weight) == 130
    assert equal(made, again)


def test_bfloat16_weights_leave_the_crf_in_float32(tmp_path: Path) -> None:
    model().save_pretrained(tmp_path)
    half = CRFForTokenClassification.from_pretrained(tmp_path, dtype=torch.bfloat16)
    assert half.classifier.weight.dtype == half.backbone.dtype == torch.bfloat16
    assert half.crf.pairwise.dtype == half.crf.scaling.size.dtype == torch.float32
    output = half(IDS, ATTENDED, labels=LABELS)
    torch.testing.assert_close(output.loss, model()(IDS, ATTENDED, labels=LABELS).loss, rtol=0.05, atol=0)


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
