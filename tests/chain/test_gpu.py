"""The Triton backend beyond the contract: shapes, launches, operators, autograd. Interpreted if there is no GPU."""

import importlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from contract import EQUALITIES, FACTS, Backend, Case, fused_loss, use_chunks
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from equipoise import ChainCRF, chain, objectives
from equipoise.chain import backends, reference
from equipoise.chain.checks import problem
from equipoise.chain.problem import Problem

pytest.importorskip("triton", reason="the GPU backend is written in Triton, which is not installed")
gpu, wide, launch, repeat = (
    importlib.import_module(f"equipoise.chain.gpu.{name}") for name in ("backend", "wide", "launch", "repeat")
)
start = importlib.import_module("equipoise.native.triton_start")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
GPU = Backend("gpu", gpu, DEVICE, (torch.float32,), kernels=True)

pytestmark = pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")  # log 0 is -inf in the kernels


@pytest.fixture(autouse=True)
def strict_memory() -> Iterator[None]:
    """In the interpreter, check addresses and do not rely on the content of fresh memory or the order of programs."""
    repeat.replays.clear()  # tests set what they follow from
    if DEVICE == "cuda":
        yield
        return
    from interpreter import strict

    with strict():
        yield


def on_device(test: Any) -> Any:
    return pytest.mark.gpu(pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA device")(test))


def make(
    batch: tuple[int, ...],
    length: int,
    m: int,
    own: Any = (),
    *,
    scale: float = 1.0,
    forbidden: float = 0.0,
    ragged: bool = True,
) -> Problem:
    """A random problem; own is () for one matrix, "edge" for one per edge, or the batch sizes of pairwise."""
    generator = torch.Generator().manual_seed(0)
    unary = scale * torch.randn(*batch, length, m, generator=generator)
    shape = (*batch, length - 1, m, m) if own == "edge" else (*own, m, m)
    pairwise = scale * torch.randn(shape, generator=generator)
    for x in (unary, pairwise):
        x[torch.rand(x.shape, generator=generator) < forbidden] = -torch.inf
    lengths = torch.randint(1, length + 1, batch, generator=generator) if ragged else torch.full(batch, length)
    return problem(unary.to(DEVICE), pairwise.to(DEVICE), lengths.to(DEVICE)).clean()


def check(p: Problem, scale: float = 1.0) -> None:
    """Equality with the reference and, on a GPU, the other facts of the contract."""
    case = Case(Problem(*(x.cpu() for x in p)), scale)
    for holds in [*EQUALITIES, *(FACTS if DEVICE == "cuda" else [])]:
        holds(GPU, case)
    if gpu.has_fused_loss(p.unary, p.pairwise):
        fused_loss(GPU, case)


@pytest.fixture(params=["sequential", "in chunks"])
def in_time(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Positions one after the other, and chunks of them in parallel."""
    use_chunks(monkeypatch, request.param == "in chunks")


SHAPES: list[tuple[tuple[int, ...], int, int, Any]] = [
    ((2,), 4, 3, ()),
    ((2,), 4, 3, (2,)),
    ((2,), 4, 3, "edge"),
    ((2, 1, 2), 2, 2, (2, 1, 1)),
    ((0,), 4, 3, ()),
    ((2,), 1, 3, ()),
    ((2,), 2, 20, ()),
    ((), 4, 3, ()),
    ((2, 2), 3, 2, (1, 2)),
    ((2, 2), 3, 2, (2, 1)),
    ((2, 2, 2), 2, 2, (2, 1, 2)),  # pairwise varies in batch dimensions that are not adjacent
    ((2,), 1, 3, "edge"),
    ((2,), 3, 1, ()),
]


@pytest.mark.parametrize(("batch", "length", "m", "own"), SHAPES)
def test_contract_in_every_shape(batch: tuple[int, ...], length: int, m: int, own: Any) -> None:
    check(make(batch, length, m, own))


@pytest.mark.parametrize(("batch", "length", "m", "own"), SHAPES[:7])
def test_contract_in_chunks(batch: tuple[int, ...], length: int, m: int, own: Any, monkeypatch: Any) -> None:
    use_chunks(monkeypatch, True)
    check(make(batch, length, m, own))


@pytest.mark.parametrize(
    ("scale", "forbidden", "chunks"),
    [
        *((1e-3, 0.0, False), (10.0, 0.0, False), (100.0, 0.0, False), (10.0, 0.4, False), (1e4, 0.4, False)),
        *((10.0, 0.0, True), (100.0, 0.0, True), (1e4, 0.4, True)),
    ],
)
def test_contract_at_every_scale(scale: float, forbidden: float, chunks: bool, monkeypatch: Any) -> None:
    use_chunks(monkeypatch, chunks)
    check(make((2,), 4, 3, scale=scale, forbidden=forbidden), scale)


def test_chunks_beyond_the_end_of_a_chain_read_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first sequence of the batch is the shortest, so that what they read would lie before all scores."""
    use_chunks(monkeypatch, True)
    check(make((2,), 4, 2)._replace(lengths=torch.tensor([1, 4], device=DEVICE)).clean())


@pytest.mark.parametrize("own", [(), "edge"])
def test_contract_with_several_programs_per_sequence(own: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "POSITIONS_PER_PROGRAM", 4)
    check(make((3,), 9, 3, own))


@pytest.fixture
def tiny_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels for many labels, in the interpreter in tiles smaller than the matrix, which a GPU cannot multiply."""
    monkeypatch.setattr(wide, "MIN_LABELS", 1)
    tiny = {"SMALL_SUM": wide.Tile(2, 2, 2, 1), "SMALL_BEST": wide.Tile(2, 2, 2, 1), "TILE": 2, "POSITIONS": 2}
    for name, size in tiny.items() if DEVICE == "cpu" else ():
        monkeypatch.setattr(wide, name, size)


@pytest.mark.usefixtures("tiny_tiles")
@pytest.mark.parametrize(
    ("batch", "length", "m", "own", "scale", "forbidden"),
    [
        ((3,), 3, 3, (), 1.0, 0.0),
        ((2,), 2, 3, "edge", 1.0, 0.0),
        ((2, 2), 2, 2, (1, 2), 1.0, 0.0),
        ((2, 2, 2), 2, 1, (2, 1, 2), 1.0, 0.0),  # pairwise varies in batch dimensions that are not adjacent
        ((0,), 4, 3, (), 1.0, 0.0),
        ((), 1, 3, (), 1.0, 0.0),
        ((2,), 1, 3, "edge", 1.0, 0.0),
        ((2,), 3, 2, (), 1e4, 0.4),
        ((2,), 2, 3, "edge", 10.0, 0.4),
    ],
)
def test_contract_with_many_labels(
    batch: tuple[int, ...], length: int, m: int, own: Any, scale: float, forbidden: float
) -> None:
    check(make(batch, length, m, own, scale=scale, forbidden=forbidden), scale)


def test_an_improbable_label_can_become_the_best() -> None:
    """A label of relative probability e^-200, which a sum in the exp domain would lose, is the only way on."""
    unary = torch.tensor([[0.0, -200.0], [0.0, 0.0], [0.0, 0.0]])
    check(problem(unary.to(DEVICE), torch.tensor([[0.0, -torch.inf], [-torch.inf, 0.0]]).to(DEVICE)))
    last = torch.tensor([[0.0, -200.0], [0.0, 0.0], [-torch.inf, 0.0]])
    check(problem(last.to(DEVICE), torch.tensor([[0.0, -torch.inf], [-torch.inf, 0.0]]).to(DEVICE)))


@pytest.mark.gpu
@pytest.mark.parametrize("m", [3, 23])
@pytest.mark.parametrize("share", [0.01, 1.0])
def test_nan_scores_give_no_labels(m: int, share: float) -> None:
    """One replica of a stack may have diverged; the others must continue."""
    p = make((8,), 9, m)
    p.unary[torch.rand(p.unary.shape, generator=torch.Generator().manual_seed(1)).to(DEVICE) < share] = torch.nan
    labels, best = gpu.decode(*p)
    invalid = (p.unary.isnan().any(-1) & p.valid).any(-1)
    assert torch.equal(best.isnan(), invalid)
    assert torch.equal(labels >= 0, p.valid & ~invalid[:, None])


@pytest.mark.usefixtures("in_time")
@pytest.mark.parametrize("m", [3, 20])
def test_the_likeliest_labels_are_those_of_the_marginals(m: int) -> None:
    """-100 beyond the length, and in a sequence with a score of NaN."""
    p = make((4,), 5, m)
    p.unary[3, 0, 1] = torch.nan
    labels = gpu.likeliest(*p)
    log_p = reference.messages(*(x.cpu() for x in p)).log_p
    shown = p.valid.cpu()
    shown[3] = False
    assert torch.equal(labels.cpu(), torch.where(shown, log_p.argmax(-1), -100))


def test_the_cross_entropy_of_a_label_out_of_range_is_nan() -> None:
    p = make((3,), 4, 3, ragged=False)
    labels = torch.zeros(3, 4, dtype=torch.int64, device=DEVICE)
    labels[0, 2], labels[1, 0] = 3, -100
    assert gpu.cross_entropy(*p, labels)[0].isnan().tolist() == [True, True, False]


@pytest.mark.usefixtures("in_time")
def test_repeated_launches_equal_recorded_ones() -> None:
    """For other tensors of the same shapes, without labels, with gaps in memory, and with one tensor given twice."""
    p, labels = make((), 2, 2, scale=3.0), torch.tensor([1, 0], device=DEVICE)
    u, w = p.unary, p.pairwise.view(2, 2)
    spaced = torch.stack([u, u], -1)[..., 0]

    def results(u: Tensor, w: Tensor, y: Tensor | None) -> list[Tensor]:
        value, weighted = gpu.fused_loss("likelihood", u, w, p.lengths, y)
        return [value, *weighted(torch.tensor(2.0, device=DEVICE)), *gpu.decode(u, w, p.lengths)]

    problems = [(w, w, labels), (u, w, labels), (2 * u, w + 1, labels), (spaced, w.mT, labels), (w, u, None)]
    repeated = [results(*x) for x in problems]
    for x, got in zip(problems, repeated, strict=True):
        repeat.replays.clear()
        assert all(map(torch.equal, got, results(*x)))


def test_weights_may_have_any_strides() -> None:
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
    weight = torch.eye(3, device=DEVICE)  # the messages are not batched here
    each = weigh(weight, *p, labels, known)
    torch.testing.assert_close(each[0].sum(0), gpu.cross_entropy_gradient(torch.ones_like(loss), *p, labels, known)[0])


def test_operators_declare_the_shapes_of_their_results() -> None:
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
def test_contract_on_the_device(length: int, m: int, own: Any, scale: float) -> None:
    check(make((4,), length, m, own, scale=scale), scale)


@on_device
@pytest.mark.parametrize("own", [(), "edge"])
@pytest.mark.parametrize(("length", "m", "scale", "forbidden"), [(5, 150, 1.0, 0.0), (4, 150, 10.0, 0.3)])
def test_contract_with_many_labels_on_the_device(length: int, m: int, scale: float, forbidden: float, own: Any) -> None:
    check(make((20,), length, m, own, scale=scale, forbidden=forbidden), scale)


@pytest.fixture
def use_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Public functions use the Triton kernels, also in the interpreter."""
    monkeypatch.setitem(backends.BACKENDS, "gpu", gpu)
    monkeypatch.setitem(backends.KERNELS, "gpu", gpu)
    monkeypatch.setattr(backends, "gpu", gpu, raising=False)
    monkeypatch.setattr(gpu, "supports", lambda unary, pairwise: unary.dtype == torch.float32)


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
        results.append(found)
    assert len(calls) == (0 if how == "gradient later" else 2)
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


@on_device
def test_contract_with_many_programs_per_matrix() -> None:
    check(make((64,), 30, 26))


@on_device
@pytest.mark.parametrize("direct", [True, False])
def test_later_launches_equal_the_first(direct: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton launches a kernel the first time, `start` afterwards, by address or by Triton's interface."""
    monkeypatch.setattr(start, "compiled", {})
    monkeypatch.setattr(start, "DIRECT_LAUNCH", direct and start.DIRECT_LAUNCH)
    p, weight = make((4,), 7, 5), torch.arange(4.0, device=DEVICE)
    results = []
    for _ in range(3):
        value, weighted = gpu.fused_loss("likelihood", *p, None)
        results.append([value, *weighted(weight), *gpu.decode(*p)])
    for later in results[1:]:
        assert all(map(torch.equal, later, results[0]))


@on_device
def test_a_prepared_launch_keeps_its_tensors_alive() -> None:
    p, weight = make((4,), 7, 5), torch.arange(4.0, device=DEVICE)
    want = [x.clone() for x in gpu.fused_loss("cross_entropy", *p, p.unary.argmax(-1))[1](weight)]
    _, weighted = gpu.fused_loss("cross_entropy", *p, p.unary.argmax(-1))
    sizes = 4 * 5 * 5, p.unary.numel()  # of the gradients of matrices and positions
    blockers = [torch.full((n,), torch.nan, device=DEVICE) for n in 8 * sizes]  # would reuse freed memory
    assert all(map(torch.equal, weighted(weight), want))
    del blockers
