"""The configuration of an encoder with a CRF: the encoder's own configuration, and what the CRF is made of."""

import inspect
from collections.abc import Mapping
from typing import Any, ClassVar

from transformers import AutoConfig, PreTrainedConfig

from ... import constraints, objectives, scaling
from ...arguments import check_flag, check_name, shown
from ...crf import ChainCRF
from ...crf.gold import POLICIES
from ...crf.parts import scaling_meant
from ...scaling import Scaling
from .sharing import AUTO_MAP, FORMAT, OLDEST, check_format

METHODS = {
    method.__name__: method
    for method in (
        scaling.Fixed,
        scaling.Learned,
        scaling.Offline,
        scaling.Online,
        scaling.Regularized,
        scaling.Temperature,
    )
}
IGNORED = {"argmax": "labels", "decoded": "logits"}
"""The field of the output that the Trainer does not pass on, by `metric_labels`."""
HEADS = ("linear", "tagger")


class CRFConfig(PreTrainedConfig):
    """What `CRFForTokenClassification` is built from. `save_pretrained` writes it as config.json.

    Args:
        encoder_config: the configuration of the encoder, or its dictionary.
        head: "linear" for a new linear head on the encoder, "tagger" for a token classifier with its own head.
        id2label: the names of the labels by index.
        scheme: "BIO", "IOB1", "BIOES", "BILOU" or "BMES"; None for labels without a scheme, such as parts of speech.
        constrained: whether transitions that the scheme forbids are impossible.
        objective: "likelihood", "marginal" or "margin"; "mean_field" if `constrained` is False.
        scaling: the scaling method as a dictionary, {"name": "Offline", "alpha": 2.0}.
        boundaries: also learn a score for each label in the first and in the last position.
        on_invalid: what to do with gold labels that the scheme forbids: "raise", "warn" or "repair".
        classifier_dropout: the dropout before the linear head.
        special_token_ids: tokens that are never part of the chain, such as [CLS], [SEP] and [PAD].
        start_from_labels: whether the callback `StartFromLabels` sets the transitions when training begins; it is
            False after that.
        metric_labels: what the Trainer passes to `compute_metrics` and returns from `predict`: "argmax" for the
            log-marginals, (B, L, M), of which scripts take the argmax, or "decoded" for the labels that the CRF
            decodes, (B, L).
        base_model: the name of the pretrained model on the hub, if it has one, for the model card.
        format_version, oldest_equipoise: of the files, written by `save_pretrained`.

    >>> from transformers import BertConfig
    >>> config = CRFConfig(encoder_config=BertConfig(), id2label={0: "O", 1: "B-X", 2: "I-X"})
    >>> config.num_labels, config.label2id["I-X"], config.hidden_size, config.scaling
    (3, 2, 768, {'name': 'Learned'})
    """

    model_type = "equipoise_crf"
    sub_configs: ClassVar[dict[str, Any]] = {"encoder_config": AutoConfig}

    encoder_config: PreTrainedConfig | dict[str, Any] | None = None
    scheme: str | None = "BIO"
    constrained: bool = True
    objective: str = "likelihood"
    scaling: dict[str, Any] | None = None
    boundaries: bool = True
    on_invalid: str = "raise"
    classifier_dropout: float = 0.1
    special_token_ids: list[int] | None = None
    start_from_labels: bool = False
    head: str = "linear"
    metric_labels: str = "argmax"
    base_model: str | None = None
    format_version: int = FORMAT
    oldest_equipoise: str = OLDEST
    auto_map: dict[str, Any] | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        if not isinstance(self.id2label, Mapping | None):
            raise TypeError(f"id2label must be a dictionary from numbers to labels, got {shown(self.id2label)}")
        if not isinstance(self.encoder_config, PreTrainedConfig):
            given = {"model_type": "bert"} if self.encoder_config is None else dict(self.encoder_config)
            self.encoder_config = AutoConfig.for_model(**given)
        super().__post_init__(**kwargs)
        self.format_version, self.oldest_equipoise, self.auto_map = FORMAT, OLDEST, dict(AUTO_MAP)
        check_name("head", self.head, HEADS)
        check_name("metric_labels", self.metric_labels, IGNORED)
        check_labels(self.labels)
        check_name("objective", self.objective, objectives.OBJECTIVES)
        check_name("on_invalid", self.on_invalid, POLICIES)
        for name in ("constrained", "boundaries", "start_from_labels"):
            check_flag(name, getattr(self, name))
        if self.scheme is not None:
            constraints.scheme_by_name(self.scheme)
        self.label2id = {label: index for index, label in self.labels.items()}
        self.scaling = describe(self.scaling)
        self.special_token_ids = sorted(set(self.special_token_ids or []))

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        check_format(config_dict)
        return super().from_dict(config_dict, **kwargs)

    @classmethod
    def register_for_auto_class(cls, auto_class: str = "AutoConfig") -> None:
        """Nothing: transformers would copy this file beside the weights, whose imports fail there. See `sharing`."""

    @property
    def keys_to_ignore_at_inference(self) -> list[str]:
        """Fields of the output that the Trainer drops in evaluation and prediction."""
        return [IGNORED[self.metric_labels], "hidden_states", "attentions"]

    @property
    def labels(self) -> dict[int, str]:
        """The names of the labels by index, as `id2label`."""
        return {int(index): label for index, label in (self.id2label or {}).items()}

    @property
    def hidden_size(self) -> int:
        return self.encoder_config.hidden_size  # type: ignore[union-attr]

    def get_text_config(self, *args: Any, **kwargs: Any) -> PreTrainedConfig:
        """The encoder's configuration: transformers reads and sets the size of the vocabulary there."""
        return self.encoder_config  # type: ignore[return-value]

    def make_crf(self) -> ChainCRF:
        """The CRF layer of this configuration, with initial values."""
        rules = constraints.from_labels(self.labels, self.scheme) if self.scheme and self.constrained else None
        return ChainCRF(
            len(self.labels),
            make_scaling(self.scaling or {}),
            rules,
            objective=self.objective,
            boundaries=self.boundaries,
            on_invalid=self.on_invalid,
        )


