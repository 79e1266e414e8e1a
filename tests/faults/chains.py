"""Random chains in every backend of the CPU, against the enumeration of all labellings.

A round has one batch of chains: any kind of pairwise, dtype, lengths, scale and pattern of -inf; tensors or views;
labels of any integer type. Some of the sequences have a score of NaN, with any bits, or +inf, within the length or
beyond it. Every answer of every backend is compared. Threads ask the same questions at the same time, and must get the
same bits.
"""

import importlib
import os
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import torch
from enumeration import Enumeration
from torch import Tensor

from equipoise import chain, objectives
from equipoise.chain import backends, exponential
from equipoise.chain.checks import INTEGERS as LABEL_TYPES
from equipoise.chain.cpu.library import library

BATCH = 1024
RANKS = 4  # labellings of `top_k`
INTEGERS = {torch.float16: torch.int16, torch.bfloat16: torch.int16, torch.float32: torch.int32}
INTEGERS[torch.float64] = torch.int64
MANTISSA = {torch.float16: 10, torch.bfloat16: 7, torch.float32: 23, torch.float64: 52}
VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "plain": lambda x: x,
    "negative": lambda x: torch._neg_view(-x),
    "imaginary part of a conjugate": lambda x: torch.complex(torch.zeros_like(x), -x).conj().imag,
    "transposed": lambda x: x.mT.contiguous().mT,
    "every second": lambda x: torch.stack([x, x.new_full((), 7.0).expand(x.shape)], -1)[..., 0],
}
Answers = dict[str, Tensor]


@dataclass
class Problem:
    """A batch of chains, and which of them have an invalid score within their length."""

    unary: Tensor
    pairwise: Tensor
    lengths: Tensor
    labels: Tensor
    invalid: Tensor
    text: str
    integers: torch.dtype = torch.int64  # of lengths and labels, as they are given


def draw(seed: int, batch: int = BATCH, dtypes: tuple[torch.dtype, ...] = tuple(INTEGERS)) -> Problem:
    generator = torch.Generator().manual_seed(seed)

    def choice(options: tuple) -> object:
        return options[int(torch.randint(len(options), (), generator=generator))]

    def share(x: float, *shape: int) -> Tensor:
        return torch.rand(shape, generator=generator) < x

    n = int(choice((1, 2, 3, 4, 5, 6)))
    m = int(choice(tuple(k for k in (1, 2, 3, 4, 7) if k**n <= 300)))
    dtype, kind, scale = choice(dtypes), choice(("shared", "sequence", "edge")), choice((0.1, 1.0, 10.0, 60.0))
    shape = {"shared": (m, m), "sequence": (batch, m, m), "edge": (batch, n - 1, m, m)}[kind]
    scores = [scale * torch.randn(s, generator=generator, dtype=torch.float64) for s in ((batch, n, m), shape)]
    forbidden = float(choice((0.0, 0.0, 0.1, 0.4)))
    scores = [x.masked_fill(share(forbidden, *x.shape), -torch.inf).to(dtype) for x in scores]
    lengths = (
        torch.randint(1, n + 1, (batch,), generator=generator) if choice((True, False)) else torch.full((batch,), n)
    )
    labels = torch.randint(m, (batch, n), generator=generator)
    labels = labels.masked_fill(torch.arange(n) >= lengths[:, None], -100)

    hit = share(float(choice((0.0, 0.2))), batch)  # an invalid score somewhere in the unary scores
    place, label = torch.randint(n, (batch,), generator=generator), torch.randint(m, (batch,), generator=generator)
    bits = torch.tensor(torch.inf, dtype=dtype).view(INTEGERS[dtype]).repeat(batch)
    payload = torch.randint(2 ** MANTISSA[dtype], (batch,), generator=generator)  # 0 is +inf
    payload = torch.where(share(0.3, batch), payload % 9, payload)
    sign = torch.where(share(0.5, batch) & (payload > 0), torch.iinfo(INTEGERS[dtype]).min, 0)
    raw = scores[0].contiguous().view(INTEGERS[dtype])
    rows = hit.nonzero()[:, 0]
    raw[rows, place[rows], label[rows]] = (bits | payload.to(bits.dtype) | sign.to(bits.dtype))[rows]
    scores[0] = raw.view(dtype)
    invalid = hit & (place < lengths)

    views = [str(choice(tuple(VIEWS))) if dtype in (torch.float32, torch.float64) else "plain" for _ in scores]
    seen = [VIEWS[view](x) for view, x in zip(views, scores, strict=True)]
    integers = choice(LABEL_TYPES)
    text = f"seed {seed}: {dtype}, {kind}, B {batch}, L {n}, M {m}, scale {scale}, forbidden {forbidden}, {views}"
    return Problem(seen[0], seen[1], lengths, labels, invalid, f"{text}, labels {integers}", integers)


