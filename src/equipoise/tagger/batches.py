"""Cut sentences into batches whose memory has a bound: number of sentences * longest sentence <= words.

A sentence that is longer than the bound is a batch of its own. In a file, `columns.LONGEST` is the limit of its length.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")
LONG_WORD = 8
"""A sentence whose words are longer on average counts as one word per so many characters: an encoder splits words."""


def cut(sentences: Iterable[tuple[Sequence[str], Item]], most: int, words: int) -> Iterator[list[Item]]:
    """Batches of at most `most` items, in order. Each item comes with the words of its sentence.

    >>> list(cut([(["a"] * n, n) for n in (1, 1, 2, 9, 1, 1)], most=3, words=8))
    [[1, 1, 2], [9], [1, 1]]
    """
    batch: list[Item] = []
    longest = 0
    for sentence, item in sentences:
        length = max(len(sentence), sum(map(len, sentence)) // LONG_WORD)
        longest = max(longest, length)
        if batch and (len(batch) == most or (len(batch) + 1) * longest > words):
            yield batch
            batch, longest = [], length
        batch.append(item)
    if batch:
        yield batch
