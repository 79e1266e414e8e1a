"""Spans of a text of any length by any token classifier of transformers: many windows, one chain.

text -> windows -> scores of each token where it has the most context -> `SpanDecoder` -> spans in characters
"""

from typing import Any

from transformers import PreTrainedTokenizerBase

from ...spans import ScoredSpan, SpanDecoder
from .windows import token_scores, windows_of


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
    windows = windows_of(model, tokenizer, text, stride, max_length)
    if not len(windows.words):
        return []
    scores = token_scores(model, tokenizer, windows, batch_size)
    words = windows.words if whole_words else None
    spans: list[ScoredSpan] = decoder(scores, offsets=windows.offsets, words=words)
    return spans
