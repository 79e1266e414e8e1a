"""A report as a list of blocks, to be written as Markdown here and as HTML by `page`.

Text inside a block may use `code` and **bold**, and nothing else.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..judge.verdicts import Verdict


@dataclass(frozen=True)
class Heading:
    level: int
    text: str


@dataclass(frozen=True)
class Text:
    text: str


@dataclass(frozen=True)
class Items:
    items: tuple[str, ...]


@dataclass(frozen=True)
class Grid:
    """A table. A line break in a cell parts what is important from what is said beside it."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: int = 1
    """How many columns, from the left, hold words and not numbers."""


@dataclass(frozen=True)
class Picture:
    """A figure, in a file of this name (without its ending) or inline."""

    name: str
    title: str
    svg: str


@dataclass(frozen=True)
class Command:
    text: str


@dataclass(frozen=True)
class Fold:
    """What is shown on demand."""

    summary: str
    blocks: tuple["Block", ...]


@dataclass(frozen=True)
class Judged:
    """A verdict, with the parts it follows from."""

    verdict: Verdict
    of: str
    """Which task, where there are several."""

    def parts(self) -> list[str]:
        """Each test in a line, where there are several."""
        words = {True: "holds", False: "does not hold", None: "not tested"}
        every = self.verdict.parts if len(self.verdict.parts) > 1 else ()
        return [f"{part.name} ({words[part.holds]}): {part.sentence}" for part in every]


Block = Heading | Text | Items | Grid | Picture | Command | Fold | Judged


def to_markdown(blocks: Iterable[Block], figures: str = "figures") -> str:
    """The blocks as Markdown; pictures are looked for in the folder `figures`.

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
        case Heading(level, text):
            return f"{'#' * level} {text}"
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
        case Judged(verdict, of):
            claim = verdict.claim
            line = f"- **{verdict.status.capitalize()}**{of}: {claim.text} ({claim.where})\n  {verdict.sentence}"
            parts = block.parts()
            listed = to_markdown([Fold(f"All {len(parts)} comparisons", (Items(tuple(parts)),))]) if parts else ""
            return "\n".join([line, *(f"  {text}".rstrip() for text in listed.splitlines())])


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", "<br>") for cell in cells) + " |"
