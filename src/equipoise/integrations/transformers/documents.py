"""Labels for texts that are longer than the encoder's window: many windows, one chain.

    U_i = scores of word i in the window where it has the most context,    Y = argmax F(Y | U_1, ..., U_n)

Windows overlap. A word's context in a window is the number of tokens to the nearer end. An end of the text is no end of
context. As there is one chain, constraints hold across the borders of windows.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from ...chain.checks import first
from ...chain.problem import IGNORE
from .model import CRFForTokenClassification
from .words import first_tokens


@torch.no_grad()
def predict_document(
    model: CRFForTokenClassification,
    tokenizer: PreTrainedTokenizerBase,
    words: Sequence[str],
    *,
    stride: int | None = None,
    max_length: int | None = None,
    batch_size: int = 8,
) -> list[str]:
    """One label per word, for a text of any length.

    Args:
        model: in evaluation mode.
        tokenizer: a fast tokenizer.
        words: the words of the text.
        stride: how many tokens two windows share; a quarter of the window by default.
        max_length: the size of a window in tokens, with special tokens; that of the tokenizer by default.
        batch_size: how many windows the encoder reads at a time.

    >>> from tokenizers import Tokenizer, models, pre_tokenizers
    >>> from transformers import BertConfig, PreTrainedTokenizerFast
    >>> from equipoise.integrations.transformers import CRFConfig
    >>> known = Tokenizer(models.WordLevel({"[PAD]": 0, "[UNK]": 1, "to": 2, "go": 3}, unk_token="[UNK]"))
    >>> known.pre_tokenizer = pre_tokenizers.Whitespace()
    >>> tokenizer = PreTrainedTokenizerFast(tokenizer_object=known, pad_token="[PAD]", unk_token="[UNK]")
    >>> encoder = BertConfig(vocab_size=4, hidden_size=8, num_hidden_layers=1, num_attention_heads=2)
    >>> config = CRFConfig(encoder_config=encoder, id2label={0: "O", 1: "B-X", 2: "I-X"})
    >>> model = CRFForTokenClassification(config).eval()
    >>> len(predict_document(model, tokenizer, ["to", "go"] * 1000, max_length=64))
    2000
    """
    if not words:
        return []
    unary = document_scores(model, tokenizer, words, stride=stride, max_length=max_length, batch_size=batch_size)
    labels = model.crf.decode(unary[None])[0].tolist()
    if IGNORE in labels:
        raise ValueError(_explain(unary, words))
    return [model.config.labels[label] for label in labels]


@torch.no_grad()
def document_scores(
    model: CRFForTokenClassification,
    tokenizer: PreTrainedTokenizerBase,
    words: Sequence[str],
    *,
    stride: int | None = None,
    max_length: int | None = None,
    batch_size: int = 8,
) -> Tensor:
    """The scores of the net for each word, (words, M), before the CRF. A word without a token has scores of 0."""
    size = window(model, tokenizer) if max_length is None else max_length
    found = tokenizer(
        list(words),
        is_split_into_words=True,
        truncation=True,
        max_length=size,
        stride=size // 4 if stride is None else stride,
        return_overflowing_tokens=True,
        padding=True,
        return_tensors="pt",
    )
    best = torch.full((len(words),), -1)
    unary = torch.zeros(len(words), model.num_labels, device=model.device, dtype=model.crf.pairwise.dtype)
    count = len(found["input_ids"])
    names = [name for name in tokenizer.model_input_names if name in found]
    for start in range(0, count, batch_size):
        batch = {name: found[name][start : start + batch_size].to(model.device) for name in names}
        scores = model.unary(**batch)
        for row in range(len(scores)):
            word, token, context = _placed(found.word_ids(start + row), start + row == 0, start + row == count - 1)
            better = context > best[word]
            word, token = word[better], token[better]
            best[word] = context[better]
            unary[word.to(unary.device)] = scores[row, token.to(unary.device)]
    return unary


def _explain(unary: Tensor, words: Sequence[str]) -> str:
    """Why no labelling was found: the first invalid score, of the net or of the CRF."""
    index = first(~(unary < torch.inf))
    if index is None:
        return "no labelling has a score: the CRF has scores of NaN or infinity; has training diverged?"
    return f"words[{index[0]}], {words[index[0]]!r}, has a score of {unary[index].item()}; has training diverged?"


def window(model: CRFForTokenClassification, tokenizer: PreTrainedTokenizerBase) -> int:
    """The number of tokens that the encoder reads at a time."""
    positions = getattr(model.config.encoder_config, "max_position_embeddings", None)
    for name, table in model.backbone.named_modules():
        if name.endswith("position_embeddings") and getattr(table, "padding_idx", None) is not None:
            positions = table.num_embeddings - table.padding_idx - 1  # RoBERTa counts positions after that of padding
    return min(tokenizer.model_max_length, positions or tokenizer.model_max_length)


def _placed(word_ids: list[int | None], first: bool, last: bool) -> tuple[Tensor, Tensor, Tensor]:
    """The words of a window, their first tokens, and the context of each, all (words of the window,)."""
    inside = [token for token, word in enumerate(word_ids) if word is not None]
    if not inside:
        empty = torch.empty(0, dtype=torch.int64)
        return empty, empty, empty
    starts = first_tokens(word_ids)
    token = torch.tensor([i for i in inside if starts[i] is not None])
    word = torch.tensor([starts[i] for i in token.tolist()])
    unlimited = torch.full_like(token, len(word_ids))
    left = unlimited if first else token - inside[0]
    right = unlimited if last else inside[-1] - token
    return word, token, torch.minimum(left, right)
