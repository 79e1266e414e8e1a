"""Split words into the pieces of a pretrained encoder's vocabulary, each word by itself."""

from typing import Any

from ...data.errors import DataError


class Splitter:
    """Maps a word to the numbers of its pieces, by a `tokenizer.json`. Needs the package `tokenizers`."""

    def __init__(self, tokenizer: bytes) -> None:
        try:
            from tokenizers import Tokenizer
        except ImportError as failure:
            raise DataError("packing an encoder needs the package tokenizers: pip install tokenizers") from failure
        try:
            self._tokenizer: Any = Tokenizer.from_buffer(tokenizer)
        except Exception as failure:  # the package raises Exception itself
            raise DataError(f"tokenizer.json is not valid: {failure}") from failure
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        around = self._tokenizer.encode("").ids
        if len(around) != 2:
            raise DataError(f"the tokenizer must add one token before and one after a sentence, got {len(around)}")
        self.first, self.last = around
        # Byte-level vocabularies have other pieces for a word after a space than for the first word of a text.
        self._before = " " if "ByteLevel" in str(self._tokenizer.pre_tokenizer) else ""
        self._unknown = self._tokenizer.token_to_id("[UNK]") or self._tokenizer.token_to_id("<unk>")

    def __call__(self, word: str) -> tuple[int, ...]:
        """The pieces of a word; the unknown piece for a word without any, such as an invisible character."""
        pieces = tuple(self._tokenizer.encode(self._before + word, add_special_tokens=False).ids)
        if not pieces and self._unknown is None:
            raise DataError(f"the tokenizer has no piece for the word {word!r}, and no unknown piece")
        return pieces or (self._unknown,)
