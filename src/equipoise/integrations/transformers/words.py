"""From words to the tokens of an encoder: a word is represented by its first token, all other tokens are not labelled.

words        New  York's  mayor
tokens [CLS] New  York  ' s  mayor [SEP]
word_mask 0   1    1    0 0   1     0
"""

from collections.abc import Sequence
from typing import Any

import torch
from transformers import BatchEncoding, DataCollatorForTokenClassification, PreTrainedTokenizerBase

from ...chain.problem import IGNORE


def tokenize_words(
    tokenizer: PreTrainedTokenizerBase,
    words: Sequence[str] | Sequence[Sequence[str]],
    labels: Sequence[int] | Sequence[Sequence[int]] | None = None,
    **kwargs: Any,
) -> BatchEncoding:
    """The tokens of sentences that are given as words, with `word_mask` and `labels` for each token.

    `word_mask` is 1 at the first token of each word. `labels` has the word's label there, and -100 elsewhere. A word
    for which the tokenizer has no token, such as an empty string, has no position.

    Args:
        tokenizer: a fast tokenizer.
        words: one sentence or a list of sentences.
        labels: one index per word, in the same form.
        kwargs: for the tokenizer, for example `truncation=True`. With `return_tensors="pt"`, and `padding=True` for
            several sentences, the result is a batch for the model.

    >>> from tokenizers import Tokenizer, models, pre_tokenizers
    >>> from transformers import PreTrainedTokenizerFast
    >>> pieces = Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1, "c": 2, "##t": 3}, unk_token="[UNK]"))
    >>> pieces.pre_tokenizer = pre_tokenizers.Whitespace()
    >>> tokenizer = PreTrainedTokenizerFast(tokenizer_object=pieces, unk_token="[UNK]")
    >>> found = tokenize_words(tokenizer, ["a", "ct"], [5, 7])
    >>> found["input_ids"], found["word_mask"], found["labels"]
    ([1, 2, 3], [1, 1, 0], [5, 7, -100])
    >>> tokenize_words(tokenizer, ["a", "ct"], return_tensors="pt")["word_mask"]
    tensor([[1, 1, 0]])
    """
    one = len(words) > 0 and isinstance(words[0], str)
    sentences: list[Any] = [words] if one else list(words)
    gold: list[Any] | None = None if labels is None else ([labels] if one else list(labels))
    if gold is not None and [len(x) for x in gold] != [len(x) for x in sentences]:
        raise ValueError("labels must have one index per word of each sentence")
    kind = kwargs.pop("return_tensors", None)
    found = tokenizer([list(x) for x in sentences], is_split_into_words=True, **kwargs)
    source = found.get("overflow_to_sample_mapping", range(len(found["input_ids"])))
    starts = [first_tokens(found.word_ids(i)) for i in range(len(source))]
    found["word_mask"] = [[int(word is not None) for word in x] for x in starts]
    if gold is not None:
        pairs = zip(source, starts, strict=True)
        found["labels"] = [[IGNORE if word is None else gold[i][word] for word in x] for i, x in pairs]
    if kind is not None:
        return found.convert_to_tensors(kind)
    if one and "overflow_to_sample_mapping" not in found:
        return BatchEncoding({name: value[0] for name, value in found.items()}, found.encodings[0])
    return found


def first_tokens(word_ids: Sequence[int | None]) -> list[int | None]:
    """The word of each token that is the first one of its word; None for other tokens.

    >>> first_tokens([None, 0, 1, 1, None])
    [None, 0, 1, None, None]
    """
    before = [None, *word_ids[:-1]]
    return [None if word == last else word for word, last in zip(word_ids, before, strict=True)]


class DataCollatorForWords(DataCollatorForTokenClassification):
    """`DataCollatorForTokenClassification` that also pads `word_mask`, with False: (B, L), boolean.

    Features are what `tokenize_words` returns for one sentence, with or without labels.
    """

    def torch_call(self, features: list[dict[str, Any]]) -> dict[str, Any]:
        if "word_mask" not in features[0]:
            return super().torch_call(features)
        masks = [torch.as_tensor(feature["word_mask"]).bool() for feature in features]
        others = [{name: value for name, value in feature.items() if name != "word_mask"} for feature in features]
        batch: dict[str, Any] = super().torch_call(others)
        side = self.tokenizer.padding_side
        length = batch["input_ids"].shape[1]
        padded = torch.nn.utils.rnn.pad_sequence(masks, batch_first=True, padding_side=side)
        gap = length - padded.shape[1]
        batch["word_mask"] = torch.nn.functional.pad(padded, (gap, 0) if side == "left" else (0, gap))
        return batch
