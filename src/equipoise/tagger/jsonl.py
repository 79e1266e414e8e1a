"""Sentences from JSON Lines: one object per line, with its words or its text, and for training with tags.

{"words": ["Rome", "fell"], "tags": ["B-LOC", "O"]}
{"text": "Rome fell."}

`tokens` is another name of `words`, and `ner_tags` and `labels` are other names of `tags`.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..files.errors import MalformedLineError
from .rows import SPACES, Lines, short
from .sentence import Sentence, check_length

WORDS, TAGS, TEXT = ("words", "tokens"), ("tags", "ner_tags", "labels"), "text"


def tagged(numbered: Lines, name: Path | str) -> Iterator[Sentence]:
    """The sentences with their tags.

    >>> list(tagged([(1, '{"tokens": ["Rome"], "tags": ["B-LOC"], "id": 7}')], "a.jsonl"))
    [Sentence(words=('Rome',), tags=('B-LOC',))]
    """
    for number, line, fields in _objects(numbered, name):
        words, tags = _texts(fields, WORDS), _texts(fields, TAGS)
        if words is None or tags is None or len(words) != len(tags):
            reason = "expected an object with lists of texts of the same length, words and tags"
            raise MalformedLineError(name, number, f"{reason}: {short(line)}")
        check_length(words, name, number, "an object is a sentence")
        if words:
            yield Sentence(words, tags)


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
