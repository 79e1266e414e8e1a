"""Pages as one self-contained HTML file: styles and figures are inline, and there is no script."""

import re
from collections.abc import Sequence
from html import escape

from .blocks import Block, Command, Fold, Grid, Heading, Items, Picture, Text

STYLE = """
:root { color-scheme: light dark; --ink: #1d1f21; --soft: #5c6166; --line: #d9dcdf; --paper: #fff; --tint: #f5f6f7; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8ea; --soft: #a4abb2; --line: #3a3f45; --paper: #15171a;
  --tint: #1e2125; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 72rem; padding: 1.5rem 1rem 4rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.55 system-ui, sans-serif; }
h1 { font-size: 1.9rem; line-height: 1.2; } h2 { margin-top: 2.6rem; font-size: 1.35rem; }
h3 { margin-top: 2rem; font-size: 1.08rem; } p, li { max-width: 46rem; } ul { padding-left: 1.2rem; }
.scroll { overflow-x: auto; margin: .8rem 0; } table { border-collapse: collapse; font-size: .92rem; }
th, td { padding: .35rem .7rem; border-bottom: 1px solid var(--line); vertical-align: top; text-align: right;
  font-variant-numeric: tabular-nums; }
th { color: var(--soft); font-weight: 600; } td { white-space: nowrap; }
th:first-child, td:first-child { position: sticky; left: 0; background: var(--paper); }
td.prose { white-space: normal; min-width: 9rem; } .words { text-align: left; } td small { color: var(--soft); }
figure { margin: .8rem 0; }
figure svg { width: 100%; min-width: 30rem; max-width: 46rem; height: auto; } figcaption { color: var(--soft); }
code, pre { font-family: ui-monospace, monospace; font-size: .9em; } pre { overflow-x: auto; padding: .5rem .8rem;
  background: var(--tint); border-radius: .3rem; max-width: 46rem; }
details { margin: .8rem 0; } summary { cursor: pointer; color: var(--soft); }
"""


def to_html(blocks: Sequence[Block]) -> str:
    """The blocks as a page; its title is the first heading.

    >>> to_html([Heading(1, "Results")]).startswith("<!doctype html>")
    True
    """
    title = next(block.text for block in blocks if isinstance(block, Heading))
    body = "\n".join(_block(block) for block in blocks)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>equipoise: {escape(title)}</title>
<style>{STYLE}</style>
</head>
<body>
{body}
</body>
</html>
"""


def _block(block: Block) -> str:
    match block:
        case Heading(level, text, _):
            return f"<h{level}>{_inline(text)}</h{level}>"
        case Text(text):
            return f"<p>{_inline(text)}</p>"
        case Items(items):
            return "<ul>" + "".join(f"<li>{_inline(item)}</li>" for item in items) + "</ul>"
        case Grid(header, rows, left):
            head = "".join(_cell("th", cell, place < left) for place, cell in enumerate(header))
            body = "".join(
                "<tr>" + "".join(_cell("td", cell, place < left) for place, cell in enumerate(row)) + "</tr>"
                for row in rows
            )
            return f'<div class="scroll" tabindex="0"><table><tr>{head}</tr>{body}</table></div>'
        case Picture(_, _, svg):
            return f'<figure class="scroll" tabindex="0">{svg}</figure>'
        case Command(text):
            return f"<pre>{escape(text)}</pre>"
        case Fold(summary, inner):
            hidden = "\n".join(_block(one) for one in inner)
            return f"<details><summary>{_inline(summary)}</summary>{hidden}</details>"


def _cell(tag: str, text: str, words: bool) -> str:
    first, *rest = text.split("\n")
    kind = ' class="words prose"' if words and len(text) > 28 else ' class="words"' if words else ""
    small = "".join(f"<br><small>{_inline(line)}</small>" for line in rest)
    return f"<{tag}{kind}>{_inline(first)}{small}</{tag}>"


def _inline(text: str) -> str:
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text, quote=False))
    return re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", text)
