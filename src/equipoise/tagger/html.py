"""A page with coloured spans: one file, without a script, that needs nothing else.

A click on a span shows its exact probability, the most probable other type, and the best labellings of its sentence: it
is a link to a row of a table, which style sheets show if it is the target. All text is escaped, and so are control
characters; a policy in the page forbids scripts and other files.
"""

from collections.abc import Iterable, Sequence
from html import escape

from torch import Tensor

from ..files.escaping import on_one_line
from ..spans.scored import scored
from .charts import rgb, shade
from .model import Tagged
from .pieces import pieces
from .tagset import TagSet
from .words import Text

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
BEST = 5
"""Labellings of a sentence that are shown."""
MOST_SENTENCES = 2000
"""Further sentences of a text are shown without labellings: a page of all would be too large for browsers."""
MOST_LABELS = 64
"""A matrix of more labels is not shown."""
STYLE = """
body { font: 16px/1.9 system-ui, sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; color: #222; }
.span { padding: .15em .3em; border-radius: .3em; color: inherit; text-decoration: none; }
a.span:hover { outline: 1px solid #555; }
.span small { font-size: .7em; font-weight: 600; margin-left: .3em; opacity: .7; }
p { margin: .5em 0; min-height: 1.9em; }
.number { color: #767676; text-decoration: none; font-size: .7em; margin-right: .7em; }
h1, p, td.text { overflow-wrap: anywhere; }
.more { display: none; overflow-x: auto; margin: 0 0 1.5em 2em; font-size: .9em; line-height: 1.5; }
.sentence:target .more, .sentence:has(:target) .more { display: block; }
tr:target { background: #fff3c4; }
table { border-collapse: collapse; margin: .5em 0; }
th, td { padding: .1em .6em; text-align: right; font-variant-numeric: tabular-nums; }
th:first-child, td.text { text-align: left; }
thead th { border-bottom: 1px solid #999; }
.wide { overflow-x: auto; }
.true { margin: 1.2em 0 -.3em; color: #2a6b3a; }
svg { max-width: none; }
"""


def page(sentences: Iterable[tuple[Tagged, Text]], title: str, tags: TagSet, transitions: Tensor) -> str:
    """The HTML of tagged sentences and of the matrix of transition scores."""
    colours = Colours()
    body = [sentence(one, text, tags, colours, number) for number, (one, text) in enumerate(sentences, 1)]
    return document(title, [f"<p>{colours.legend()}</p>", "<hr>", *body, "<hr>", *matrix(tags, transitions)], colours)


