"""A page with coloured spans: one file that needs nothing else. Text is escaped, and so are control characters."""

import colorsys
from collections.abc import Iterable
from html import escape

from ..files.escaping import escaped, on_one_line
from .model import Tagged
from .pieces import pieces
from .words import Text

STYLE = """
body { font: 16px/1.9 system-ui, sans-serif; max-width: 50em; margin: 2em auto; padding: 0 1em; color: #222; }
mark { padding: .15em .3em; border-radius: .3em; color: inherit; }
mark small { font-size: .7em; font-weight: 600; margin-left: .3em; opacity: .7; }
p { margin: .5em 0; min-height: 1.9em; }
"""


def page(sentences: Iterable[tuple[Tagged, Text]], title: str) -> str:
    """The HTML of tagged sentences. The tooltip of a span is its probability."""
    body: list[str] = []
    kinds: dict[str, int] = {}
    for one, text in sentences:
        for span in one.spans:
            kinds.setdefault(span.kind, len(kinds))
        body.append(f"<p>{_sentence(one, text, kinds)}</p>")
    colours = "".join(f".k{i} {{ background: {_colour(i)}; }}\n" for i in kinds.values())
    legend = " ".join(f'<mark class="k{i}">{escape(escaped(kind))}</mark>' for kind, i in kinds.items())
    head = f'<meta charset="utf-8">\n<title>{escape(on_one_line(title))}</title>\n<style>{STYLE}{colours}</style>'
    lines = "\n".join(body)
    return (
        f"<!doctype html>\n<html>\n<head>\n{head}\n</head>\n<body>\n<p>{legend}</p>\n<hr>\n{lines}\n</body>\n</html>\n"
    )


def _sentence(one: Tagged, text: Text, kinds: dict[str, int]) -> str:
    parts = []
    for part, span, probability in pieces(one, text):
        if span is None:
            parts.append(escape(on_one_line(part)))
        else:
            label = f"<small>{escape(escaped(span.kind))}</small>"
            shown = escape(on_one_line(part))
            parts.append(f'<mark class="k{kinds[span.kind]}" title="{probability:.3f}">{shown}{label}</mark>')
    return "".join(parts)


def _colour(number: int) -> str:
    """Light colours that differ: the hue turns by the golden ratio."""
    red, green, blue = colorsys.hls_to_rgb((0.58 + 0.618034 * number) % 1, 0.85, 0.7)
    return f"#{round(255 * red):02x}{round(255 * green):02x}{round(255 * blue):02x}"
