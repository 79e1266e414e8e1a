"""The kernels before and after the chain compute what the torch code computes: losses, gradients, labels, state."""

from contextlib import nullcontext
from typing import Any
from unittest.mock import patch

import pytest
import torch
from layer_kernels import BATCHES, DEVICE, assert_same, kernels, labels_and_mask, layer, scores, train, using

from equipoise import ChainCRF
from equipoise.compat import torchcrf
from equipoise.crf.fused import LayerKernels
from equipoise.objectives import Objective
from equipoise.scaling import Fixed, Learned, Scaling

__all__ = ["kernels"]  # a fixture


@pytest.mark.parametrize("name", BATCHES)
def test_the_kernels_equal_the_torch_code(kernels: LayerKernels, name: str) -> None:
    got, want = (train(layer(), BATCHES[name], used) for used in (kernels, None))
    assert_same(got, want)
    assert got["scaling.steps"] > 0


@pytest.mark.parametrize("options", [{"constrained": True}, {"boundaries": False}])
def test_constraints_and_boundaries(kernels: LayerKernels, options: dict[str, bool]) -> None:
    got, want = (train(layer(**options), BATCHES["usual"], used) for used in (kernels, None))
    assert_same(got, want)


def test_empty_sequences_do_not_count(kernels: LayerKernels) -> None:
    got, want = (train(layer(), BATCHES["usual"], used, empty=True) for used in (kernels, None))
    assert_same(got, want)
    assert float(got["scaling.examples"]) == 3 * 2


@pytest.mark.parametrize("reduction", ["sum", "none", "token_mean"])
@pytest.mark.parametrize("objective", ["likelihood", "marginal", "margin"])
def test_reductions(kernels: LayerKernels, objective: str, reduction: str) -> None:
    options = {"empty": True, "reduction": reduction}
    got, want = (train(layer(objective=objective), BATCHES["usual"], used, **options) for used in (kernels, None))
    assert_same(got, want)


def test_pairwise_scores_of_0_learn(kernels: LayerKernels) -> None:
    found = []
    for used in (kernels, None):
        crf = layer(boundaries=False)
        torch.nn.init.zeros_(crf.pairwise)
        found.append(train(crf, BATCHES["usual"], used))
    assert_same(*found)
    assert float(found[0]["pairwise 0"].abs().max()) > 0


@pytest.mark.parametrize("boundaries", [False, True])
@pytest.mark.parametrize("method", [Fixed, Learned])
def test_an_objective_without_the_pairwise_part(kernels: LayerKernels, boundaries: bool, method: type[Scaling]) -> None:
    """It has no gradient, so that an optimizer does not decay it, or 0 if its size or the boundaries are used."""
    found = []
    for used in (kernels, None):
        crf = layer(boundaries=boundaries, objective="unary", method=method)
        labels, mask = labels_and_mask(False)
        u = scores(0).to(DEVICE).requires_grad_()
        with using(used):
            crf.loss(u, labels, mask).backward()
        assert (crf.pairwise.grad is None) == (not boundaries and method is Fixed)
        own = {name: x.grad for name, x in crf.named_parameters() if x.grad is not None}
        found.append({"unary": u.grad} | own | dict(crf.named_buffers()))
    assert_same(*found)


def test_pairwise_scores_of_minus_infinity_do_not_count(kernels: LayerKernels) -> None:
    """A user may forbid a transition or a boundary by its score. Its gradient is 0, as if it did not exist."""
    found = []
    for used in (kernels, None):
        crf = layer()
        for parameter in crf.parameters():
            parameter.data.flatten()[0] = -torch.inf
        labels, mask = labels_and_mask(False)
        with using(used):
            crf.loss(scores(0).to(DEVICE), labels.clamp(min=1).where(labels >= 0, -100), mask).backward()
        found.append({name: parameter.grad for name, parameter in crf.named_parameters()} | dict(crf.named_buffers()))
    assert_same(*found)
    assert all(float(found[0][name].flatten()[0]) == 0 for name in ("pairwise", "start", "end"))


