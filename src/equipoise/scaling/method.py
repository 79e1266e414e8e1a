"""A scaling method: two factors, computed from the sizes of the two parts of an energy, and a penalty.

    (a, b) = factors(state, norms),      norms() = ||U||, ||W||,      loss(a U, b W) + penalty(state, norms)

Each method is a pair of pure functions of its state, in a file of its own, with a thin module that owns the state. It
knows nothing of chains or images: it works on any energy that can measure its unary and its pairwise part. A method may
also have a state that training measures or moves, see `learn`.
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from ..arguments import shown
from ..native.values import eager, plain, transformed
from .broadcasting import apply
from .factors import factors
from .kernel_state import KernelState
from .norms import Norms, checked, measure, once

State = Any
"""A named tuple of tensors, for one model or with replicas as their first dimension. Every method has its own."""

Sign = Literal["any", "not negative", "positive"]
"""What the numbers of a part of the state must be, besides finite."""


class Scaling(nn.Module):
    """Balances unary and pairwise scores.

    `alpha` is the weight of the unary part relative to the pairwise part: a number, or one per replica, (E,). Replicas
    are the first dimension of the scores and of the norms.

    To add a method, write its `factors` (and `penalty_of`) as functions of a state, and return that state from `state`.
    Register the parts of the state by `register_state`, so that `reset_parameters` can restore them:

    >>> from typing import NamedTuple
    >>> class Half(Scaling):
    ...     State = NamedTuple("State", [("alpha", Tensor)])
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.register_state("alpha", torch.tensor(0.5))
    ...     def state(self):
    ...         return self.State(self.alpha)
    ...     @staticmethod
    ...     def factors(state, norms):
    ...         return state.alpha, torch.ones_like(state.alpha)
    >>> Half()(torch.ones(1, 2), torch.ones(2, 2))[0]
    tensor([[0.5000, 0.5000]])
    """

    alpha: Tensor
    learned: ClassVar[tuple[str, ...]] = ()
    """The fields of the state that the optimizer moves: parameters of the module."""
    paced: ClassVar[tuple[str, ...]] = ()
    """The fields that have a gradient but are moved by the method, see `moved`: buffers of the module."""
    kept: ClassVar[tuple[str, ...]] = ()
    """The other fields that change in training: buffers of the module."""
    pairwise_std: ClassVar[float] = 0.1
    """The standard deviation of pairwise parameters at the start of training."""
    needs_sizes: ClassVar[bool] = True
    """Whether a layer raises an error if all scores of a part are 0."""

    placed_size: float | None = None
    """||W|| after `place`, for methods under which it is free; None for that of the scores."""
    learns_balance: ClassVar[bool] = False
    """Whether training chooses the relative size of both parts, so that a ratio of any size needs no warning."""

    def __init__(self) -> None:
        super().__init__()
        self._initial: dict[str, Tensor] = {}  # on the CPU, also if the module is on the meta device
        self._signs: dict[str, Sign] = {}

    def register_state(self, name: str, value: Tensor, *, learned: bool = False, sign: Sign = "any") -> None:
        """Add a buffer, or with `learned` a parameter, that `reset_parameters` sets to this value.

        Its numbers must always be finite and have this sign, see `check_state`.
        """
        self._initial[name] = value.detach().to("cpu", copy=True)
        self._signs[name] = sign
        if learned:
            self.register_parameter(name, nn.Parameter(empty_like(value)))
        else:
            self.register_buffer(name, empty_like(value))
        self._restore(name)

    def reset_parameters(self) -> None:
        """Set the state to its initial values, as after construction on the meta device and `to_empty`."""
        for name in self._initial:
            self._restore(name)

    @torch.no_grad()
    def _restore(self, name: str) -> None:
        getattr(self, name).copy_(self._initial[name])

    def arguments(self) -> dict[str, Any]:
        """The arguments that construct the method in its initial state, as numbers and lists."""
        names = inspect.signature(type(self)).parameters
        values = {name: self._initial.get(name, getattr(self, name)) for name in names}
        return {name: x.tolist() if isinstance(x, Tensor) else x for name, x in values.items()}

    def state_without_effect(self, pairwise_size: Tensor) -> dict[str, Tensor]:
        """The state that changes no score if ||W|| has this size; empty if the method has none or starts with it."""
        return {}

    def check_state(self, prefix: str = "") -> None:
        """Raise if a number of the state is not finite or has the wrong sign. Waits for the device.

        What is loaded is always checked. A call of a layer checks the state only if `validate` is True, or to explain a
        loss of NaN.
        """
        for name, sign in self._signs.items():
            if fault := state_fault(prefix + name, getattr(self, name), sign):
                raise ValueError(fault)

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
        faults = [state_fault(prefix + name, state_dict.get(prefix + name), sign) for name, sign in self._signs.items()]
        errors.extend(fault for fault in faults if fault)
        if not any(faults):
            super()._load_from_state_dict(state_dict, prefix, local, strict, missing, unexpected, errors)

    def state(self) -> State:
        """What `factors` and `penalty_of` depend on."""
        raise NotImplementedError

    @staticmethod
    def factors(state: State, norms: Norms) -> tuple[Tensor, Tensor]:
        """The factors of U and of W: numbers, one per replica, or one per example."""
        raise NotImplementedError

    @staticmethod
    def penalty_of(state: State, norms: Norms) -> Tensor:
        """What is added to the loss of each example; 0 by default."""
        return torch.zeros_like(state[0])

    @classmethod
    def has_penalty(cls) -> bool:
        """Whether the method adds to the loss."""
        return cls.penalty_of is not Scaling.penalty_of

    @staticmethod
    def alpha_of(state: State) -> Tensor:
        """The weight of the unary part relative to the pairwise part."""
        return state.alpha

    def learn(self, norms: Norms, weights: Tensor | None = None) -> State:
        """The state for one training step, after the method has measured what it needs; by default `state()`.

        `weights` is 0 for examples that do not count.
        """
        return self.state()

    def place(self, pairwise: Tensor, size: Tensor) -> Tensor:
        """The parameters whose scaled form is this pairwise part, of size ||W||; the state may change.

        A method that fixes the size of the pairwise part has them up to scale.
        """
        return pairwise

    @staticmethod
    def measured(state: State, norms: Norms, weights: Tensor | None = None) -> State:
        """The state with what a training step measures on its batch. Fields may depend on the norms."""
        return state

    @staticmethod
    def gradient_factors(state: State, norms: Norms, weights: Tensor | None = None) -> tuple[Tensor, Tensor] | None:
        """What the gradients of U and W are multiplied by in a training step, see `gradients`; None for 1."""
        return None

    def kernel_state(self) -> KernelState | None:
        """The state for the kernels of a layer; None if they do not know this method."""
        return None

    def training_step(
        self,
        unary: Tensor,
        pairwise: Tensor,
        counted: Tensor,
        lengths: Tensor,
        weights: Tensor | None,
        formula: Callable[[], tuple[Tensor, Tensor]],
    ) -> tuple[Tensor, Tensor] | None:
        """Both parts of a chain in a training step, in closed form; None to derive them from `factors` (`formula`)."""
        return None

    @staticmethod
    def moved(state: State, gradients: dict[str, Tensor]) -> State:
        """The state after one training step, from the gradients of the `paced` fields."""
        return state

    def learning(self, *parts: Tensor) -> bool:
        """Whether a call with these parts is a training step: in training mode, and a gradient may be asked for."""
        wanted = self.training and torch.is_grad_enabled() and not transformed()
        return wanted and any(part.requires_grad for part in parts)

    def forward(self, unary: Tensor, pairwise: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Both parts in balance: unary (*batch, L, M), of which the first `lengths` count, and any pairwise scores."""
        learn = self.learn if self.learning(unary, pairwise) else None
        each = factors(self, self._norms(unary, pairwise, lengths), self.state(), learn)
        return apply(each.a, each.b, *each.on_gradients(unary, pairwise))

    def penalty(self, unary: Tensor, pairwise: Tensor, lengths: Tensor | None = None) -> Tensor:
        """What is added to the mean loss, a scalar."""
        each = self.penalty_of(self.state(), self._norms(unary, pairwise, lengths))
        return mean_penalty(each).to(unary.dtype)

    def extra_repr(self) -> str:
        if self.alpha.is_meta:
            return "alpha on meta"
        return f"alpha={self.alpha.item():g}" if self.alpha.ndim == 0 else f"alpha of {len(self.alpha)} replicas"

    def _norms(self, unary: Tensor, pairwise: Tensor, lengths: Tensor | None) -> Norms:
        norms = once(lambda: measure(unary, pairwise, lengths))
        return checked(norms) if self.needs_sizes else norms


