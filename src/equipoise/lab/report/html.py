"""The report as one HTML file that needs nothing else: styles and figures are inside, and there is no script."""

import re
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from ..run.store import Record
from .blocks import Block, Command, Fold, Grid, Heading, Items, Judged, Picture, Text
from .files import write_whole
from .pages import Options, document, write_blocks

STYLE = """
:root { color-scheme: light dark; --ink: #1d1f21; --soft: #5c6166; --line: #d9dcdf; --paper: #fff; --tint: #f5f6f7;
  --good: #00694d; --mixed: #7d5a00; --bad: #a83c00; --none: #5c6166; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8ea; --soft: #a4abb2; --line: #3a3f45; --paper: #15171a;
  --tint: #1e2125; --good: #4fd1a5; --mixed: #e3b341; --bad: #ff9b66; --none: #a4abb2; } }
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
.verdict { max-width: 52rem; margin: .8rem 0; padding: .6rem .9rem; background: var(--tint);
  border-left: .3rem solid var(--none); border-radius: .2rem; }
.verdict p { margin: .25rem 0; overflow-wrap: anywhere; } .verdict .claim { font-weight: 600; }
.badge { color: var(--none); font-size: .8rem; font-weight: 700; text-transform: uppercase; letter-spacing: .03em; }
.where { color: var(--soft); font-weight: 400; } .verdict li { overflow-wrap: anywhere; }
.good { border-color: var(--good); } .good .badge { color: var(--good); }
.mixed { border-color: var(--mixed); } .mixed .badge { color: var(--mixed); }
.bad { border-color: var(--bad); } .bad .badge { color: var(--bad); }
"""
CLASSES = {"reproduced": "good", "reproduced with conditions": "mixed", "not reproduced": "bad", "not tested": "none"}


def html(records: Iterable[Record], options: Options | None = None) -> str:
    """The report as a page.

    >>> html([], Options(known={})).startswith("<!doctype html>")
    True
    """
    return to_html(document(records, options))


def to_html(blocks: Sequence[Block]) -> str:
    """The blocks as a page, which bears the name of its first heading."""
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


def publish(records: Iterable[Record], docs: Path | str, options: Options | None = None) -> list[Path]:
    """Write `results.md`, `results.html` and `figures/*.svg` into the folder, each whole, and return their paths."""
    blocks = document(records, options)
    page = Path(docs) / "results.html"
    paths = write_blocks(blocks, docs)
    write_whole(page, to_html(blocks))
    return [*paths, page]


def _block(block: Block) -> str:
    match block:
        case Heading(level, text):
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
            return _fold(summary, "\n".join(_block(one) for one in inner))
        case Judged(verdict, of):
            claim = verdict.claim
            where = f'<span class="where">({escape(claim.where + of)})</span>'
            parts = block.parts()
            listed = "".join(f"<li>{_inline(part)}</li>" for part in parts)
            return (
                f'<div class="verdict {CLASSES[verdict.status]}"><span class="badge">{verdict.status}</span>'
                f'<p class="claim">{_inline(claim.text)} {where}</p><p>{_inline(verdict.sentence)}</p>'
                + (_fold(f"All {len(parts)} comparisons", f"<ul>{listed}</ul>") if parts else "")
                + "</div>"
            )


def _fold(summary: str, inner: str) -> str:
    return f"<details><summary>{_inline(summary)}</summary>{inner}</details>"


def _cell(tag: str, text: str, words: bool) -> str:
    first, _, rest = text.partition("\n")
    kind = ' class="words prose"' if words and len(first) > 28 else ' class="words"' if words else ""
    return f"<{tag}{kind}>{_inline(first)}" + (f"<br><small>{_inline(rest)}</small>" if rest else "") + f"</{tag}>"


def _inline(text: str) -> str:
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text, quote=False))
    return re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", text)
