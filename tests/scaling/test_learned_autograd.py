"""`scaling.Learned` under torch.func, torch.autograd.grad and activation checkpointing."""

import pytest
import torch
from seeded import seeded
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from equipoise import ChainCRF, constraints
from equipoise.scaling import Learned

BIO = constraints.from_labels(["O", "B-X", "I-X"], "BIO")


def batch(seed: int) -> tuple[Tensor, Tensor]:
    generator = seeded(seed)
    unary = 3 * torch.randn(4, 6, 3, generator=generator)
    return unary.requires_grad_(), torch.randint(3, (4, 6), generator=generator)


def layer(**options: object) -> ChainCRF:
    return ChainCRF(3, Learned(), generator=seeded(), **options)


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
