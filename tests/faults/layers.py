"""Random layers on the CPU: the C code before and after the chain against the torch code in float64.

A round has one layer with any scaling, constraints, boundaries, objective and reduction, and one batch with any mask:
padding, holes, empty sequences; and labels of any integer type. Three training steps in float64 must give the same
losses, gradients and state, and so must one in float32, up to its rounding; then the predictions. The same batch is
also given to the drop-in layer.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import torch
from torch import Tensor

from equipoise import ChainCRF, scaling
from equipoise.chain.checks import INTEGERS
from equipoise.compat import torchcrf
from equipoise.constraints import Constraints
from equipoise.crf import choice as crf_choice
from equipoise.crf.cpu import prepare as cpu
from equipoise.crf.fused import LayerKernels
from equipoise.crf.reasons import Reason

STEPS = 3
RATE = 0.05  # of the steps of SGD in between
ROUNDED = 1e-24  # the square of a gradient that is 0 up to rounding: its sign, and so the step of a scale, is random
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-4}  # relative to the largest number, or to 1


@dataclass
class Problem:
    unary: Tensor  # (*batch, L, M), float64
    labels: Tensor  # (*batch, L)
    mask: Tensor | None
    method: type[scaling.Scaling]
    rules: Constraints | None
    boundaries: bool
    objective: str
    reduction: str
    seed: int

    def layer(self, dtype: torch.dtype) -> ChainCRF:
        fixed = torch.Generator().manual_seed(self.seed)
        own = {"boundaries": self.boundaries, "objective": self.objective, "generator": fixed}
        crf = ChainCRF(self.unary.shape[-1], self.method(), self.rules, **own).to(dtype)
        if self.seed % 4 == 0:  # scores that forbid something without a constraint
            for parameter in crf.parameters():
                parameter.data.flatten()[1::3] = -torch.inf
        return crf


def draw(seed: int) -> Problem:
    generator = torch.Generator().manual_seed(seed)

    def choice(*options: object) -> object:
        return options[int(torch.randint(len(options), (), generator=generator))]

    def share(x: float, *shape: int) -> Tensor:
        return torch.rand(shape, generator=generator) < x

    batch = choice((1,), (3,), (7,), (2, 3), ())
    length, m = int(choice(1, 2, 5, 17)), int(choice(1, 2, 5, 9, 33))
    unary = float(choice(0.01, 1.0, 30.0)) * torch.randn(*batch, length, m, generator=generator).double()
    unary = unary.masked_fill(share(float(choice(0.0, 0.0, 0.1)), *unary.shape), -torch.inf)
    positions = torch.arange(length)
    lengths = torch.randint(0, length + 1, (*batch, 1), generator=generator)
    mask = choice(None, positions < lengths, (positions < lengths) & share(0.8, *batch, length), share(0.5, *batch, 1))
    mask = mask if mask is None else mask.expand(*batch, length).to(choice(torch.bool, torch.uint8, torch.int64))
    rules = None
    if choice(True, False):
        rules = Constraints(share(0.8, m, m), share(0.8, m), share(0.8, m), tuple(f"label {j}" for j in range(m)))
    kinds = choice(scaling.Fixed, scaling.Learned), rules, bool(choice(True, False))
    goal = choice("likelihood", "marginal"), choice("mean", "sum", "none", "token_mean")
    problem = Problem(unary, torch.empty(0), mask, *kinds, *goal, seed)
    with patch.object(crf_choice, "kernels_for", lambda x: Reason.FORCED):  # labels that rules and scores allow
        noisy = unary + 3 * torch.randn(unary.shape, generator=generator)
        labels = problem.layer(torch.float64).decode(noisy, mask, rule="map")
    holds_all = bool(((labels >= 0) | (False if mask is None else mask == 0)).all())  # unsigned types have no -100
    problem.labels = labels.to(choice(*(x for x in INTEGERS if holds_all or x.is_signed)))
    return problem


def answers(p: Problem, dtype: torch.dtype, kernels: LayerKernels | None, device: str = "cpu") -> dict[str, Tensor]:
    """What these kernels compute, or the torch code, on the CPU."""
    crf, found = p.layer(dtype).to(device), {}
    unary, labels, mask = (None if x is None else x.to(device) for x in (p.unary.to(dtype), p.labels, p.mask))
    with patch.object(crf_choice, "kernels_for", lambda x: kernels or Reason.FORCED):
        for step in range(STEPS if dtype == torch.float64 else 1):
            u = ((1 + step) * unary).requires_grad_()
            loss = crf.loss(u, labels, mask, reduction=p.reduction)
            (2.5 * loss).sum().backward()
            found[f"loss {step}"], found[f"unary {step}"] = loss.detach(), u.grad
            for name, parameter in crf.named_parameters():
                found[f"{name} {step}"] = parameter.grad
                parameter.data -= RATE * parameter.grad
                parameter.grad = None
        if dtype == torch.float64:
            found |= {name: x.clone() for name, x in crf.scaling.named_buffers()}
            crf.eval()
            found["labels"] = crf.decode(unary, mask)
            found["marginal labels"] = crf.decode(unary, mask, rule="marginal")
            with torch.no_grad():
                found["loss in evaluation"] = crf.loss(unary, labels, mask, reduction="none")
    return {name: x.cpu() for name, x in found.items()}


def truth(p: Problem) -> dict[str, Tensor]:
    want = answers(p, torch.float64, None)
    if "squares" in want and want["squares"].min() < ROUNDED:  # if only one labelling is allowed, for example
        del want["squares"], want["log_scales"]
    return want


def compare(found: dict[str, Tensor], want: dict[str, Tensor], dtype: torch.dtype, message: str) -> int:
    """The number of answers that were compared."""
    compared = [name for name in want if name in found]
    # Gradients of parameters are differences of sums over all positions, with weights of 2.5.
    of_sums = 32 * torch.finfo(dtype).eps * want["unary 0"][..., 0].numel()
    for name in compared:
        finite, tolerance = want[name][want[name].isfinite()].abs(), TOLERANCE[dtype]
        least = 0.0 if name.startswith(("loss", "unary")) else of_sums
        limit = max(tolerance * max(1.0, float(finite.max())), least) if finite.numel() else 0.0
        got, where = found[name].to(want[name].dtype), f"{message}: {name} in {dtype}"
        torch.testing.assert_close(got, want[name], rtol=tolerance, atol=limit, msg=where)
    return len(compared)


def drop_in(p: Problem, dtype: torch.dtype, kernels: LayerKernels | None) -> dict[str, Tensor]:
    """One step of the drop-in layer, and its tags, where every score is finite."""
    m, fixed, batch_first = p.unary.shape[-1], torch.Generator().manual_seed(p.seed), bool(p.seed % 2)
    crf = torchcrf.CRF(m, batch_first, balanced=p.method is scaling.Learned).to(dtype)
    for parameter in crf.parameters():
        parameter.data = torch.randn(parameter.shape, generator=fixed, dtype=torch.float64).to(dtype)
    mask = torch.ones(p.labels.shape, dtype=torch.bool) if p.mask is None else p.mask != 0
    mask[..., 0] = True
    tags = p.labels.long().masked_fill(~mask | (p.labels.long() >= m), 0).clamp(min=0).to(p.labels.dtype)
    unary = p.unary.masked_fill(p.unary.isinf(), -30.0).to(dtype).requires_grad_()
    emissions, tags, mask = (x if batch_first else x.transpose(0, 1) for x in (unary, tags, mask))
    with patch.object(crf_choice, "kernels_for", lambda x: kernels or Reason.FORCED):
        log_p = crf(emissions, tags, mask, p.reduction)
        (2.5 * log_p).sum().backward()
        found = {"loss 0": log_p.detach(), "unary 0": unary.grad}
        found |= {f"{name} 0": parameter.grad for name, parameter in crf.named_parameters()}
        if dtype == torch.float64:
            found["tags"] = torch.tensor([tag for row in crf.eval().decode(emissions.detach(), mask) for tag in row])
    return found


def layers(seed: int, folder: Path | None = None) -> Counter[str]:
    p = draw(seed)
    want, counts = truth(p), Counter({"problems": 1})
    for dtype in TOLERANCE:
        counts["answers"] += compare(answers(p, dtype, cpu), want, dtype, f"seed {seed}")
    if p.unary.ndim == 3:
        want = drop_in(p, torch.float64, None)
        for dtype in TOLERANCE:
            counts["answers"] += compare(drop_in(p, dtype, cpu), want, dtype, f"seed {seed}, drop-in")
    return counts