class Colours:
    """A colour per type of span, in the order in which they occur."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def of(self, kind: str) -> str:
        """The class of a type."""
        return f"k{self.numbers.setdefault(kind, len(self.numbers))}"

    def style(self) -> str:
        return "".join(f".k{i} {{ background: {_colour(i)}; }}\n" for i in self.numbers.values())

    def legend(self) -> str:
        return " ".join(f'<mark class="span k{i}">{plain(kind)}</mark>' for kind, i in self.numbers.items())


def document(title: str, body: Sequence[str], colours: Colours) -> str:
    head = f'<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
    head += f"<title>{plain(title)}</title>\n<style>{STYLE}{colours.style()}</style>"
    lines = "\n".join(body)
    return f"<!doctype html>\n<html>\n<head>\n{head}\n</head>\n<body>\n{lines}\n</body>\n</html>\n"


def sentence(one: Tagged, text: Text, tags: TagSet, colours: Colours, number: int) -> str:
    """A sentence whose spans are links to rows of a table, which follows it."""
    name = f"s{number}"
    parts: list[str] = []
    rows: list[str] = []
    for part, span, _ in pieces(one, text):
        if span is None:
            parts.append(plain(part))
            continue
        row = scored(span, one.kinds[len(rows)], range(len(one.words)), range(1, len(one.words) + 1))
        target = f"{name}-{len(rows) + 1}"
        label = f"<small>{plain(span.kind)}</small>"
        style, tip = colours.of(span.kind), number_of(row.probability)
        parts.append(f'<a class="span {style}" href="#{target}" title="{tip}">{plain(part)}{label}</a>')
        other = "" if row.runner_up is None else plain(row.runner_up)
        second = "" if row.runner_up_probability is None else number_of(row.runner_up_probability)
        cells = _cells(plain(part), plain(span.kind), tip, other, second)
        rows.append(f'<tr id="{target}">{cells}</tr>')
    shown = f'<p dir="auto"><a class="number" href="#{name}">{number}</a>{"".join(parts)}</p>'
    return f'<section class="sentence" id="{name}">{shown}{_more(one, text, tags, colours, rows)}</section>'


def _more(one: Tagged, text: Text, tags: TagSet, colours: Colours, rows: Sequence[str]) -> str:
    """What a click shows: a table of the spans, and one of the best labellings."""
    spans = f"<table>{_head('span', 'type', 'probability', 'next type', 'its probability')}{''.join(rows)}</table>"
    best = [_cells(marked(one, each, text, tags, colours), number_of(p)) for each, p in one.best]
    labellings = "".join(f"<tr>{cells}</tr>" for cells in best)
    tables = [spans] * bool(rows) + [f"<table>{_head('best labellings', 'probability')}{labellings}</table>"] * bool(
        best
    )
    return f'<div class="more">{"".join(tables)}</div>' if tables else ""


def marked(one: Tagged, labels: Sequence[str], text: Text, tags: TagSet, colours: Colours) -> str:
    """A sentence with the spans of these labels, without links."""
    spans = tags.spans(labels)
    other = one._replace(tags=tuple(labels), spans=spans, kinds=[{span.kind: 1.0} for span in spans])
    return "".join(
        plain(part)
        if span is None
        else f'<mark class="span {colours.of(span.kind)}">{plain(part)}<small>{plain(span.kind)}</small></mark>'
        for part, span, _ in pieces(other, text)
    )


def matrix(tags: TagSet, transitions: Tensor) -> list[str]:
    """The scores of transitions, from the label of a row to that of a column."""
    title = "<h2>Scores of transitions</h2>"
    if len(tags.labels) > MOST_LABELS:
        return [title, f"<p>There are {len(tags.labels)} labels, too many for a table.</p>"]
    rows = transitions.tolist()
    largest = max([abs(x) for row in rows for x in row if abs(x) < float("inf")], default=0) or 1.0
    cells = [
        f"<tr><th>{plain(label)}</th>{''.join(_score(x, largest) for x in row)}</tr>"
        for label, row in zip(tags.labels, rows, strict=True)
    ]
    what = "From the label of a row to that of a column; a scheme forbids those without a number."
    table = f"<table>{_head('', *tags.labels)}{''.join(cells)}</table>"
    return [title, f"<p>{what}</p>", f'<div class="wide">{table}</div>']


def plain(text: str) -> str:
    """Text as HTML, on one line."""
    return escape(on_one_line(text))


def number_of(probability: float) -> str:
    """
    >>> number_of(0.98765), number_of(1e-9)
    ('0.987650', 'under 0.000001')
    """
    return f"{probability:.6f}" if probability >= 1e-6 else "under 0.000001"


def _cells(text: str, *others: str) -> str:
    return f'<td class="text">{text}</td>' + "".join(f"<td>{x}</td>" for x in others)


def rows_of(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of texts."""
    body = "".join(f"<tr>{_cells(*map(plain, row))}</tr>" for row in rows)
    return f'<div class="wide"><table>{_head(*names)}{body}</table></div>'


def _head(*names: str) -> str:
    return f"<thead><tr>{''.join(f'<th>{plain(name)}</th>' for name in names)}</tr></thead>"


def _score(x: float, largest: float) -> str:
    """A cell, green for scores above 0 and red for scores below."""
    if abs(x) == float("inf"):
        return "<td></td>"
    return f'<td style="background: {shade(x > 0, abs(x) / largest)}">{x:.2f}</td>'


def _colour(number: int) -> str:
    """Light colours that differ: the hue turns by the golden ratio."""
    return rgb((0.58 + 0.618034 * number) % 1, 0.85, 0.7)
