"""Docstrings are plain text, and the site reads Markdown: examples become code, and a star in `(*batch, L)` stays one.

example     lines from ">>>" to the next empty line become a fenced block
formula     lines indented by four or more, outside sections such as "Args:", are a block already
text        the rest: characters with a meaning in Markdown are escaped outside backticks
"""

import re
from itertools import groupby
from typing import Any

import griffe

SECTION = re.compile(r"(Args|Returns|Yields|Raises|Attributes):$")


class PlainText(griffe.Extension):
    """Turns each docstring into Markdown when griffe has read the object."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)


def markdown(text: str) -> str:
    r"""The docstring as Markdown with sections of Google's style.

    >>> print(markdown("Scores s*, (*batch, L):\n\n    a * b\n\nwith `*batch`.").replace("\n\n", "\n"))
    Scores s\*, (\*batch, L):
        a * b
    with `*batch`.
    """
    parts = groupby(labelled(text.split("\n")), key=lambda pair: pair[0])
    return "\n".join(RENDERED[kind]("\n".join(line for _, line in part)) for kind, part in parts)


def labelled(lines: list[str]) -> list[tuple[str, str]]:
    """Each line with its kind: "example", "formula" or "text"."""
    found: list[tuple[str, str]] = []
    in_section = False
    kind = "text"
    for line in lines:
        indented = line.startswith("    ")
        if line and not indented:
            in_section = SECTION.match(line) is not None
        if line.lstrip().startswith(">>>"):
            kind = "example"
        elif kind != "example" or not line:
            kind = "formula" if indented and not in_section else "text"
        found.append((kind, line))
    return found


def escaped(text: str) -> str:
    """The text with stars, brackets and tags as plain characters, outside backticks."""
    return re.sub(r"(`[^`]*`)|([*\[<])", lambda found: found[1] or SPELLED[found[2]], text)


SPELLED = {"*": "\\*", "[": "\\[", "<": "&lt;"}
RENDERED = {"example": lambda text: f"```pycon\n{text}\n```", "formula": lambda text: text, "text": escaped}
