"""The encoder equals transformers' BertModel and RobertaModel, and its kernels equal the torch code."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from lab.nets.kernels import DEVICE, kernels
from torch import Tensor

from equipoise_lab.data import encoders
from equipoise_lab.data.errors import MissingFileError
from equipoise_lab.nets import attention, dropout, gelu, layer_norm
from equipoise_lab.nets.dropout import Dropout
from equipoise_lab.nets.encoder import Config, Encoder, from_checkpoint, tokens
from equipoise_lab.nets.recurrence import Rows
from equipoise_lab.tasks.tagging import pack

SIZES = {
    "vocab_size": 50,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 40,
    "max_position_embeddings": 16,
}
LENGTHS = [[7, 3, 5], [1, 7, 2]]


@pytest.fixture
def _kernels() -> Iterator[None]:
    with kernels("triton_dropout", "triton_layer_norm", "triton_attention", "triton_gelu"):
        yield


def models(kind: str, **sizes: Any) -> list[Any]:
    transformers = pytest.importorskip("transformers", reason="the reference is in transformers")
    torch.manual_seed(0)
    name = {"bert": "Bert", "roberta": "Roberta"}[kind]
    config = getattr(transformers, f"{name}Config")(**(SIZES | sizes))
    found = [getattr(transformers, f"{name}Model")(config, add_pooling_layer=False).eval() for _ in range(2)]
    for model in found:
        for parameter in model.parameters():  # also gains, shifts and biases, which are 1 or 0 at first
            parameter.data += 0.1 * torch.randn_like(parameter)
    return found


def stacked(nets: list[Any]) -> dict[str, Tensor]:
    each = [from_checkpoint(net.state_dict(), net.config.to_dict()) for net in nets]
    return {name: torch.stack([one[name] for one in each]).requires_grad_() for name in each[0]}


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_values_and_gradients_are_those_of_transformers(kind: str) -> None:
    nets = models(kind)
    parameters, config = stacked(nets), Config.of(nets[0].config.to_dict())
    ids = torch.randint(3, 50, (2, 3, 7))  # 1 is the padding of roberta
    lengths = torch.tensor(LENGTHS)
    live = torch.arange(7) < lengths[..., None]
    weights = torch.randn(2, 3, 7, 24) * live[..., None]
    got = Encoder(config)(parameters, tokens(ids, lengths)).view(2, 3, 7, 24)
    gradients = dict(
        zip(parameters, torch.autograd.grad((got * weights).sum(), list(parameters.values())), strict=True)
    )
    for e, net in enumerate(nets):
        wanted = net(torch.where(live[e], ids[e], 1), attention_mask=live[e].long()).last_hidden_state
        torch.testing.assert_close(got[e][live[e]], wanted[live[e]], atol=1e-5, rtol=1e-5)
        (wanted * weights[e]).sum().backward()
        theirs = from_checkpoint(
            {name: x.grad if x.grad is not None else torch.zeros_like(x) for name, x in net.named_parameters()},
            net.config.to_dict(),
        )
        for name, grad in gradients.items():
            torch.testing.assert_close(grad[e], theirs[name], atol=1e-5, rtol=1e-4, msg=name)


def test_the_last_layer_is_that_of_transformers_for_the_packed_encoder() -> None:
    """For the real MiniLM, where its packed file is present."""
    try:
        packed = pack.load(encoders.find("minilm"))
    except MissingFileError:
        pytest.skip("needs the packed encoder minilm (`equipoise-lab data encoder`)")
    config, own = packed.config, packed.parameters
    (net, _) = models(
        "bert",
        vocab_size=config.vocabulary,
        hidden_size=config.hidden,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        intermediate_size=config.inner,
        max_position_embeddings=config.positions,
        layer_norm_eps=config.epsilon,
    )
    theirs = from_checkpoint(dict(net.named_parameters()), net.config.to_dict())
    with torch.no_grad():
        for name, x in theirs.items():
            if "qkv" not in name:
                x.copy_(own[name])
        for i, layer in enumerate(net.encoder.layer):
            for part in ("weight", "bias"):
                three = own[f"layer{i}.qkv.{part}"].chunk(3, -1)
                for linear, x in zip(("query", "key", "value"), three, strict=True):
                    getattr(getattr(layer.attention.self, linear), part).copy_(x.T if x.ndim == 2 else x)
    ids, lengths = torch.randint(config.vocabulary, (1, 2, 30)), torch.tensor([[30, 11]])
    live = torch.arange(30) < lengths[0, :, None]
    with torch.no_grad():
        got = Encoder(config)({name: x[None] for name, x in own.items()}, tokens(ids, lengths)).view(2, 30, -1)
        wanted = net(ids[0], attention_mask=live.long()).last_hidden_state
    torch.testing.assert_close(got[live], wanted[live], atol=1e-5, rtol=1e-5)


def test_the_dropout_of_a_replica_does_not_depend_on_its_neighbours() -> None:
    torch.manual_seed(0)
    encoder = Encoder(Config(vocabulary=20, hidden=8, layers=2, heads=2, inner=16, positions=9))
    both = {name: torch.randn(2, *shape) for name, shape in encoder.shapes.items()}
    state = torch.stack([dropout.fresh(torch.Generator().manual_seed(seed)) for seed in (1, 2)])
    ids = torch.randint(20, (2, 3, 7))
    together = encoder(both, tokens(ids, torch.tensor(LENGTHS)), Dropout(state, 0.1))
    alone = {name: x[1:] for name, x in both.items()}
    got = encoder(alone, tokens(ids[1:], torch.tensor(LENGTHS[1:])), Dropout(state[1:], 0.1))
    live = (torch.arange(7) < torch.tensor(LENGTHS[1])[:, None]).flatten()
    torch.testing.assert_close(got[0, live], together[1, live])
    again = encoder(alone, tokens(ids[1:], torch.tensor(LENGTHS[1:])), Dropout(state[1:] + torch.tensor([0, 1]), 0.1))
    assert (again[0, live] - got[0, live]).abs().max() > 0.1


def values_and_gradients(out: Tensor, *inputs: Tensor) -> list[Tensor]:
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(out)
    return [out.detach(), *torch.autograd.grad((out * weights).sum(), inputs)]


def compare(got: list[Tensor], wanted: list[Tensor]) -> None:
    for mine, want in zip(got, wanted, strict=True):
        torch.testing.assert_close(mine.double(), want, atol=2e-5, rtol=2e-5)


def one_place(rate: float) -> Dropout | None:
    state = torch.stack([dropout.fresh(torch.Generator().manual_seed(seed)) for seed in (0, 1)])
    return Dropout(state.to(DEVICE), rate) if rate else None


@pytest.mark.usefixtures("_kernels")
@pytest.mark.parametrize("rate", [0.0, 0.1])
@pytest.mark.parametrize("width", [24, 70])
def test_the_kernels_of_layer_norm_equal_the_torch_code_in_double_precision(width: int, rate: float) -> None:
    torch.manual_seed(0)
    count = layer_norm.BLOCK + 5
    shapes = ((2, count, width), (2, width), (2, count, width), (2, width), (2, width))
    inputs = [torch.randn(shape, device=DEVICE, requires_grad=True) for shape in shapes]
    exact = [x.detach().double().requires_grad_() for x in inputs]
    rows = torch.arange(2 * count, device=DEVICE).view(2, count)
    seeds = rows[:, :2] if rate == 0 else one_place(rate).seeds()  # type: ignore[union-attr]
    got = layer_norm._Fused.apply(*inputs, 1e-12, rows, seeds, rate)
    drop = one_place(rate)
    x, bias, residual, gain, shift = exact
    y = x + bias[:, None]
    y = y if drop is None else torch.where(dropout.keeps(drop.seeds(), dropout.elements(rows, width), rate), y / 0.9, 0)
    wanted = layer_norm.normalize(residual + y, gain, shift, 1e-12)
    compare(values_and_gradients(got, *inputs), values_and_gradients(wanted, *exact))


@pytest.mark.usefixtures("_kernels")
@pytest.mark.parametrize("width", [5, gelu.LANES + 3])
def test_the_kernels_of_gelu_equal_the_torch_code_in_double_precision(width: int) -> None:
    torch.manual_seed(0)
    shapes = ((2, gelu.BLOCK + 3, width), (2, width))
    inputs = [torch.randn(shape, device=DEVICE, requires_grad=True) for shape in shapes]
    exact = [x.detach().double().requires_grad_() for x in inputs]
    wanted = torch.nn.functional.gelu(exact[0] + exact[1][:, None])
    compare(values_and_gradients(gelu._Fused.apply(*inputs), *inputs), values_and_gradients(wanted, *exact))


@pytest.mark.usefixtures("_kernels")
@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")  # numpy, in the interpreter
@pytest.mark.parametrize("rate", [0.0, 0.1])
@pytest.mark.parametrize(("longest", "size"), [(9, 5), (70, 16)])
def test_the_kernels_of_attention_equal_the_torch_code_in_double_precision(
    longest: int, size: int, rate: float
) -> None:
    torch.manual_seed(0)
    heads, lengths = 2, torch.tensor([[longest, 0, 3], [1, 2, longest]], device=DEVICE)
    rows = Rows(lengths.cumsum(-1) - lengths, lengths, longest)
    count = longest + 4
    qkv = torch.randn(2, count, 3 * heads * size, device=DEVICE, requires_grad=True)
    bias = torch.randn(2, 3 * heads * size, device=DEVICE, requires_grad=True)
    exact = [x.detach().double().requires_grad_() for x in (qkv, bias)]
    seeds = rows.starts[:, :2] if rate == 0 else one_place(rate).seeds()  # type: ignore[union-attr]
    got = attention._Fused.apply(qkv, bias, rows.starts, rows.lengths, longest, heads, seeds, rate)
    wanted = attention.padded(exact[0] + exact[1][:, None], rows, heads, one_place(rate))
    compare(values_and_gradients(got, qkv, bias), values_and_gradients(wanted, *exact))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"model_type": "t5"}, "bert, roberta"),
        ({"hidden_act": "relu"}, "gelu"),
        ({"num_attention_heads": 5}, "multiple"),
    ],
)
def test_other_layouts_are_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Config.of({"model_type": "bert"} | SIZES | changed)