def test_a_gradient_that_overflows_moves_no_scale(kernels: LayerKernels) -> None:
    got, want = (train(layer(), BATCHES["usual"][:1], used, weight=1e30) for used in (kernels, None))
    assert_same(got, want)
    assert float(got["scaling.steps"]) == 0
    assert float(got["scaling.examples"]) == 4


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_scores_in_half_precision(kernels: LayerKernels, dtype: torch.dtype) -> None:
    """They are computed in float32."""
    half = [batch.to(dtype) for batch in BATCHES["usual"]]
    got, want = (train(layer(), half, used) for used in (kernels, None))
    assert got["unary 0"].dtype == dtype
    assert_same(got, want, tolerance=2e-2)


def test_only_one_part_may_require_a_gradient(kernels: LayerKernels) -> None:
    found = []
    for used in (kernels, None):
        crf, (labels, mask) = layer(), labels_and_mask(False)
        with using(used):
            crf.loss(scores(0).to(DEVICE), labels, mask).backward()
            gradient = crf.pairwise.grad
            crf.requires_grad_(False)
            u = scores(1).to(DEVICE).requires_grad_()
            crf.loss(u, labels, mask).backward()
        found.append({"pairwise": gradient, "unary": u.grad} | dict(crf.named_buffers()))
    assert_same(*found)


def test_a_second_derivative_is_that_of_the_torch_code(kernels: LayerKernels) -> None:
    found = []
    for used in (kernels, None):
        crf, (labels, mask) = layer(), labels_and_mask(False)
        u = scores(0).to(DEVICE).requires_grad_()
        with using(used):
            (first,) = torch.autograd.grad(crf.loss(u, labels, mask), u, create_graph=True)
            first.square().sum().backward()
        found.append({"unary": u.grad, "pairwise": crf.pairwise.grad})
    assert_same(*found)


def test_a_tensor_that_was_saved_before_the_state_moved_is_noticed(kernels: LayerKernels) -> None:
    crf, (labels, mask) = layer(), labels_and_mask(False)
    x = torch.ones(2, device=DEVICE, requires_grad=True)
    saved = (crf.scaling.log_scales * x).sum()
    with using(kernels):
        crf.loss(scores(0).to(DEVICE).requires_grad_(), labels, mask).backward()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        saved.backward()


@pytest.mark.parametrize("objective", ["likelihood", "marginal"])
def test_without_scaling(kernels: LayerKernels, objective: str) -> None:
    options: dict[str, Any] = {"method": Fixed, "objective": objective, "constrained": True}
    got, want = (train(layer(**options), BATCHES["usual"], used, empty=True) for used in (kernels, None))
    assert_same(got, want)


def test_several_tiles_and_dimensions_of_a_batch(kernels: LayerKernels) -> None:
    """40 labels are not a power of two, and 70 positions need several tiles; labels alone say which positions count."""
    fixed = torch.Generator().manual_seed(1)
    unary = torch.randn(2, 1, 70, 40, generator=fixed)
    labels = torch.randint(40, (2, 1, 70), generator=fixed)
    labels[0, 0, 5:20], labels[1, 0, 66:] = -100, -100
    found = []
    for used in (kernels, None):
        crf = ChainCRF(40, Learned(), boundaries=True, generator=torch.Generator().manual_seed(0)).to(DEVICE)
        u = unary.to(DEVICE, copy=True).requires_grad_()
        with using(used):
            loss = crf.loss(u, labels.to(DEVICE))
            loss.backward()
            decoded = crf.eval().decode(u, labels.to(DEVICE) != -100)
        parameters = {name: parameter.grad for name, parameter in crf.named_parameters()}
        found.append(
            {"loss": loss.detach(), "unary": u.grad, "labels": decoded} | parameters | dict(crf.named_buffers())
        )
    assert_same(*found, tolerance=1e-5)


