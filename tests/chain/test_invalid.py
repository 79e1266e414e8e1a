"""A score of NaN or +inf gives NaN and no labels, for its sequence only, in every backend, for NaNs of all bits.

NaN has a sign and a payload. A kernel that computes with the bits of a number may turn some NaNs into numbers.
"""

import importlib
from collections.abc import Callable
from importlib.util import find_spec
from typing import NamedTuple

import contract
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor

from equipoise import chain, objectives
from equipoise.chain import backends, exponential
from equipoise.chain.cpu.library import library
from equipoise.chain.problem import positions

CUDA = torch.cuda.is_available()
LENGTHS = torch.tensor([5, 3, 2, 4])
LABELS = torch.tensor([[0, 2, 1, 1, 0], [1, 0, 2, -100, -100], [2, 2, -100, -100, -100], [0, 1, 0, 2, -100]])
INTEGERS = {torch.float16: torch.int16, torch.bfloat16: torch.int16, torch.float32: torch.int32}
INTEGERS[torch.float64] = torch.int64


class Mode(NamedTuple):
    name: str
    device: str = "cpu"
    dtypes: tuple[torch.dtype, ...] = (torch.float32, torch.float64, torch.float16, torch.bfloat16)

    @property
    def interpreted(self) -> bool:
        return self.name.startswith("gpu") and not CUDA


@pytest.fixture(
    params=[
        "reference",
        "exponential",
        pytest.param("cpu", marks=pytest.mark.skipif(library(torch.float32) is None, reason="needs a C compiler")),
        *(
            pytest.param(
                name,
                marks=[
                    *([pytest.mark.gpu] if CUDA else [pytest.mark.slow] if name == "gpu, in chunks" else []),
                    pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed"),
                    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # numpy warns of NaN in the interpreter
                ],
            )
            for name in ("gpu", "gpu, in chunks")
        ),
    ]
)
def mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Mode:
    """Public functions use this backend."""
    name: str = request.param
    if not name.startswith("gpu"):
        if name != "cpu":
            monkeypatch.setattr(backends, "library", lambda dtype: None)
        if name == "exponential":
            monkeypatch.setattr(exponential, "fits", lambda unary, pairwise: True)
        return Mode(name)
    gpu, mean_field = (importlib.import_module(f"equipoise.chain.gpu.{x}") for x in ("backend", "meanfield"))
    contract.use_chunks(monkeypatch, name == "gpu, in chunks")
    if not CUDA:
        monkeypatch.setitem(backends.BACKENDS, "gpu", gpu)
        monkeypatch.setitem(backends.KERNELS, "gpu", gpu)
        monkeypatch.setattr(backends, "gpu", gpu, raising=False)
        monkeypatch.setattr(backends, "gpu_meanfield", mean_field, raising=False)
        monkeypatch.setattr(gpu, "supports", lambda unary, pairwise: unary.dtype == torch.float32)
        monkeypatch.setattr(
            mean_field, "supports", lambda u, w, schedule: w.shape[-3] == 1 and u.dtype == torch.float32
        )
    return Mode(name, "cuda" if CUDA else "cpu", (torch.float32, torch.float16))


class Case(NamedTuple):
    """Scores of four sequences, the same with one invalid score, and which sequences have it."""

    unary: Tensor
    pairwise: Tensor
    invalid_unary: Tensor
    invalid_pairwise: Tensor
    expected: Tensor


def nan_of_bits(dtype: torch.dtype, payload: int, negative: bool) -> Tensor:
    """A NaN whose mantissa is the payload, from its low bits."""
    digits = -int(torch.tensor(torch.finfo(dtype).eps).log2())
    bits = torch.tensor(torch.inf, dtype=dtype).view(INTEGERS[dtype]) | (payload % (2**digits - 1) + 1)
    number = bits.view(dtype)
    return -number if negative else number


@st.composite
def cases(draw: st.DrawFn, mode: Mode, where: str, *, beyond: bool = False) -> Case:
    dtype, kind = draw(st.sampled_from(mode.dtypes)), draw(st.sampled_from(["shared", "sequence", "edge"]))
    kind = "edge" if beyond and where == "pairwise" else kind
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    shape = {"shared": (3, 3), "sequence": (4, 3, 3), "edge": (4, 4, 3, 3)}[kind]
    clean = [torch.randn(s, generator=generator).to(dtype) for s in ((4, 5, 3), shape)]
    forbidden = draw(st.booleans()) and mode.name != "exponential"
    if forbidden:
        clean[0][0, 0, 1] = clean[1][..., 1, 2] = -torch.inf
    broken = [x.clone() for x in clean]
    bits = nan_of_bits(dtype, draw(st.one_of(st.integers(0, 8), st.integers(0, 2**52))), draw(st.booleans()))
    value = bits if beyond or draw(st.integers(0, 3)) < 3 else torch.tensor(torch.inf, dtype=dtype)
    b = draw(st.integers(1, 3) if beyond else st.integers(0, 3))
    last = int(LENGTHS[b]) - (where == "pairwise")  # positions or edges within the length
    t = draw(st.integers(last, 4 - (where == "pairwise")) if beyond else st.integers(0, last - 1))
    label = draw(st.integers(0, 2))
    expected = torch.arange(4) == b
    if where == "unary":
        _set(broken[0][b, t], label, value)
    else:
        matrix = broken[1] if kind == "shared" else broken[1][b] if kind == "sequence" else broken[1][b, t]
        _set(matrix[draw(st.integers(0, 2))], label, value)
        expected = expected | (kind == "shared")
    if beyond:
        expected = torch.zeros_like(expected)
    return Case(*(x.to(mode.device) for x in (*clean, *broken)), expected)


