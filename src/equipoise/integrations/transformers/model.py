"""An encoder, dropout, a linear head and a CRF, as a model of transformers.

U = head(dropout(encoder(tokens))) at the first token of each word,    loss = -log P(Y | U, W) / number of words
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils.generic import ModelOutput, can_return_tuple

from ...arguments import check_flag
from ...chain.checks import int64
from ...chain.problem import IGNORE
from ...constraints import names_of
from ...crf import ChainCRF
from ...crf.counted import BY_DEFAULT
from ...scaling import Scaling
from .configuration import CRFConfig, describe
from .encoders import dropout_of, hidden_states_only, special_token_ids, tokenizer_beside
from .loading import SAFE, check, check_encoder, check_weights, load_encoder, one_line, without_report


@dataclass
class CRFOutput(ModelOutput):
    """What the model returns. Fields that were not computed are None.

    `logits` have a gradient only if there are no labels. Otherwise one step would count twice in `scaling.Learned`.
    """

    loss: Tensor | None = None  # ()
    logits: Tensor | None = None  # (B, L, M): log P(y_t = j | X), repeated at tokens outside the chain
    labels: Tensor | None = None  # (B, L): predicted labels, -100 at tokens outside the chain; None in training
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


class CRFForTokenClassification(PreTrainedModel):
    """A linear-chain CRF on any encoder that `AutoModel` loads. `from_encoder` makes one from a pretrained encoder.

    The chain runs over the positions where `word_mask` is on. Without `word_mask` it runs over the positions with a
    label other than -100. Without both it runs over all tokens but padding and special ones.

    >>> from transformers import BertConfig
    >>> encoder = BertConfig(vocab_size=50, hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
    >>> config = CRFConfig(encoder_config=encoder, id2label={0: "O", 1: "B-X", 2: "I-X"})
    >>> model = CRFForTokenClassification(config).eval()
    >>> output = model(torch.tensor([[5, 6, 7, 8]]), word_mask=torch.tensor([[0, 1, 1, 0]]))
    >>> output.labels.shape, output.logits.shape
    (torch.Size([1, 4]), torch.Size([1, 4, 3]))
    """

    config: CRFConfig
    config_class = CRFConfig
    base_model_prefix = "backbone"
    main_input_name = "input_ids"
    supports_gradient_checkpointing = True
    _supports_sdpa = _supports_flash_attn = _supports_flex_attn = _supports_attention_backend = True
    _keep_in_fp32_modules_strict = ["crf"]  # noqa: RUF012

    def __init__(self, config: CRFConfig, backbone: PreTrainedModel | None = None) -> None:
        super().__init__(config)
        self.num_labels = len(config.labels)
        self.backbone = hidden_states_only(
            AutoModel.from_config(config.encoder_config, trust_remote_code=False) if backbone is None else backbone
        )
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.classifier = nn.Linear(config.hidden_size, self.num_labels)
        self.crf = config.make_crf()
        self.post_init()

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
        tokenizer: PreTrainedTokenizerBase | None = None,
        **kwargs: Any,
    ) -> "CRFForTokenClassification":
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
            tokenizer: tells the special tokens; None loads the one beside the encoder, if there is one.
            kwargs: for `AutoModel.from_pretrained`. By default no code of the encoder is run, and only safetensors are
                read: `trust_remote_code=False, use_safetensors=True`.

        >>> import tempfile
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
        backbone, missing = load_encoder(encoder, **kwargs)
        own = backbone.config
        tokenizer = tokenizer or tokenizer_beside(encoder, **kwargs)
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
            special_token_ids=special_token_ids(tokenizer, own),
            start_from_labels=start_from_labels,
            attn_implementation=own._attn_implementation,  # type: ignore[call-arg]
        )
        model = cls(config, backbone)
        check_encoder(encoder, backbone, missing, model.backbone)
        model.classifier.to(backbone.dtype)
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

    @can_return_tuple  # type: ignore[untyped-decorator]
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        word_mask: Tensor | None = None,
        labels: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        **kwargs: Any,
    ) -> CRFOutput:
        """The loss if there are labels, log-marginals, and in evaluation mode the predicted labels.

        Args:
            input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds: for the encoder, (B, L, ...).
            word_mask: (B, L), on at the positions of the chain: the first token of each word.
            labels: (B, L); -100 removes a position from the loss.
            num_items_in_batch: the loss is divided by this number, by default by the number of labels in this batch.
                The Trainer passes the number of labels in all batches of one step, so that gradient accumulation
                equals one large batch.
            kwargs: for the encoder, for example `output_hidden_states=True`.
        """
        labels = None if labels is None else int64("labels", labels)
        given = {"token_type_ids": token_type_ids, "position_ids": position_ids, "inputs_embeds": inputs_embeds}
        kwargs |= {name: value for name, value in given.items() if value is not None}
        encoded = self.backbone(input_ids=input_ids, attention_mask=attention_mask, return_dict=True, **kwargs)
        unary = self.classifier(self.dropout(encoded.last_hidden_state)).to(self.crf.pairwise.dtype)
        mask = self.chain_mask(unary.shape[:2], input_ids, attention_mask, word_mask, labels)
        loss = None if labels is None else self._loss(unary, labels, mask, num_items_in_batch)
        with torch.set_grad_enabled(torch.is_grad_enabled() and labels is None):
            log_p = repeat_at_other_tokens(self.crf.log_marginals(unary, mask), mask)
        return CRFOutput(
            loss=loss,
            logits=log_p,
            labels=None if self.training else self.crf.decode(unary, mask),
            hidden_states=encoded.get("hidden_states"),
            attentions=encoded.get("attentions"),
        )

    def unary(self, **inputs: Any) -> Tensor:
        """The scores of the head, (B, L, M), before the CRF. `inputs` are those of the encoder."""
        hidden = self.backbone(**inputs, return_dict=True).last_hidden_state
        return self.classifier(self.dropout(hidden)).to(self.crf.pairwise.dtype)

    @torch.no_grad()
    def balance(self, word_mask: Tensor | None = None, labels: Tensor | None = None, **inputs: Any) -> Tensor:
        """||U|| / ||W|| on a batch, a scalar, as `ChainCRF.balance`. Arguments are those of `forward`."""
        unary = self.unary(**inputs)
        mask = self.chain_mask(
            unary.shape[:2], inputs.get("input_ids"), inputs.get("attention_mask"), word_mask, labels
        )
        return self.crf.balance(unary, mask)

    def chain_mask(
        self,
        shape: torch.Size,
        input_ids: Tensor | None,
        attention_mask: Tensor | None,
        word_mask: Tensor | None,
        labels: Tensor | None,
    ) -> Tensor:
        """The positions of the chain, (B, L), boolean."""
        if word_mask is not None:
            return word_mask != 0
        if labels is not None:
            return int64("labels", labels) != IGNORE
        mask = torch.ones(shape, dtype=torch.bool, device=self.crf.pairwise.device)
        if attention_mask is not None and attention_mask.ndim == 2:
            mask = mask & (attention_mask != 0)
        for token in [] if input_ids is None else self.config.special_token_ids or []:
            mask = mask & (input_ids != token)
        return mask

    def _loss(self, unary: Tensor, labels: Tensor, mask: Tensor, items: Tensor | int | None) -> Tensor:
        """The sum over the positions of all sequences, divided by the number of items."""
        loss: Tensor = self.crf.loss(unary, labels, mask, reduction="token_mean")
        if items is None:
            return loss
        count = (mask & (labels != IGNORE)).sum()
        return loss * count / torch.where(count == 0, 1, items)  # 0, not 0 / 0, if no batch of the step has a label


def repeat_at_other_tokens(log_p: Tensor, mask: Tensor) -> Tensor:
    """log_p, (B, L, M), with the rows outside the mask replaced by that of the word before them.

    Rows before the first word get that of the first word. Without any word, all labels have the same probability.

    >>> log_p = torch.tensor([[[0.0, 0.0], [-0.1, -2.4], [0.0, 0.0]]])
    >>> repeat_at_other_tokens(log_p, torch.tensor([[False, True, False]]))[0, :, 0]
    tensor([-0.1000, -0.1000, -0.1000])
    """
    length = mask.shape[-1]
    place, word = torch.arange(length, device=mask.device), mask.long().cumsum(-1) - 1  # no cummax, which ONNX lacks
    places = torch.zeros_like(torch.nn.functional.pad(word, (0, 1)))  # of words; the last is for other tokens
    places = places.scatter(-1, torch.where(mask, word, length), place.expand(mask.shape))
    source = places.gather(-1, word.clamp(min=0))[..., None].expand(log_p.shape)
    uniform = torch.full_like(log_p, 1 / log_p.shape[-1]).log()
    return torch.where(mask.any(-1)[..., None, None], log_p.gather(-2, source), uniform)
