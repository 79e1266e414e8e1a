"""The model for transformers on any encoder: saving and loading, with its scaling method and options."""

from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers")
pytest.importorskip("tokenizers")

import tiny_encoder
from integrations.tiny_model import ATTENDED, IDS, LABELS, model
from transformers import AutoConfig, AutoModel, AutoModelForTokenClassification

from equipoise import ChainCRF, scaling
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