def state_fault(name: str, value: object, sign: Sign) -> str | None:
    """What is wrong with the values of this state; None if nothing is, or if they cannot be read.

    >>> state_fault("scaling.size", torch.tensor(torch.nan), "positive")
    'scaling.size has a value of nan, but must be finite and positive'
    """
    if not isinstance(value, Tensor) or value.is_meta or not (eager() and plain(value)):
        return None
    x = value.detach().flatten()
    valid = x.isfinite() & {"any": x == x, "not negative": x >= 0, "positive": x > 0}[sign]
    if bool(valid.all()):
        return None
    return f"{name} has a value of {x[~valid][0].item()}, but must be finite{'' if sign == 'any' else f' and {sign}'}"


def mean_penalty(each: Tensor) -> Tensor:
    """The mean over examples, 0 where there is none."""
    return each.sum() / max(each.numel(), 1)


def positive(name: str, value: float | Sequence[float] | Tensor) -> Tensor:
    """The value as a tensor; an error unless it is positive and finite, and a number or one per replica.

    Numbers become a tensor on the CPU, also where the default device is meta and could not hold them.
    """
    device = value.device if isinstance(value, Tensor) else "cpu"
    if not isinstance(value, Tensor):
        try:
            value = torch.as_tensor(value, dtype=torch.get_default_dtype(), device=device)
        except (TypeError, ValueError, RuntimeError):
            hint = ": write scaling=..." if isinstance(value, Scaling | type) else ""
            raise TypeError(f"{name} must be a positive number, or one per replica, got {shown(value)}{hint}") from None
    if value.is_meta:
        raise ValueError(f"{name} must have values, got a tensor on the meta device")
    if value.ndim > 1 or not bool((value > 0).all()) or not bool(value.isfinite().all()):
        raise ValueError(f"{name} must be a positive number, or one per replica, got {value.tolist()}")
    return value


def empty_like(value: Tensor) -> Tensor:
    """An uninitialised tensor for this value: on the default device, or on the value's if that is not the CPU."""
    return torch.empty(value.shape, dtype=value.dtype, device=None if value.is_cpu else value.device)
