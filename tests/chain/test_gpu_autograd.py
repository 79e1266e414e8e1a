"""The Triton backend under autograd, torch.func, torch.compile and torch.export. Interpreted if there is no GPU."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from triton_chains import DEVICE, gpu, make, on_device, strict_memory

from equipoise import ChainCRF, chain, objectives
from equipoise.chain import backends
from equipoise.chain.traced import Traced

__all__ = ["strict_memory"]  # a fixture
pytestmark = [
    pytest.mark.usefixtures("strict_memory"),
    pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning"),  # log 0 is -inf in the kernels
]


@pytest.fixture
def use_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Public functions use the Triton kernels, also in the interpreter."""
    monkeypatch.setitem(backends.BACKENDS, "gpu", gpu)
    monkeypatch.setitem(backends.KERNELS, "gpu", gpu)
    monkeypatch.setattr(backends, "gpu", gpu, raising=False)
    monkeypatch.setattr(gpu, "supports", lambda unary, pairwise: unary.dtype == torch.float32)


@pytest.mark.usefixtures("use_kernels")
def test_vmap_is_a_batch() -> None:
    p = make((3,), 3, 2, (3,))
    traced = Traced("gpu")
    got = torch.vmap(traced.forward)(p.unary, p.pairwise, p.lengths)[0]
    torch.testing.assert_close(got, gpu.forward(*p)[0])
    marginals = torch.vmap(
        lambda u, n: traced.marginals(n + 0.0, u, p.pairwise[0], n, traced.forward(u, p.pairwise[0], n)[1])
    )
    assert marginals(p.unary, p.lengths)[1].shape == p.pairwise.shape
    labels = p.unary.argmax(-1)
    loss, known = torch.vmap(traced.cross_entropy)(p.unary, p.pairwise, p.lengths, labels)
    weigh = torch.vmap(traced.cross_entropy_gradient, in_dims=(0, None, None, None, None, None))
    weight = torch.eye(3, device=DEVICE)  # the messages are not batched here
    each = weigh(weight, *p, labels, known)
    torch.testing.assert_close(each[0].sum(0), gpu.cross_entropy_gradient(torch.ones_like(loss), *p, labels, known)[0])


@pytest.mark.usefixtures("use_kernels")
def test_operators_declare_the_shapes_of_their_results() -> None:
    p = make((2,), 3, 2)
    log_z, alpha = gpu.forward(*p)
    known, labels = gpu.messages(*p), p.unary.argmax(-1)
    checks = ("test_schema", "test_faketensor", *(["test_aot_dispatch_dynamic"] if DEVICE == "cuda" else []))
    for name, args in {
        "forward": (*p, None),
        "marginals": (log_z, *p, alpha, labels),
        "messages": p,
        "transport": (p.unary, None, log_z, *p, *known),
        "cross_entropy": (*p, labels),
        "cross_entropy_gradient": (log_z, *p, labels, *known),
        "entropy": p,
    }.items():
        operator = getattr(torch.ops.equipoise, f"chain_{name}").default
        torch.library.opcheck(operator, (*args, "gpu"), test_utils=checks)
    torch.library.opcheck(torch.ops.equipoise.chain_decode.default, tuple(p), test_utils=checks)


@pytest.mark.usefixtures("use_kernels")
@pytest.mark.parametrize("how", ["gradient at once", "gradient later"])
@pytest.mark.parametrize("loss", [objectives.likelihood, objectives.marginal])
def test_gradients_of_losses_in_every_mode_of_autograd(loss: Any, how: str, monkeypatch: Any) -> None:
    """Equal and unequal weights, a second backward pass, batched gradients, and second derivatives."""
    p, calls = make((3,), 4, 3), []
    if how == "gradient later":
        monkeypatch.setattr(gpu, "has_fused_loss", lambda unary, pairwise: False)
    monkeypatch.setattr(gpu, "fused_loss", lambda *args, original=gpu.fused_loss: calls.append(1) or original(*args))
    labels = torch.arange(12, device=DEVICE).view(3, 4) % 3
    weights = torch.tensor([[1.0, 1.0, 1.0], [0.5, -2.0, 3.0]], device=DEVICE)
    results = []
    for dtype in (torch.float32, torch.float64):
        u, w = (x.to(dtype).requires_grad_() for x in (p.unary, p.pairwise.view(3, 3)))
        value = loss(u, w, labels, p.lengths)
        found = [value]
        found += torch.autograd.grad(value.sum(), (u, w), retain_graph=True)
        for weight in weights.to(dtype):
            found += torch.autograd.grad(value, (u, w), weight, retain_graph=True)
        found += torch.autograd.grad(value, (u, w), weights.to(dtype), retain_graph=True, is_grads_batched=True)
        first = torch.autograd.grad((weights[1].to(dtype) * value).sum(), (u, w), create_graph=True)
        found += [*first, *torch.autograd.grad(sum(x.square().sum() for x in first), (u, w))]
        found += torch.autograd.grad(loss(u, w, labels, p.lengths), (u, w), weights[1].to(dtype))
        for reduction in ("sum", "mean", "token_mean"):
            total = loss(u, w, labels, p.lengths, reduction=reduction)
            found += [total, *torch.autograd.grad(3 * total, (u, w), retain_graph=True)]
            found += torch.autograd.grad(total, (u, w), retain_graph=True)
            found += torch.autograd.grad(total, (u, w), weights[1].to(dtype), is_grads_batched=True, retain_graph=True)
            first = torch.autograd.grad(total.square(), (u, w), create_graph=True)
            found += torch.autograd.grad(sum(x.square().sum() for x in first), (u, w))
            with torch.no_grad():
                found.append(loss(u, w, labels, p.lengths, reduction=reduction))
        results.append(found)
    assert len(calls) == (0 if how == "gradient later" else 5)
    for got, want in zip(*results, strict=True):
        torch.testing.assert_close(got.double(), want, rtol=1e-4, atol=1e-5)


