"""The Triton backend against the float64 reference: compiled where there is a GPU, else in Triton's interpreter."""

import importlib
import os
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from equipoise import ChainCRF, chain, objectives
from equipoise.chain import backends, reference
from equipoise.chain.checks import problem
from equipoise.chain.problem import Problem
from equipoise.chain.scoring import one_hot, score

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
INTERPRET = {"TRITON_INTERPRET": "1" if DEVICE == "cpu" else "0"}
with patch.dict(os.environ, INTERPRET):  # settled for good when Triton, and when our kernels, are first imported
    pytest.importorskip("triton", reason="the GPU backend is written in Triton, which is not installed")
    gpu, scan, launch = (
        importlib.import_module(f"equipoise.chain.gpu.{name}") for name in ("backend", "scan", "launch")
    )

needs_device = pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA device")


def on_device(test: Any) -> Any:
    return pytest.mark.gpu(needs_device(test))


pytestmark = pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")  # log 0 is what the kernels mean


@pytest.fixture(autouse=True)
def interpreted() -> Iterator[None]:
    with patch.dict(os.environ, INTERPRET):
        yield


def make(
    batch: tuple[int, ...],
    length: int,
    m: int,
    own: Any = (),
    *,
    scale: float = 1.0,
    forbidden: float = 0.0,
    seed: int = 0,
    ragged: bool = True,
) -> Problem:
    """A random problem; own is () for one matrix, "edge" for one an edge, or the batch sizes of pairwise."""
    generator = torch.Generator().manual_seed(seed)
    unary = scale * torch.randn(*batch, length, m, generator=generator)
    shape = (*batch, length - 1, m, m) if own == "edge" else (*own, m, m)
    pairwise = scale * torch.randn(shape, generator=generator)
    for x in (unary, pairwise):
        x[torch.rand(x.shape, generator=generator) < forbidden] = -torch.inf
    lengths = torch.randint(1, length + 1, batch, generator=generator) if ragged else torch.full(batch, length)
    return problem(unary.to(DEVICE), pairwise.to(DEVICE), lengths.to(DEVICE)).clean()


def close(got: Tensor, want: Tensor, atol: float) -> None:
    torch.testing.assert_close(got.cpu().double(), want, rtol=1e-5, atol=atol)


def check(p: Problem, scale: float = 1.0) -> None:
    """All functions. Errors are in float32 of the scores' scale, and of the mass that `transport` moves."""
    exact = Problem(*(x.cpu().double() if x.is_floating_point() else x.cpu() for x in p))
    beyond = ~exact.valid[..., None]
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(exact.lengths.shape, generator=generator)
    nodes = torch.randn(exact.unary.shape, generator=generator)
    atol = 2e-6 * max(1.0, scale)

    labels = torch.randint(exact.unary.shape[-1], exact.unary.shape[:-1], generator=generator)
    for y in (None, labels):
        on_device_y = None if y is None else y.to(DEVICE)
        log_z, alpha = gpu.forward(*p, on_device_y)
        want_z, want_alpha = reference.forward(*exact, y)
        close(log_z, want_z, atol)
        got = gpu.marginals(weight.to(DEVICE), *p, alpha, on_device_y)
        want = reference.marginals(weight.double(), *exact, want_alpha, y)
        close(got[0], want[0], atol)
        close(got[1], want[1], atol)

    known, want_known = gpu.messages(*p), reference.messages(*exact)
    close(known.log_p, want_known.log_p.masked_fill(beyond, 0), atol)

    moved = gpu.transport(nodes.to(DEVICE), None, weight.to(DEVICE), *p, known)
    want_moved = reference.transport(nodes.double(), None, weight.double(), *exact, want_known)
    close(moved[0], want_moved[0].masked_fill(beyond, 0), 40 * atol)
    close(moved[1], want_moved[1], 40 * atol)

    loss, known = gpu.cross_entropy(*p, labels.to(DEVICE))
    close(known.log_p, want_known.log_p.masked_fill(beyond, 0), atol)
    picked = want_known.log_p.gather(-1, labels[..., None]).masked_fill(beyond, 0)[..., 0]
    close(loss, -picked.sum(-1) / exact.lengths, atol)
    put = -one_hot(labels, exact.unary, exact.lengths) / exact.lengths[..., None, None]
    got = gpu.cross_entropy_gradient(weight.to(DEVICE), *p, labels.to(DEVICE), known)
    want_moved = reference.transport(put, None, weight.double(), *exact, want_known)
    close(got[0], want_moved[0].masked_fill(beyond, 0), 40 * atol)
    close(got[1], want_moved[1], 40 * atol)

    if gpu.is_short(p.unary, p.pairwise):
        check_at_once(p, exact, labels, weight, atol)

    path, best = (x.cpu() for x in gpu.decode(*p))
    want_path, want_best = reference.decode(*exact)
    close(best, want_best, atol)
    assert torch.equal(path == -100, want_path == -100)
    found = want_best > -torch.inf
    close(score(*exact, path.clamp(min=0))[found], want_best[found], atol)


