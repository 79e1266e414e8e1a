"""A CRF on a token classifier that exists: its head and its scores stay, its labels become valid, and it can learn."""

from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers")
pytest.importorskip("tokenizers")

import tiny_encoder
from transformers import AutoConfig, AutoModelForTokenClassification

from equipoise import SpanDecoder, constraints
from equipoise.integrations.transformers import CRFForTokenClassification

SMALL = {"vocab_size": 60, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
TOKENS = {f"{name}_token_id": i for i, name in enumerate(("pad", "bos", "eos", "cls", "sep"))}
TAGGERS: dict[str, dict[str, Any]] = {
    "bert": SMALL,
    "xlm-roberta": SMALL,
    "deberta-v2": SMALL,
    "modernbert": SMALL | TOKENS,
    "distilbert": {"vocab_size": 60, "dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 32},
    "t5": {"vocab_size": 60, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2},
}
BIOES = ("O", "B-X", "I-X", "E-X", "S-X")
IDS = torch.randint(5, 60, (4, 9), generator=torch.Generator().manual_seed(0))
ATTENDED = torch.ones_like(IDS)


def tagger(kind: str, folder: Path, labels: tuple[str, ...] = BIOES) -> Any:
    """Saves a tagger whose argmax breaks the scheme, and returns it."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **TAGGERS[kind], id2label=dict(enumerate(labels)))
    made = AutoModelForTokenClassification.from_config(config).eval()
    with torch.no_grad():
        head = next(x for name, x in reversed(list(made.named_parameters())) if name.endswith("weight"))
        head.normal_(std=5)
    made.save_pretrained(folder)
    return made


@pytest.mark.parametrize("kind", TAGGERS)
def test_a_crf_on_a_tagger_has_its_scores_and_valid_labels(kind: str, tmp_path: Path) -> None:
    source = tagger(kind, tmp_path / "tagger")
    model = CRFForTokenClassification.from_tagger(str(tmp_path / "tagger"))
    assert model.config.scheme == "BIOES"
    weights = dict(source.named_parameters())
    assert all(torch.equal(x, weights[name]) for name, x in model.backbone.named_parameters())
    with torch.no_grad():
        logits = source(input_ids=IDS, attention_mask=ATTENDED).logits
        output = model(IDS, ATTENDED, word_mask=ATTENDED)
        unary = model.unary(input_ids=IDS, attention_mask=ATTENDED)
    torch.testing.assert_close(unary, logits)
    expected = SpanDecoder(BIOES).decode(logits)
    assert torch.equal(output.labels, expected)
    assert not torch.equal(output.labels, logits.argmax(-1))
    rules = constraints.from_labels(BIOES, "BIOES")
    assert bool(rules.transitions[output.labels[:, :-1], output.labels[:, 1:]].all())
    free = CRFForTokenClassification.from_tagger(str(tmp_path / "tagger"), scheme=None)
    torch.testing.assert_close(free(IDS, ATTENDED, word_mask=ATTENDED).logits, logits.log_softmax(-1))

    model.train()(IDS, ATTENDED, labels=expected).loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.01 * parameter.grad
    model.eval().save_pretrained(tmp_path / "model")
    again = AutoModelForTokenClassification.from_pretrained(tmp_path / "model")
    assert type(again) is CRFForTokenClassification
    for mine, other in zip(model(IDS, ATTENDED).to_tuple(), again(IDS, ATTENDED).to_tuple(), strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=0)


def test_counts_of_labels_give_the_transitions(tmp_path: Path) -> None:
    """In the training labels every span has two words."""
    tagger("bert", tmp_path)
    model = CRFForTokenClassification.from_tagger(str(tmp_path))
    model.crf.start_from_labels([torch.tensor([[0, 1, 3, 0], [1, 3, 0, 0]])] * 50, smoothing=1e-9)
    labels = model(IDS, ATTENDED, word_mask=ATTENDED).labels
    assert 2 not in labels
    assert 4 not in labels


def test_what_is_no_tagger_is_an_error(tmp_path: Path) -> None:
    encoder = tiny_encoder.save(tmp_path / "encoder")
    with pytest.raises(
        ValueError, match=r"encoder: the weights .* lack classifier\.bias, classifier\.weight: no fine-tuned"
    ):
        CRFForTokenClassification.from_tagger(encoder, scheme=None)
    tagger("bert", tmp_path / "bio", ("O", "B-X", "I-X"))
    with pytest.raises(
        ValueError, match=r"bio: labels .* fit IOB2 and IOB1: give scheme=.*; scheme=None is for labels"
    ):
        CRFForTokenClassification.from_tagger(str(tmp_path / "bio"))
    model = CRFForTokenClassification.from_tagger(str(tmp_path / "bio"), "BIO")
    model.save_pretrained(tmp_path / "crf")
    with pytest.raises(ValueError, match=r"crf has a CRF: use from_pretrained"):
        CRFForTokenClassification.from_tagger(str(tmp_path / "crf"), "BIO")
