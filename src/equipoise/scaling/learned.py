"""Learned scales (ours, not the paper's): each part is divided by its size and multiplied by a learned factor.

    U -> e^u U / s,      W -> e^w W / ||W||

There is nothing to choose, and any learning rate serves. Five choices make it so.

    s       is a running average of ||U|| over about the last 1,000 training examples. Dividing each example by its own
            size, as offline scaling does, would discard how certain the net is of one example relative to others.
    ds      In training the relative derivative of s is that of the batch, d log s = d log mean ||U||. So the gradient
            has no component that makes all scores of the batch larger, and the net cannot outgrow W.
    W       starts very small. Each step turns a normalised matrix by about rate / ||W||. So W turns quickly at any rate
            at first, and more slowly as it grows.
    u, w    move by steps of their own (`pace`), which do not depend on the optimizer. e^w starts at 0.1 e^u.

A part that is smaller than 1 has the gradient of a part of size 1 (`gradient_factors`). Without it, division by a small
size would make the gradient so large that clipping would act on it alone and SGD would overshoot.

In a training step of a layer these formulas run as one function of autograd, `closed_form`.
`tests/scaling/test_closed_form.py` compares both. `docs/explanations/balance.md` explains each choice, with
measurements.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..native.values import eager
from . import closed_form
from .broadcasting import divide, multiply
from .kernel_state import KernelState
from .method import Scaling, positive
from .norms import SHARE, Norms
from .pace import Paced, moved, pace

PAIRWISE_START = 0.1
"""The initial factor of the pairwise part relative to the unary part: the net learns first, as in stage training.

If both start at 1, transitions are learned before the net has learned anything, and the net then learns less: on text
chunking with SGD that costs 1 to 2 points of F1.
"""
PLACED_SIZE = 0.01
"""||W|| where W starts from label counts: larger than without, because what was counted should not turn at once."""
HORIZON = 1000
"""The running average covers about this many examples: enough to be steady, few enough to follow the net."""


class State(NamedTuple):
    """Each field is for one model, or has replicas as its first dimension."""

    size: Tensor  # (): s, 1 before training
    examples: Tensor  # (): how many examples s covers
    log_scales: Tensor  # (2,): u and w
    squares: Tensor  # (2,): mean squares of their gradients
    steps: Tensor  # (): how many times they moved


def factors(state: State, norms: Norms) -> tuple[Tensor, Tensor]:
    u, w = state.log_scales.exp().unbind(-1)
    size = torch.where((state.size > 0) & (state.size < torch.inf), state.size, torch.nan)  # a damaged state
    return u / size, divide(w, norms()[1])


def alpha(state: State) -> Tensor:
    """e^(u - w)."""
    u, w = state.log_scales.detach().unbind(-1)
    return (u - w).exp()


def batch_mean(state: State, u: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
    """The mean of ||U||, (*replicas, *batch), over the examples of a batch, and their number, each (*replicas,)."""
    u, replicas = u.to(state.size.dtype), state.size.ndim
    u = u.flatten(replicas) if u.ndim > replicas else u[..., None]
    if weights is None:
        return (u * SHARE).mean(-1) / SHARE, torch.full_like(state.size, u.shape[-1])
    weights = weights.to(u.dtype).reshape(u.shape)
    number = weights.sum(-1)
    return torch.where(weights > 0, u * SHARE, 0).sum(-1) / number.clamp(min=1) / SHARE, number


def measured(state: State, norms: Norms, weights: Tensor | None = None) -> State:
    """The running average with the examples of this batch.

    A batch without examples, or with scores that are all 0 or not finite, leaves it as it is.
    """
    mean, number = batch_mean(state, norms()[0], weights)
    now = mean.detach()
    usable = (now > 0) & now.isfinite()
    number = torch.where(usable, number, 0)
    examples = (state.examples + number).clamp(max=HORIZON)
    share = (number / examples.clamp(min=1)).clamp(max=1)
    size = state.size.lerp(torch.where(usable, now, 1), share)
    relative = torch.where(usable, mean / torch.where(usable, now, 1), 1)  # 1, with the gradient of log mean
    return state._replace(size=size * relative, examples=examples)


def gradient_factors(state: State, norms: Norms, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The sizes of both parts, at most 1: the batch's mean for U, and ||W||.

    A size of 0 counts as 1, as in `divide`: a part that starts at 0 must be able to learn.
    """
    u, w = (norm.detach() for norm in norms())
    u, _ = batch_mean(state, u, weights)
    return torch.where(u > 0, u, 1).clamp(max=1), torch.where(w > 0, w, 1).clamp(max=1)