class Recorder(TorchDispatchMode):
    """Records the names of the operators that are called."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(operator._schema.name)
        return operator(*args, **(kwargs or {}))


@pytest.mark.usefixtures("use_kernels")
@pytest.mark.parametrize("loss", [objectives.likelihood, objectives.marginal])
def test_the_fused_gradient_is_not_used_for_weights_without_values(loss: Any) -> None:
    """Batched gradients, transforms and dispatch modes get operators."""
    p, labels = make((3,), 4, 3), torch.arange(12, device=DEVICE).view(3, 4) % 3
    u, w = p.unary.requires_grad_(), p.pairwise.view(3, 3).requires_grad_()
    weights = torch.tensor([[1.0, 1.0, 1.0], [0.5, -2.0, 3.0]], device=DEVICE)
    each = [torch.autograd.grad(loss(u, w, labels, p.lengths), (u, w), weight) for weight in weights]
    want = [torch.stack(x) for x in zip(*each, strict=True)]
    value = loss(u, w, labels, p.lengths)
    torch.testing.assert_close([*torch.autograd.grad(value, (u, w), weights, is_grads_batched=True)], want)
    value = loss(u, w, labels, p.lengths)
    by_vmap = torch.vmap(lambda weight: torch.autograd.grad(value, (u, w), weight, retain_graph=True))
    torch.testing.assert_close([*by_vmap(weights)], want)
    value = loss(u, w, labels, p.lengths)
    functional = torch.func.functionalize(lambda weight: torch.autograd.grad(value, (u, w), weight))
    torch.testing.assert_close(functional(weights[1]), each[1])
    value = loss(u, w, labels, p.lengths)
    with Recorder() as recorder:
        torch.testing.assert_close(torch.autograd.grad(value, (u, w), weights[1]), each[1])
    assert any(name.startswith("equipoise::chain") for name in recorder.names)


@on_device
@pytest.mark.parametrize("name", ["log_partition", "log_marginals", "edge_marginals", "decode"])
def test_public_functions_compile_as_one_graph_on_the_device(name: str) -> None:
    def function(u: Tensor, w: Tensor, n: Tensor) -> Tensor:
        return chain.decode(u, w, n)[1] if name == "decode" else getattr(chain, name)(u, w, n)

    p = make((4,), 7, 5)
    inputs = p.unary.requires_grad_(), p.pairwise.reshape(5, 5).requires_grad_()
    got, want = (f(*inputs, p.lengths) for f in (torch.compile(function, fullgraph=True), function))
    torch.testing.assert_close(got, want)
    for a, b in zip(*(torch.autograd.grad(x.square().sum(), inputs) for x in (got, want)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


@on_device
def test_second_derivatives_on_the_device() -> None:
    p = make((4,), 7, 5)
    hessians = []
    for u, w, n in (
        (p.unary, p.pairwise, p.lengths),
        (p.unary.cpu().double(), p.pairwise.cpu().double(), p.lengths.cpu()),
    ):
        u, w = u.clone().requires_grad_(), w.reshape(5, 5).clone().requires_grad_()
        first = torch.autograd.grad(chain.log_partition(u, w, n).sum(), (u, w), create_graph=True)
        hessians.append(torch.autograd.grad(sum(x.square().sum() for x in first), (u, w)))
    for a, b in zip(*hessians, strict=True):
        torch.testing.assert_close(a.cpu().double(), b, rtol=1e-4, atol=1e-5)


@on_device
def test_a_module_that_decodes_can_be_exported_on_the_device() -> None:
    class Decoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.crf = ChainCRF(5)

        def forward(self, unary: Tensor, mask: Tensor) -> Tensor:
            return self.crf.decode(unary, mask)

    p = make((4,), 7, 5)
    decoder = Decoder().to(DEVICE)
    program = torch.export.export(decoder, (p.unary, p.valid))
    assert torch.equal(program.module()(p.unary, p.valid), decoder(p.unary, p.valid))


@pytest.mark.usefixtures("use_kernels")
@pytest.mark.parametrize(("batch", "own"), [((3,), ()), ((2, 2), (2, 1))])
def test_sets_of_labels(batch: tuple[int, ...], own: tuple[int, ...]) -> None:
    """The chain and the restricted chain are one batch for the kernels; one sequence has another weight."""
    p = make(batch, 4, 3, own)
    allowed = p.unary > p.unary.mean(-1, keepdim=True)
    weight = torch.ones(batch, device=DEVICE)
    weight.view(-1)[-1] = 0.5
    results = []
    for dtype in (torch.float32, torch.float64):  # kernels, and C
        inputs = [x.to(dtype).requires_grad_() for x in (p.unary, p.pairwise.view(*own, 3, 3))]
        losses = objectives.partial(*inputs, allowed, p.lengths)
        results.append((losses, *torch.autograd.grad(losses, inputs, weight.to(dtype))))
    torch.testing.assert_close(*results, check_dtype=False, rtol=1e-5, atol=1e-6)
