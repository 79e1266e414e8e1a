"""Speed and accuracy of the chain CRF relative to its peers, in one process, with alternating turns.

Every call is timed alone, in a loop of its own, and in a step: right after the same matrix products, as after a net,
which leave other data in the caches. Times are medians (see `timing`), and means of all calls. On a shared machine,
compare only ratios within one run, best with OMP_NUM_THREADS=1: then times are CPU times. Errors are relative to the
float64 reference: for losses those of the gradients with respect to unary and to pairwise, for marginals that of the
marginals, and for decoding the share of sequences whose labelling scores less than the best.
"""

import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from equipoise import chain, objectives

from .measurements import Measurements
from .peers import PEERS, QUESTIONS, Call, Scores, importable
from .timing import measure_warm


@dataclass(frozen=True)
class Size:
    sequences: int
    length: int
    labels: int
    ragged: bool = False

    def __str__(self) -> str:
        return f"{self.sequences},{self.length},{self.labels}{' ragged' if self.ragged else ''}"


SIZES = (
    *(Size(32, 14, 26), Size(256, 14, 26), Size(32, 64, 23, ragged=True), Size(8, 1024, 23), Size(1, 16384, 23)),
    *(Size(32, 64, 128), Size(16, 128, 512), Size(8, 64, 2000)),
)


@dataclass
class Row:
    question: str
    size: str
    peer: str
    milliseconds: float | None  # the median of the counted calls; None if the peer failed
    times_slower: float | None  # relative to equipoise
    error: float | None  # of a loss, that of the gradient with respect to unary
    note: str = ""
    lowest: float | None = None  # milliseconds, the 10th percentile of the counted calls
    overall: float | None = None  # the median of all calls, including those in slowed turns
    slowed: float | None = None  # the share of the time in slowed turns
    mean: float | None = None  # of all calls
    mean_slower: float | None = None  # the means of all calls relative to equipoise
    step_milliseconds: float | None = None  # in a step, the median
    step_slower: float | None = None
    step_mean: float | None = None
    step_mean_slower: float | None = None
    pairwise_error: float | None = None  # of a loss, that of the gradient with respect to pairwise


@dataclass
class Report(Measurements):
    rows: list[Row] = field(default_factory=list)


