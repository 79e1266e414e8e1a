"""||W|| against the full matrix, in value, gradient and memory, and the error of the random sample."""

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from equipoise import gaussian
from equipoise.gaussian import norms


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.fixture(params=[2**6, 2**20], ids=["many tiles", "one tile"])
def tiles(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(norms.TILE, "cpu", request.param)


@pytest.mark.usefixtures("tiles")
@pytest.mark.parametrize("batch", [(), (3,), (2, 2), (0,)])
def test_mean_abs_equals_the_mean_over_the_full_matrix(batch: tuple[int, ...]) -> None:
    embeddings = normal(*batch, 70, 3).requires_grad_()
    want = (embeddings @ embeddings.mT).abs().mean((-2, -1))
    torch.testing.assert_close(gaussian.mean_abs(embeddings.detach()), want.detach())
    got = gaussian.mean_abs(embeddings)
    torch.testing.assert_close(got, want)
    weight = normal(*batch, seed=1)
    for create_graph in (False, True):
        gradient = torch.autograd.grad(got, embeddings, weight, retain_graph=True, create_graph=create_graph)
        torch.testing.assert_close(gradient, torch.autograd.grad(want, embeddings, weight, retain_graph=True))


@pytest.mark.usefixtures("tiles")
def test_positions_beyond_the_length_are_ignored() -> None:
    embeddings = normal(2, 40, 3)
    embeddings[1, 7:] = torch.nan
    got = gaussian.mean_abs(embeddings, torch.tensor([40, 7]))
    torch.testing.assert_close(got[0], gaussian.mean_abs(embeddings[0]))
    torch.testing.assert_close(got[1], gaussian.mean_abs(embeddings[1, :7]))


def test_first_and_second_derivatives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(norms.TILE, "cpu", 1)  # tiles of 32: the last has 1 row
    embeddings = normal(33, 2).requires_grad_()
    assert gradcheck(gaussian.mean_abs, embeddings, fast_mode=True)
    assert gradgradcheck(gaussian.mean_abs, embeddings, fast_mode=True)


def test_func_grad() -> None:
    embeddings = normal(20, 2)
    leaf = embeddings.clone().requires_grad_()
    want = torch.autograd.grad(gaussian.mean_abs(leaf), leaf)[0]
    torch.testing.assert_close(torch.func.grad(gaussian.mean_abs)(embeddings), want)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_half_precision_is_summed_in_float32(dtype: torch.dtype) -> None:
    embeddings = normal(300, 4, dtype=dtype).requires_grad_()
    exact = embeddings.detach().double().requires_grad_()
    got, want = gaussian.mean_abs(embeddings), gaussian.mean_abs(exact)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got.double(), want, rtol=1e-6, atol=0)
    gradient = torch.autograd.grad(got, embeddings)[0]
    assert gradient.dtype == dtype
    right = torch.autograd.grad(want, exact)[0]
    assert (gradient - right).norm() < torch.finfo(dtype).eps * 4 * right.norm()


def test_no_tensor_has_l_squared_entries() -> None:
    """At L = 2048 the matrix would have 4 million entries; a tile has one million."""
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            nonlocal largest
            out = function(*args, **(kwargs or {}))
            if isinstance(out, Tensor):
                largest = max(largest, out.numel())
            return out

    embeddings = torch.randn(2048, 4, requires_grad=True)
    with Watch():
        gaussian.mean_abs(embeddings).backward()
    assert largest <= norms.TILE["cpu"] < 2048**2


def test_the_sample_is_unbiased_and_its_standard_error_is_right() -> None:
    embeddings = normal(3, 50, 4) * torch.tensor([1.0, 5.0, 0.1])[:, None, None]
    exact = gaussian.mean_abs(embeddings)
    generator = torch.Generator().manual_seed(0)
    found = [gaussian.sampled_mean_abs(embeddings, pairs=200, generator=generator) for _ in range(400)]
    values, errors = torch.stack([x.value for x in found]), torch.stack([x.error for x in found])
    off = (values - exact) / errors
    assert bool((off.mean(0).abs() < 4 / 400**0.5).all())  # the mean of 400 values has standard deviation 1/20
    torch.testing.assert_close(off.std(0), torch.ones(3, dtype=torch.float64), rtol=0, atol=0.15)


def test_the_gradient_of_the_sample_is_unbiased() -> None:
    embeddings = normal(12, 2).requires_grad_()
    want = torch.autograd.grad(gaussian.mean_abs(embeddings), embeddings)[0]
    generator = torch.Generator().manual_seed(0)
    value = gaussian.sampled_mean_abs(embeddings, pairs=200_000, generator=generator).value
    got = torch.autograd.grad(value, embeddings)[0]
    assert (got - want).norm() < 0.02 * want.norm()


def test_the_sample_respects_lengths_and_does_not_depend_on_the_batch() -> None:
    embeddings = normal(3, 30, 4)
    lengths = torch.tensor([30, 2, 11])
    embeddings[1, 2:] = torch.nan

    def sample(x: Tensor, n: Tensor | None) -> Tensor:
        return gaussian.sampled_mean_abs(x, n, pairs=5000, generator=torch.Generator().manual_seed(0)).value

    together = sample(embeddings, lengths)
    torch.testing.assert_close(together, gaussian.mean_abs(embeddings, lengths), rtol=0.06, atol=0)
    for n in range(3):
        torch.testing.assert_close(sample(embeddings[n, : lengths[n]], None), together[n])


def test_at_least_two_pairs() -> None:
    with pytest.raises(ValueError, match="pairs must be at least 2, got 1"):
        gaussian.sampled_mean_abs(torch.ones(3, 2), pairs=1)
