"""`scaling.Learned` under torch.compile, torch.func and torch.autograd.grad."""

import pytest
import torch
from torch import Tensor

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


def test_the_gradient_of_the_unary_scores_alone_moves_the_scales() -> None:
    crf, both = layer(), layer()
    for seed in range(3):
        unary, labels = batch(seed)
        (gradient,) = torch.autograd.grad(crf.loss(unary, labels), unary)
        both.loss(unary, labels).backward()
        torch.testing.assert_close(gradient, unary.grad)
    torch.testing.assert_close(crf.state_dict(), both.state_dict())
    assert crf.pairwise.grad is None
