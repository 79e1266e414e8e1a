"""Labels of every integer type give the results of int64, in every function, layer and kernel; others are an error."""

from collections.abc import Callable
from copy import deepcopy
from functools import partial

import pytest
import torch
from layer_kernels import kernels, labels_and_mask, layer, scores, using
from torch import Tensor
from torch.func import grad, vmap

from equipoise import ChainCRF, GaussianCRF, chain, objectives, scaling
from equipoise.chain.checks import INTEGERS, int64
from equipoise.compat import torchcrf
from equipoise.constraints import from_labels
from equipoise.crf.fused import LayerKernels

__all__ = ["kernels"]  # a fixture

TYPES = [x for x in INTEGERS if x != torch.int64]
RULES = from_labels(["O", "B-X", "I-X"], "BIO")
UNARY, PAIRWISE = scores(0, 1.0), scores(1, 1.0)[0, :3]
LABELS = torch.tensor([[0, 1, 2, 2, 0], [1, 2, 0, 0, 0], [0, 0, 1, 0, 1], [1, 2, 2, 2, 2]])
BROKEN = LABELS.roll(1, 1)  # the last two start with I-X or have it after O
LENGTHS = torch.tensor([5, 3, 4, 2])
MASK = torch.arange(5) < LENGTHS[:, None]


def functions(labels: Tensor, lengths: Tensor) -> dict[str, Tensor]:
    found = {name: getattr(objectives, name)(UNARY, PAIRWISE, labels, lengths) for name in objectives.OBJECTIVES}
    chain.check(UNARY, PAIRWISE, labels, lengths)
    return found | {"score": chain.score(UNARY, PAIRWISE, labels, lengths)}


def gradient(loss: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    x = x.clone().requires_grad_()
    value = loss(x)
    return value.detach(), torch.autograd.grad(value.sum(), x)[0]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_functions(dtype: torch.dtype) -> None:
    want = functions(LABELS, LENGTHS)
    torch.testing.assert_close(functions(LABELS.to(dtype), LENGTHS.to(dtype)), want, rtol=0, atol=0)


@pytest.mark.parametrize("validate", [None, True])
@pytest.mark.parametrize("policy", ["raise", "warn", "repair"])
@pytest.mark.parametrize("objective", objectives.OBJECTIVES)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.filterwarnings("ignore:.*sequences are left out")
def test_layers(dtype: torch.dtype, objective: str, policy: str, validate: bool | None) -> None:
    options = {"objective": objective, "on_invalid": policy, "validate": validate, "boundaries": True}
    rules = None if objective == "mean_field" else RULES
    labels = LABELS if policy == "raise" or rules is None else BROKEN
    both = labels.to(dtype), labels
    for method in (scaling.Fixed, scaling.Learned, scaling.Offline):
        crf = ChainCRF(3, method(), rules, **options)
        for reduction in ("mean", "none", "token_mean"):
            losses = [partial(deepcopy(crf).loss, labels=y, mask=MASK, reduction=reduction) for y in both]
            got, want = (gradient(loss, UNARY) for loss in losses)
            torch.testing.assert_close(got, want, rtol=0, atol=0)
        assert torch.equal(crf.score(UNARY, LABELS.to(dtype), MASK), crf.score(UNARY, LABELS, MASK))


@pytest.mark.parametrize("objective", ["likelihood", "marginal", "margin"])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_kernels(kernels: LayerKernels, dtype: torch.dtype, objective: str) -> None:
    """In C, and in Triton, also in its interpreter."""
    crf, (labels, mask) = layer(objective=objective).eval(), labels_and_mask(empty=True)
    unary = UNARY.to(labels.device)
    mask, labels = mask & (labels != -100), labels.clamp(min=0)
    with using(kernels):
        got, want = (
            gradient(lambda x, y=y: crf.loss(x, y, mask), unary) for y in (labels.to(dtype), labels.to(torch.int64))
        )
    assert torch.equal(got[0], want[0])
    assert torch.equal(got[1], want[1])


@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_the_drop_in_layer(dtype: torch.dtype, balanced: bool) -> None:
    crf = torchcrf.CRF(3, batch_first=True, balanced=balanced).eval()
    got, want = (gradient(lambda x, y=y: crf(x, y, MASK, "none"), UNARY) for y in (LABELS.to(dtype), LABELS))
    torch.testing.assert_close(got, want, rtol=0, atol=0)
    if dtype.is_signed:
        assert torch.equal(crf(UNARY, LABELS.masked_fill(~MASK, -100).to(dtype), MASK, "none"), want[0])
    with pytest.raises(IndexError, match="must be from 0 to 2"):
        crf(UNARY, (LABELS + 3).to(dtype))


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_gaussian_crf(dtype: torch.dtype) -> None:
    unary, embeddings, labels = torch.randn(2, 3, 4, 4), torch.randn(2, 2, 4, 4), torch.randint(3, (2, 4, 4))
    crf = GaussianCRF(3, scaling=scaling.Online(subset=1))
    assert torch.equal(crf.loss(unary, embeddings, labels.to(dtype)), crf.loss(unary, embeddings, labels))
    best = crf.rebalance([(unary, embeddings, labels)])
    assert torch.equal(crf.rebalance([(unary, embeddings, labels.to(dtype))]), best)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_transformers(dtype: torch.dtype) -> None:
    transformers = pytest.importorskip("transformers")
    from equipoise.integrations.transformers import CRFConfig, CRFForTokenClassification

    encoder = transformers.BertConfig(vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
    model = CRFForTokenClassification(CRFConfig(encoder_config=encoder, id2label={0: "O", 1: "B-X", 2: "I-X"})).eval()
    ids = torch.randint(20, (4, 5))
    got, want = (model(ids, word_mask=MASK, labels=y, num_items_in_batch=7).loss for y in (LABELS.to(dtype), LABELS))
    assert torch.equal(got, want)
    if dtype.is_signed:
        ignored = LABELS.masked_fill(~MASK, -100)
        assert torch.equal(model(ids, labels=ignored.to(dtype)).loss, model(ids, labels=ignored).loss)
        assert torch.equal(model.balance(input_ids=ids, labels=ignored.to(dtype)), model.balance(MASK, input_ids=ids))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.uint32, torch.uint64], ids=str)
