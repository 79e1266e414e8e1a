"""An encoder, dropout, a linear head and a CRF, as a model of transformers.

U = head(dropout(encoder(tokens))) at the first token of each word,    loss = -log P(Y | U, W) / number of words
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModel, AutoModelForTokenClassification, PreTrainedModel
from transformers.utils.generic import can_return_tuple

from ...chain.checks import int64
from ...chain.problem import IGNORE
from .configuration import CRFConfig
from .encoders import hidden_states_only
from .output import CRFOutput, repeat_at_other_tokens
from .pretrained import CRFPreTrainedModel


class CRFForTokenClassification(CRFPreTrainedModel):
    """A linear-chain CRF on any encoder that `AutoModel` loads, or on any token classifier.

    `from_encoder` makes one from a pretrained encoder, `from_tagger` from a fine-tuned tagger.

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

    def __init__(self, config: CRFConfig, backbone: PreTrainedModel | None = None) -> None:
        super().__init__(config)
        self.num_labels = len(config.labels)
        own_head = config.head == "tagger"
        if backbone is None:
            kind = AutoModelForTokenClassification if own_head else AutoModel
            backbone = kind.from_config(config.encoder_config, trust_remote_code=False)
        self.backbone = backbone if own_head else hidden_states_only(backbone)
        if not own_head:
            self.dropout = nn.Dropout(config.classifier_dropout)
            self.classifier = nn.Linear(config.hidden_size, self.num_labels)
        self.crf = config.make_crf()
        self.post_init()

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
        allowed: Tensor | None = None,
        targets: Tensor | None = None,
        weights: Tensor | None = None,
        unknown: bool | None = None,
        **kwargs: Any,
    ) -> CRFOutput:
        """The loss if there are labels, log-marginals, and in evaluation mode the predicted labels.

        Args:
            input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds: for the encoder, (B, L, ...).
            word_mask: (B, L), on at the positions of the chain: the first token of each word.
            labels: (B, L); -100 removes a position from the loss. `equipoise.UNKNOWN` (-1) is any label.
            num_items_in_batch: the loss is divided by this number, by default by the number of labels in this batch.
                The Trainer passes the number of labels in all batches of one step, so that gradient accumulation
                equals one large batch.
            allowed, targets, weights, unknown: sets of labels (B, L, M), soft labels (B, L, M), weights of sequences
                (B,), and whether labels may have `UNKNOWN`, see `ChainCRF.loss`.
            kwargs: for the encoder, for example `output_hidden_states=True`.
        """
        labels = None if labels is None else int64("labels", labels)
        given = {"token_type_ids": token_type_ids, "position_ids": position_ids, "inputs_embeds": inputs_embeds}
        kwargs |= {name: value for name, value in given.items() if value is not None}
        encoded = self.backbone(input_ids=input_ids, attention_mask=attention_mask, return_dict=True, **kwargs)
        unary = self._scores(encoded)
        mask = self.chain_mask(unary.shape[:2], input_ids, attention_mask, word_mask, labels)
        answer: dict[str, Any] = {"allowed": allowed, "targets": targets, "weights": weights, "unknown": unknown}
        supervised = any(x is not None for x in (labels, allowed, targets))
        loss = self._loss(unary, labels, mask, num_items_in_batch, **answer) if supervised else None
        with torch.set_grad_enabled(torch.is_grad_enabled() and loss is None):
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
        return self._scores(self.backbone(**inputs, return_dict=True))

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

    def _scores(self, encoded: Any) -> Tensor:
        if self.config.head == "tagger":
            scores: Tensor = encoded.logits
        else:
            scores = self.classifier(self.dropout(encoded.last_hidden_state))
        return scores.to(self.crf.pairwise.dtype)

    def _loss(
        self, unary: Tensor, labels: Tensor | None, mask: Tensor, items: Tensor | int | None, **given: Any
    ) -> Tensor:
        """The sum over the positions of all sequences, divided by the number of items."""
        loss: Tensor = self.crf.loss(unary, labels, mask, reduction="token_mean", **given)
        if items is None:
            return loss
        count = mask.sum() if labels is None else (mask & (labels != IGNORE)).sum()
        return loss * count / torch.where(count == 0, 1, items)  # 0, not 0 / 0, if no batch of the step has a label
