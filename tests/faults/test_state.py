"""A damaged state of scaling is refused, or gives NaN; a NaN score has a NaN gradient; sizes of scores do not overflow.

All of it in torch, in C and in Triton.
"""

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path

import pytest
import torch
from faults.chains import only
from layer_kernels import DEVICE, kernels, labels_and_mask, layer, scores, using
from torch import Tensor

from equipoise import ChainCRF, GaussianCRF, chain, objectives, scaling
from equipoise.compat import torchcrf
from equipoise.crf.fused import LayerKernels
from equipoise.scaling.norms import mean_abs

__all__ = ["kernels"]  # a fixture

METHODS = [
    *(getattr(scaling, name) for name in ("Fixed", "Offline", "Online", "Regularized", "Temperature", "Learned"))
]
BAD = [torch.nan, torch.inf, -torch.inf]
PARTS = [(method, name) for method in METHODS for name in method()._initial]
UNARY = scores(0, 1.0)
LABELS = torch.tensor([[0, 1, 2, 2, 0], [1, 2, 0, 0, 0], [0, 0, 1, 0, 1], [1, 2, 2, 2, 2]])
LENGTHS = torch.tensor([5, 3, 4, 2])


@pytest.mark.parametrize("value", BAD)
@pytest.mark.parametrize(("method", "name"), PARTS)
def test_loading_names_the_buffer(method: type[scaling.Scaling], name: str, value: float) -> None:
    crf = torch.nn.ModuleDict({"crf": ChainCRF(3, method())})
    state = deepcopy(crf.state_dict())
    state[f"crf.scaling.{name}"].view(-1)[-1] = value
    before = deepcopy(crf["crf"].scaling.state_dict())
    with pytest.raises(RuntimeError, match=rf"crf\.scaling\.{name} has a value of {value}, but must be finite"):
        crf.load_state_dict(state)
    torch.testing.assert_close(crf["crf"].scaling.state_dict(), before, rtol=0, atol=0)


@pytest.mark.parametrize("name", ["ridge", "share_logit", "scaling.alpha"])
def test_loading_a_gaussian_crf(name: str) -> None:
    crf = GaussianCRF(3)
    state = deepcopy(crf.state_dict())
    state[name].fill_(torch.nan)
    with pytest.raises(RuntimeError, match=f"{name} has a value of nan, but must be finite"):
        crf.load_state_dict(state)


@pytest.mark.parametrize("name", ["size", "alpha"])
def test_a_state_must_be_positive(name: str) -> None:
    crf = ChainCRF(3, scaling.Learned() if name == "size" else scaling.Fixed())
    state = deepcopy(crf.state_dict())
    state[f"scaling.{name}"].fill_(-1.0)
    with pytest.raises(RuntimeError, match=f"{name} has a value of -1.0, but must be finite and positive"):
        crf.load_state_dict(state)