def check_at_once(p: Problem, exact: Problem, labels: Tensor, weight: Tensor, atol: float) -> None:
    """Losses with their gradients, for weights that are not known beforehand."""
    for loss_name, y in (("likelihood", None), ("likelihood", labels), ("cross_entropy", labels)):
        value, weigh = gpu.fused_loss(loss_name, *p, None if y is None else y.to(DEVICE))
        got = weigh(weight.to(DEVICE))
        if loss_name == "likelihood":
            want, alpha = reference.forward(*exact, y)
            gradient = reference.marginals(weight.double(), *exact, alpha, y)
        else:
            want, known = reference.cross_entropy(*exact, y)
            gradient = reference.cross_entropy_gradient(weight.double(), *exact, y, known)
        close(value, want, atol)
        close(got[0], gradient[0], 40 * atol)
        close(got[1], gradient[1], 40 * atol)


@pytest.fixture(params=["one after the other", "side by side"])
def in_time(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Positions one after the other, and chunks of them side by side."""
    side_by_side = request.param == "side by side"
    monkeypatch.setattr(scan, "worthwhile", lambda unary: side_by_side and unary.shape[-2] > 1)


@pytest.mark.usefixtures("in_time")
@pytest.mark.parametrize(
    ("batch", "length", "m", "own"),
    [
        ((2,), 4, 3, ()),
        ((2,), 4, 3, (2,)),
        ((2,), 4, 3, "edge"),
        ((2, 2), 3, 2, (2, 1)),
        ((2, 2), 3, 2, (1, 2)),
        ((2, 1, 2), 2, 2, (2, 1, 1)),
        ((2, 2, 2), 2, 2, (2, 1, 2)),  # the batch sizes in which pairwise varies are not neighbours
        ((), 4, 3, ()),
        ((0,), 4, 3, ()),
        ((2,), 1, 3, ()),
        ((2,), 1, 3, "edge"),
        ((2,), 3, 1, ()),
        ((2,), 2, 20, ()),
    ],
)
def test_equals_the_reference_in_every_shape(batch: tuple[int, ...], length: int, m: int, own: Any) -> None:
    check(make(batch, length, m, own))


@pytest.mark.usefixtures("in_time")
@pytest.mark.parametrize("forbidden", [0.0, 0.4])
@pytest.mark.parametrize("scale", [1e-3, 10.0, 100.0, 1e4])
def test_equals_the_reference_at_every_scale(scale: float, forbidden: float) -> None:
    check(make((2,), 4, 3, scale=scale, forbidden=forbidden), scale)


@pytest.mark.parametrize("own", [(), "edge"])
def test_positions_are_shared_out_among_programs(own: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "POSITIONS_PER_PROGRAM", 4)
    check(make((3,), 9, 3, own))


def test_a_label_that_all_but_vanished_can_come_back() -> None:
    """From a label e^-200 times as likely as the other, the only way on: what a sum in the exp domain would lose."""
    unary = torch.tensor([[0.0, -200.0], [0.0, 0.0], [0.0, 0.0]])
    check(problem(unary.to(DEVICE), torch.tensor([[0.0, -torch.inf], [-torch.inf, 0.0]]).to(DEVICE)))
    last = torch.tensor([[0.0, -200.0], [0.0, 0.0], [-torch.inf, 0.0]])
    check(problem(last.to(DEVICE), torch.tensor([[0.0, -torch.inf], [-torch.inf, 0.0]]).to(DEVICE)))


@pytest.mark.usefixtures("in_time")
def test_no_labelling_left() -> None:
    p = make((2,), 4, 3, ragged=False)
    p.unary[0, 2] = -torch.inf
    check(p)
    log_z, alpha = gpu.forward(*p)
    assert log_z[0] == -torch.inf
    assert not gpu.marginals(torch.ones_like(log_z), *p, alpha)[0][0].any()


@pytest.mark.gpu
@pytest.mark.parametrize("m", [3, 23])
@pytest.mark.parametrize("share", [0.1, 1.0])
def test_scores_that_are_nan_give_labels_that_exist_or_none(m: int, share: float) -> None:
    """One replica of a stack may have come to nothing, and the others must go on."""
    p = make((8,), 9, m)
    p.unary[torch.rand(p.unary.shape, generator=torch.Generator().manual_seed(1)).to(DEVICE) < share] = torch.nan
    labels, _ = gpu.decode(*p)
    assert ((labels == -100) | ((labels >= 0) & (labels < m))).all()
    assert share < 1 or (labels == -100).all()


def test_the_cross_entropy_of_a_label_that_does_not_exist_is_nan() -> None:
    p = make((3,), 4, 3, ragged=False)
    labels = torch.zeros(3, 4, dtype=torch.int64, device=DEVICE)
    labels[0, 2], labels[1, 0] = 3, -100
    assert gpu.cross_entropy(*p, labels)[0].isnan().tolist() == [True, True, False]


def test_a_weight_is_read_where_it_lies() -> None:
    p = make((2, 2), 3, 2)
    state, known = gpu.forward(*p)[1], gpu.messages(*p)
    labels = p.unary.argmax(-1)
    one = torch.ones((), device=DEVICE)
    for weight in (one.expand(2, 2), torch.arange(4.0, device=DEVICE).view(2, 2).mT):
        for function, args in (
            (gpu.marginals, (state, labels)),
            (gpu.cross_entropy_gradient, (labels, known)),
        ):
            got, want = function(weight, *p, *args), function(weight.contiguous(), *p, *args)
            assert all(map(torch.equal, got, want))


def test_the_second_derivative_is_that_of_the_reference() -> None:
    p = make((2,), 3, 3)
    edges, weight = torch.randn_like(p.pairwise), torch.ones(2, device=DEVICE)
    known = reference.messages(*p)
    want = reference.transport(p.unary, edges, weight, *p, known)
    for a, b in zip(gpu.transport(p.unary, edges, weight, *p, gpu.messages(*p)), want, strict=True):
        torch.testing.assert_close(a, b)


def test_vmap_is_a_batch() -> None:
    p = make((3,), 3, 2, (3,))
    got = torch.vmap(gpu.forward)(p.unary, p.pairwise, p.lengths)[0]
    torch.testing.assert_close(got, gpu.forward(*p)[0])
    marginals = torch.vmap(
        lambda u, n: gpu.marginals(n + 0.0, u, p.pairwise[0], n, gpu.forward(u, p.pairwise[0], n)[1])
    )
    assert marginals(p.unary, p.lengths)[1].shape == p.pairwise.shape
    labels = p.unary.argmax(-1)
    loss, known = torch.vmap(gpu.cross_entropy)(p.unary, p.pairwise, p.lengths, labels)
    weigh = torch.vmap(gpu.cross_entropy_gradient, in_dims=(0, None, None, None, None, None))
    weight = torch.eye(3, device=DEVICE)  # the messages are not batched here, and must still be read aright
    each = weigh(weight, *p, labels, known)
    torch.testing.assert_close(each[0].sum(0), gpu.cross_entropy_gradient(torch.ones_like(loss), *p, labels, known)[0])


def test_operators_say_the_shapes_they_answer_with() -> None:
    p = make((2,), 3, 2)
    log_z, alpha = gpu.forward(*p)
    known = gpu.messages(*p)
    for name, args in {
        "chain_forward": (*p, None),
        "chain_marginals": (log_z, *p, alpha, p.unary.argmax(-1)),
        "chain_messages": p,
        "chain_transport": (p.unary, log_z, *p, *known[:2]),
        "chain_cross_entropy": (*p, p.unary.argmax(-1)),
        "chain_cross_entropy_gradient": (log_z, *p, p.unary.argmax(-1), *known[:2]),
        "chain_decode": p,
    }.items():
        operator = getattr(torch.ops.equipoise, name).default
        torch.library.opcheck(operator, tuple(args), test_utils=("test_schema", "test_faketensor"))


@on_device
@pytest.mark.usefixtures("in_time")
@pytest.mark.parametrize("own", [(), (4,), "edge"])
@pytest.mark.parametrize(("length", "m"), [(14, 26), (70, 23), (40, 128)])
@pytest.mark.parametrize("scale", [1.0, 10.0, 1e3])
def test_equals_the_reference_on_the_device(length: int, m: int, own: Any, scale: float) -> None:
    check(make((4,), length, m, own, scale=scale), scale)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> None:
    """The public functions go to the kernels, also where these are interpreted."""
    monkeypatch.setitem(backends.BACKENDS, "gpu", gpu)
    monkeypatch.setitem(backends.KERNELS, "gpu", gpu)
    monkeypatch.setattr(backends, "gpu", gpu, raising=False)
    monkeypatch.setattr(gpu, "supports", lambda unary, pairwise: unary.dtype == torch.float32)


@pytest.mark.usefixtures("served")
@pytest.mark.parametrize("short", [True, False])
@pytest.mark.parametrize("loss", [objectives.likelihood, objectives.marginal])
def test_losses_may_be_asked_for_their_gradient_in_any_way(loss: Any, short: bool, monkeypatch: Any) -> None:
    """By weights equal and unequal, again, many at once, and for a gradient of the gradient."""
    p, calls = make((3,), 4, 3), []
    if not short:
        monkeypatch.setattr(gpu, "is_short", lambda unary, pairwise: False)
    monkeypatch.setattr(gpu, "fused_loss", lambda *args, original=gpu.fused_loss: calls.append(1) or original(*args))
    labels = torch.arange(12, device=DEVICE).view(3, 4) % 3
    weights = torch.tensor([[1.0, 1.0, 1.0], [0.5, -2.0, 3.0]], device=DEVICE)
    answers = []
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
        answers.append(found)
    assert len(calls) == (2 if short else 0)
    for got, want in zip(*answers, strict=True):
        torch.testing.assert_close(got.double(), want, rtol=1e-4, atol=1e-5)


class Watch(TorchDispatchMode):
    """Sees the operators that are called."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(operator._schema.name)
        return operator(*args, **(kwargs or {}))


@pytest.mark.usefixtures("served")
@pytest.mark.parametrize("loss", [objectives.likelihood, objectives.marginal])
def test_a_gradient_made_beforehand_is_not_for_weights_without_values(loss: Any) -> None:
    """Those of a batch of gradients, or of a transform, and those that somebody watches: they see operators."""
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
    with Watch() as watch:
        torch.testing.assert_close(torch.autograd.grad(value, (u, w), weights[1]), each[1])
    assert any(name.startswith("equipoise::chain") for name in watch.names)


@on_device
def test_the_same_input_gives_the_same_bits() -> None:
    p = make((64,), 30, 26)
    log_z, alpha = gpu.forward(*p)
    first, second = (gpu.marginals(log_z, *p, alpha)[1] for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.usefixtures("in_time")
def test_what_stands_beyond_the_length_is_not_read() -> None:
    p = make((3,), 5, 3)
    spoilt = p._replace(unary=p.unary.masked_fill(~p.valid[..., None], torch.nan))
    labels = torch.zeros_like(p.unary[..., 0], dtype=torch.int64)
    weight = torch.ones(3, device=DEVICE)
    for clean, dirty in zip(answers(p, labels, weight), answers(spoilt, labels - 100 * ~p.valid, weight), strict=True):
        assert torch.equal(clean, dirty)


def answers(p: Problem, labels: Tensor, weight: Tensor) -> list[Tensor]:
    value, alpha = gpu.forward(*p, labels)
    loss, known = gpu.cross_entropy(*p, labels)
    gradient = gpu.cross_entropy_gradient(weight, *p, labels, known)
    return [value, *gpu.marginals(weight, *p, alpha, labels), loss, known.log_p, *gradient, *gpu.decode(*p)]


@pytest.mark.gpu
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


@pytest.mark.gpu
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


@pytest.mark.gpu
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
