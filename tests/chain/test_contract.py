"""Every backend keeps the contract (`contract`), on shapes, lengths, kinds of pairwise, -inf patterns and dtypes."""

import importlib
from collections.abc import Callable
from importlib.util import find_spec

import contract
import enumerated_contract
import pytest
import torch
from contract import INF, Backend, Case
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from equipoise import chain, objectives
from equipoise.chain import backends, exponential, reference
from equipoise.chain.checks import problem
from equipoise.chain.cpu import backend as cpu
from equipoise.chain.cpu.library import library
from equipoise.chain.problem import Problem

CUDA = torch.cuda.is_available()
Property = Callable[[Backend, Case], None]

NAMES = [
    "reference",
    "exponential",
    pytest.param("cpu", marks=pytest.mark.skipif(library(torch.float32) is None, reason="needs a C compiler")),
    *(
        pytest.param(
            name,
            marks=[
                *([pytest.mark.gpu] if CUDA else []),
                pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed"),
                pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning"),  # log 0 is -inf in the kernels
            ],
        )
        for name in ("gpu", "gpu, in chunks")
    ),
]


@pytest.fixture(params=NAMES)
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Backend:
    name: str = request.param
    if not name.startswith("gpu"):
        module = {"reference": reference, "exponential": exponential, "cpu": cpu}[name]
        return Backend(name, module, kernels=name == "cpu")
    contract.use_chunks(monkeypatch, name == "gpu, in chunks")
    module = importlib.import_module("equipoise.chain.gpu.backend")
    return Backend(name, module, "cuda" if CUDA else "cpu", (torch.float32,), kernels=True)


@st.composite
def cases(
    draw: st.DrawFn,
    backend: Backend,
    *,
    max_length: int,
    labels: list[int],
    finite: bool = False,
    moderate: bool = False,
) -> Case:
    """Chains of any shape; with `moderate`, scores for which the enumeration loses no digits."""
    compiled_for_m = backend.name.startswith("gpu")  # each M takes a compilation
    batch = draw(st.sampled_from([(), (0,), (1,), (3,), (2, 3), (2, 1, 2)]))
    length = draw(st.integers(1, max_length))
    m = draw(st.sampled_from(labels[::2] if compiled_for_m else labels))
    own = tuple(draw(st.sampled_from([1, n])) for n in batch)
    edges = draw(st.sampled_from([1, length - 1]))
    dtype = draw(st.sampled_from(backend.dtypes))
    limited = backend.name == "exponential"
    scale = draw(st.sampled_from([1e-3, 1.0, 5.0] if limited or moderate else [1e-3, 1.0, 10.0, 40.0, 1e3, 1e4]))
    forbidden = 0.0 if limited or finite else draw(st.sampled_from([0.0, 0.0, 0.1, 0.4]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))

    def scores(*shape: int) -> Tensor:
        x = (scale * torch.randn(shape, generator=generator, dtype=torch.float64)).to(dtype)
        return x.masked_fill(torch.rand(shape, generator=generator) < forbidden, -INF)

    lengths = torch.randint(1, length + 1, batch, generator=generator)
    case = Case(Problem(scores(*batch, length, m), scores(*own, edges, m, m), lengths), scale)
    assume(
        not limited or exponential.fits(case.on(backend).unary, case.problem.pairwise) or not case.problem.unary.numel()
    )
    return case


def check(backend: Backend, holds: Property, strategy: st.SearchStrategy[Case], examples: int) -> None:
    if backend.name.startswith("gpu") and not CUDA:
        pytest.skip("the interpreter is slow: it gets the chains of `test_gpu`")

    @settings(max_examples=examples)
    @given(strategy)
    def run(case: Case) -> None:
        holds(backend, case)

    run()


@pytest.mark.parametrize("holds", contract.EQUALITIES + contract.FACTS, ids=lambda f: f.__name__)
def test_equals_the_reference_and_keeps_facts(backend: Backend, holds: Property) -> None:
    strategy = cases(backend, max_length=9, labels=[1, 2, 3, 7, 8, 9, 17])
    check(backend, holds, strategy, 200 if backend.name == "cpu" else 40)


@pytest.mark.parametrize("backend", [x for x in NAMES if x not in ("reference", "exponential")], indirect=True)
@pytest.mark.parametrize("holds", [contract.fused_loss, contract.fused_total], ids=lambda f: f.__name__)
def test_fused_losses_equal_the_reference(backend: Backend, holds: Property) -> None:
    short = 9 if backend.name == "cpu" else 5
    strategy = cases(backend, max_length=short, labels=[1, 2, 3, 7, 8, 9, 17])
    if backend.name != "cpu":
        strategy = strategy.filter(lambda case: backend.module.has_fused_loss(*case.problem[:2]))
    check(backend, holds, strategy, 100)


@pytest.mark.parametrize("holds", enumerated_contract.ENUMERATED, ids=lambda f: f.__name__)
def test_equals_enumeration(backend: Backend, holds: Property) -> None:
    check(backend, holds, cases(backend, max_length=4, labels=[1, 2, 3], moderate=True), 40)