def _set(row: Tensor, index: int, value: Tensor) -> None:
    """row[index] = value, with all its bits."""
    row.view(INTEGERS[row.dtype])[index] = value.view(INTEGERS[row.dtype])


def check(mode: Mode, where: str, holds: Callable[[Case], None], *, beyond: bool = False) -> None:
    @settings(max_examples=2 if mode.interpreted else 12, phases=[Phase.generate])  # the interpreter is slow
    @given(cases(mode, where, beyond=beyond))
    def run(case: Case) -> None:
        holds(case)

    run()


PLAIN = ["entropy", "parallel mean_field", "mean_field_bound", "top_k", "sample", "unary"]  # no Triton kernels


IN_CHUNKS = ["log_partition", "log_marginals", "likelihood", "decode"]  # differ if they are computed in chunks


def skip_plain_torch(mode: Mode, name: str, other: bool = False) -> None:
    """The interpreter runs the kernels only: the rest is tested without it."""
    if mode.interpreted and (other or name in PLAIN or ("chunks" in mode.name and name not in IN_CHUNKS)):
        pytest.skip("the same as in another mode")


def functions(
    device: str, n: Tensor = LENGTHS, y: Tensor = LABELS, m: int = 3
) -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    n, y, log_q = n.to(device), y.to(device), torch.full((*y.shape, m), -1.0, device=device)
    return {
        "log_partition": lambda u, w: chain.log_partition(u, w, n),
        "log_marginals": lambda u, w: chain.log_marginals(u, w, n),
        "edge_marginals": lambda u, w: chain.edge_marginals(u, w, n),
        "entropy": lambda u, w: chain.entropy(u, w, n),
        "mean_field": lambda u, w: chain.mean_field(u, w, n, iterations=2),
        "parallel mean_field": lambda u, w: chain.mean_field(u, w, n, iterations=2, schedule="parallel"),
        "mean_field_bound": lambda u, w: chain.mean_field_bound(log_q, u, w, n),
        "decode": lambda u, w: chain.decode(u, w, n)[1],
        "top_k": lambda u, w: chain.top_k(u, w, n, k=2)[1],
        "likelihood": lambda u, w: objectives.likelihood(u, w, y, n),
        "marginal": lambda u, w: objectives.marginal(u, w, y, n),
        "margin": lambda u, w: objectives.margin(u, w, y, n),
        "mean-field loss": lambda u, w: objectives.mean_field(u, w, y, n),
    }


NAMES = list(functions("cpu"))
LABELLINGS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    **objectives.RULES,
    "decode": lambda u, w, n: chain.decode(u, w, n)[0],
    "top_k": lambda u, w, n: chain.top_k(u, w, n, k=2)[0],
    "sample": lambda u, w, n: chain.sample(u, w, n, n=2, generator=torch.Generator(u.device).manual_seed(0)),
}


def counted(values: Tensor, sequence: int) -> Tensor:
    """The entries of one sequence within its length."""
    n = int(LENGTHS[sequence])
    return values[sequence, : n - (values.shape[1] == 4)] if values.ndim > 2 else values[sequence]


def with_gradients(function: Callable[[Tensor, Tensor], Tensor], u: Tensor, w: Tensor) -> list[Tensor]:
    u, w = u.clone().requires_grad_(), w.clone().requires_grad_()
    values = function(u, w)
    weights = torch.arange(1.0, 1 + values.numel(), device=u.device).view(values.shape).to(values.dtype)
    gradients = torch.autograd.grad(values, (u, w), weights.masked_fill(values.isinf(), 0))
    return [values.detach(), *gradients]


