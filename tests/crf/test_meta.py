"""Layers and scaling methods built on the meta device, then given memory and values."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from equipoise import ChainCRF, GaussianCRF, constraints, scaling

METHODS: dict[str, Callable[[], scaling.Scaling]] = {
    "fixed": lambda: scaling.Fixed(0.25),
    "online": lambda: scaling.Online(grid=(0.5, 2.0), alpha=0.5),
    "offline": lambda: scaling.Offline(4.0),
    "regularized": lambda: scaling.Regularized(3.0, 0.5),
    "temperature": lambda: scaling.Temperature(3.0, normalize=True),
    "learned": lambda: scaling.Learned(start=2.0),
    "replicas": lambda: scaling.Fixed(torch.tensor([1.0, 2.0], device="cpu")),
}
NAMES = ["O", "B-X", "I-X"]
LAYERS: dict[str, Callable[[], nn.Module]] = {
    "chain": lambda: ChainCRF(3, boundaries=True),
    "constrained": lambda: ChainCRF(3, constraints=constraints.from_labels(NAMES, "BIO")),
    "gaussian": lambda: GaussianCRF(3, ridge=2.0, share=0.3, pairs=50),
    "learned share": lambda: GaussianCRF(3, learn_share=True),
    "all pairs": lambda: GaussianCRF(3, pairs=None),
    **{f"chain, {name}": lambda make=make: ChainCRF(3, make()) for name, make in METHODS.items()},
    **{f"gaussian, {name}": lambda make=make: GaussianCRF(3, 1.0, make()) for name, make in METHODS.items()},
}


def tensors(module: nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers, also those that are not part of the state dict."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def fill(module: nn.Module) -> None:
    """Overwrite everything, as `to_empty` may."""
    with torch.no_grad():
        for x in tensors(module).values():
            x.fill_(7)


@pytest.mark.parametrize("name", [*LAYERS, *METHODS])
def test_a_layer_built_on_meta_equals_a_fresh_one(name: str) -> None:
    make = LAYERS.get(name) or METHODS[name]
    torch.manual_seed(0)
    fresh = make()
    with torch.device("meta"):
        layer = make()
    assert all(x.is_meta for x in layer.parameters())
    repr(layer)
    layer = layer.to_empty(device="cpu")
    fill(layer)
    torch.manual_seed(0)
    layer.reset_parameters()
    got, want = tensors(layer), tensors(fresh)
    assert got.keys() == want.keys()
    for key, x in want.items():
        assert got[key].dtype == x.dtype
        assert torch.equal(got[key], x), key
    assert repr(layer) == repr(fresh)


def test_a_layer_built_on_meta_works() -> None:
    with torch.device("meta"):
        rules = constraints.from_labels(NAMES, "BIO")
        crf, image = ChainCRF(3, scaling.Learned(), rules, boundaries=True), GaussianCRF(3, pairs=50)
    crf.to_empty(device="cpu").reset_parameters()
    unary = torch.randn(2, 5, 3)
    crf.loss(unary, crf.decode(unary)).backward()
    assert not bool((crf.decode(unary)[:, 0] == 2).any())  # the constraints hold
    image.to_empty(device="cpu").reset_parameters()
    unary, embeddings = torch.randn(1, 3, 40, 40), torch.randn(1, 4, 40, 40)
    assert torch.equal(image.scores(unary, embeddings), GaussianCRF(3, pairs=50).scores(unary, embeddings))


@pytest.mark.parametrize("name", [*LAYERS, *METHODS])
def test_reset_restores_everything_after_a_change(name: str) -> None:
    make = LAYERS.get(name) or METHODS[name]
    torch.manual_seed(0)
    layer = make()
    want = {key: x.clone() for key, x in tensors(layer).items()}
    fill(layer)
    torch.manual_seed(0)
    layer.reset_parameters()
    for key, x in tensors(layer).items():
        assert torch.equal(x, want[key]), key


def test_reset_keeps_dtype_and_does_not_change_the_caller_s_tensor() -> None:
    alpha = torch.tensor([1.0, 2.0])
    method = scaling.Online(alpha=alpha).double()
    method.choose(lambda a: (a - 4) ** 2)
    assert alpha.tolist() == [1.0, 2.0]
    assert method.alpha.tolist() == [4.0, 4.0]
    method.reset_parameters()
    assert method.alpha.tolist() == [1.0, 2.0]
    assert method.alpha.dtype == torch.float64


def test_a_new_layer_does_not_reset_the_method_it_is_given() -> None:
    method = scaling.Online()
    method.alpha.fill_(8.0)
    for layer in (ChainCRF(3, method), GaussianCRF(3, 1.0, method)):
        assert float(layer.scaling.alpha) == 8


def test_values_on_meta_are_an_error() -> None:
    with pytest.raises(ValueError, match="alpha must have values, got a tensor on the meta device"):
        scaling.Fixed(torch.ones(2, device="meta"))
    rules = constraints.from_labels(NAMES, "BIO")
    with pytest.raises(ValueError, match=r"constraints.end must be boolean .* on meta"):
        ChainCRF(3, constraints=rules._replace(end=rules.end.to("meta")))
