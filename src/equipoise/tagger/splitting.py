r"""Split plain text into sentences and words, by a rule with a number: a saved tagger keeps the rule it was made with.

A word is a run of letters, digits and other characters that are neither space nor punctuation. One sign of - . , ' & /
@ _ or : between two such characters belongs to the word (e-mail, 1,000, AT&T), and so does one @ or # before it, and
the last stop of abbreviations such as U.S., p.m. and Mr. Every other sign is a word of its own. The English endings
n't, 's, 're, 've, 'll, 'd and 'm are split off, as in most corpora.

Rule 2, the newest, cuts at grapheme clusters only (`\X` of Unicode), never inside one. A cluster of a script that
writes no spaces between words is a word of its own, and so is an emoji, however many characters it has.

A sentence ends after . ! or ? (and closing quotes or brackets) if a space and then a capital, a digit or a quote
follow, unless the word before . is a single letter or one of Mr, Mrs, Ms, Dr, Prof, St. By rule 2 it also ends after
the stops of other scripts, with or without a space. Blank lines also end sentences. A byte order mark is a space.
"""

import re
import unicodedata
from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import accumulate
from typing import Any

from ..files.text import MARK
from ..repository import install

RULES = (1, 2)
NEWEST = RULES[-1]
LONGEST_ABBREVIATION = len(" Prof.")
JOINERS = "-.,'’&/@_:"  # noqa: RUF001
ENDING = re.compile(r"(.+?)(n['’]t|['’](?:s|re|ve|ll|d|m))", re.IGNORECASE)  # noqa: RUF001
SHORTENED = re.compile(r"\b(?:(?:[^\W\d_]\.){2,}|(?:Mr|Mrs|Ms|Dr|Prof|St)\.)")
SENTENCE_END = r"""((?<![.!?])[.!?]++["'”’)\]]*+)\s++(?=["'“‘(\[]*[^\W_a-z])"""  # noqa: RUF001
OTHER_END = r"""([。！？｡।॥؟۔።။។]++["'”’」』）】》)\]]*+)\s*+(?=\S)"""  # noqa: RUF001
SENTENCE_ENDS = {1: re.compile(SENTENCE_END), 2: re.compile(f"{SENTENCE_END}|{OTHER_END}")}
ABBREVIATION = re.compile(r"(?:^|[\s(\"'“‘.])(?:\w|Mr|Mrs|Ms|Dr|Prof|St)\.$")  # noqa: RUF001
SCRIPTS = ("Han", "Hiragana", "Katakana", "Thai", "Lao", "Khmer", "Myanmar")
"""Scripts without spaces between words, of which each cluster is a word."""
WITHOUT_SPACES = "|".join(rf"\p{{Script_Extensions={name}}}" for name in SCRIPTS)
PICTURE = ("\ufe0f", "\u20e3")
"""After a character, it is shown as an emoji: a variation selector, and the frame of a key."""


def split_words(text: str, rule: int = NEWEST) -> tuple[str, ...]:
    """The words of a text.

    >>> split_words("The U.S.-based Mr. X didn't pay $1,000 (by e-mail) to @bob's...")
    ('The', 'U.S.-based', 'Mr.', 'X', 'did', "n't", 'pay', '$', '1,000', '(', 'by', 'e-mail', ')', 'to', '@bob', "'s", \
'.', '.', '.')
    """
    units = list(text) if rule == 1 or text.isascii() else _clusters(text)
    classes = [_class(unit, rule) for unit in units]
    ends = list(accumulate(map(len, units)))
    number = {end: i for i, end in enumerate(ends)}
    for match in SHORTENED.finditer(text):
        stop = number.get(match.end())
        if stop is not None and classes[stop - 1] == "w":
            classes[stop] = "w"
    found = re.finditer(r"h?w+(?:[jh]w+)*|[jhpc]", "".join(classes))
    return tuple(part for match in found for part in _parts(units[match.start() : match.end()]))


@lru_cache(1 << 14)
def _class(unit: str, rule: int) -> str:
    """w in words, s between words, h for @ and #, j for signs that may join two parts of a word, p for the rest.

    By rule 2, c for a word of a script without spaces.
    """
    c = unit[0]
    if c.isspace() or c == MARK:
        return "s"
    if any(sign in unit[1:] for sign in PICTURE):
        return "p"
    if c in "@#":
        return "h"
    if c in JOINERS:
        return "j"
    if unicodedata.category(c)[0] in "PSZC":
        return "p"
    return "c" if rule > 1 and not c.isascii() and _compiled(WITHOUT_SPACES).match(c) else "w"


def _parts(units: Sequence[str]) -> tuple[str, ...]:
    """A word, without its English ending if it has one that begins with a unit."""
    word = "".join(units)
    match = ENDING.fullmatch(word)
    if match is None or match.start(2) not in accumulate(map(len, units)):
        return (word,)
    return (match[1], match[2])


def _clusters(text: str) -> list[str]:
    """The clusters of a text. A space is a unit of its own, so that words have none."""
    cluster = _compiled(r"\X")
    parts = re.split(r"(\s)", text)
    return [unit for part in parts for unit in (part if part.isascii() else cluster.findall(part))]


@cache
def _compiled(pattern: str) -> Any:
    try:
        import regex
    except ImportError:
        raise ValueError(f"text that is not ASCII is split by the package regex: {install('tagger')}") from None
    return regex.compile(pattern)


def split_sentences(text: str, rule: int = NEWEST) -> list[str]:
    """The sentences of a text without blank lines.

    >>> split_sentences('Mr. Smith left. "Why?" asked J. Doe. It was 5 p.m. then.')
    ['Mr. Smith left.', '"Why?" asked J. Doe.', 'It was 5 p.m. then.']
    >>> split_sentences("他走了。我们留下。")
    ['他走了。', '我们留下。']
    """
    sentences, start = [], 0
    for match in SENTENCE_ENDS[rule].finditer(text):
        end = match.end(match.lastindex or 0)
        if not ABBREVIATION.search(text[max(start, end - LONGEST_ABBREVIATION) : end]):
            sentences.append(text[start:end])
            start = match.end()
    return [sentence for sentence in [*sentences, text[start:]] if sentence.strip()]