def scores(size: Size, device: str, dtype: torch.dtype = torch.float32) -> Scores:
    generator = torch.Generator().manual_seed(0)
    b, length, m = size.sequences, size.length, size.labels
    unary, pairwise = torch.randn(b, length, m, generator=generator), torch.randn(m, m, generator=generator)
    labels = torch.randint(m, (b, length), generator=generator)
    lengths = torch.randint(length // 4, length + 1, (b,), generator=generator) if size.ragged else None
    if lengths is not None:
        lengths[0] = length
    return Scores(
        unary.to(device, dtype).requires_grad_(),
        pairwise.to(device, dtype).requires_grad_(),
        labels.to(device),
        None if lengths is None else lengths.to(device),
    )


def truth(s: Scores) -> dict[str, tuple[Tensor, ...]]:
    """The results in float64, on the CPU: gradients of unary and pairwise, marginals, and the best scores."""
    exact = Scores(
        s.unary.detach().cpu().double().requires_grad_(),
        s.pairwise.detach().cpu().double().requires_grad_(),
        s.labels.cpu(),
        None if s.lengths is None else s.lengths.cpu(),
    )
    args = exact.unary, exact.pairwise
    return {
        "likelihood": exact.gradient(objectives.likelihood(*args, exact.labels, exact.lengths).sum()),
        "marginal": exact.gradient(objectives.marginal(*args, exact.labels, exact.lengths).sum()),
        "marginals": (chain.log_marginals(*args, exact.lengths).exp().detach(),),
        "decode": (chain.decode(*args, exact.lengths)[1].detach(),),
    }


def errors(question: str, answer: Any, s: Scores, exact: tuple[Tensor, ...]) -> list[float]:
    """One error, or of a loss two: of the gradients with respect to unary and to pairwise."""
    if question == "decode":
        return [_share_not_best(answer, s, exact[0])]
    answers = [_double(each) for each in (answer if len(exact) == 2 else [answer])]
    if question == "marginals" and answers[0].max() <= 0:  # log-marginals
        answers[0] = answers[0].exp()
    places = s.mask.cpu()[..., None]
    weights = (places, torch.ones(())) if len(exact) == 2 else (places,)
    return [float(((x - y) * w).norm() / (y * w).norm()) for x, y, w in zip(answers, exact, weights, strict=True)]


def _share_not_best(answer: Any, s: Scores, best: Tensor) -> float:
    length = s.unary.shape[1]
    if isinstance(answer, list):
        rows = [torch.tensor(row + [0] * (length - len(row))) for row in answer]
        labels = torch.stack(rows)
    else:
        labels = _double(answer).long().clamp(min=0)
    lengths = None if s.lengths is None else s.lengths.cpu()
    got = chain.score(s.unary.detach().cpu().double(), s.pairwise.detach().cpu().double(), labels, lengths)
    return float((got < best - 1e-5 * best.abs()).double().mean())


def _double(answer: Any) -> Tensor:
    return answer.detach().cpu().double() if isinstance(answer, Tensor) else torch.tensor(np.asarray(answer)).double()


def run(
    device: str = "cpu",
    seconds: float = 1.0,
    sizes: tuple[Size, ...] = SIZES,
    against: tuple[str, ...] = (),
    measured: Iterable[Row] = (),
) -> Iterator[Report]:
    """Measure every question at every size, and yield the report so far after each.

    `against` names the peers; if it is empty, all installed peers are measured. `measured` are the rows of an earlier
    report of the same machine: a question that was measured at a size is not measured again.
    """
    installed = importable()
    unknown = [peer for peer in against if peer not in installed]
    if unknown:
        raise ValueError(f"peer {unknown[0]!r} is not installed; installed are {', '.join(installed)}")
    peers = [peer for peer in installed if not against or peer in ("equipoise", *against)]
    report = Report.start(device)
    report.rows = list(measured)
    done = {(row.size, row.question) for row in report.rows}
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    for size in sizes:
        questions = [question for question in QUESTIONS if (str(size), question) not in done]
        if not questions:
            continue
        s = scores(size, device)
        exact = truth(s)
        for question in questions:
            report.rows += _compare(question, size, s, exact[question], seconds, wait, peers)
            report.load_after = os.getloadavg()[0]
            yield report


def matrix_products(device: torch.device) -> Call:
    """What comes before each call in a step: four products of 512 x 512 matrices and a nonlinearity."""
    a, b = torch.randn(2, 512, 512, device=device).unbind()

    def run() -> Tensor:
        for _ in range(3):
            a @ b
        return (a @ b).relu().sum()

    return run


def _compare(
    question: str,
    size: Size,
    s: Scores,
    exact: tuple[Tensor, ...],
    seconds: float,
    wait: Callable[[], None],
    peers: list[str],
) -> list[Row]:
    calls: dict[str, Call] = {}
    rows = []
    for name in peers:
        try:
            answers = PEERS[name][1](s)
        except MemoryError as failure:
            rows.append(Row(question, str(size), name, None, None, None, str(failure)))
            continue
        if question in answers:
            calls[name] = answers[question]
    one_thread = s.unary.is_cpu and torch.get_num_threads() == 1
    clock = time.process_time if one_thread else time.perf_counter
    times = measure_warm(calls, seconds, wait, clock=clock)
    able = {name: call for name, call in calls.items() if not isinstance(times[name], str)}
    in_step = measure_warm(able, seconds, wait, before=matrix_products(s.unary.device), clock=clock)
    own, own_step = times["equipoise"], in_step.get("equipoise", "")
    if isinstance(own, str) or isinstance(own_step, str):
        raise RuntimeError(f"{question} at {size}: {own}")
    for name, taken in times.items():
        if isinstance(taken, str):
            rows.append(Row(question, str(size), name, None, None, None, taken))
            continue
        row = Row(question, str(size), name, 1e3 * taken.median, taken.relative_to(own), None)
        row.error, row.pairwise_error = (*errors(question, calls[name](), s, exact), None)[:2]
        row.lowest, row.overall, row.slowed = 1e3 * taken.lowest, 1e3 * statistics.median(taken.every), taken.slowed
        row.mean, row.mean_slower = 1e3 * taken.mean, taken.mean / own.mean
        step = in_step[name]
        if not isinstance(step, str):
            row.step_milliseconds, row.step_slower = 1e3 * step.median, step.relative_to(own_step)
            row.step_mean, row.step_mean_slower = 1e3 * step.mean, step.mean / own_step.mean
        row.note = "" if taken.steady else "no turn was steady"
        rows.append(row)
    return rows
