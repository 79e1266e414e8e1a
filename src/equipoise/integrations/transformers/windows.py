"""The windows of a long text, as a tokenizer cuts them, and the scores of a token classifier for its tokens.

window w begins at token w (n - stride) of the text, where n is the number of tokens of the text in a full window
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import BatchEncoding, PreTrainedTokenizerBase

from ...spans.windows import merge_windows


@dataclass
class Windows:
    """The W windows of a text of L tokens."""

    batch: BatchEncoding  # of (W, S) tensors
    tokens: Tensor  # (W, S): the place of each token in the text, -1 for special tokens and padding
    words: Tensor  # (L,): the word of each token, -1 for none
    offsets: Tensor  # (L, 2): its characters

    def merged(self, scores: Tensor) -> Tensor:
        """The scores of each token of the text, (L, M), from those of the windows, (W, S, M)."""
        return merge_windows(scores, self.tokens)


def windows_of(
    model: Any,
    tokenizer: PreTrainedTokenizerBase,
    text: str | Sequence[str],
    stride: int | None = None,
    max_length: int | None = None,
) -> Windows:
    """The windows of a text, or of a list of words.

    `stride` is how many tokens two windows share, a quarter of a window by default; `max_length` is the size of a
    window in tokens, by default what the encoder reads.
    """
    size = window(model, tokenizer) if max_length is None else max_length
    shared = size // 4 if stride is None else stride
    special = tokenizer.num_special_tokens_to_add()
    if size <= special:
        raise ValueError(
            f"max_length must be at least {special + 1}, for a token beside {special} special ones, got {size}"
        )
    if not 0 <= shared < size - special:
        raise ValueError(f"stride must be from 0 to {size - special - 1} for windows of {size} tokens, got {shared}")
    batch = tokenizer(
        text if isinstance(text, str) else list(text),
        is_split_into_words=not isinstance(text, str),
        truncation=True,
        max_length=size,
        stride=shared,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
        padding=True,
        return_tensors="pt",
    )
    tokens = places(batch, shared)
    inside = tokens >= 0
    rows = [batch.word_ids(number) for number in range(len(tokens))]
    numbers = torch.tensor([[-1 if word is None else word for word in row] for row in rows])
    length = int(tokens.max()) + 1 if tokens.numel() else 0
    words, offsets = torch.zeros(length, dtype=torch.int64), torch.zeros(length, 2, dtype=torch.int64)
    words[tokens[inside]], offsets[tokens[inside]] = numbers[inside], batch["offset_mapping"][inside]
    return Windows(batch, tokens, words, offsets)


def places(windows: BatchEncoding, stride: int) -> Tensor:
    """The place of each token of each window in the text, (W, S); -1 for special tokens and padding."""
    rows, start = [], 0
    for number in range(len(windows["input_ids"])):
        inside = torch.tensor([source is not None for source in windows.sequence_ids(number)], dtype=torch.bool)
        rows.append(torch.where(inside, start + inside.cumsum(0) - 1, -1))
        start += int(inside.sum()) - stride
    return torch.stack(rows)


def scoring(model: Any) -> Callable[..., Tensor]:
    """The function that scores tokens, (B, S, M): logits, or the scores before the CRF if the model has one."""
    return getattr(model, "unary", None) or (lambda **batch: model(**batch).logits)


@torch.no_grad()
def token_scores(model: Any, tokenizer: PreTrainedTokenizerBase, windows: Windows, batch_size: int) -> Tensor:
    """The scores of each token of the text, (L, M)."""
    score, batch = scoring(model), windows.batch
    names = [name for name in tokenizer.model_input_names if name in batch]
    rows = [
        score(**{name: batch[name][start : start + batch_size].to(model.device) for name in names})
        for start in range(0, len(windows.tokens), batch_size)
    ]
    return windows.merged(torch.cat(rows))


def window(model: Any, tokenizer: PreTrainedTokenizerBase) -> int:
    """The number of tokens that the encoder reads at a time."""
    config = getattr(model.config, "encoder_config", model.config)
    positions = getattr(config, "max_position_embeddings", None)
    for name, table in model.named_modules():
        if name.endswith("position_embeddings") and getattr(table, "padding_idx", None) is not None:
            positions = table.num_embeddings - table.padding_idx - 1  # RoBERTa counts positions after that of padding
    return min(tokenizer.model_max_length, positions or tokenizer.model_max_length)
