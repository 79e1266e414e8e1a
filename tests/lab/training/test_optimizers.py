"""Each replica moves as with torch.optim at its own rate; a replica that does not move is unchanged bit for bit."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from equipoise_lab.training import optimizers

E, STEPS = 4, 20
NONE = torch.zeros(E)  # no decay
RATES = [1e-3, 1e-2, 0.1, 1.0]
PEERS: dict[str, Callable[[list[Tensor], float], torch.optim.Optimizer]] = {
    "adam": lambda x, rate: torch.optim.Adam(x, lr=rate),
    "sgd": lambda x, rate: torch.optim.SGD(x, lr=rate, momentum=0.8),
    "rmsprop": lambda x, rate: torch.optim.RMSprop(x, lr=rate),
}


def start(dtype: torch.dtype) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = {"a": (E, 3, 2), "b": (E, 5), "c": (E,)}
    return {name: torch.randn(shape, generator=generator, dtype=dtype) for name, shape in shapes.items()}


def gradients(step: int, parameters: dict[str, Tensor]) -> dict[str, Tensor]:
    """Gradients of very different sizes, some always 0, that depend on the parameters."""
    generator = torch.Generator().manual_seed(step)
    found = {}
    for name, x in parameters.items():
        noise = torch.randn(x.shape, generator=generator, dtype=torch.float64).to(x.dtype)
        found[name] = 0.1 * x + noise * 10.0 ** (step % 5 - 3)
    found["b"][..., 0] = 0
    return found


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-11), (torch.float32, 1e-4)])
@pytest.mark.parametrize("name", PEERS)
def test_steps_are_those_of_torch(name: str, dtype: torch.dtype, tolerance: float) -> None:
    """Replica e does not move in steps with step % 5 == e, so the replicas have different numbers of steps."""
    optimizer = optimizers.make(name, momentum=0.8)
    parameters = start(dtype)
    state, steps = optimizers.fresh(optimizer, parameters), torch.zeros(E, dtype=dtype)
    rates = torch.tensor(RATES, dtype=dtype)
    alone = [[x[e].clone().requires_grad_() for x in parameters.values()] for e in range(E)]
    peers = [PEERS[name](mine, rate) for mine, rate in zip(alone, RATES, strict=True)]
    for step in range(STEPS):
        moves = torch.tensor([float(step % 5 != e) for e in range(E)], dtype=dtype)
        optimizers.step(optimizer, parameters, gradients(step, parameters), state, steps, rates, moves, NONE)
        at = {key: torch.stack([mine[i].detach() for mine in alone]) for i, key in enumerate(parameters)}
        for e, (mine, peer) in enumerate(zip(alone, peers, strict=True)):
            if moves[e]:
                for x, gradient in zip(mine, gradients(step, at).values(), strict=True):
                    x.grad = gradient[e]
                peer.step()
        for i, x in enumerate(parameters.values()):
            for e in range(E):
                torch.testing.assert_close(x[e], alone[e][i].detach(), rtol=tolerance, atol=tolerance)
    assert steps.tolist() == [STEPS - STEPS // 5] * E


@pytest.mark.parametrize("name", PEERS)
def test_a_replica_that_does_not_move_is_unchanged(name: str) -> None:
    optimizer = optimizers.make(name, momentum=0.8)
    parameters = start(torch.float32)
    state, steps = optimizers.fresh(optimizer, parameters), torch.zeros(E)
    rates = torch.tensor(RATES)

    def everything() -> list[Tensor]:
        return [*parameters.values(), *(x for slots in state.values() for x in slots.values()), steps]

    first = [x.clone() for x in everything()]
    for step in range(3):  # replica 0 never moves, replica 3 only in the first step
        moves = torch.tensor([0.0, 1.0, 1.0, float(step == 0)])
        before = [x.clone() for x in everything()]
        optimizers.step(optimizer, parameters, gradients(step, parameters), state, steps, rates, moves, NONE + 0.1)
        for old, new in zip(before, everything(), strict=True):
            for e in range(E):
                assert moves[e] or torch.equal(old[e], new[e])
    for old, new in zip(first, everything(), strict=True):
        assert torch.equal(old[0], new[0])
        assert bool(new.isfinite().all())


def test_parameters_without_a_gradient_are_unchanged() -> None:
    optimizer = optimizers.make("adam", 0.0)
    parameters = start(torch.float32)
    before = {name: x.clone() for name, x in parameters.items()}
    given = {"a": torch.ones_like(parameters["a"])}
    state = optimizers.fresh(optimizer, parameters)
    optimizers.step(optimizer, parameters, given, state, torch.zeros(E), torch.ones(E), torch.ones(E), NONE + 0.1)
    assert not torch.equal(parameters["a"], before["a"])
    assert torch.equal(parameters["b"], before["b"])


def test_weight_decay_is_that_of_adamw() -> None:
    """Each replica has its own decay; the scales do not decay."""
    optimizer, decay = optimizers.make("adam", 0.0), torch.tensor([0.0, 0.1, 1.0, 3.0], dtype=torch.float64)
    parameters = {f"unary.{name}": x for name, x in start(torch.float64).items()}
    parameters["scaling.gain"] = parameters["unary.c"].clone()
    state, steps = optimizers.fresh(optimizer, parameters), torch.zeros(E, dtype=torch.float64)
    rate, moves = torch.full((E,), 0.05, dtype=torch.float64), torch.ones(E, dtype=torch.float64)
    alone = [[x[e].clone().requires_grad_() for x in parameters.values()] for e in range(E)]
    peers = []
    for mine, share in zip(alone, decay.tolist(), strict=True):
        groups = [{"params": mine[:-1]}, {"params": mine[-1:], "weight_decay": 0.0}]
        peers.append(torch.optim.AdamW(groups, lr=0.05, weight_decay=share))
    for step in range(5):
        given = [torch.full_like(x, 0.1 * step - 0.2) for x in parameters.values()]
        for mine, peer in zip(alone, peers, strict=True):
            for x, gradient in zip(mine, given, strict=True):
                x.grad = gradient[0].clone()
            peer.step()
        optimizers.step(
            optimizer, parameters, dict(zip(parameters, given, strict=True)), state, steps, rate, moves, decay
        )
    for i, x in enumerate(parameters.values()):
        torch.testing.assert_close(x, torch.stack([mine[i].detach() for mine in alone]))


def test_an_unknown_optimizer_is_refused() -> None:
    with pytest.raises(ValueError, match="optimizer must be adam, sgd or rmsprop, got 'lbfgs'"):
        optimizers.make("lbfgs", 0.9)


@pytest.mark.parametrize("name", PEERS)
def test_learned_fields_of_scaling_do_not_decay_and_are_not_clipped(name: str) -> None:
    """They move as with torch.optim; the other parameters decay, and their gradients are clipped."""
    optimizer = optimizers.make(name, momentum=0.8)
    ours = {"scaling.gain": torch.ones(E, dtype=torch.float64), "unary.x": torch.ones(E, dtype=torch.float64)}
    state, steps = optimizers.fresh(optimizer, ours), torch.zeros(E, dtype=torch.float64)
    theirs = [torch.ones((), dtype=torch.float64, requires_grad=True) for _ in ours]
    peers = [PEERS[name]([x], 1e-2) for x in theirs]
    rate, moves = torch.full((E,), 1e-2, dtype=torch.float64), torch.ones(E, dtype=torch.float64)
    decay, clip = torch.full((E,), 0.5, dtype=torch.float64), torch.full((E,), 0.1, dtype=torch.float64)
    for size in (1.0, 20.0, -3.0):
        found = {key: torch.full((E,), size, dtype=torch.float64) for key in ours}
        optimizers.step(optimizer, ours, found, state, steps, rate, moves, decay, clip=clip)
        for x, factor, kept, peer in zip(theirs, (1.0, 0.1), (1.0, 1 - 1e-2 * 0.5), peers, strict=True):
            x.data *= kept
            x.grad = torch.tensor(factor * size, dtype=torch.float64)
            peer.step()
    for got, want in zip(ours.values(), theirs, strict=True):
        torch.testing.assert_close(got, want.detach().expand(E))
