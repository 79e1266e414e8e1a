"""How layers call their kernels: as one function of autograd, recorded once, without memory that is left behind."""

import gc
import importlib
import weakref
from typing import Any
from unittest.mock import patch

import pytest
import torch
from layer_kernels import (
    DEVICE,
    assert_same,
    kernels,
    labels_and_mask,
    layer,
    scores,
    using,
)

from equipoise.compat import torchcrf
from equipoise.crf import choice
from equipoise.crf.fused import LayerCall, LayerKernels
from equipoise.crf.reasons import Reason
from equipoise.scaling import Fixed, Learned, Scaling

__all__ = ["kernels"]  # a fixture


@pytest.mark.parametrize("objective", ["likelihood", "marginal"])
@pytest.mark.parametrize("method", [Fixed, Learned])
def test_a_second_backward_pass(kernels: LayerKernels, objective: str, method: type[Scaling]) -> None:
    """It has the gradients of the first, whatever became of their memory, and moves the state of scaling again."""
    labels, mask = labels_and_mask(False)
    states = []
    for used in (kernels, None):
        crf = layer(method=method, objective=objective)
        for step in range(3):  # recorded, repeated, and repeated without Triton's dispatcher
            unary = scores(step).to(DEVICE).requires_grad_()
            inputs = unary, *crf.parameters()
            with using(used):
                loss = crf.loss(unary, labels, mask)
            first = torch.autograd.grad(loss, inputs, retain_graph=True)
            kept = [x.clone() for x in first]
            for x in first:
                x.fill_(torch.nan)
            again = torch.autograd.grad(loss, inputs, torch.full_like(loss, 2.0))
            for got, want in zip(again, kept, strict=True):
                torch.testing.assert_close(got, 2 * want)
        states.append({name: x.clone() for name, x in crf.named_buffers()})
    assert_same(*states)


def test_a_loss_without_a_backward_pass_leaves_no_memory(kernels: LayerKernels) -> None:
    """Also without the garbage collector, which does not see the memory of a GPU."""
    crf, (labels, mask) = layer(), labels_and_mask(False)
    unary = scores(0).to(DEVICE).requires_grad_()
    gc.disable()
    try:
        for _ in range(3):
            with using(kernels):
                loss = crf.loss(unary, labels, mask)
            seen = weakref.ref(loss), weakref.ref(loss.grad_fn)
            del loss
            assert [x() for x in seen] == [None, None]
    finally:
        gc.enable()


def test_gradients_are_used_as_they_are(kernels: LayerKernels) -> None:
    """Autograd copies a gradient to which there is another reference."""
    crf, (labels, mask) = layer(), labels_and_mask(False)
    for _ in range(3):
        unary = scores(0).to(DEVICE).requires_grad_()
        with using(kernels):
            loss = crf.loss(unary, labels, mask)
        addresses = []
        unary.register_hook(lambda x, found=addresses: found.append(x.data_ptr()))
        loss.backward()
        assert addresses == [unary.grad.data_ptr()]


def test_a_loss_is_one_function_of_autograd(kernels: LayerKernels) -> None:
    """If there are kernels for all of it. Otherwise the scores of the chain are, and the chain is another."""
    (labels, mask), unary = labels_and_mask(False), scores(0).to(DEVICE).requires_grad_()

    def before(objective: str, reduction: str) -> set[Any]:
        with using(kernels):
            loss = layer(objective=objective).loss(unary, labels, mask, reduction=reduction)
        functions = loss.grad_fn, *(x for x, _ in loss.grad_fn.next_functions)  # they live as long as the loss
        return {type(x).__name__ for x in functions if x is not None}

    for objective in ("likelihood", "marginal"):
        for reduction in ("mean", "sum", "token_mean"):
            assert before(objective, reduction) == {"LossBackward", "AccumulateGrad"}
        assert "LossBackward" not in before(objective, "none")


def test_a_prediction_is_one_recording(kernels: LayerKernels) -> None:
    if "gpu" not in kernels.__name__:
        pytest.skip("C is not recorded")
    replay, (_, mask) = importlib.import_module("equipoise.native.triton_replay"), labels_and_mask(False)
    with using(kernels), patch.dict(replay.replays, clear=True):
        for rule in ("map", "marginal"):
            for _ in range(3):
                layer().decode(scores(0).to(DEVICE), mask, rule=rule)
        torchcrf.CRF(3, batch_first=True).to(DEVICE).decode(scores(0).to(DEVICE), mask)
        assert len(replay.replays) == 3


def test_shapes_are_checked_once(kernels: LayerKernels) -> None:
    """Also if there were more shapes than are kept; and errors come every time."""
    crf, (_, mask) = layer(), labels_and_mask(False)
    unary, checked = scores(0).to(DEVICE), []
    with using(kernels), patch.dict(choice.checked_signatures, clear=True), patch.object(choice, "CACHE_SIZE", 2):
        with patch.object(
            crf,
            "_check_arguments",
            lambda *args, original=crf._check_arguments: checked.append(len(args[0])) or original(*args),
        ):
            for size in (4, 4, 3, 3, 2, 2, 4):
                crf.decode(unary[:size], mask[:size])
            for _ in range(2):
                with pytest.raises(ValueError, match="mask has shape"):
                    crf.decode(unary, mask[:2])
        assert len(choice.checked_signatures) <= 2
    assert checked == [4, 3, 2, 4, 4, 4]


def test_where_kernels_are_used(kernels: LayerKernels) -> None:
    crf, (labels, mask) = layer(), labels_and_mask(False)
    unary = scores(0).to(DEVICE)
    with using(kernels):
        assert isinstance(crf._by_kernels(unary, mask, labels), LayerCall)
        assert crf._by_kernels(unary.double(), mask, labels) is Reason.UNSUPPORTED
        crf.scaling.eval()  # also if the layer is in training mode
        assert crf._by_kernels(unary, mask, labels) is Reason.EXACT
        assert isinstance(crf._by_kernels(unary, mask, None), LayerCall)
        crf.validate = True
        assert crf._by_kernels(unary, mask, None) is Reason.VALIDATED
