"""The letter net equals torch's convolutions on the zero-padded 32 x 32 image, for each replica alone."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from equipoise_lab.nets import lenet
from equipoise_lab.nets.lenet import LeNet, windows


def plain(parameters: dict[str, Tensor], letters: Tensor, variant: str) -> Tensor:
    """The reference implementation of §6.1 for one net and letters (N, 16, 8)."""
    x = functional.pad(letters, (12, 12, 8, 8))[:, None]
    assert x.shape[1:] == (1, 32, 32)
    for layer in ("conv1", "conv2"):
        x = functional.conv2d(x, parameters[f"{layer}.weight"], parameters[f"{layer}.bias"])
        x = functional.max_pool2d(functional.relu(x), 2)
    assert x.shape[1:] == (20, 5, 5)
    x = x.permute(0, 2, 3, 1).flatten(1)  # filters are the innermost dimension of the 500 features
    if variant == "layernorm":
        x = functional.layer_norm(x, (500,))
    x = functional.linear(x, parameters["fc1.weight"], parameters["fc1.bias"])
    if variant == "layernorm":
        x = functional.layer_norm(x, (140,))
    x = torch.sigmoid(x) if variant == "sigmoid" else torch.relu(x)
    return functional.linear(x, parameters["fc2.weight"], parameters["fc2.bias"])


def replicas(e: int, scale: float = 1.0) -> dict[str, Tensor]:
    each = [LeNet().init(torch.Generator().manual_seed(seed)) for seed in range(e)]
    return {name: scale * torch.stack([one[name] for one in each]).double() for name in each[0]}


@pytest.mark.parametrize("pixels", ["ink", "grey", "blank", "full"])
@pytest.mark.parametrize("variant", ["relu", "sigmoid", "layernorm"])
def test_values_and_gradients_equal_the_reference(variant: str, pixels: str) -> None:
    e, n = 3, 4
    generator = torch.Generator().manual_seed(7)
    letters = torch.rand(e, n, 16, 8, generator=generator, dtype=torch.float64)
    if pixels == "ink":
        letters = (letters < 0.4).double()
    elif pixels != "grey":
        letters = torch.full_like(letters, float(pixels == "full"))
    letters.requires_grad_(pixels == "grey")
    parameters = replicas(e)
    leaves = {name: x.clone().requires_grad_() for name, x in parameters.items()}
    got = LeNet(variant)(leaves, windows(letters.flatten(0, 1)).unflatten(0, (e, n)))
    want = torch.stack([plain({name: x[i] for name, x in leaves.items()}, letters[i], variant) for i in range(e)])
    torch.testing.assert_close(got, want)
    weight = torch.randn(got.shape, generator=generator, dtype=torch.float64)
    inputs = [*leaves.values(), *([letters] if letters.requires_grad else [])]
    gradients = [torch.autograd.grad((scores * weight).sum(), inputs) for scores in (got, want)]
    for name, a, b in zip([*leaves, "letters"], *gradients, strict=False):
        torch.testing.assert_close(a, b, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("sign", [1, -1])
def test_constant_padding_with_positive_and_negative_bias(sign: int) -> None:
    """Outside the letter the first map is relu(bias), which is zero for a negative bias."""
    parameters = replicas(1)
    parameters["conv1.bias"] = sign * (1 + parameters["conv1.bias"].abs())
    letters = (torch.rand(2, 16, 8, generator=torch.Generator().manual_seed(0)) < 0.4).double()
    want = plain({name: x[0] for name, x in parameters.items()}, letters, "relu")
    torch.testing.assert_close(LeNet()(parameters, windows(letters)[None])[0], want)


def test_float32_is_close_to_the_float64_reference() -> None:
    letters = (torch.rand(8, 16, 8, generator=torch.Generator().manual_seed(0)) < 0.4).double()
    exact = replicas(1)
    parameters = {name: x.float() for name, x in exact.items()}
    truth = plain({name: x[0] for name, x in exact.items()}, letters, "relu")
    got = LeNet()(parameters, windows(letters.float())[None])[0]
    assert got.dtype == torch.float32
    torch.testing.assert_close(got.double(), truth, rtol=1e-5, atol=1e-6)


def test_windows_hold_five_pixel_rows_for_each_output_row() -> None:
    letters = torch.arange(2 * 16 * 8).reshape(2, 16, 8).float() + 1
    got = windows(letters)
    assert got.shape == (2, 20, 40)
    for n in range(2):
        for row in range(20):
            for k in range(5):
                pixel_row = row + k - 4  # the last kernel row of output row 0 is at pixel row 0
                want = letters[n, pixel_row] if 0 <= pixel_row < 16 else torch.zeros(8)
                assert torch.equal(got[n, row, 8 * k : 8 * (k + 1)], want)


def test_initial_values_have_the_distribution_of_torchs_layers() -> None:
    """Uniform within 1 / sqrt(inputs): values reach the bound, and the standard deviation is bound / sqrt(3)."""
    layers = {
        "conv1": torch.nn.Conv2d(1, 10, 5),
        "conv2": torch.nn.Conv2d(10, 20, 5),
        "fc1": torch.nn.Linear(500, 140),
        "fc2": torch.nn.Linear(140, 26),
    }
    many = [LeNet().init(torch.Generator().manual_seed(seed)) for seed in range(40)]
    assert set(many[0]) == {f"{name}.{part}" for name in layers for part in ("weight", "bias")}
    for name, layer in layers.items():
        inputs = layer.weight[0].numel()
        for part in ("weight", "bias"):
            drawn = torch.stack([one[f"{name}.{part}"] for one in many])
            assert drawn.shape[1:] == getattr(layer, part).shape
            bound = 1 / math.sqrt(inputs)
            assert float(getattr(layer, part).detach().abs().max()) <= bound
            assert 0.97 * bound < float(drawn.abs().max()) <= bound
            assert float(drawn.std()) == pytest.approx(bound / math.sqrt(3), rel=0.1)
            assert abs(float(drawn.mean())) < 0.15 * bound


def test_initial_values_depend_only_on_the_generator() -> None:
    torch.manual_seed(0)
    a = LeNet().init(torch.Generator().manual_seed(5))
    torch.manual_seed(1)
    b, c = (LeNet("sigmoid").init(torch.Generator().manual_seed(seed)) for seed in (5, 6))
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert not any(torch.equal(a[name], c[name]) for name in a)


def test_an_unknown_variant_is_refused() -> None:
    with pytest.raises(ValueError, match="variant must be one of relu, sigmoid, layernorm, got 'tanh'"):
        LeNet("tanh")


def test_sizes_equal_those_of_the_paper() -> None:
    assert (lenet.LABELS, lenet.FILTERS, lenet.HIDDEN, lenet.SIDE) == (26, (10, 20), 140, 32)
