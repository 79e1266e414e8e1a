"""What the model returns, and its log-marginals at tokens outside the chain."""

from dataclasses import dataclass

import torch
from torch import Tensor
from transformers.utils.generic import ModelOutput


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
