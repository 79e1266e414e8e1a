"""The operators of a chain: torch's own checks, and programs traced with them that serve every length."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch._dynamo.testing
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from equipoise import ChainCRF, chain, constraints, objectives, scaling
from equipoise.chain import backends
from equipoise.chain.problem import Problem
from equipoise.native.values import self_contained

OPERATORS = torch.ops.equipoise
BIO = constraints.from_labels(["O", "B-X", "I-X"], "BIO")


def make(*batch: int, length: int = 4, seed: int = 0) -> tuple[Problem, Tensor]:
    """Chains of 3 labels whose matrix is spread, and labels."""
    generator = torch.Generator().manual_seed(seed)
    unary, pairwise = (torch.randn(*shape, 3, generator=generator) for shape in ((*batch, length), (3,)))
    lengths = torch.randint(1, length + 1, batch, generator=generator)
    labels = torch.randint(3, (*batch, length), generator=generator)
    return Problem(unary, pairwise, lengths).spread(), labels


def arguments(backend: str) -> dict[str, tuple[Any, ...]]:
    """Of every operator, with gradients where there are derivatives."""
    (unary, pairwise, lengths), y = make(2)
    plain, n = (unary, pairwise, lengths), lengths
    u, w = unary.clone().requires_grad_(), pairwise.clone().requires_grad_()
    weight, mass = torch.tensor([0.5, -2.0]), torch.randn_like(unary)
    _, alpha = OPERATORS.chain_forward(*plain, None, backend)
    messages = OPERATORS.chain_messages(*plain, backend)
    edges = torch.randn_like(pairwise)
    return {
        "forward": (u, w, n, y, backend),
        "marginals": (weight.clone().requires_grad_(), u, w, n, alpha, None, backend),
        "messages": (u, w, n, backend),
        "transport": (mass, edges, weight, *plain, *messages, backend),
        "cross_entropy": (u, w, n, y, backend),
        "cross_entropy_gradient": (weight, *plain, y, *messages, backend),
        "entropy": (u, w, n, backend),
        "loss_with_gradient": (u, w, n, y, "cross_entropy"),
        "weighted_edges": (weight, edges, *plain, y, "likelihood"),
        "edge_marginals": plain,
        "decode": plain,
        "top_k": (*plain, 2),
        "sample": (*plain, 2),
    }


NAMES = [name.removeprefix("chain_") for name in dir(OPERATORS) if name.startswith("chain_")]
RANDOM = ("sample",)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("name", sorted(arguments("reference")))
def test_operators_pass_the_checks_of_torch(name: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Schema, derivatives, results without values, and AOT with any size; with a compiler and without."""
    if backend == "reference":
        monkeypatch.setattr(backends, "library", lambda dtype: None)
    given, operator = arguments(backend)[name], getattr(OPERATORS, f"chain_{name}").default
    checks: Any = ["test_schema", "test_faketensor"]
    if any(isinstance(x, Tensor) and x.requires_grad for x in given):
        checks += ["test_autograd_registration", "test_aot_dispatch_dynamic"]
    torch.library.opcheck(operator, given, test_utils=checks[: 2 if name in RANDOM else None])


def test_all_operators_are_checked() -> None:
    assert set(NAMES) <= set(arguments("reference"))


