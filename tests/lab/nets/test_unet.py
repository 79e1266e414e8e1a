"""Many nets at once equal the reference net, one at a time: scores, gradients and running statistics."""

import pytest
import torch
from lab.nets.plain_unet import PlainUNet, stacked
from torch import Tensor

from equipoise_lab.nets.convolution import conv3x3
from equipoise_lab.nets.unet import UNet

pytestmark = pytest.mark.usefixtures("_double")
E, B, S = 3, 4, 16


def images(seed: int = 0, count: int = B) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(256, (E, count, S, S, 3), dtype=torch.uint8, generator=generator)


def plain(net: UNet, one: dict[str, Tensor]) -> PlainUNet:
    reference = PlainUNet(net.width, net.depth, net.labels, net.end).take(one)
    with torch.no_grad():
        for name, x in reference.named("data").items():
            x.copy_(one[name])
    return reference


def rows(x: Tensor) -> Tensor:
    return x.flatten(2).mT


@pytest.mark.parametrize(("labels", "end"), [(0, "relu"), (2, "relu"), (5, "relu"), (0, "norm"), (0, "linear")])
@pytest.mark.parametrize(("width", "depth"), [(3, 2), (2, 4)])
def test_training_equals_the_reference(width: int, depth: int, labels: int, end: str) -> None:
    """Two batches: scores, gradients of all parameters, and running statistics."""
    net = UNet(width, depth, labels, end)
    each, parameters, statistics = stacked(net, E)
    references = [plain(net, one).train() for one in each]
    for seed in range(2):
        leaves = {name: x.clone().requires_grad_() for name, x in parameters.items()}
        out = net(leaves, statistics, images(seed), torch.ones(E))
        assert out.shape == (E, B, S * S, labels or width)
        weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(7))
        (out * weights).sum().backward()
        for e, reference in enumerate(references):
            reference.zero_grad()
            want = rows(reference(images(seed)[e]))
            (want * weights[e]).sum().backward()
            torch.testing.assert_close(out[e], want)
            for name, gradient in reference.named("grad").items():
                torch.testing.assert_close(leaves[name].grad[e], gradient, rtol=1e-7, atol=1e-8)
            for name, x in reference.statistics().items():
                torch.testing.assert_close(statistics[name][e], x)


def test_evaluation_uses_the_running_statistics() -> None:
    net = UNet(3, 2, 2)
    each, parameters, statistics = stacked(net, E)
    references = [plain(net, one).train() for one in each]
    net(parameters, statistics, images(), torch.ones(E))
    kept = {name: x.clone() for name, x in statistics.items()}
    out = net(parameters, statistics, images(1))
    for e, reference in enumerate(references):
        reference(images()[e])
        torch.testing.assert_close(out[e], rows(reference.eval()(images(1)[e])))
    assert all(torch.equal(x, kept[name]) for name, x in statistics.items())
    torch.testing.assert_close(out[:, :1], net(parameters, statistics, images(1)[:, :1]))  # the batch does not matter


def test_statistics_of_an_idle_replica_do_not_change() -> None:
    net = UNet(3, 2, 2)
    _, parameters, statistics = stacked(net, E)
    before = {name: x.clone() for name, x in statistics.items()}
    net(parameters, statistics, images(), torch.tensor([1.0, 0.0, 1.0]))
    for name, x in statistics.items():
        assert [torch.equal(x[e], before[name][e]) for e in range(E)] == [False, True, False]


def test_the_architecture_of_the_paper() -> None:
    """The encoder doubles the channels three times; only the layer without batch norm has a bias."""
    net = UNet(8, 4, 2)
    assert [net.channels[f"down{level}.1"] for level in range(5)] == [8, 16, 32, 64, 64]
    assert [net.channels[f"up{level}.1"] for level in range(4)] == [8, 16, 32, 64]
    count = sum(x.numel() for x in net.init(torch.Generator()).values())
    assert count == sum(x.numel() for x in PlainUNet(8, 4, 2).parameters())
    assert {name for name in net.init(torch.Generator()) if "bias" in name} == {"scores.bias"}


def test_initialisation_preserves_the_scale() -> None:
    """With the initial statistics, which do not normalise, maps neither vanish nor explode."""
    net = UNet(8, 4)
    _, parameters, statistics = stacked(net, E)
    assert 0.2 < float(net(parameters, statistics, images()).abs().mean()) < 5


def test_invalid_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="width and depth must be at least 1, got 0 and 2"):
        UNet(0, 2)
    with pytest.raises(ValueError, match="end must be one of relu, norm, linear, got 'tanh'"):
        UNet(2, 2, end="tanh")


@pytest.mark.parametrize(("inputs", "outputs"), [(1, 1), (3, 8), (8, 2)])
def test_the_convolution_equals_a_sum_over_taps(inputs: int, outputs: int) -> None:
    """For each net alone."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, E, inputs, 5, 6, generator=generator)
    weight = torch.randn(E, outputs, inputs, 3, 3, generator=generator)
    got = conv3x3(x.flatten(1, 2), weight).unflatten(1, (E, outputs))
    padded = torch.nn.functional.pad(x, (1, 1, 1, 1))
    want = torch.zeros_like(got)
    for i in range(3):
        for j in range(3):
            want += torch.einsum("beckl,eoc->beokl", padded[..., i : i + 5, j : j + 6], weight[..., i, j])
    torch.testing.assert_close(got, want)
