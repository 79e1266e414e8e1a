"""Derivatives against finite differences, to second order, and their memory."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from equipoise import chain

LENGTHS = torch.tensor([4, 1, 3])
FUNCTIONS = {
    "log_partition": chain.log_partition,
    "log_marginals": chain.log_marginals,
    "edge_marginals": chain.edge_marginals,
    "entropy": chain.entropy,
    "mean_field": lambda *args: chain.mean_field(*args, iterations=3),
    "mean_field_parallel": lambda *args: chain.mean_field(*args, iterations=3, schedule="parallel"),
    "top_k": lambda *args: chain.top_k(*args, k=2)[1],
}


@pytest.mark.parametrize("shape", [(3, 3), (3, 3, 3), (1, 3, 3), (3, 3, 3, 3)], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_first_and_second_order(name: str, shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    unary = torch.randn(3, 4, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    pairwise = torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True)
    lengths = LENGTHS if name != "top_k" else torch.tensor([4, 2, 3])  # -inf scores have no finite difference

    def function(u: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return FUNCTIONS[name](u, w, lengths)

    assert gradcheck(function, (unary, pairwise))
    assert gradgradcheck(function, (unary, pairwise))


def test_second_order_with_forbidden_transitions() -> None:
    generator = torch.Generator().manual_seed(0)
    unary = torch.randn(2, 4, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    free = torch.randn(3, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    forbidden = torch.tensor([[0, 0, 1], [0, 0, 0], [1, 0, 0]], dtype=torch.bool)

    def function(u: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return chain.log_marginals(u, w.masked_fill(forbidden, -torch.inf))

    assert gradcheck(function, (unary, free))
    assert gradgradcheck(function, (unary, free))


def test_forbidden_labels_have_gradient_0() -> None:
    unary = torch.zeros(3, 2)
    unary[1, 0] = -torch.inf
    unary.requires_grad_()
    pairwise = torch.randn(2, 2, requires_grad=True)
    log_p = chain.log_marginals(unary, pairwise)
    assert log_p[1, 0] == -torch.inf
    log_p[:, 1].sum().backward()
    assert unary.grad is not None
    assert bool(unary.grad.isfinite().all())
    assert unary.grad[1, 0] == 0


@pytest.mark.parametrize("function", [chain.log_partition, chain.log_marginals], ids=["log_partition", "log_marginals"])
def test_memory_saved_for_the_backward_pass_is_linear_in_m(function) -> None:
    """Saved tensors are of order L * M; an unrolled loop would save L * M * M."""
    length, m = 20, 30
    unary, pairwise = torch.randn(length, m, requires_grad=True), torch.randn(m, m, requires_grad=True)
    saved: dict[int, int] = {}

    def pack(x: torch.Tensor) -> torch.Tensor:
        saved[x.untyped_storage().data_ptr()] = x.numel()
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        function(unary, pairwise)
    assert sum(saved.values()) <= 5 * length * m + 2 * m * m