@pytest.mark.parametrize("compiled", [True, False])
def test_a_program_runs_where_its_backend_does_not(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a trace saved for one backend is computed again if another one runs."""
    p, y = make(3)
    results = []
    for backend in ("cpu", "gpu", "reference"):
        if not compiled:
            monkeypatch.setattr(backends, "library", lambda dtype: None)
        u, w = (x.clone().requires_grad_() for x in p[:2])
        messages, *_ = OPERATORS.chain_messages(u, w, p.lengths, backend)
        loss, *_ = OPERATORS.chain_cross_entropy(u, w, p.lengths, y, backend)
        likelihood, _ = OPERATORS.chain_forward(u, w, p.lengths, y, backend)
        total = (messages * p.unary).sum() + loss.square().sum() + likelihood.square().sum()
        results.append([total, *torch.autograd.grad(total, (u, w))])
    for other in results[1:]:
        torch.testing.assert_close(results[0], other)
    u, w = (x.clone().requires_grad_() for x in p[:2])
    total = (chain.log_marginals(u, w[0, 0], p.lengths) * p.unary).sum()
    total = total + objectives.marginal(u, w[0, 0], y, p.lengths).square().sum()
    total = total + objectives.likelihood(u, w[0, 0], y, p.lengths).square().sum()
    torch.testing.assert_close(results[0], [total, *torch.autograd.grad(total, (u, w))])


LAYERS: dict[str, Callable[[], ChainCRF]] = {
    "likelihood": lambda: ChainCRF(3),
    "marginal": lambda: ChainCRF(3, scaling.Learned(), objective="marginal", boundaries=True),
    "constrained": lambda: ChainCRF(3, scaling.Learned(), BIO, on_invalid="repair"),
    "margin": lambda: ChainCRF(3, objective="margin"),
}


def step(crf: ChainCRF, loss: Callable[..., Tensor], length: int, reduction: str) -> list[Tensor]:
    """A loss, its gradients, and the state after it."""
    p, labels = make(4, length=length, seed=length)
    unary = p.unary.requires_grad_()
    value = loss(unary, labels, mask=p.valid, reduction=reduction)
    crf.zero_grad()
    (value if value.ndim == 0 else (value * torch.arange(1, 5)).sum()).backward()
    return [value, unary.grad, *[x.grad for x in crf.parameters()], *crf.state_dict().values()]


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_two_compilations_serve_all_lengths(name: str, reduction: str) -> None:
    torch.manual_seed(0)
    eager = LAYERS[name]()
    compiled = LAYERS[name]()
    compiled.load_state_dict(eager.state_dict())
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    loss = torch.compile(compiled.loss, fullgraph=True, backend=counter)
    for length in (6, 5, 9, 6, 17):
        got, want = step(compiled, loss, length, reduction), step(eager, eager.loss, length, reduction)
        torch.testing.assert_close(got, want)
    assert counter.frame_count <= 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["likelihood", "marginal"])
def test_two_compilations_by_inductor(name: str) -> None:
    torch.manual_seed(0)
    eager, compiled = LAYERS[name](), LAYERS[name]()
    compiled.load_state_dict(eager.state_dict())
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend("inductor")
    loss = torch.compile(compiled.loss, fullgraph=True, backend=counter)
    for length in (64, 33, 50):
        torch.testing.assert_close(step(compiled, loss, length, "mean"), step(eager, eager.loss, length, "mean"))
    assert counter.frame_count <= 2


class Layer(torch.nn.Module):
    def __init__(self, answer: str) -> None:
        super().__init__()
        self.crf, self.answer = ChainCRF(3, scaling.Learned(), BIO).eval(), answer

    def forward(self, unary: Tensor, labels: Tensor) -> Any:
        if self.answer == "loss":
            return self.crf.loss(unary, labels)
        if self.answer == "top_k":
            return self.crf.top_k(unary, labels >= 0, k=2)
        return getattr(self.crf, self.answer)(unary, labels >= 0)


@pytest.mark.parametrize("answer", ["loss", "decode", "log_marginals", "top_k", "entropy"])
@pytest.mark.parametrize("fixed", [True, False])
def test_exported_programs_have_a_node_per_call(answer: str, fixed: bool) -> None:
    """Programs of any batch size and length, with gradients, and of one size."""
    torch.manual_seed(0)
    shortest = 3 if answer == "top_k" else None  # slices of scores
    layer, size = Layer(answer), {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", min=shortest)}

    def example(*shape: int) -> tuple[Tensor, Tensor]:
        labels = torch.zeros(shape, dtype=torch.int64)
        labels[1:, 2:] = -100
        return torch.randn(*shape, 3), labels

    program = torch.export.export(
        layer, example(3, 5), dynamic_shapes=None if fixed else {"unary": size, "labels": size}
    )
    called = [x for x in program.graph.nodes if "equipoise" in str(x.target)]
    assert len(called) == 1
    assert len(program.graph.nodes) < 200
    for shape in ((3, 5), *(() if fixed else ((2, 40), (8, 4)))):
        unary, labels = example(*shape)
        got, want = program.module()(unary, labels), layer(unary, labels)
        torch.testing.assert_close(got, want)
        if answer in ("decode", "top_k"):
            continue
        unary.requires_grad_()
        gradients = [torch.autograd.grad(f(unary, labels).square().sum(), unary)[0] for f in (program.module(), layer)]
        torch.testing.assert_close(*gradients)


def test_a_self_contained_program_has_operators_of_torch_only() -> None:
    layer = Layer("decode")
    given = torch.randn(3, 5, 3), torch.zeros(3, 5, dtype=torch.int64)
    with self_contained():
        program = torch.export.export(layer, given)
    assert not [x for x in program.graph.nodes if "equipoise" in str(x.target)]


def test_traces_of_values_and_of_shapes() -> None:
    """AOT without torch.compile: the trace of a call with its gradient."""

    def gradient(u: Tensor, w: Tensor, n: Tensor) -> tuple[Tensor, ...]:
        u, w = u.detach().requires_grad_(), w.detach().requires_grad_()
        return torch.autograd.grad(chain.log_partition(u, w, n).square().sum(), (u, w))

    (u, w, n), _ = make(3)
    (other, _, longer), _ = make(3, seed=1)
    for mode in ("real", "fake"):
        program = make_fx(gradient, tracing_mode=mode)(u, w[0, 0], n)
        torch.testing.assert_close(program(other, 2 * w[0, 0], longer), gradient(other, 2 * w[0, 0], longer))


def test_samples_of_a_compiled_call_follow_the_marginals() -> None:
    (u, w, _), _ = make(1)
    torch.manual_seed(0)
    draws = torch.compile(lambda: chain.sample(u, w[0, 0], n=20_000), fullgraph=True, backend="aot_eager")()
    shares = torch.nn.functional.one_hot(draws, 3).double().mean(1)
    torch.testing.assert_close(shares, chain.log_marginals(u, w[0, 0]).exp().double(), rtol=0, atol=0.02)
