"""How well can words be chunked from a few of their properties? About the best F1 of a net that sees only these.

    python studies/lookup.py studies/lookup.json

A table counts the tags of each key in the fitted sentences, and predicts the most frequent one. A row has several
tables, the finest key first. A key that a table does not have is looked up in the next one. Of equally frequent tags,
the one that is more frequent in the next table is predicted. The last table has one key for all words.

A net whose input is a key gives one tag per key, so no such net has more tags right than the table that was fitted on
the sentences on which it is tested. F1 is not the share of right tags, so another choice of tags may have a higher F1.
"""

import argparse
import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from equipoise_lab.data import conll
from equipoise_lab.data.conll import Sentence
from equipoise_lab.data.folder import require
from equipoise_lab.tasks.chunking.chunks import evaluate

Key = Callable[[Sentence, int], Any]
OUTSIDE = "-"


def around(values: Sequence[str], place: int, window: int) -> tuple[str, ...]:
    """The values of the word at this place and of `window` words on each side.

    >>> around(("DT", "NN", "VB"), 2, 1)
    ('NN', 'VB', '-')
    """
    places = range(place - window, place + window + 1)
    return tuple(values[i] if 0 <= i < len(values) else OUTSIDE for i in places)


def speech(window: int) -> Key:
    return lambda sentence, place: around(sentence.pos, place, window)


def word(sentence: Sentence, place: int) -> Any:
    return sentence.words[place], sentence.pos[place]


def words(window: int) -> Key:
    return lambda sentence, place: (around(sentence.words, place, window), around(sentence.pos, place, window))


KEYS: dict[str, tuple[Key, ...]] = {
    "part of speech": (speech(0),),
    "word and part of speech": (word, speech(0)),
    "parts of speech of the word and its two neighbours": (speech(1), speech(0)),
    "word, and parts of speech of the word and its two neighbours": (
        lambda sentence, place: (sentence.words[place], around(sentence.pos, place, 1)), speech(1), word, speech(0),
    ),
    "parts of speech of the word and two words on each side": (speech(2), speech(1), speech(0)),
}  # fmt: skip
"""The tables of each row, the finest first."""


class Lookup:
    """The most frequent tag by each key, from these sentences.

    >>> seen = [Sentence(("the", "dog"), ("DT", "NN"), ("B-NP", "I-NP"))]
    >>> Lookup((word, speech(0)), seen).tag(Sentence(("a", "dog", "!"), ("DT", "NN", "."), ()))
    ['B-NP', 'I-NP', 'B-NP']
    """

    def __init__(self, keys: Sequence[Key], sentences: Sequence[Sentence]) -> None:
        self.keys = (*keys, lambda sentence, place: ())
        counts: list[dict[Any, Counter[str]]] = [{} for _ in self.keys]
        coarser: list[dict[Any, tuple[Any, ...]]] = [{} for _ in self.keys]
        for sentence in sentences:
            for place, tag in enumerate(sentence.tags):
                seen = tuple(key(sentence, place) for key in self.keys)
                for i, key in enumerate(seen):
                    counts[i].setdefault(key, Counter())[tag] += 1
                    coarser[i][key] = seen[i + 1 :]

        def best(i: int, key: Any) -> str:
            tables = [counts[i][key], *(counts[i + 1 + j][other] for j, other in enumerate(coarser[i][key]))]
            return max(sorted(counts[i][key]), key=lambda tag: [table[tag] for table in tables])

        self.tables = [{key: best(i, key) for key in table} for i, table in enumerate(counts)]

    def tag(self, sentence: Sentence) -> list[str]:
        found = []
        for place in range(len(sentence)):
            keys = (key(sentence, place) for key in self.keys)
            found.append(next(t[key] for t, key in zip(self.tables, keys, strict=True) if key in t))
        return found


def measure(keys: Sequence[Key], fitted: Sequence[Sentence], tested: Sequence[Sentence]) -> dict[str, float]:
    """F1 and the share of right tags, in percent."""
    table = Lookup(keys, fitted)
    predicted, true = [table.tag(sentence) for sentence in tested], [list(sentence.tags) for sentence in tested]
    right = sum(a == b for x, y in zip(predicted, true, strict=True) for a, b in zip(x, y, strict=True))
    share = right / sum(map(len, true))
    return {"f1": round(100 * evaluate(predicted, true).overall.f1, 2), "tags": round(100 * share, 2)}


def rows(train: Sequence[Sentence], test: Sequence[Sentence]) -> list[dict[str, Any]]:
    pairs = (("train", train, "test", test), ("train", train, "train", train), ("test", test, "test", test))
    return [
        {"key": name, "fitted": fitted, "tested": tested, **measure(keys, one, other)}
        for name, keys in KEYS.items()
        for fitted, one, tested, other in pairs
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--data-dir", type=Path)
    options = parser.parse_args()
    files = require("conll2000", options.data_dir)
    found = rows(*(list(conll.read(files[part])) for part in ("train", "test")))
    options.out.write_text("[\n" + ",\n".join(f" {json.dumps(row)}" for row in found) + "\n]\n")
    for row in found:
        print(f"{row['f1']:6.2f} {row['tags']:6.2f}  {row['fitted']:>5} -> {row['tested']:5}  {row['key']}")


if __name__ == "__main__":
    main()
