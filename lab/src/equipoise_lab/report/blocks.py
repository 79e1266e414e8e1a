"""A page as a list of blocks, written as Markdown here and as HTML by `html`.

Text inside a block may use `code` and **bold**, and no other markup.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Heading:
    level: int
    text: str
    link: str = ""
    """In Markdown, the page that the heading links to."""


@dataclass(frozen=True)
class Text:
    text: str


@dataclass(frozen=True)
class Items:
    items: tuple[str, ...]


@dataclass(frozen=True)
class Grid:
    """A table. The first line of a cell is shown in normal size, the lines after it are small."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: int = 1
    """The number of columns, from the left, that hold words and not numbers."""


@dataclass(frozen=True)
class Picture:
    """A figure: a file of this name, without its suffix, in Markdown; inline in HTML."""

    name: str
    title: str
    svg: str


@dataclass(frozen=True)
class Command:
    text: str


@dataclass(frozen=True)
class Fold:
    """Blocks that are hidden until the reader opens them."""

    summary: str
    blocks: tuple["Block", ...]


Block = Heading | Text | Items | Grid | Picture | Command | Fold


def paragraphs(note: str) -> list[Block]:
    """A note, as one block per paragraph.

    >>> paragraphs("One\\nline.\\n\\nAnother.")
    [Text(text='One line.'), Text(text='Another.')]
    """
    return [Text(" ".join(part.split())) for part in note.strip().split("\n\n") if part]


def to_markdown(blocks: Iterable[Block], figures: str = "figures") -> str:
    """The blocks as Markdown; pictures are linked from the folder `figures`.

    >>> print(to_markdown([Heading(2, "Two"), Grid(("a", "b"), (("x", "1"),))]), end="")
    ## Two
    <BLANKLINE>
    | a | b |
    | --- | ---: |
    | x | 1 |
    """
    return "\n\n".join(_block(block, figures) for block in blocks) + "\n"


def _block(block: Block, figures: str) -> str:
    match block:
        case Heading(level, text, link):
            return f"{'#' * level} " + (f"[{text}]({link})" if link else text)
        case Text(text):
            return text
        case Items(items):
            return "\n".join(f"- {item}" for item in items)
        case Grid(header, rows, left):
            rule = ["---" if place < left else "---:" for place in range(len(header))]
            return "\n".join(_row(cells) for cells in (header, rule, *rows))
        case Picture(name, title, _):
            return f"![{title}]({figures}/{name}.svg)"
        case Command(text):
            return f"```sh\n{text}\n```"
        case Fold(summary, inner):
            return f"<details>\n<summary>{summary}</summary>\n\n{to_markdown(inner, figures)}\n</details>"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_cell(cell.replace("|", "\\|")) for cell in cells) + " |"


def _cell(text: str) -> str:
    first, *rest = text.split("\n")
    return "<br>".join([first, *(f"<sub>{line}</sub>" for line in rest)])
