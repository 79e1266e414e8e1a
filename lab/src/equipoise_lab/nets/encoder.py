"""A transformer encoder in the layout of BERT, for E replicas at once.

    x = dropout(norm(word + position + type))
    each layer:   x = norm(x + dropout(attention(x) W + b)),    x = norm(x + dropout(gelu(x U + c) V + d))

Sentences are stored as rows, one per token, sentence after sentence, so no product is spent on padding. A product of
all replicas is one batched product. No shape depends on tensor values, so a step can be captured in a CUDA graph.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from .attention import attend
from .dropout import SPAN, Dropout
from .gelu import add_and_gelu
from .layer_norm import add_and_normalize, normalize
from .recurrence import Rows

KINDS = ("bert", "roberta")
"""The types of checkpoints that have this layout. Those of roberta number positions from pad_token_id + 1 on."""

Parameters = dict[str, Tensor]


@dataclass(frozen=True)
class Config:
    vocabulary: int
    hidden: int
    layers: int
    heads: int
    inner: int
    positions: int
    types: int = 1
    epsilon: float = 1e-12
    dropout: float = 0.1

    def __post_init__(self) -> None:
        if self.hidden % self.heads:
            raise ValueError(f"hidden must be a multiple of heads, got {self.hidden} and {self.heads}")
        if self.positions > SPAN:
            raise ValueError(f"an encoder has at most {SPAN} positions, got {self.positions}")

    @staticmethod
    def of(fields: dict[str, Any]) -> "Config":
        """From the `config.json` of a checkpoint.

        >>> Config.of({"model_type": "gpt2"})
        Traceback (most recent call last):
        ValueError: the encoder must be of type bert, roberta, got 'gpt2'
        """
        if fields.get("model_type") not in KINDS:
            raise ValueError(f"the encoder must be of type {', '.join(KINDS)}, got {fields.get('model_type')!r}")
        for name, wanted in (("hidden_act", "gelu"), ("position_embedding_type", "absolute")):
            if fields.get(name, wanted) != wanted:
                raise ValueError(f"{name} of the encoder must be {wanted!r}, got {fields[name]!r}")
        first = _first_position(fields)
        return Config(
            vocabulary=fields["vocab_size"],
            hidden=fields["hidden_size"],
            layers=fields["num_hidden_layers"],
            heads=fields["num_attention_heads"],
            inner=fields["intermediate_size"],
            positions=min(fields["max_position_embeddings"] - first, SPAN),
            types=fields.get("type_vocab_size", 1),
            epsilon=fields.get("layer_norm_eps", 1e-12),
        )


class Tokens(NamedTuple):
    """A batch for each of E replicas: B sentences as R rows, one per token."""

    ids: Tensor  # (E, R); any valid number in rows outside a sentence
    positions: Tensor  # (E, R): position in the sentence
    numbers: Tensor  # (E, R): SPAN * sentence + position, for dropout
    rows: Rows  # of each sentence


class Encoder:
    """`shapes` are the parameters of one replica, and a call runs E replicas at once.

    >>> encoder = Encoder(Config(vocabulary=9, hidden=8, layers=1, heads=2, inner=16, positions=4))
    >>> one = {name: torch.zeros(1, *shape) for name, shape in encoder.shapes.items()}
    >>> encoder(one, tokens(torch.tensor([[[1, 2, 3]]]), torch.tensor([[3]]))).shape
    torch.Size([1, 3, 8])
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        h, inner = config.hidden, config.inner
        self.shapes: dict[str, tuple[int, ...]] = {
            "words": (config.vocabulary, h),
            "positions": (config.positions, h),
            "types": (config.types, h),
            **_norm("norm", h),
        }
        for layer in self.layers:
            self.shapes |= {
                **_linear(f"{layer}.qkv", h, 3 * h),
                **_linear(f"{layer}.mixed", h, h),
                **_norm(f"{layer}.mixed_norm", h),
                **_linear(f"{layer}.up", h, inner),
                **_linear(f"{layer}.down", inner, h),
                **_norm(f"{layer}.down_norm", h),
            }

    @property
    def layers(self) -> list[str]:
        return [f"layer{i}" for i in range(self.config.layers)]

    def __call__(self, parameters: Parameters, batch: Tokens, drop: Dropout | None = None) -> Tensor:
        """The hidden state of each row, (E, R, hidden). `drop` is the dropout of a training step."""
        epsilon, numbers = self.config.epsilon, batch.numbers
        x = look_up(parameters["words"], batch.ids) + look_up(parameters["positions"], batch.positions)
        x = normalize(x + parameters["types"][:, :1], parameters["norm.gain"], parameters["norm.shift"], epsilon)
        if torch.is_autocast_enabled(x.device.type):
            x = x.to(torch.get_autocast_dtype(x.device.type))
        x = x if drop is None else drop(x, numbers)

        def residual(name: str, y: Tensor) -> Tensor:
            bias, gain, shift = (parameters[f"{name}{part}"] for part in (".bias", "_norm.gain", "_norm.shift"))
            return add_and_normalize(_times(parameters, name, y), bias, x, gain, shift, epsilon, numbers, drop)

        for layer in self.layers:
            qkv = _times(parameters, f"{layer}.qkv", x)
            y = attend(qkv, parameters[f"{layer}.qkv.bias"], batch.rows, self.config.heads, drop)
            x = residual(f"{layer}.mixed", y)
            y = add_and_gelu(_times(parameters, f"{layer}.up", x), parameters[f"{layer}.up.bias"])
            x = residual(f"{layer}.down", y)
        return x


