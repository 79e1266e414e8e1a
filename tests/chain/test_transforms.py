"""torch.func, torch.compile and torch.export support every function."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

from equipoise import ChainCRF, chain

FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "log_partition": chain.log_partition,
    "log_marginals": chain.log_marginals,
    "edge_marginals": chain.edge_marginals,
    "entropy": chain.entropy,
    "mean_field": lambda *args: chain.mean_field(*args, iterations=2),
    "decode": lambda *args: chain.decode(*args)[1],
    "top_k": lambda *args: chain.top_k(*args, k=2)[1],
}
HAVE_FORWARD_MODE = ("mean_field", "decode", "top_k")
LENGTHS = torch.tensor([4, 2, 3])


def scores(*batch: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(*batch, 4, 3, generator=generator), torch.randn(batch[0], 3, 3, generator=generator)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_vmap_equals_a_loop(name: str) -> None:
    unary, pairwise = scores(5, 3)
    lengths = torch.randint(2, 5, (5, 3), generator=torch.Generator().manual_seed(0))
    function = FUNCTIONS[name]
    want = torch.stack([function(*args) for args in zip(unary, pairwise, lengths, strict=True)])
    torch.testing.assert_close(torch.func.vmap(function)(unary, pairwise, lengths), want)


@pytest.mark.parametrize("name", [*FUNCTIONS, "layer"])
@pytest.mark.parametrize("grad", [True, False])
def test_forward_mode_is_right_or_an_error(name: str, grad: bool) -> None:
    """A tangent is never lost. The functions of autograd have no forward mode."""
    (unary, pairwise), crf = (x.double() for x in scores(1)), ChainCRF(3).double()
    labels = torch.tensor([[0, 1, 1, 2]])
    function = (lambda u, w: crf.loss(u, labels)) if name == "layer" else FUNCTIONS[name]
    tangent = torch.ones_like(unary) / 7
    with forward_ad.dual_level(), torch.set_grad_enabled(grad):
        try:
            found = forward_ad.unpack_dual(function(forward_ad.make_dual(unary, tangent), pairwise)).tangent
        except NotImplementedError:
            assert name not in HAVE_FORWARD_MODE
            return
    step = 1e-6 * tangent
    want = (function(unary + step, pairwise) - function(unary - step, pairwise)) / 2e-6
    torch.testing.assert_close(found, want.detach(), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", ["log_partition", "log_marginals"])
def test_per_example_gradients_by_vmap(name: str) -> None:
    unary, pairwise = scores(5)[0], scores(5)[1][0]

    def loss(u: Tensor, w: Tensor) -> Tensor:
        return FUNCTIONS[name](u, w).square().sum()

    each = torch.func.vmap(torch.func.grad(loss, argnums=(0, 1)), in_dims=(0, None))(unary, pairwise)
    for b in range(5):
        one = unary[b].clone().requires_grad_(), pairwise.clone().requires_grad_()
        for got, want in zip(each, torch.autograd.grad(loss(*one), one), strict=True):
            torch.testing.assert_close(got[b], want)


@pytest.mark.parametrize("name", ["log_partition", "log_marginals", "edge_marginals", "entropy"])
def test_batched_gradients(name: str) -> None:
    """is_grads_batched runs the backward pass alone under vmap."""
    unary, pairwise = (x.requires_grad_() for x in scores(3))
    result = FUNCTIONS[name](unary, pairwise, LENGTHS)
    directions = torch.randn(4, *result.shape, generator=torch.Generator().manual_seed(0))
    many = torch.autograd.grad(result, (unary, pairwise), directions, is_grads_batched=True, retain_graph=True)
    for k, direction in enumerate(directions):
        for got, want in zip(
            many, torch.autograd.grad(result, (unary, pairwise), direction, retain_graph=True), strict=True
        ):
            torch.testing.assert_close(got[k], want)


def test_hessian_is_the_covariance_of_labels() -> None:
    unary, pairwise = scores(1)[0][0].double(), scores(1)[1][0].double()
    hessian = torch.func.jacrev(torch.func.jacrev(chain.log_partition))(unary, pairwise)
    pair = chain.edge_marginals(unary, pairwise)[0]
    p = chain.log_marginals(unary, pairwise).exp()
    torch.testing.assert_close(hessian[0, :, 1, :], pair - p[0][:, None] * p[1][None, :])


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_compiles_as_one_graph(name: str) -> None:
    unary, pairwise = (x.requires_grad_() for x in scores(3))
    compiled = torch.compile(FUNCTIONS[name], fullgraph=True, backend="aot_eager")
    got, want = compiled(unary, pairwise, LENGTHS), FUNCTIONS[name](unary, pairwise, LENGTHS)
    torch.testing.assert_close(got, want)
    for a, b in zip(
        torch.autograd.grad(got.square().sum(), (unary, pairwise)),
        torch.autograd.grad(want.square().sum(), (unary, pairwise)),
        strict=True,
    ):
        torch.testing.assert_close(a, b)


class Decoder(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.crf = ChainCRF(3, generator=torch.Generator().manual_seed(0))

    def forward(self, unary: Tensor, mask: Tensor) -> Tensor:
        return self.crf.decode(unary, mask)


def test_a_module_that_decodes_can_be_exported() -> None:
    unary, mask = scores(3)[0], torch.tensor([[1, 1, 1, 1], [0, 1, 0, 1], [1, 1, 0, 0]], dtype=torch.bool)
    dynamic = {"unary": {0: torch.export.Dim("batch")}, "mask": {0: torch.export.Dim("batch")}}
    program = torch.export.export(Decoder(), (unary, mask), dynamic_shapes=dynamic)
    more = torch.randn(7, 4, 3), torch.rand(7, 4) < 0.7
    more[1][:, 0] = True
    assert torch.equal(program.module()(*more), Decoder()(*more))