class Learned(Scaling):
    """Divide both parts by their sizes and learn a scale for each. There is nothing to choose.

    In training mode a differentiable call measures the unary scores of its batch. Its backward pass stores what was
    measured and moves the two scales. In evaluation mode nothing moves, and a prediction does not depend on the rest of
    the batch. The state is in buffers, as in batch norm: checkpoints contain it, and DistributedDataParallel sends that
    of the first process to the others.

    In training the gradient of a part is multiplied by its size where that is below 1, and the derivative of s is that
    of the batch. So gradients with respect to the scores are not exact derivatives of the loss; in evaluation mode they
    are.

    >>> method = Learned().eval()
    >>> unary, pairwise = method(torch.tensor([[30.0, -10.0]]), torch.tensor([[0.0, 4.0], [0.0, 0.0]]))
    >>> unary, pairwise
    (tensor([[ 30., -10.]]), tensor([[0.0000, 0.4000],
            [0.0000, 0.0000]]))

    A training step measures the unary scores:

    >>> unary, _ = method.train()(torch.tensor([[30.0, -10.0]], requires_grad=True), torch.ones(2, 2))
    >>> unary.sum().backward()
    >>> unary.tolist(), method.size.tolist()
    ([[1.5, -0.5]], 20.0)

    Args:
        start: the initial factor of the unary part, a number or one per replica; that of the pairwise part is a tenth.
    """

    paced = ("log_scales",)
    kept = ("squares", "steps", "size", "examples")
    pairwise_std = 1e-4
    placed_size = PLACED_SIZE
    needs_sizes = False
    learns_balance = True
    factors = staticmethod(factors)
    alpha_of = staticmethod(alpha)
    measured = staticmethod(measured)
    gradient_factors = staticmethod(gradient_factors)
    log_scales: Tensor
    squares: Tensor
    steps: Tensor
    size: Tensor
    examples: Tensor

    def __init__(self, start: float | Tensor = 1.0) -> None:
        super().__init__()
        first = positive("start", start).log()
        self.register_state("log_scales", torch.stack([first, first + math.log(PAIRWISE_START)], -1))
        self.register_state("squares", torch.zeros_like(self._initial["log_scales"]), sign="not negative")
        self.register_state("steps", torch.zeros_like(first), sign="not negative")
        self.register_state("size", torch.ones_like(first), sign="positive")
        self.register_state("examples", torch.zeros_like(first), sign="not negative")

    def state(self) -> State:
        return State(self.size, self.examples, self.log_scales, self.squares, self.steps)

    @property
    def alpha(self) -> Tensor:  # type: ignore[override]
        """The learned weight of the unary part relative to the pairwise part."""
        return alpha(self.state())

    def learn(self, norms: Norms, weights: Tensor | None = None) -> State:
        after = self.measured(self.state(), norms, weights)
        if not any(norm.requires_grad for norm in norms()):
            return after
        stored = (self.size, after.size), (self.examples, after.examples)
        return after._replace(log_scales=pace(norms(), Paced(self.log_scales, self.squares, self.steps), stored))

    def training_step(
        self,
        unary: Tensor,
        pairwise: Tensor,
        counted: Tensor,
        lengths: Tensor,
        weights: Tensor | None,
        formula: Callable[[], tuple[Tensor, Tensor]],
    ) -> tuple[Tensor, Tensor] | None:
        if type(self) is not Learned or self.size.ndim or pairwise.ndim != 2 or not eager():
            return None
        step = closed_form.LearnedStep
        both: tuple[Tensor, Tensor] = step.apply(unary, pairwise, counted, lengths, weights, self.state(), formula)
        return both

    @torch.no_grad()
    def place(self, pairwise: Tensor, size: Tensor) -> Tensor:
        """e^w becomes the size, where it is not 0. W becomes small, so that training can still turn it."""
        self.log_scales[..., 1] = torch.where(size > 0, size.log(), self.log_scales[..., 1])
        return (
            pairwise
            if self.placed_size is None
            else multiply(divide(torch.full_like(size, self.placed_size), size), pairwise)
        )

    def arguments(self) -> dict[str, Any]:
        return {"start": float(self._initial["log_scales"][0].exp())}

    def state_without_effect(self, pairwise_size: Tensor) -> dict[str, Tensor]:
        """u = 0, s = 1 and w = log ||W||. s already covers many examples, so that training moves it slowly."""
        log_scales = torch.stack(
            [torch.zeros_like(pairwise_size), torch.where(pairwise_size > 0, pairwise_size, 1).log()]
        )
        zeros = {name: torch.zeros_like(x, device=pairwise_size.device) for name, x in self.state_dict().items()}
        zeros["log_scales"] += log_scales.to(zeros["log_scales"].dtype)
        return zeros | {"size": zeros["size"] + 1, "examples": zeros["examples"] + HORIZON}

    def kernel_state(self) -> KernelState | None:
        if type(self) is not Learned or self.size.ndim:
            return None
        return KernelState(self.log_scales, self.squares, self.steps, self.size, self.examples, HORIZON)

    @staticmethod
    def moved(state: State, gradients: dict[str, Tensor]) -> State:
        after = moved(Paced(state.log_scales, state.squares, state.steps), gradients["log_scales"])
        return state._replace(log_scales=after.value, squares=after.squares, steps=after.steps)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Learned":
        """Move the state to another device. It stays in float32 if the model becomes half: its steps are small."""

        def at_least_float32(x: Tensor) -> Tensor:
            y = fn(x)
            return y if y.dtype.itemsize >= 4 else x.to(y.device)

        super()._apply(at_least_float32, recurse)
        return self

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local: Any,
        strict: bool,
        missing: Any,
        unexpected: Any,
        errors: Any,
    ) -> None:
        if prefix + "log_unary" in state_dict:
            errors.append(
                f"{prefix}log_unary belongs to an earlier form of scaling.Learned, which divided each example by its "
                "own size; it cannot be converted exactly, so train the model again"
            )
        super()._load_from_state_dict(state_dict, prefix, local, strict, missing, unexpected, errors)