@pytest.mark.parametrize("loss", [ChainCRF(3).loss, lambda unary, labels: objectives.margin(unary, PAIRWISE, labels)])
def test_an_unsigned_type_cannot_hold_minus_100(dtype: torch.dtype, loss: Callable[..., Tensor]) -> None:
    """What -100 becomes in it is a label out of range, also in uint64, whose largest numbers int64 cannot hold."""
    labels = LABELS.clone()
    labels[1, 2] = -100
    with pytest.raises(ValueError, match=r"labels\[1, 2\] is \d+, but labels of valid positions must be from 0 to 2"):
        loss(UNARY, labels.to(dtype))


def test_label_156_counts_in_bytes() -> None:
    """Comparing a byte with -100 would compare it with 156."""
    unary, labels = torch.randn(1, 4, 200), torch.tensor([[156, 3, 156, 199]])
    crf = ChainCRF(200)
    assert torch.equal(crf.loss(unary, labels.to(torch.uint8)), crf.loss(unary, labels))


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32, torch.complex64], ids=str)
def test_other_types_are_an_error(dtype: torch.dtype) -> None:
    labels = LABELS.to(dtype)
    for call in (ChainCRF(3).loss, ChainCRF(3, validate=False).score):
        with pytest.raises(TypeError, match=f"labels must be integers, got {dtype}"):
            call(UNARY, labels)
    for name in objectives.OBJECTIVES:
        with pytest.raises(TypeError, match=f"labels must be integers, got {dtype}"):
            getattr(objectives, name)(UNARY, PAIRWISE, labels)
    with pytest.raises(IndexError, match=f"tags must be integers, got {dtype}"):
        torchcrf.CRF(3, batch_first=True)(UNARY, labels)
    with pytest.raises(TypeError, match="labels must be integers"):
        int64("labels", labels)


@pytest.mark.parametrize("policy", ["raise", "warn", "repair"])
def test_gradients_of_single_sequences(policy: str) -> None:
    """torch.func, which reads no values, so that "warn" has no warning and "raise" no error."""
    labels = LABELS if policy == "raise" else BROKEN
    crf = ChainCRF(3, constraints=RULES, on_invalid=policy)
    each = vmap(grad(lambda x, y, mask: crf.loss(x, y, mask)))(UNARY, labels, MASK)
    crf.validate = False
    want = gradient(lambda x: crf.loss(x, labels, MASK, reduction="sum"), UNARY)[1]
    torch.testing.assert_close(each, want)
