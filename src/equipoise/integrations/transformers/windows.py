"""The windows of a long text, as a tokenizer cuts them, and the scores of a token classifier for its tokens.

window w begins at token w (n - stride) of the text, where n is the number of tokens of the text in a full window
"""

from typing import Any

import torch
from torch import Tensor
from transformers import BatchEncoding, PreTrainedTokenizerBase

from ...spans.windows import merge_windows


def cut(tokenizer: PreTrainedTokenizerBase, text: Any, size: int, stride: int | None, **kwargs: Any) -> BatchEncoding:
    """The windows of one text, as a batch. `stride` is how many tokens two of them share, a quarter by default."""
    return tokenizer(
        text,
        truncation=True,
        max_length=size,
        stride=size // 4 if stride is None else stride,
        return_overflowing_tokens=True,
        padding=True,
        return_tensors="pt",
        **kwargs,
    )


def places(windows: BatchEncoding, stride: int) -> Tensor:
    """The place of each token of each window in the text, (W, S); -1 for special tokens and padding."""
    rows, start = [], 0
    for number in range(len(windows["input_ids"])):
        inside = torch.tensor([source is not None for source in windows.sequence_ids(number)])
        rows.append(torch.where(inside, start + inside.cumsum(0) - 1, -1))
        start += int(inside.sum()) - stride
    return torch.stack(rows)


@torch.no_grad()
def token_scores(
    model: Any, tokenizer: PreTrainedTokenizerBase, windows: BatchEncoding, tokens: Tensor, batch_size: int
) -> Tensor:
    """The scores of each token of the text, (L, M): logits, or those before the CRF if the model has one."""
    score = getattr(model, "unary", None) or (lambda **batch: model(**batch).logits)
    names = [name for name in tokenizer.model_input_names if name in windows]
    rows = [
        score(**{name: windows[name][start : start + batch_size].to(model.device) for name in names})
        for start in range(0, len(tokens), batch_size)
    ]
    return merge_windows(torch.cat(rows), tokens)


def window(model: Any, tokenizer: PreTrainedTokenizerBase) -> int:
    """The number of tokens that the encoder reads at a time."""
    config = getattr(model.config, "encoder_config", model.config)
    positions = getattr(config, "max_position_embeddings", None)
    for name, table in model.named_modules():
        if name.endswith("position_embeddings") and getattr(table, "padding_idx", None) is not None:
            positions = table.num_embeddings - table.padding_idx - 1  # RoBERTa counts positions after that of padding
    return min(tokenizer.model_max_length, positions or tokenizer.model_max_length)