def check_labels(labels: Mapping[int, object]) -> None:
    """Raise unless each number from 0 on has a label of its own.

    >>> check_labels({0: "O", 2: "B-X"})
    Traceback (most recent call last):
    ...
    ValueError: id2label must have the numbers 0 to 1, got [0, 2]
    """
    if sorted(labels) != list(range(len(labels))):
        raise ValueError(f"id2label must have the numbers 0 to {len(labels) - 1}, got {sorted(labels)[:20]}")
    names = list(labels.values())
    if not all(isinstance(name, str) for name in names):
        raise ValueError(f"the labels of id2label must be text, got {names[:20]!r}")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"id2label has the label {twice!r} twice")


def describe(method: Scaling | Mapping[str, Any] | str | None) -> dict[str, Any]:
    """A scaling method as its name and arguments. None is `Learned`.

    >>> describe(scaling.Offline(2.0)), describe("Fixed"), describe(None)
    ({'name': 'Offline', 'alpha': 2.0}, {'name': 'Fixed'}, {'name': 'Learned'})
    """
    if method is None or isinstance(method, str):
        method = {"name": method or "Learned"}
    if isinstance(method, Scaling):
        method = {"name": type(method).__name__, **method.arguments()}
    if not isinstance(method, Mapping) or method.get("name") not in METHODS:
        value = method["name"] if isinstance(method, dict) and list(method) == ["name"] else method
        hint = scaling_meant(value)
        raise ValueError(
            f"scaling must be a method of equipoise.scaling ({', '.join(METHODS)}), "
            f"got {shown(value)}{f': write {hint}' if hint else ''}"
        )
    make_scaling(method)
    return dict(method)


def make_scaling(description: Mapping[str, Any]) -> Scaling:
    """The inverse of `describe`.

    >>> make_scaling({"name": "Offline", "alpha": 2.0})
    Offline(alpha=2)
    """
    arguments = {name: value for name, value in description.items() if name != "name"}
    method = METHODS[description["name"]]
    takes = list(inspect.signature(method).parameters)
    if unexpected := [name for name in arguments if name not in takes]:
        raise ValueError(f"scaling {method.__name__} takes {', '.join(takes)}, got {', '.join(map(str, unexpected))}")
    made: Scaling = method(**arguments)
    return made
