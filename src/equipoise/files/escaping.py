r"""Text of files as it is printed: a terminal must not obey it, and must show its characters in their order.

Control characters (C0, C1 and DEL), line and paragraph separators, signs that change the direction of text, and half
surrogates are written as Python writes them: \x1b, \x9b, \u202e. In JSON they are written as JSON writes them.
"""

import json
import re
import sys
from typing import Any

HIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ufff9-\ufffb\ud800-\udfff]")
"""Characters that are not printed. Signs without width that join or separate letters are, as some scripts need them."""
SPACES = re.compile(r"\s+")


def escaped(text: str) -> str:
    r"""
    >>> escaped("a\x1b[2J\tb\u202ec\x9b é")
    'a\\x1b[2J\\tb\\u202ec\\x9b é'
    """
    return HIDDEN.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def on_one_line(text: str) -> str:
    r"""White space as single spaces, and the rest escaped.

    >>> on_one_line(" a\n\tb\x07")
    ' a b\\x07'
    """
    return escaped(SPACES.sub(" ", text))


def to_json(value: Any, indent: int | None = None) -> str:
    r"""JSON for standard output, in ASCII if that is not in UTF-8. The value can be read from it exactly.

    >>> to_json({"word": "\x9bé\u202e"})
    '{"word": "\\u009bé\\u202e"}'
    """
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    exact = encoding.lower().replace("-", "").replace("_", "") == "utf8"
    text = json.dumps(value, indent=indent, ensure_ascii=not exact)
    return HIDDEN.sub(lambda match: match[0] if match[0] == "\n" else f"\\u{ord(match[0]):04x}", text)
