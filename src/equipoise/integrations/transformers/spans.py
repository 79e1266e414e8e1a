"""Spans of a text of any length by any token classifier of transformers: many windows, one chain.

text -> windows -> scores of each token where it has the most context -> `SpanDecoder` -> spans in characters
"""

from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from ...spans import ScoredSpan, SpanDecoder
from .windows import cut, places, token_scores, window


def predict_spans(
    model: Any,
    tokenizer: PreTrainedTokenizerBase,
    text: str,
    decoder: SpanDecoder | None = None,
    *,
    whole_words: bool = True,
    stride: int | None = None,
    max_length: int | None = None,
    batch_size: int = 8,
) -> list[ScoredSpan]:
    """The spans of a text, whose `start` and `end` are characters.

    Args:
        model: a model for token classification, such as `AutoModelForTokenClassification` loads, in evaluation mode.
        tokenizer: a fast tokenizer.
        text: of any length.
        decoder: by default `SpanDecoder.from_model(model)`, which needs labels that decide their scheme.
        whole_words: whether the chain has one position per word of the tokenizer, right for models that were trained
            with labels at the first token of each word, or one per token.
        stride: how many tokens two windows share; a quarter of the window by default.
        max_length: the size of a window in tokens, with special tokens; that of the encoder by default.
        batch_size: how many windows the encoder reads at a time.

    >>> from tokenizers import Tokenizer, models, pre_tokenizers
    >>> from transformers import BertConfig, BertForTokenClassification, PreTrainedTokenizerFast
    >>> pieces = Tokenizer(models.WordLevel({"[PAD]": 0, "[UNK]": 1, "to": 2, "go": 3}, unk_token="[UNK]"))
    >>> pieces.pre_tokenizer = pre_tokenizers.Whitespace()
    >>> tokenizer = PreTrainedTokenizerFast(tokenizer_object=pieces, pad_token="[PAD]", unk_token="[UNK]")
    >>> small = {"vocab_size": 4, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    >>> model = BertForTokenClassification(BertConfig(**small, id2label={0: "O", 1: "X"})).eval()
    >>> spans = predict_spans(model, tokenizer, "to go " * 1000, max_length=64)
    >>> all(0 <= span.start < span.end <= 6000 for span in spans)
    True
    """
    decoder = SpanDecoder.from_model(model) if decoder is None else decoder
    size = window(model, tokenizer) if max_length is None else max_length
    shared = size // 4 if stride is None else stride
    windows = cut(tokenizer, text, size, shared, return_offsets_mapping=True)
    tokens = places(windows, shared)
    if not bool((tokens >= 0).any()):
        return []
    scores = token_scores(model, tokenizer, windows, tokens, batch_size)
    inside = tokens >= 0
    offsets = torch.zeros(len(scores), 2, dtype=torch.int64)
    offsets[tokens[inside]] = windows["offset_mapping"][inside]
    words = None
    if whole_words:
        rows = [windows.word_ids(number) for number in range(len(tokens))]
        words = torch.zeros(len(scores), dtype=torch.int64)
        words[tokens[inside]] = torch.tensor([[-1 if word is None else word for word in row] for row in rows])[inside]
    spans: list[ScoredSpan] = decoder(scores, offsets=offsets, words=words)
    return spans