def truth(p: Problem) -> Answers:
    """Every answer by enumeration, in float64; NaN for sequences with an invalid score."""
    batch, n, m = p.unary.shape
    unary, pairwise = p.unary.double().nan_to_num(0.0, 0.0, -torch.inf), p.pairwise.double()
    if pairwise.ndim < 4:
        pairwise = pairwise.unsqueeze(-3)
    pairwise = pairwise.expand(batch, n - 1, m, m)
    found: Answers = {
        name: torch.zeros(batch) for name in ("entropy", "log Z", "best", "likelihood", "margin", "marginal")
    }
    found = {name: x.double() for name, x in found.items()}
    found |= {"marginals": torch.zeros(batch, n, m).double(), "edges": torch.zeros(batch, n - 1, m, m).double()}
    found["ranked"] = torch.full((batch, RANKS), -torch.inf).double()
    found["size"] = torch.zeros(batch).double()
    for length in p.lengths.unique().tolist():
        rows = (p.lengths == length).nonzero()[:, 0]
        every = Enumeration(unary[rows, :length], pairwise[rows, : length - 1])
        y = p.labels[rows, :length]
        gold, log_z, scores = every.score(y), every.log_partition(), every.scores
        marginals = every.marginals()
        found["log Z"][rows], found["entropy"][rows] = log_z, every.entropy()
        found["marginals"][rows, :length], found["edges"][rows, : length - 1] = marginals, every.edge_marginals()
        found["best"][rows] = scores.max(-1).values
        k = min(RANKS, scores.shape[-1])
        found["ranked"][rows, :k] = scores.topk(k).values
        found["likelihood"][rows] = log_z - gold
        found["margin"][rows] = (scores + every.hamming(y)).max(-1).values - gold
        found["marginal"][rows] = -marginals.gather(-1, y[..., None])[..., 0].log().mean(-1)
        largest = [x.masked_fill(x.isinf(), 0).abs() for x in (unary[rows, :length], pairwise[rows, : length - 1])]
        found["size"][rows] = largest[0].amax(-1).sum(-1) + largest[1].flatten(2).amax(-1).sum(-1)
    return found


def answers(p: Problem) -> Answers:
    """Every answer of the library."""
    u, w, n, y = p.unary.detach().requires_grad_(), p.pairwise, p.lengths.to(p.integers), p.labels.to(p.integers)
    log_z = chain.log_partition(u, w, n)
    (gradient,) = torch.autograd.grad(log_z.sum(), u)
    path, best = chain.decode(p.unary, w, n)
    generator = torch.Generator(p.unary.device).manual_seed(0)
    return {
        "log Z": log_z.detach(),
        "gradient": gradient,
        "marginals": chain.log_marginals(p.unary, w, n).exp().masked_fill(_beyond(p)[..., None], 0.0),
        "edges": chain.edge_marginals(p.unary, w, n),
        "entropy": chain.entropy(p.unary, w, n),
        "best": best,
        "path": path,
        "ranked": chain.top_k(p.unary, w, n, k=RANKS)[1],
        "sample": chain.sample(p.unary, w, n, n=1, generator=generator)[:, 0],
        "likelihood": objectives.likelihood(p.unary, w, y, n),
        "marginal": objectives.marginal(p.unary, w, y, n),
        "margin": objectives.margin(p.unary, w, y, n),
        "bound": chain.mean_field_bound(chain.mean_field(p.unary, w, n, iterations=2), p.unary, w, n),
    }


def _beyond(p: Problem) -> Tensor:
    return torch.arange(p.unary.shape[1], device=p.lengths.device) >= p.lengths[:, None]


