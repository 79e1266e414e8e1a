"""`scaling.Learned` under torch.compile, torch.func, torch.autograd.grad and activation checkpointing."""

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from equipoise import ChainCRF, constraints
from equipoise.scaling import Learned

BIO = constraints.from_labels(["O", "B-X", "I-X"], "BIO")


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def batch(seed: int) -> tuple[Tensor, Tensor]:
    generator = seeded(seed)
    unary = 3 * torch.randn(4, 6, 3, generator=generator)
    return unary.requires_grad_(), torch.randint(3, (4, 6), generator=generator)


def layer(**options: object) -> ChainCRF:
    return ChainCRF(3, Learned(), generator=seeded(), **options)


@pytest.mark.slow
def test_compiled_training_equals_eager() -> None:
    eager, compiled = layer(constraints=BIO, boundaries=True), layer(constraints=BIO, boundaries=True)
    run = torch.compile(lambda u, y, on: compiled.loss(u, y, on), fullgraph=True, backend="aot_eager")
    optimizers = [torch.optim.AdamW(crf.parameters(), 0.01) for crf in (eager, compiled)]
    for seed in range(5):
        unary, _ = batch(seed)
        labels, mask = torch.zeros(4, 6, dtype=torch.int64), torch.rand(4, 6, generator=seeded(seed)) < 0.7
        for loss, optimizer in zip((eager.loss, run), optimizers, strict=True):
            optimizer.zero_grad()
            loss(unary, labels, mask).backward()
            optimizer.step()
    torch.testing.assert_close(compiled.state_dict(), eager.state_dict(), rtol=1e-6, atol=1e-6)
    assert float(compiled.scaling.steps) == 5


@pytest.mark.slow
def test_inductor_computes_the_gradients_of_eager() -> None:
    """It repeats a part of the forward pass in the backward pass, which must read the same state."""
    eager, compiled = layer(), layer()
    run = torch.compile(lambda u, y: compiled.loss(u, y), fullgraph=True, backend="inductor")
    for seed in range(4):
        unary, labels = batch(seed)
        again = unary.detach().clone().requires_grad_()
        eager.zero_grad()
        compiled.zero_grad()
        eager.loss(unary, labels).backward()
        run(again, labels).backward()
        torch.testing.assert_close(again.grad, unary.grad, rtol=0, atol=1e-5)
        torch.testing.assert_close(compiled.pairwise.grad, eager.pairwise.grad, rtol=0, atol=1e-5)
        torch.testing.assert_close(compiled.scaling.squares, eager.scaling.squares, rtol=1e-5, atol=0)  # of u and w
    torch.testing.assert_close(compiled.state_dict(), eager.state_dict(), rtol=1e-5, atol=1e-5)


def test_activation_checkpointing_measures_once() -> None:
    """The backward pass repeats the forward pass, and the state is that of training without it."""
    plain, repeated = layer(boundaries=True), layer(boundaries=True)
    calls = 0

    def loss(u: Tensor, y: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return repeated.loss(u, y)

    for seed in range(4):
        unary, labels = batch(seed)
        again = unary.detach().clone().requires_grad_()
        plain.loss(unary, labels).backward()
        checkpoint(loss, again, labels, use_reentrant=False).backward()
        torch.testing.assert_close(again.grad, unary.grad, rtol=0, atol=0)
    assert calls == 8
    torch.testing.assert_close(repeated.state_dict(), plain.state_dict(), rtol=0, atol=0)
    assert (float(repeated.scaling.steps), float(repeated.scaling.examples)) == (4, 16)


def test_transforms_of_functions_move_nothing() -> None:
    """Their gradients are those of evaluation mode."""
    crf, (unary, labels) = layer(), batch(0)
    crf.loss(unary, labels).backward()
    before = {name: x.clone() for name, x in crf.named_buffers()}
    parameters = {name: x.detach() for name, x in crf.named_parameters()}

    def loss(own: dict[str, Tensor], u: Tensor, y: Tensor) -> Tensor:
        return torch.func.functional_call(crf, own, (u[None], y[None]))

    one = torch.func.grad(loss)(parameters, unary[0].detach(), labels[0])
    each = torch.func.vmap(torch.func.grad(loss), (None, 0, 0))(parameters, unary.detach(), labels)
    assert all(torch.equal(x, before[name]) for name, x in crf.named_buffers())
    crf.eval()
    for i in range(len(unary)):
        (want,) = torch.autograd.grad(crf.loss(unary[i : i + 1], labels[i : i + 1]), crf.pairwise)
        torch.testing.assert_close(each["pairwise"][i], want, rtol=1e-5, atol=1e-5)
        if i == 0:
            torch.testing.assert_close(one["pairwise"], want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("part", ["unary", "pairwise"])
def test_the_gradient_of_one_part_alone_moves_the_scales(part: str) -> None:
    """Also if the other part requires a gradient that nobody asks for."""
    crf, both = layer(), layer()
    for seed in range(3):
        unary, labels = batch(seed)
        both.zero_grad()
        (gradient,) = torch.autograd.grad(crf.loss(unary, labels), unary if part == "unary" else crf.pairwise)
        both.loss(unary, labels).backward()
        torch.testing.assert_close(gradient, unary.grad if part == "unary" else both.pairwise.grad)
    torch.testing.assert_close(crf.state_dict(), both.state_dict())
    assert float(crf.scaling.steps) == 3
    assert crf.pairwise.grad is None
