"""The C code before and after the chain: where it is used, what it refuses, its errors, threads and memory.

`test_kernels` compares its results with the torch code.
"""

import gc
import weakref
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from equipoise import ChainCRF, constraints, scaling
from equipoise.crf import choice
from equipoise.crf.cpu import prepare as cpu
from equipoise.crf.fused import LayerCall, Prepared
from equipoise.crf.reasons import Reason

pytestmark = pytest.mark.skipif(cpu.library(torch.float32) is None, reason="there is no C compiler")
LABELS = ["O", "B-X", "I-X"]
HOLES = torch.tensor([[True, False, True, True], [False, True, True, False]])


def layer(method: type[scaling.Scaling] = scaling.Learned, **options: object) -> ChainCRF:
    rules = constraints.from_labels(LABELS, "BIO")
    return ChainCRF(3, method(), rules, boundaries=True, generator=torch.Generator().manual_seed(0), **options)


def in_torch() -> object:
    return patch.object(choice, "kernels_for", lambda x: Reason.FORCED)


def random(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype).requires_grad_()


def prepared(crf: ChainCRF, unary: Tensor, mask: Tensor, labels: Tensor) -> Prepared:
    """What C prepares for the chain."""
    call = crf._by_kernels(unary, mask, labels)
    assert isinstance(call, LayerCall)
    ready = call.prepared(lambda: (unary, crf.pairwise))
    assert isinstance(ready, Prepared)
    return ready


def test_where_c_is_used() -> None:
    assert choice.kernels_for(torch.zeros(1)) is cpu
    assert choice.kernels_for(torch.zeros(1, device="meta")) is Reason.DEVICE
    seen = []
    torch.func.vmap(lambda x: seen.append(choice.kernels_for(x)) or x)(torch.zeros(2))
    assert seen == [Reason.TRACED]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_which_dtypes_c_supports(dtype: torch.dtype) -> None:
    """Scores in half precision, as under autocast, but not scores in double with a layer in float32."""
    u, labels, crf = random(2, 4, 3, dtype=dtype), torch.tensor([[1, 0, 2, 2], [0, 1, 2, 0]]), layer()
    assert (crf._by_kernels(u, HOLES, labels) is Reason.UNSUPPORTED) == (dtype == torch.float64)
    assert crf.to(torch.bfloat16)._by_kernels(u, HOLES, labels) is Reason.UNSUPPORTED


@pytest.mark.parametrize("method", [scaling.Learned, scaling.Fixed])
def test_double_precision(method: type[scaling.Scaling]) -> None:
    """To the last digits, with holes, constraints and boundaries."""
    labels, found = torch.tensor([[1, 9, 2, 0], [9, 0, 1, 9]]), []
    for by_c in (True, False):
        crf, u = layer(method).double(), random(2, 4, 3, dtype=torch.float64)
        with patch.object(choice, "kernels_for", lambda x, kernels=cpu if by_c else Reason.FORCED: kernels):
            assert isinstance(crf._by_kernels(u, HOLES, labels), LayerCall) == by_c
            for _ in range(3):
                loss = crf.loss(u, labels, HOLES)
                loss.backward()
        found.append([loss, u.grad, *(p.grad for p in crf.parameters()), *crf.scaling.buffers()])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("value", [3, -2])
def test_a_label_out_of_range_is_named_by_its_original_place(value: int) -> None:
    labels = torch.tensor([[0, 0, 1, 2], [0, 0, value, 0]])
    with pytest.raises(ValueError, match=rf"labels\[1, 2\] is {value}, but labels of valid positions must be"):
        layer().loss(random(2, 4, 3), labels, HOLES)
    labels[1, 2], labels[1, 0] = 0, value  # where the mask is off
    assert layer().loss(random(2, 4, 3), labels, HOLES).isfinite()


INVALID = {"first": [[2, 0, 1, 2], [0, 1, 2, 0]], "after another": [[1, 0, 2, 2], [0, 0, 2, 0]]}


@pytest.mark.parametrize("name", INVALID)
def test_labels_that_break_the_constraints(name: str) -> None:
    """Under the marginal loss each label may be possible by itself, so that the loss would be finite."""
    labels, u = torch.tensor(INVALID[name]), random(2, 4, 3)
    for objective in ("likelihood", "marginal"):
        with pytest.raises(ValueError, match="which may not"):
            layer(objective=objective).loss(u, labels, HOLES)
    repaired, left_out = layer(on_invalid="repair"), layer(on_invalid="warn")
    with in_torch():
        want = repaired.loss(u, labels, HOLES)
    torch.testing.assert_close(repaired.loss(u, labels, HOLES), want)
    with pytest.warns(UserWarning, match="1 of 2 sequences are left out"):
        assert left_out.loss(u, labels, HOLES).isfinite()


@pytest.mark.parametrize("objective", ["likelihood", "marginal"])
def test_the_last_label_may_be_forbidden(objective: str) -> None:
    crf = layer(objective=objective)
    crf.constraints.end[1] = crf.allowed_end[1] = False  # type: ignore[index, union-attr]
    with pytest.raises(ValueError, match="which may not come last"):
        crf.loss(random(1, 3, 3), torch.tensor([[0, 1, 1]]))
    assert crf.loss(random(1, 3, 3), torch.tensor([[0, 1, 0]])).isfinite()
    crf.validate, crf.on_invalid = False, "repair"
    assert crf.loss(random(1, 3, 3), torch.tensor([[0, 1, 1]])).isfinite()


