"""The fields of tagger.json, each checked: the file may be damaged, or written by a stranger."""

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import fields as names_of
from pathlib import Path
from typing import Any

from ..files.errors import DataError
from ..spans.tables import INFERRED
from .features import Vocabulary
from .net import Sizes
from .splitting import RULES
from .tagset import TagSet
from .templates import DICTIONARIES, WORDS

NAME = "tagger.json"
FORMAT, FIRST_FORMAT = "equipoise tagger 2", "equipoise tagger 1"
"""A folder of the first format has no digests."""
LARGEST = 10**6
"""No size of a net is larger."""


def parse(data: bytes, path: Path) -> dict[str, Any]:
    """The fields in a file. Raises DataError with the file and the field."""
    try:
        fields = json.loads(data.decode())
        if not isinstance(fields, dict):
            raise ValueError("it is not an object with fields")
        check(fields)
    except RecursionError:
        raise DataError(f"{path} is damaged: it is nested too deeply") from None
    except ValueError as error:
        raise DataError(f"{path} is damaged: {error}") from None
    return fields


def text(fields: Mapping[str, Any]) -> str:
    """What is written to the file. The digest of all other fields is its last field."""
    own = {name: value for name, value in fields.items() if name != "sha256"}
    if "files" in own:
        own["sha256"] = digest(own)
    return json.dumps(own, ensure_ascii=False, indent=1) + "\n"


def digest(fields: Mapping[str, Any]) -> str:
    """SHA-256 of all fields but the digest itself."""
    own = {name: value for name, value in fields.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(own, sort_keys=True).encode()).hexdigest()


def check(fields: dict[str, Any]) -> None:
    """Raise ValueError with the name of the field that is wrong."""
    kind = fields.get("format")
    if kind not in (FORMAT, FIRST_FORMAT):
        raise ValueError(f"the field format is {kind!r}, expected {FORMAT!r}")
    wanted: dict[str, Callable[[Any], bool]] = {"labels": _labels, "scheme": _scheme, "training": _training}
    if kind == FORMAT:
        wanted |= {"files": _files, "sha256": lambda value: isinstance(value, str)}
    if "sizes" in fields or "vocabulary" in fields:
        wanted |= {"sizes": _sizes, "vocabulary": _vocabulary}
    if "features" in fields:
        wanted["features"] = _features
    if "words" in fields:
        wanted["words"] = lambda value: _number(value, RULES[0], RULES[-1])
    missing = [name for name in wanted if name not in fields]
    if missing:
        raise ValueError(f"the field {missing[0]} is missing")
    unknown = sorted(fields.keys() - wanted.keys() - {"format"})
    if unknown:
        raise ValueError(f"the field {unknown[0]} is unknown in the format {kind!r}")
    if kind == FORMAT and digest(fields) != fields["sha256"]:
        raise ValueError("its digest (sha256) is wrong, so it was damaged or changed")
    for name, right in wanted.items():
        try:
            valid = right(fields[name])
        except (AttributeError, KeyError, TypeError, UnicodeEncodeError):
            valid = False
        if not valid:
            raise ValueError(f"the field {name} has a wrong value: {json.dumps(fields[name])[:80]}")
    try:
        TagSet(tuple(fields["labels"]), fields["scheme"]).constraints()
    except ValueError as error:
        raise ValueError(f"the fields labels and scheme do not fit: {error}") from None


def _texts(value: Any) -> bool:
    """A list of different texts. Half of a pair of surrogates is no text."""
    return isinstance(value, list) and len({x.encode() for x in value}) == len(value)


def _labels(value: Any) -> bool:
    return _texts(value) and value != [] and "" not in value


def _scheme(value: Any) -> bool:
    return value in (*INFERRED, "none")


def _number(value: Any, least: int, most: int = 2**62) -> bool:
    return type(value) is int and least <= value <= most


def _training(value: Any) -> bool:
    """How it was trained. Only `--resume` needs more than that it is an object, see `training`."""
    return isinstance(value, dict)


def _sizes(value: Any) -> bool:
    dropout = value["dropout"]
    return (
        value.keys() == {field.name for field in names_of(Sizes)}
        and type(dropout) in (int, float)
        and math.isfinite(dropout)
        and 0 <= dropout <= 1
        and all(_number(size, 1, LARGEST) for name, size in value.items() if name != "dropout")
    )


def _vocabulary(value: Any) -> bool:
    return value.keys() == {field.name for field in names_of(Vocabulary)} and all(map(_texts, value.values()))


def _features(value: Any) -> bool:
    return value.keys() == {"reads", "names"} and value["reads"] in (WORDS, DICTIONARIES) and _texts(value["names"])


def _files(value: Any) -> bool:
    """Names without a folder, and the size and digest of each."""
    return isinstance(value, dict) and all(
        is_plain(name)
        and each.keys() == {"size", "sha256"}
        and _number(each["size"], 0)
        and isinstance(each["sha256"], str)
        for name, each in value.items()
    )


def is_plain(name: str) -> bool:
    """Whether a file of this name lies in the folder itself, and is not hidden."""
    return (
        name.isprintable() and not name.startswith(".") and not {"/", "\\", ":"} & set(name) and name not in ("", NAME)
    )
