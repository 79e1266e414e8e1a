"""The features of each word of a sentence, as names with weights.

A word has the usual features of a CRF: itself, its first and last characters and its shape, the words around it, and
pairs of neighbours. A sentence of feature dictionaries has those of sklearn-crfsuite:

    {"bias": 1.0, "word.lower()": "rome", "word.istitle()": True}
        ->  bias 1,  word.lower():rome 1,  word.istitle() 1
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from .features import shape

WORDS, DICTIONARIES = "words 1", "dictionaries 1"
"""What a net reads, with the number of the rule: a saved net keeps its rule."""
AFFIX = 4
"""Prefixes and suffixes have up to this many characters."""


def of_words(words: Sequence[str]) -> Iterator[list[str]]:
    """The features of each word, each of weight 1.

    >>> print(*list(of_words(["in", "Rome"]))[1])  # doctest: +NORMALIZE_WHITESPACE
    bias word=Rome lower=rome shape=Aa prefix=r suffix=e prefix=ro suffix=me prefix=rom suffix=ome prefix=rome
    suffix=rome -1:lower=in -1:shape=a -1:suffix=in 1:end -1,0=in|rome 0,1=rome|
    """
    parts = [_of_word(word) for word in words]
    last = len(parts) - 1
    for i, (lower, own, _, _) in enumerate(parts):
        names = [*own]
        names += [f"-1:{name}" for name in parts[i - 1][2]] if i else ["-1:start"]
        names += [f"1:{name}" for name in parts[i + 1][2]] if i < last else ["1:end"]
        names += [f"-2:{name}" for name in parts[i - 2][3]] if i > 1 else []
        names += [f"2:{name}" for name in parts[i + 2][3]] if i + 1 < last else []
        names.append(f"-1,0={parts[i - 1][0] if i else ''}|{lower}")
        names.append(f"0,1={lower}|{parts[i + 1][0] if i < last else ''}")
        yield names


@lru_cache(2**16)
def _of_word(word: str) -> tuple[str, list[str], list[str], list[str]]:
    """The word in lower case, its features for itself, for its neighbours, and for the words beside these."""
    lower, form = word.lower(), f"shape={shape(word)}"
    affixes = [x for n in range(1, AFFIX + 1) for x in (f"prefix={lower[:n]}", f"suffix={lower[-n:]}")]
    far = [f"lower={lower}", form]
    return lower, ["bias", f"word={word}", *far, *dict.fromkeys(affixes)], [*far, f"suffix={lower[-3:]}"], far


def of_dictionary(features: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """The features of one dictionary. Texts in a list, a tuple or a set are several features of one name.

    >>> list(of_dictionary({"w": "Rome", "title": True, "length": 4, "next": {"w": "fell"}, "in": ["list", "map"]}))
    [('w:Rome', 1.0), ('title', 1.0), ('length', 4.0), ('next:w:fell', 1.0), ('in:list', 1.0), ('in:map', 1.0)]
    """
    for key, value in features.items():
        name = f"{prefix}{key}"
        if isinstance(value, str):
            yield f"{name}:{value}", 1.0
        elif isinstance(value, Mapping):
            yield from of_dictionary(value, f"{name}:")
        elif isinstance(value, list | tuple | set | frozenset):
            yield from ((f"{name}:{item}", 1.0) for item in value)
        else:
            try:
                yield name, float(value)
            except (TypeError, ValueError):
                kinds = "a str, a number, a bool, or a dictionary or list of these"
                raise ValueError(f"the feature {name!r} is {value!r}; it must be {kinds}") from None