def test_valid_labels_need_no_repair() -> None:
    """Then C computes the loss under every policy."""
    labels, u = torch.tensor([[1, 0, 2, 2], [0, 1, 2, 0]]), random(2, 4, 3)
    for policy in ("raise", "warn", "repair"):
        assert prepared(layer(on_invalid=policy), u, HOLES, labels).lengths.tolist() == HOLES.sum(-1).tolist()


def test_a_loss_that_is_not_finite_is_explained() -> None:
    u = random(2, 4, 3).detach()
    u[0, 2, 1] = torch.nan
    labels = torch.tensor([[1, 0, 2, 2], [0, 1, 2, 0]])
    with pytest.raises(ValueError, match=r"unary\[0, 2, 1\] is nan"):
        layer().loss(u, labels, HOLES)
    assert layer(validate=False).loss(u, labels, HOLES).isnan()


@pytest.mark.parametrize("method", [scaling.Learned, scaling.Fixed])
def test_threads_do_not_change_results(method: type[scaling.Scaling]) -> None:
    unary, labels = random(96, 100, 30), torch.randint(30, (96, 100), generator=torch.Generator().manual_seed(0))
    assert unary.numel() >= cpu.MIN_THREADED_SCORES
    mask, found, before = labels % 7 > 0, [], torch.get_num_threads()
    for threads in (1, 2):
        torch.set_num_threads(threads)
        crf = ChainCRF(30, method(), boundaries=True, generator=torch.Generator().manual_seed(0))
        loss = crf.loss(unary, labels, mask)
        found.append([loss.detach(), *torch.autograd.grad(loss, (unary, *crf.parameters())), *crf.buffers()])
        found[-1].append(crf.eval().decode(unary.detach(), mask))
    torch.set_num_threads(before)
    assert all(map(torch.equal, *found))


def test_scores_with_gaps_in_memory() -> None:
    labels = torch.tensor([[1, 0], [0, 1], [2, 2], [2, 0]]).T
    unary = random(4, 2, 3).detach().transpose(0, 1).requires_grad_()
    crf = layer()
    got = torch.autograd.grad(crf.loss(unary, labels, HOLES), unary)[0]
    with in_torch():
        want = torch.autograd.grad(layer().loss(unary, labels, HOLES), unary)[0]
    torch.testing.assert_close(got, want)


def test_memory_is_released_without_the_garbage_collector() -> None:
    u, labels = random(2, 4, 3), torch.tensor([[1, 0, 2, 2], [0, 1, 2, 0]])
    gc.disable()
    try:
        crf = layer()
        seen = weakref.ref(prepared(crf, u, HOLES, labels).unary)
        assert seen() is None
    finally:
        gc.enable()


def test_without_a_compiler_the_torch_code_computes_the_same() -> None:
    labels, u = torch.tensor([[1, 0, 2, 2], [0, 1, 2, 0]]), random(2, 4, 3)
    want = layer().loss(u, labels, HOLES)
    with patch.object(cpu, "library", lambda dtype: None), patch.dict(choice.checked_signatures, clear=True):
        assert layer()._by_kernels(u, HOLES, labels) is Reason.UNSUPPORTED
        torch.testing.assert_close(layer().loss(u, labels, HOLES), want)


@pytest.mark.parametrize("method", [scaling.Learned, scaling.Fixed])
def test_scores_beyond_the_length_are_0(method: type[scaling.Scaling]) -> None:
    """An objective of the user may read them."""
    mask = torch.tensor([[True, False, True, False], [False, False, False, False]])
    for _ in range(3):  # memory that is used again
        labels = torch.tensor([[1, 0, 2, 0], [0, 0, 0, 0]])
        ready = prepared(layer(method), random(2, 4, 3).detach(), mask, labels)
        assert ready.lengths.tolist() == [2, 1]
        assert not ready.unary[0, 2:].any()
        assert not ready.unary[1].any()
        assert ready.labels.tolist() == [[1, 2, 0, 0], [0, 0, 0, 0]]
        del ready
        torch.full((2, 4, 3), torch.nan)


def test_padding_is_not_moved() -> None:
    """The labels of the chain are then those of the layer, and are not copied."""
    u, crf = random(2, 4, 3).detach(), layer()
    padded = torch.tensor([[True, True, True, False], [True, True, False, False]])
    for mask, in_place in ((None, True), (padded, True), (HOLES, False), (padded & padded[:, 2:3], False)):
        call = crf._by_kernels(u, mask, None)
        assert isinstance(call, LayerCall)
        parts = cpu.Call(u, call.given.parameters, call.given.state, call.given.kind)
        parts.keep(mask, None)
        labels = torch.full((2, 4), 7)
        placed = parts.place(labels)
        assert (placed is labels) == in_place
        if not in_place:
            assert torch.equal(placed, torch.where(mask, 7, -100))