def tokens(ids: Tensor, lengths: Tensor) -> Tokens:
    """Sentences with padding, (E, B, L), as `Tokens`: every padded position is a row outside any sentence."""
    e, b, longest = ids.shape
    positions = torch.arange(longest, device=ids.device).expand(e, b, longest)
    sentence = torch.arange(b, device=ids.device)
    rows = Rows((longest * sentence).expand(e, b), lengths, longest)
    return Tokens(ids.flatten(1), positions.flatten(1), (SPAN * sentence[:, None] + positions).flatten(1), rows)


def look_up(table: Tensor, index: Tensor) -> Tensor:
    """Rows of each replica's table (E, K, H) at the indices (E, R): (E, R, H)."""
    first = table.shape[1] * torch.arange(len(table), device=index.device)
    return functional.embedding(index + first[:, None], table.flatten(0, 1))


def _times(parameters: Parameters, name: str, x: Tensor) -> Tensor:
    return torch.bmm(x, parameters[f"{name}.weight"])


def _linear(name: str, inputs: int, outputs: int) -> dict[str, tuple[int, ...]]:
    """Weights are stored as inputs times outputs, so that their gradients are contiguous."""
    return {f"{name}.weight": (inputs, outputs), f"{name}.bias": (outputs,)}


def _norm(name: str, size: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.gain": (size,), f"{name}.shift": (size,)}


def _first_position(fields: dict[str, Any]) -> int:
    return 0 if fields["model_type"] == "bert" else fields["pad_token_id"] + 1


def from_checkpoint(tensors: Parameters, fields: dict[str, Any]) -> Parameters:
    """The parameters of one replica from the tensors and the `config.json` of a checkpoint."""
    config, first = Config.of(fields), _first_position(fields)
    short = {name.removeprefix(f"{fields['model_type']}."): x for name, x in tensors.items()}

    def take(name: str) -> Tensor:
        if name not in short:
            raise ValueError(f"the checkpoint has no tensor {name}")
        return short[name]

    parameters = {name: take(f"embeddings.{full}_embeddings.weight") for name, full in EMBEDDINGS.items()}
    parameters["positions"] = parameters["positions"][first : first + config.positions]
    parameters |= {f"norm.{part}": take(f"embeddings.LayerNorm.{full}") for part, full in NORM.items()}
    for i in range(config.layers):
        for part in ("weight", "bias"):
            qkv = [take(f"encoder.layer.{i}.attention.self.{name}.{part}") for name in ("query", "key", "value")]
            parameters[f"layer{i}.qkv.{part}"] = torch.cat(qkv).T if part == "weight" else torch.cat(qkv)
            for name, full in LINEAR.items():
                x = take(f"encoder.layer.{i}.{full}.dense.{part}")
                parameters[f"layer{i}.{name}.{part}"] = x.T if part == "weight" else x
        for name, full in LINEAR.items():
            if name != "up":
                for part, theirs in NORM.items():
                    parameters[f"layer{i}.{name}_norm.{part}"] = take(f"encoder.layer.{i}.{full}.LayerNorm.{theirs}")
    for name, shape in Encoder(config).shapes.items():
        if parameters[name].shape != shape:
            raise ValueError(f"expected {name} of shape {shape}, got {tuple(parameters[name].shape)}")
    return parameters


EMBEDDINGS = {"words": "word", "positions": "position", "types": "token_type"}
NORM = {"gain": "weight", "shift": "bias"}
LINEAR = {"mixed": "attention.output", "up": "intermediate", "down": "output"}