def compare(p: Problem, got: Answers, want: Answers, backend: str, units: int = 16) -> int:
    """Check all answers of one backend, up to some rounding errors, and return their number."""
    possible, ok = want["log Z"] > -torch.inf, ~p.invalid
    eps = torch.finfo(torch.float64 if p.unary.dtype == torch.float64 else torch.float32).eps
    room = units * eps * (1 + want["size"])

    def close(name: str, x: Tensor, y: Tensor, rows: Tensor) -> None:
        x, y, extra = x[rows].double(), y[rows], room[rows].view(-1, *(1,) * (x.ndim - 1))
        same = (x == y) | ((x - y).abs() <= extra + units * eps * y.abs())
        assert bool(same.all()), f"{name} of {backend} is wrong in {p.text}: {x[~same][:3]} instead of {y[~same][:3]}"

    for name in ("log Z", "best", "ranked"):
        close(name, got[name], want[name], ok)
    for name in ("marginals", "edges", "entropy"):
        close(name, got[name], want[name], ok & possible)
    # Half precision rounds the gradient to the dtype of its input.
    gradient = want["marginals"].to(p.unary.dtype).double()
    rounding = torch.finfo(p.unary.dtype).eps
    rows = ok & possible
    error = (got["gradient"][rows].double() - gradient[rows]).abs()
    assert bool((error <= rounding + room[rows][:, None, None]).all()), f"gradient of {backend} is wrong in {p.text}"
    allowed = possible & (want["likelihood"] < torch.inf)
    for name in ("likelihood", "margin"):
        close(name, got[name], want[name], ok & allowed)
    likely = allowed & (want["marginal"] < 30)  # log p of a smaller p has the error of p, times 1 / p
    close("marginal", got["marginal"], want["marginal"], ok & likely)
    excess = got["bound"][rows].double() - want["log Z"][rows]
    many = eps * (1 + want["size"][rows]) ** 2  # rounding log q changes the sum of q, and that is multiplied by F
    assert bool((excess <= room[rows] + many).all()), f"the bound is above log Z in {p.text}"
    for name, x in got.items():
        bad = x[p.invalid]
        none = (bad == -100).all() if name in ("path", "sample") else _inside(p, bad, name).isnan().all()
        assert name == "gradient" or bool(none), f"{name} of {backend} has a number for a NaN in {p.text}"
    wrong = ~(p.unary < torch.inf) & ~_beyond(p)[..., None]  # the invalid scores
    assert bool(got["gradient"][wrong].isnan().all()), f"gradient of {backend} at an invalid score in {p.text}"
    for name in ("path", "sample"):
        labels = got[name][ok & possible]
        assert bool(((labels == -100) == _beyond(p)[ok & possible]).all()), f"{name} of {backend} in {p.text}"
        if not len(labels):
            continue
        index = (ok & possible).nonzero()[:, 0]
        w = p.pairwise if p.pairwise.ndim == 2 else p.pairwise[index]
        rescored = chain.score(p.unary[index].double(), w.double(), labels, p.lengths[index])
        assert bool((rescored > -torch.inf).all()), f"{name} of {backend} is forbidden in {p.text}"
        wrong = (rescored - want["best"][index]).abs() > room[index]
        assert name == "sample" or not bool(wrong.any()), f"decode of {backend} is not the best in {p.text}"
    return len(got) * len(p.unary)


def _inside(p: Problem, bad: Tensor, name: str) -> Tensor:
    """The entries within the lengths of the invalid sequences."""
    beyond = _beyond(p)[p.invalid]
    if name == "edges":
        return bad.masked_fill(beyond[:, 1:, None, None], torch.nan)
    return bad.masked_fill(beyond[..., None], torch.nan) if bad.ndim == 3 else bad


@contextmanager
def only(name: str) -> Iterator[None]:
    """Public functions use this backend."""
    with ExitStack() as stack:
        if name in ("reference", "exponential"):
            stack.enter_context(patch.object(backends, "library", lambda dtype: None))
            stack.enter_context(patch.object(exponential, "fits", lambda unary, pairwise: name == "exponential"))
        if name == "interpreter":
            gpu, mean_field = (importlib.import_module(f"equipoise.chain.gpu.{x}") for x in ("backend", "meanfield"))
            stack.enter_context(patch.dict(backends.BACKENDS, gpu=gpu))
            stack.enter_context(patch.dict(backends.KERNELS, gpu=gpu))
            stack.enter_context(patch.object(backends, "gpu", gpu, create=True))
            stack.enter_context(patch.object(backends, "gpu_meanfield", mean_field, create=True))
            stack.enter_context(patch.object(gpu, "supports", lambda unary, pairwise: unary.dtype == torch.float32))
            stack.enter_context(patch.object(mean_field, "supports", lambda u, w, schedule: False))
        yield


def chains(seed: int, folder: Path) -> Counter[str]:
    """One batch in all backends of the CPU; by C also from three threads at the same time."""
    p = draw(seed)
    want, counts = truth(p), Counter(problems=len(p.unary))
    names = ["reference", *(["cpu"] if library(torch.float32) is not None else [])]
    if exponential.fits(p.unary.nan_to_num(0.0, 0.0, -torch.inf).float(), p.pairwise.float()):
        names.append("exponential")
    for name in names:
        with only(name):
            counts["answers"] += compare(p, answers(p), want, name)
    if seed % 8 == 0:
        with ThreadPoolExecutor(3) as pool:
            several = list(pool.map(lambda _: answers(p), range(3)))
        for other in several[1:]:
            for name, x in other.items():
                assert _same_bits(x, several[0][name]), f"{name} depends on threads in {p.text}"
        counts["answers"] += compare(p, several[0], want, "cpu, in threads")
        counts["calls from threads"] += 3 * len(several[0])
    return counts


def _same_bits(x: Tensor, y: Tensor) -> bool:
    """Equal numbers; any NaN equals any other."""
    return bool(((x == y) | (x.isnan() & y.isnan())).all()) if x.is_floating_point() else torch.equal(x, y)


def interpreter(seed: int, folder: Path) -> Counter[str]:
    """A small batch by the Triton kernels, in Triton's interpreter: launches are recorded, and then repeated."""
    assert os.environ.get("TRITON_INTERPRET") == "1"
    replays = importlib.import_module("equipoise.native.triton_replay").replays
    p = draw(seed, batch=6, dtypes=(torch.float32,))
    want = truth(p)
    with only("interpreter"), patch.dict(replays, clear=True):  # of earlier rounds
        return Counter(problems=6, answers=sum(compare(p, answers(p), want, "interpreter") for _ in range(2)))