@pytest.mark.parametrize("balanced", [False, True])
def test_tags_of_the_drop_in_layer(kernels: LayerKernels, balanced: bool) -> None:
    torch.manual_seed(0)
    crf = torchcrf.CRF(3, balanced=balanced).to(DEVICE)
    for parameter in crf.parameters():
        parameter.data.normal_()
    emissions, mask = scores(0).to(DEVICE).transpose(0, 1), labels_and_mask(False)[1].T
    found = []
    for used in (kernels, None):
        with using(used):
            found.append([crf.decode(emissions, mask), crf.decode(emissions)])
    assert found[0] == found[1]
    assert [len(tags) for tags in found[0][0]] == mask.sum(0).tolist()


def test_tags_of_the_drop_in_layer_that_fill_several_blocks(kernels: LayerKernels) -> None:
    """Of more than 1,024 numbers. A sequence whose mask is off at its first step is found also in the last of them."""
    fixed = torch.Generator().manual_seed(0)
    mask = torch.rand(30, 50, generator=fixed) < 0.7
    mask[:, 0] = True
    mask, emissions = mask.to(DEVICE), 3 * torch.randn(30, 50, 3, generator=fixed).to(DEVICE)
    crf, found = torchcrf.CRF(3, batch_first=True).to(DEVICE), []
    for used in (kernels, None):
        with using(used):
            found.append(crf.decode(emissions, mask))
            for row in (0, 29):
                late = mask.clone()
                late[row, 0] = False
                with pytest.raises(ValueError, match="mask must be on at the first step"):
                    crf.decode(emissions, late)
    assert found[0] == found[1]
    assert [len(tags) for tags in found[0]] == mask.sum(1).tolist()


@pytest.mark.parametrize("balanced", [False, True])
def test_losses_of_the_drop_in_layer(kernels: LayerKernels, balanced: bool) -> None:
    """Tags are not read where the mask is off; where it is on, -100 is an invalid tag, also for the kernels."""
    found = []
    tags, mask = (x.T for x in labels_and_mask(False))
    tags = tags.clamp(min=0).masked_fill(~mask, -100)
    for used in (kernels, None):
        torch.manual_seed(0)
        crf = torchcrf.CRF(3, balanced=balanced).to(DEVICE)
        results = {}
        for step, reduction in enumerate(["sum", "mean", "token_mean", "none"]):
            emissions = scores(step).to(DEVICE).transpose(0, 1).contiguous().requires_grad_()
            with using(used):
                log_p = crf(emissions, tags, mask, reduction=reduction)
                log_p.sum().backward()
                with torch.no_grad():
                    results[f"again {step}"] = crf(emissions, tags, mask, reduction=reduction)
            results[f"loss {step}"], results[f"emissions {step}"] = log_p.detach(), emissions.grad
        results |= {name: parameter.grad for name, parameter in crf.named_parameters()} | dict(crf.named_buffers())
        with using(used), torch.no_grad():
            crf.eval()
            wrong = tags.masked_fill(torch.arange(5, device=DEVICE)[:, None] == 0, -100)
            if DEVICE == "cuda":
                results["a wrong tag"] = crf(emissions, wrong, mask, reduction="none")
                assert not results["a wrong tag"].isfinite().any()
        found.append(results)
    assert_same(*found)


def test_many_labels(kernels: LayerKernels) -> None:
    """If the chain has other kernels for them, those of the layer come before and after as separate calls."""
    with patch("equipoise.chain.gpu.wide.MIN_LABELS", 1) if "gpu" in kernels.__name__ else nullcontext():
        got = train(layer(), BATCHES["usual"], kernels)
    assert_same(got, train(layer(), BATCHES["usual"], None))


def test_an_objective_of_the_pairwise_part_alone(kernels: LayerKernels) -> None:
    """The unary part has a gradient of 0, whatever its precision."""
    (labels, mask), found = labels_and_mask(False), []
    own = Objective(
        lambda unary, pairwise, labels, lengths: pairwise.square().sum() * torch.ones_like(labels[:, 0]), "map"
    )
    for used in (kernels, None):
        crf, unary = layer(), scores(0).bfloat16().to(DEVICE).requires_grad_()
        with using(used):
            crf.loss(unary, labels, mask, objective=own).backward()
        found.append({name: x.grad for name, x in crf.named_parameters()} | {"unary": unary.grad})
    assert_same(*found)
