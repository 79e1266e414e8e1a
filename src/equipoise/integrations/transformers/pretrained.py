"""Where a model with a CRF comes from and goes to: a pretrained encoder, a fine-tuned tagger, a folder."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoModel, AutoModelForTokenClassification, PreTrainedModel, PreTrainedTokenizerBase

from ...arguments import check_flag, check_name
from ...constraints import names_of
from ...crf import ChainCRF
from ...crf.counted import BY_DEFAULT
from ...scaling import Scaling
from .card import write_card
from .configuration import IGNORED, CRFConfig, describe
from .encoders import describe_source, dropout_of, scheme_of, without_effect
from .loading import SAFE, check, check_encoder, check_weights, load, one_line, without_report
from .sharing import as_config, write_code


class CRFPreTrainedModel(PreTrainedModel):
    """Loads and saves `CRFForTokenClassification`."""

    config: CRFConfig
    config_class = CRFConfig
    base_model_prefix = "backbone"
    main_input_name = "input_ids"
    supports_gradient_checkpointing = True
    _supports_sdpa = _supports_flash_attn = _supports_flex_attn = _supports_attention_backend = True
    _keep_in_fp32_modules_strict = ["crf"]  # noqa: RUF012

    @classmethod
    def from_encoder(
        cls,
        encoder: str,
        id2label: Mapping[int, str] | Iterable[str],
        scheme: str | None = "BIO",
        objective: str = "likelihood",
        scaling: Scaling | Mapping[str, Any] | str | None = None,
        *,
        constraints: bool = True,
        boundaries: bool = True,
        on_invalid: str = "raise",
        dropout: float | None = None,
        start_from_labels: bool = BY_DEFAULT,
        metric_labels: str = "argmax",
        tokenizer: PreTrainedTokenizerBase | None = None,
        **kwargs: Any,
    ) -> Any:
        """A pretrained encoder with a new head and a new CRF.

        Args:
            encoder: the name or folder of a model that `AutoModel` loads.
            id2label: the names of the labels, a list or a dictionary by index.
            scheme: "BIO", "IOB1", "BIOES", "BILOU" or "BMES"; None for labels without a scheme.
            objective: see `ChainCRF`.
            scaling: a method of `equipoise.scaling`; None is `Learned()`, which needs no learning rate of its own.
            constraints: whether transitions that the scheme forbids are impossible.
            boundaries: also learn a score for each label in the first and in the last position.
            on_invalid: what to do with gold labels that the scheme forbids, see `ChainCRF`.
            dropout: before the head; None takes that of the encoder's configuration.
            start_from_labels: whether the callback `StartFromLabels` sets the transitions when training begins.
            metric_labels: what metrics of the Trainer read, "argmax" or "decoded", see `CRFConfig`.
            tokenizer: tells the special tokens; None loads the one beside the encoder, if there is one.
            kwargs: for `AutoModel.from_pretrained`. By default no code of the encoder is run, and only safetensors are
                read: `trust_remote_code=False, use_safetensors=True`.

        >>> import tempfile
        >>> from equipoise.integrations.transformers import CRFForTokenClassification
        >>> from transformers import BertConfig, BertModel
        >>> small = BertConfig(vocab_size=50, hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     BertModel(small).save_pretrained(folder)
        ...     model = CRFForTokenClassification.from_encoder(folder, ["O", "B-X", "I-X"])
        >>> model.crf  # doctest: +ELLIPSIS
        ChainCRF(
          3, objective=likelihood, boundaries=True, constrained=True
          (scaling): Learned(alpha=...)
        )
        """
        names = id2label if isinstance(id2label, Mapping) else dict(enumerate(names_of(id2label, "id2label")))
        check_flag("constraints", constraints)
        method = describe(scaling)
        check_name("metric_labels", metric_labels, IGNORED)
        backbone, missing = load(encoder, AutoModel, **kwargs)
        own = backbone.config
        config = CRFConfig(
            encoder_config=own,
            id2label=dict(names),
            scheme=scheme,
            constrained=constraints,
            objective=objective,
            scaling=method,
            boundaries=boundaries,
            on_invalid=on_invalid,
            classifier_dropout=dropout_of(own) if dropout is None else dropout,
            start_from_labels=start_from_labels,
            metric_labels=metric_labels,
            **describe_source(encoder, own, tokenizer, kwargs),
        )
        model: Any = cls(config, backbone)
        check_encoder(encoder, backbone, missing, model.backbone)
        model.classifier.to(backbone.dtype)
        return model.eval()

    @classmethod
    def from_tagger(
        cls,
        tagger: str,
        scheme: str | None = "auto",
        objective: str = "likelihood",
        scaling: Scaling | Mapping[str, Any] | str | None = None,
        *,
        boundaries: bool = True,
        on_invalid: str = "raise",
        start_from_labels: bool = False,
        metric_labels: str = "argmax",
        tokenizer: PreTrainedTokenizerBase | None = None,
        **kwargs: Any,
    ) -> Any:
        """A CRF on a fine-tuned token classifier, which keeps its head.

        Before any training, the labels are the best valid ones by the tagger's own scores: transitions that the scheme
        forbids are impossible, and all others have the score 0. `model.crf.start_from_labels(labels)` sets their scores
        by counts of training labels. The model can be trained on.

        Args:
            tagger: the name or folder of a model that `AutoModelForTokenClassification` loads.
            scheme: "BIO", "IOB1", "BIOES", "BILOU" or "BMES"; None for labels without a scheme. "auto" recognizes it
                by the labels, but for BIO and IOB1, which have the same labels.
            objective, scaling, boundaries, on_invalid, metric_labels, tokenizer: as in `from_encoder`.
            start_from_labels: whether the callback `StartFromLabels` sets the transitions when training begins.
            kwargs: for `AutoModelForTokenClassification.from_pretrained`, as in `from_encoder`.

        >>> import tempfile
        >>> from equipoise.integrations.transformers import CRFForTokenClassification
        >>> from transformers import BertConfig, BertForTokenClassification
        >>> small = BertConfig(vocab_size=50, hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
        >>> small.id2label = dict(enumerate(["O", "B-X", "I-X", "E-X", "S-X"]))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     BertForTokenClassification(small).save_pretrained(folder)
        ...     model = CRFForTokenClassification.from_tagger(folder)
        >>> model.config.scheme, model.backbone.classifier
        ('BIOES', Linear(in_features=8, out_features=5, bias=True))
        """
        backbone, missing = load(tagger, AutoModelForTokenClassification, **kwargs)
        own: Any = backbone.config
        if isinstance(backbone, cls):
            raise ValueError(f"{tagger} has a CRF: use from_pretrained")
        config = CRFConfig(
            encoder_config=own,
            head="tagger",
            id2label=dict(own.id2label),
            scheme=scheme_of(tagger, own.id2label) if scheme == "auto" else scheme,
            objective=objective,
            scaling=describe(scaling),
            boundaries=boundaries,
            on_invalid=on_invalid,
            start_from_labels=start_from_labels,
            metric_labels=metric_labels,
            **describe_source(tagger, own, tokenizer, kwargs),
        )
        model: Any = cls(config, backbone)
        check_encoder(tagger, backbone, missing, backbone)
        without_effect(model.crf)
        return model.eval()

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path: Any, *args: Any, output_loading_info: bool = False, **kwargs: Any
    ) -> Any:
        """A saved model. Missing or unknown weights, or weights of other shapes, are an error.

        With your own `config`, an encoder without a CRF can also be loaded; with your own `state_dict`, weights may be
        missing. Only safetensors are read and no code beside them is run, unless you ask for it.
        """
        name = pretrained_model_name_or_path
        if name is None or "state_dict" in kwargs:
            return super().from_pretrained(name, *args, output_loading_info=output_loading_info, **SAFE | kwargs)
        mismatched = kwargs.pop("ignore_mismatched_sizes", False)
        with one_line(str(name)), without_report():
            kind, own = check(str(name), kwargs), cls.config_class.model_type
            if kind != own and "config" not in kwargs:
                raise ValueError(f"{name}: config.json has the model_type {kind!r}, expected {own!r}: see from_encoder")
            options = SAFE | kwargs | {"ignore_mismatched_sizes": True, "output_loading_info": True}
            loaded: Any = super().from_pretrained(name, *args, **options)
        model, info = loaded
        if kind == own:
            check_weights(name, info, mismatched)
        else:
            check_encoder(name, model, info["missing_keys"], model.backbone)
        return loaded if output_loading_info else model

    @classmethod
    def register_for_auto_class(cls, auto_class: str = "AutoModel") -> None:
        """Nothing: transformers would copy this file beside the weights, whose imports fail there. See `sharing`."""

    def save_pretrained(  # type: ignore[override]
        self,
        save_directory: str | Path,
        is_main_process: bool = True,
        *args: Any,
        metrics: Mapping[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        """As in transformers, with a file that imports equipoise and a model card beside the weights.

        `metrics` are for the model card, for example {"f1": 0.89}.
        """
        folder = Path(save_directory)
        if is_main_process and not folder.is_file():
            folder.mkdir(parents=True, exist_ok=True)
            write_code(folder)
            write_card(folder, self.config, metrics)
        super().save_pretrained(save_directory, is_main_process, *args, **kwargs)
        if is_main_process and folder.is_dir():
            as_config(folder)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Initial values for what a checkpoint does not contain. The CRF keeps what was loaded, if it is valid."""
        if not isinstance(module, ChainCRF):
            super()._init_weights(module)
            return
        tensors = (*module.parameters(), *module.buffers())
        loaded = [(x, x.clone()) for x in tensors if getattr(x, "_is_hf_initialized", False)]
        module.reset_parameters()
        for x, value in loaded:
            x.copy_(value)
        module.scaling.check_state("crf.scaling.")
