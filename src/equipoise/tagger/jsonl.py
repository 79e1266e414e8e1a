"""Sentences from JSON Lines: one object per line, with its words or its text, and for training with tags.

{"words": ["Rome", "fell"], "tags": ["B-LOC", "O"]}
{"text": "Rome fell.", "spans": [{"start": 0, "end": 4, "label": "LOC"}]}
{"text": "Rome fell."}

`tokens` is another name of `words`, and `ner_tags` is another name of `tags`. `entities`, `label` and `labels` are
other names of `spans`, whose members may be lists such as [0, 4, "LOC"], as tools for annotation write them.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..files.errors import MalformedLineError
from .rows import SPACES, Lines, short
from .sentence import Sentence, check_length
from .splitting import split_words

WORDS, TAGS, TEXT = ("words", "tokens"), ("tags", "ner_tags", "labels"), "text"
SPANS = ("spans", "entities", "label", "labels")


def tagged(numbered: Lines, name: Path | str) -> Iterator[Sentence]:
    """The sentences with their tags.

    >>> list(tagged([(1, '{"tokens": ["Rome"], "tags": ["B-LOC"], "id": 7}')], "a.jsonl"))
    [Sentence(words=('Rome',), tags=('B-LOC',))]
    """
    for number, line, fields in _objects(numbered, name):
        words, tags = _texts(fields, WORDS), _texts(fields, TAGS)
        if words is None and isinstance(fields.get(TEXT), str):
            sentence = _marked(fields, name, number)
        elif words is None or tags is None or len(words) != len(tags):
            reason = "expected an object with lists of texts of the same length, words and tags, or a text with spans"
            raise MalformedLineError(name, number, f"{reason}: {short(line)}")
        else:
            sentence = Sentence(words, tags)
        check_length(sentence.words, name, number, "an object is a sentence")
        if sentence.words:
            yield sentence


def _marked(fields: dict[str, Any], name: Path | str, number: int) -> Sentence:
    """The words of a text, which also begin and end where spans do, and their tags in IOB2."""
    text, given = fields[TEXT], next((fields[key] for key in SPANS if key in fields), None)
    words: list[str] = []
    tags: list[str] = []
    end = 0
    for start, stop, label in sorted(_places(given, text, name, number)):
        if start < end:
            raise MalformedLineError(name, number, f"the span {[start, stop, label]} overlaps with the one before")
        inside = split_words(text[start:stop])
        words += [*(before := split_words(text[end:start])), *inside]
        tags += ["O"] * len(before) + [f"{'I' if i else 'B'}-{label}" for i in range(len(inside))]
        end = stop
    after = split_words(text[end:])
    return Sentence((*words, *after), (*tags, *["O"] * len(after)))


def _places(given: Any, text: str, name: Path | str, number: int) -> Iterator[tuple[int, int, str]]:
    """Start, end and label of each span."""
    if not isinstance(given, list):
        raise MalformedLineError(name, number, f"expected a list of spans beside the text: {', '.join(SPANS[:2])}")
    for one in given:
        place: Any = [one.get(key) for key in ("start", "end", "label")] if isinstance(one, dict) else one
        right = isinstance(place, list) and len(place) == 3 and [type(x) for x in place] == [int, int, str]
        if not right or not 0 <= place[0] < place[1] <= len(text) or not place[2].strip(SPACES):
            reason = f"expected a span with start, end and label within {len(text)} characters"
            raise MalformedLineError(name, number, f"{reason}: {short(json.dumps(one, ensure_ascii=False))}")
        yield place[0], place[1], place[2]


def untagged(numbered: Lines, name: Path | str) -> Iterator[tuple[int, tuple[str, ...] | str]]:
    """The number of each line, and the words of its object or, if it has none, the text."""
    for number, line, fields in _objects(numbered, name):
        words, text = _texts(fields, WORDS), fields.get(TEXT)
        if words is None and not isinstance(text, str):
            reason = "expected an object with a list of texts, words, or a text"
            raise MalformedLineError(name, number, f"{reason}: {short(line)}")
        yield number, str(text) if words is None else words


def _objects(numbered: Lines, name: Path | str) -> Iterator[tuple[int, str, dict[str, Any]]]:
    for number, line in numbered:
        if not line.strip(SPACES):
            continue
        try:
            fields = json.loads(line)
            json.dumps(fields, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise MalformedLineError(name, number, "half of a pair of surrogates is no character") from None
        except (ValueError, RecursionError) as error:
            raise MalformedLineError(name, number, f"not JSON ({error}): {short(line)}") from None
        if not isinstance(fields, dict):
            raise MalformedLineError(name, number, f"expected an object with words and tags: {short(line)}")
        yield number, line, fields


def _texts(fields: dict[str, Any], names: tuple[str, ...]) -> tuple[str, ...] | None:
    """The list of one of these names, if all of it are texts that a column could have."""
    value = next((fields[name] for name in names if name in fields), None)
    if not isinstance(value, list) or not all(isinstance(x, str) and x.strip(SPACES) for x in value):
        return None
    return tuple(value)