def test_from_pretrained(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    from equipoise.integrations.transformers import CRFConfig, CRFForTokenClassification

    encoder = transformers.BertConfig(vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
    model = CRFForTokenClassification(CRFConfig(encoder_config=encoder, id2label={0: "O", 1: "B-X", 2: "I-X"}))
    model.crf.scaling.size.fill_(torch.nan)
    model.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"crf\.scaling\.size has a value of nan, but must be finite and positive"):
        CRFForTokenClassification.from_pretrained(tmp_path)


@pytest.mark.parametrize("value", [*BAD, -1.0])
def test_kernels_with_a_damaged_size(kernels: LayerKernels, value: float) -> None:
    """Each loss is NaN, and so is every gradient; no label is predicted."""
    for training in (True, False):
        crf, (labels, mask) = layer().train(training), labels_and_mask(empty=False)
        crf.scaling.size.fill_(value)
        crf.scaling.examples.fill_(500)
        for used in (kernels, None):
            unary, one = UNARY.to(DEVICE, copy=True).requires_grad_(), deepcopy(crf)
            with using(used):
                losses = one.loss(unary, labels, mask, reduction="none")
                losses.sum().backward()
                assert losses.isnan().all()
                assert unary.grad[mask & (labels != -100)].isnan().all()
                assert (one.decode(unary.detach(), mask) == -100).all()


def test_validation_names_a_damaged_state() -> None:
    for method, name in PARTS:
        crf = ChainCRF(3, method(), validate=True)
        getattr(crf.scaling, name).view(-1)[-1].fill_(torch.nan)
        for call in (crf.decode, lambda unary, crf=crf: crf.loss(unary, LABELS), crf.log_marginals):
            with pytest.raises(ValueError, match=rf"^scaling\.{name} has a value of nan"):
                call(UNARY)
    crf = ChainCRF(3, scaling.Learned())  # on a CPU a loss of NaN is explained
    crf.scaling.size.fill_(torch.inf)
    with pytest.raises(ValueError, match=r"^scaling\.size has a value of inf"):
        crf.loss(UNARY, LABELS)
    images = GaussianCRF(3, scaling=scaling.Learned(), validate=True)
    images.scaling.log_scales.fill_(-torch.inf)
    with pytest.raises(ValueError, match=r"^scaling\.log_scales has a value of -inf"):
        images.decode(torch.randn(3, 4, 4), torch.randn(2, 4, 4))


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("backend", ["reference", "exponential", "cpu", "interpreter"])
def test_the_gradient_at_an_invalid_score_is_nan(backend: str, value: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """In every loss and differentiable answer; gradients of other sequences are finite, and 0 beyond the length."""
    if backend == "interpreter":
        pytest.importorskip("triton")
        monkeypatch.setenv("TRITON_INTERPRET", "1")
    unary, pairwise = UNARY.clone(), scores(1, 1.0)[0, :3]
    unary[1, 1, 1] = value  # a label that is neither gold nor the first
    answers: dict[str, Callable[[Tensor], Tensor]] = {
        name: lambda x, name=name: getattr(objectives, name)(x, pairwise, LABELS, LENGTHS)
        for name in objectives.OBJECTIVES
    }
    answers["log Z"] = lambda x: chain.log_partition(x, pairwise, LENGTHS)
    answers["best"] = lambda x: chain.decode(x, pairwise, LENGTHS)[1]
    answers["ranked"] = lambda x: chain.top_k(x, pairwise, LENGTHS, k=2)[1]
    answers["entropy"] = lambda x: chain.entropy(x, pairwise, LENGTHS)
    answers["mean field"] = lambda x: chain.mean_field(x, pairwise, LENGTHS)
    for name, answer in answers.items():
        x = unary.clone().requires_grad_()
        with only(backend):
            answer(x).sum().backward()
        assert x.grad[1, 1, 1].isnan(), name
        assert x.grad[[0, 2, 3]].isfinite().all(), name
        assert not x.grad[1, 3:].any(), name


@pytest.mark.parametrize(
    ("place", "value"),
    [("unary", torch.nan), ("unary", torch.inf), ("pairwise", torch.nan), ("start", torch.nan), ("end", torch.inf)],
)
@pytest.mark.parametrize("method", [scaling.Fixed, scaling.Learned, scaling.Offline])
def test_the_gradient_of_a_layer_at_an_invalid_score_is_nan(
    kernels: LayerKernels, method: type[scaling.Scaling], place: str, value: float
) -> None:
    for objective in ("likelihood", "margin"):
        for training in (True, False):
            crf, (labels, mask) = layer(method=method, objective=objective).train(training), labels_and_mask(empty=True)
            unary = UNARY.to(DEVICE, copy=True)
            damaged = unary if place == "unary" else getattr(crf, place).data
            index = {"unary": (2, 1, 2), "pairwise": (1, 1)}.get(place, (1,))
            damaged[index] = value
            for used in (kernels, None):
                one, x = deepcopy(crf), unary.clone().requires_grad_()
                with using(used):
                    loss = one.loss(x, labels, mask, reduction="sum")
                    loss.backward()
                assert loss.isnan()
                assert (x if place == "unary" else getattr(one, place)).grad[index].isnan()
                assert not x.grad[~mask].any()
                assert place != "unary" or x.grad[:2].isfinite().all()


@pytest.mark.parametrize("shape", [(3, 5), (7, 3), (31, 23), (1, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_sizes_do_not_overflow(dtype: torch.dtype, shape: tuple[int, int]) -> None:
    largest = torch.finfo(dtype).max
    x = torch.full((2, *shape), largest, dtype=dtype)
    assert (mean_abs(-x).double() / largest - 1).abs().max() < 1e-6
    u, w = scaling.Offline()(x, torch.full((3, 3), -largest, dtype=dtype))
    torch.testing.assert_close(u, torch.ones_like(x), check_dtype=False)
    torch.testing.assert_close(w, -torch.ones(3, 3), check_dtype=False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_sizes_of_usual_scores_are_the_same_bits(dtype: torch.dtype) -> None:
    for scale in (1e-25, 1e-4, 1.0, 1e4, 1e30):
        x = scale * torch.randn(5, 7, 11, dtype=dtype)
        assert torch.equal(mean_abs(x), x.abs().sum((-2, -1)) / 77)


def test_learned_sizes_do_not_overflow(kernels: LayerKernels) -> None:
    """The running average is that of the sizes, in the kernels as in torch."""
    labels, mask = labels_and_mask(empty=False)
    found = []
    for used in (kernels, None):
        crf = layer()
        crf.pairwise.data.fill_(3e38)
        unary = torch.full((4, 5, 3), 3e38, device=DEVICE).requires_grad_()
        with using(used):
            loss = crf.loss(unary, labels, mask)
            loss.backward()
        torch.testing.assert_close(crf.scaling.size.cpu(), torch.tensor(3e38))
        found.append((loss.detach(), unary.grad, crf.pairwise.grad))
    torch.testing.assert_close(*found)
    assert found[0][0].isfinite()


def test_the_drop_in_layer_with_a_damaged_state() -> None:
    crf = torchcrf.CRF(3, batch_first=True, balanced=True)
    state = deepcopy(crf.state_dict())
    state["scaling.size"].fill_(torch.nan)
    with pytest.raises(RuntimeError, match=r"scaling\.size has a value of nan"):
        crf.load_state_dict(state)
    crf.scaling.size.fill_(torch.inf)
    assert crf.eval()(UNARY, LABELS).isnan()
