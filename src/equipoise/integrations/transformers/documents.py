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
from .windows import token_scores, windows_of
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
    windows = windows_of(model, tokenizer, words, stride, max_length)
    unary = torch.zeros(len(words), model.num_labels, device=model.device, dtype=model.crf.pairwise.dtype)
    if not len(windows.words):
        return unary
    scores = token_scores(model, tokenizer, windows, batch_size)
    starts = first_tokens(windows.words.tolist())
    token, word = torch.tensor([(token, word) for token, word in enumerate(starts) if word is not None]).unbind(1)
    unary[word.to(unary.device)] = scores[token.to(scores.device)]
    return unary


def _explain(unary: Tensor, words: Sequence[str]) -> str:
    """Why no labelling was found: the first invalid score, of the net or of the CRF."""
    index = first(~(unary < torch.inf))
    if index is None:
        return "no labelling has a score: the CRF has scores of NaN or infinity; has training diverged?"
    return f"words[{index[0]}], {words[index[0]]!r}, has a score of {unary[index].item()}; has training diverged?"