@pytest.mark.parametrize("holds", enumerated_contract.ENUMERATED_FINITE, ids=lambda f: f.__name__)
def test_derivatives_equal_enumeration(backend: Backend, holds: Property) -> None:
    check(backend, holds, cases(backend, max_length=4, labels=[1, 2, 3], moderate=True, finite=True), 40)


@pytest.mark.parametrize("kind", contract.MIXING)
def test_rounding_errors_of_mass_decay(backend: Backend, kind: str) -> None:
    if backend.name == "exponential" and kind == "a large range":
        pytest.skip("such scores do not fit the exp domain")
    contract.distant_positions(backend, kind)


def test_errors_do_not_grow_with_the_length(backend: Backend) -> None:
    """Those of the gradient of the marginal loss, for which mass is carried along the whole chain, in float32."""
    if backend.name.startswith("gpu") and not CUDA:
        pytest.skip("takes minutes in the interpreter")
    generator = torch.Generator().manual_seed(0)
    unary, pairwise = torch.randn(1, 4096, 9, generator=generator), torch.randn(9, 9, generator=generator)
    labels, one = torch.randint(9, (1, 4096), generator=generator), torch.ones(1, device=backend.device)
    exact, p = problem(unary.double(), pairwise.double()), make(backend, unary, pairwise).on(backend)
    want = reference.cross_entropy_gradient(one.cpu().double(), *exact, labels, reference.messages(*exact))
    labels = labels.to(backend.device)
    _, known = backend.module.cross_entropy(*p, labels)
    got = backend.module.cross_entropy_gradient(one, *p, labels, known)
    for x, y, limit in zip(got, want, (3e-7, 2e-6), strict=True):
        assert float((x.cpu().double() - y).norm() / y.norm()) < limit


def make(backend: Backend, unary: Tensor, pairwise: Tensor) -> Case:
    return Case(problem(unary.to(backend.dtypes[0]), pairwise.to(backend.dtypes[0])))


def test_length_1(backend: Backend) -> None:
    """log Z = log sum exp U, log p = log softmax U, and no edge has a gradient."""
    unary = torch.randn(3, 1, 4, generator=torch.Generator().manual_seed(0))
    p = make(backend, unary, torch.ones(4, 4)).on(backend)
    log_z, alpha = backend.module.forward(*p)
    contract.close(log_z, unary.double().logsumexp(-1)[:, 0], 1e-6)
    contract.close(backend.module.messages(*p).log_p, unary.double().log_softmax(-1), 1e-6)
    nodes, edges = backend.module.marginals(torch.ones_like(log_z), *p, alpha)
    contract.close(nodes, unary.double().softmax(-1), 1e-6)
    assert not edges.any()


@pytest.mark.parametrize("where", ["unary", "pairwise"])
def test_everything_forbidden(backend: Backend, where: str) -> None:
    """log Z and the best score are -inf, gradients are 0, and no label is returned."""
    if backend.name == "exponential":
        pytest.skip("-inf scores do not fit the exp domain")
    unary, pairwise = torch.zeros(2, 3, 2), torch.zeros(2, 2)
    (unary if where == "unary" else pairwise).fill_(-INF)
    case = make(backend, unary, pairwise)
    p = case.on(backend)
    log_z, alpha = backend.module.forward(*p)
    assert (log_z == -INF).all()
    assert not any(x.any() for x in backend.module.marginals(torch.ones_like(log_z), *p, alpha))
    known = backend.module.messages(*p)
    assert (known.log_p == -INF).all()
    moved = backend.module.transport(torch.ones_like(p.unary), None, torch.ones_like(log_z), *p, known)
    assert not any(x.any() for x in moved)
    labels, best = backend.module.decode(*p)
    assert (labels == -100).all()
    assert (best == -INF).all()


@pytest.mark.parametrize("name", ["reference", "exponential", "cpu"])
def test_lengths_and_labels_out_of_range_raise(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPU, where values can be read, in whichever backend is chosen."""
    unary = torch.zeros(2, 4, 3)
    if name != "cpu":
        monkeypatch.setattr(backends, "library", lambda dtype: None)
    if name == "reference":
        unary[0, 0, 0] = -INF
    pairwise, labels = torch.zeros(3, 3), torch.ones(2, 4, dtype=torch.int64)
    if library(torch.float32) is not None or name != "cpu":
        assert backends.choose(problem(unary, pairwise))[1] == name
    for bad in (-1, 3):
        for objective in (objectives.likelihood, objectives.marginal):
            with pytest.raises(ValueError, match="labels"):
                objective(unary, pairwise, labels.masked_fill(labels == 1, bad))
    for bad in (0, 5, -1):
        for function in (chain.log_partition, chain.log_marginals, chain.decode):
            with pytest.raises(ValueError, match="lengths"):
                function(unary, pairwise, torch.tensor([4, bad]))