@pytest.mark.parametrize("where", ["unary", "pairwise"])
@pytest.mark.parametrize("name", NAMES)
def test_values_and_gradients(mode: Mode, name: str, where: str) -> None:
    """Every value is NaN and the gradient has NaN exactly in the sequences with an invalid score."""
    skip_plain_torch(mode, name)
    function = functions(mode.device)[name]

    def holds(case: Case) -> None:
        values, unary, _ = with_gradients(function, case.invalid_unary, case.invalid_pairwise)
        clean_values, clean_unary, _ = with_gradients(function, case.unary, case.pairwise)
        assert torch.equal(function(case.invalid_unary, case.invalid_pairwise).isnan(), values.isnan())
        for b in range(4):
            if case.expected[b]:
                assert counted(values, b).isnan().all()
                assert name in ("decode", "top_k") or counted(unary, b).isnan().any()
            else:
                torch.testing.assert_close(values[b], clean_values[b])
                torch.testing.assert_close(unary[b], clean_unary[b], rtol=1e-3, atol=1e-4, equal_nan=True)
        beyond = ~positions(case.unary, LENGTHS.to(mode.device))
        assert not unary[beyond].any()

    check(mode, where, holds)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_of_pairwise(mode: Mode, name: str) -> None:
    """An invalid unary score reaches the gradient of its matrix, and of no other matrix."""
    if name in ("decode", "top_k"):
        pytest.skip("their labels are -100, so nothing is differentiated")
    skip_plain_torch(mode, name, "chunks" in mode.name)
    function = functions(mode.device)[name]

    def holds(case: Case) -> None:
        gradient = with_gradients(function, case.invalid_unary, case.invalid_pairwise)[2]
        for b in range(4):
            own = gradient if gradient.ndim == 2 else counted(gradient, b) if gradient.ndim == 4 else gradient[b]
            assert own.isnan().any() == (case.expected[b] or gradient.ndim == 2)

    check(mode, "unary", holds)


@pytest.mark.parametrize("where", ["unary", "pairwise"])
@pytest.mark.parametrize("name", NAMES)
def test_scores_beyond_the_length_have_no_effect(mode: Mode, name: str, where: str) -> None:
    skip_plain_torch(mode, name, "chunks" in mode.name)
    function = functions(mode.device)[name]

    def holds(case: Case) -> None:
        got = with_gradients(function, case.invalid_unary, case.invalid_pairwise)
        want = with_gradients(function, case.unary, case.pairwise)
        for x, y in zip(got, want, strict=True):
            torch.testing.assert_close(x, y, rtol=1e-3, atol=1e-4, equal_nan=True)

    check(mode, where, holds, beyond=True)


@pytest.mark.parametrize("where", ["unary", "pairwise"])
@pytest.mark.parametrize("rule", list(LABELLINGS))
def test_no_labels(mode: Mode, rule: str, where: str) -> None:
    skip_plain_torch(mode, rule)
    function, lengths = LABELLINGS[rule], LENGTHS.to(mode.device)

    def holds(case: Case) -> None:
        labels = function(case.invalid_unary, case.invalid_pairwise, lengths)
        clean = function(case.unary, case.pairwise, lengths)
        none = case.expected & (where == "unary" or rule != "unary")
        assert (labels[none] == -100).all()
        if rule != "sample":
            assert torch.equal(labels[~none], clean[~none])

    check(mode, where, holds)


@pytest.mark.parametrize("where", ["unary", "pairwise"])
def test_the_score_of_labels_is_nan_if_one_of_their_scores_is(mode: Mode, where: str) -> None:
    skip_plain_torch(mode, "score", other=True)

    def holds(case: Case) -> None:
        arguments = LABELS.to(mode.device), LENGTHS.to(mode.device)
        got = chain.score(case.invalid_unary, case.invalid_pairwise, *arguments)
        clean = chain.score(case.unary, case.pairwise, *arguments)
        for b in range(4):
            n, y = int(LENGTHS[b]), LABELS[b]
            w = case.invalid_pairwise if where == "pairwise" else case.pairwise
            steps = [(w if w.ndim == 2 else w[b] if w.ndim == 3 else w[b, t])[y[t], y[t + 1]] for t in range(n - 1)]
            terms = torch.stack([*case.invalid_unary[b, torch.arange(n), y[:n]], *steps])
            assert got[b].isnan() == terms.isnan().any()
            assert bool(terms.isnan().any() | terms.isinf().any()) or got[b] == clean[b]

    check(mode, where, holds)


@pytest.mark.parametrize("name", [x for x in NAMES if x != "edge_marginals"])
def test_a_sequence_of_length_1_has_no_pairwise_scores(mode: Mode, name: str) -> None:
    if mode.name == "exponential":
        pytest.skip("`fits` rejects NaN")
    skip_plain_torch(mode, name)
    generator = torch.Generator().manual_seed(0)
    u, w = torch.randn(2, 3, 2, generator=generator), torch.full((2, 2), torch.nan)
    y, n = torch.tensor([[1, -100, -100], [0, 1, 0]]), torch.tensor([1, 3])
    values = functions(mode.device, n, y, 2)[name](u.to(mode.device), w.to(mode.device))
    assert not values[0].isnan().any()
    assert values[1].isnan().all()
