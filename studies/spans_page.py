"""The tables and the figure of docs/guides/spans.md, from the lines that `spans` has measured."""

import statistics
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from equipoise_lab.demo import svg
from equipoise_lab.report.readme import fill

GUIDE = Path(__file__).parent.parent / "docs" / "guides" / "spans.md"
TITLES = {"wnut17": "WNUT-17", "conll2000": "CoNLL-2000", "bc5cdr": "BC5CDR"}
SOFTMAX = {"argmax": "argmax", "constrained": "constrained", "calibrated": "constrained and calibrated"}
CRFS = {
    ("softmax", "argmax"): "softmax, argmax",
    ("softmax", "constrained"): "softmax, constrained decoding",
    ("CRF", "free"): "CRF without constraints",
    ("CRF", "constrained"): "CRF, constraints in decoding only",
    ("CRF with constraints", "constrained"): "CRF with constraints",
}
OPENING = """## Measured

MiniLM with a softmax, fine-tuned without a CRF. The decoder is calibrated on development sentences. Test sentences, in
percent, mean and standard deviation of {seeds} seeds.
"""
CLOSING = """
![The share of right spans by their probability, for each decoder](spans-reliability.svg)

Invalid sentences have labels that break BIO, of which spans are read as `conlleval` does. The calibration error is the
mean distance between the share of right spans and their mean probability, in ten bins. The argmax has no probability of
a span. Taken is the mean of its words' highest probabilities, as the pipeline of transformers does.

CRFs that are trained with the same encoder, for comparison; 10 % of the training sentences are columns of their own:
"""
SIDE, GAP, LEFT, TOP = 190, 34, 40, 24
FEWEST = 20
"""Bins with fewer spans are not drawn."""


def write(records: list[dict[str, Any]]) -> None:
    GUIDE.write_text(guide(GUIDE.read_text(encoding="utf-8"), records), encoding="utf-8")
    GUIDE.with_name("spans-reliability.svg").write_text(figure(records), encoding="utf-8")


def guide(text: str, records: list[dict[str, Any]]) -> str:
    """The guide with the tables of these records."""
    return fill(text, "measured", {"spans": tables(records) if records else ""})


def tables(records: list[dict[str, Any]]) -> str:
    """One table of decoders of the softmax, and one of the CRFs beside it."""
    seeds = len({line["seed"] for line in records})
    header = ("corpus", "decoder", "F1", "invalid sentences", "calibration error")
    rows = [header, ("---", "---", "---:", "---:", "---:")]
    for corpus, title in TITLES.items():
        for key, name in SOFTMAX.items():
            every = select(records, corpus, 1.0, "softmax", key)
            if every:
                cells = percent(every, "f1", 2), percent(every, "invalid", 1), percent(every, "error", 1)
                rows.append((title, name, *cells))
    parts = [OPENING.format(seeds=seeds), *lines(rows), CLOSING]
    columns = [(corpus, share) for share in (1.0, 0.1) for corpus in TITLES if some(records, corpus, share)]
    names = [f"{TITLES[corpus]}{'' if share == 1 else f', {100 * share:g} %'}" for corpus, share in columns]
    rows = [("F1", *names), ("---", *["---:"] * len(names))]
    for (method, key), name in CRFS.items():
        rows.append((name, *(percent(select(records, *where, method, key), "f1", 2) for where in columns)))
    rows.append(("invalid sentences of the CRF without constraints", *(
        percent(select(records, *where, "CRF", "free"), "invalid", 1) for where in columns)))  # fmt: skip
    return "\n".join([*parts, *lines(rows)])


def some(records: list[dict[str, Any]], corpus: str, share: float) -> bool:
    return any(line["corpus"] == corpus and line["share"] == share for line in records)


def select(records: list[dict[str, Any]], corpus: str, share: float, method: str, key: str) -> list[dict[str, Any]]:
    where = {"corpus": corpus, "share": share, "method": method}
    return [line[key] for line in records if all(line[name] == value for name, value in where.items())]


def percent(every: Sequence[dict[str, Any]], name: str, digits: int) -> str:
    values = [100 * each[name] for each in every]
    if not values or not any(values):
        return "0" if values else ""
    spread = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{digits}f}{spread}"


def lines(rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in rows]


def figure(records: list[dict[str, Any]]) -> str:
    """The share of right spans over their mean probability, by decoder; all seeds together."""
    shown = [corpus for corpus in TITLES if some(records, corpus, 1.0)]
    width, height = LEFT + len(shown) * (SIDE + GAP), TOP + SIDE + 62
    parts = []
    for number, corpus in enumerate(shown):
        parts += panel(LEFT + number * (SIDE + GAP), TITLES[corpus], [
            pooled([each["bins"] for each in select(records, corpus, 1.0, "softmax", key)]) for key in SOFTMAX
        ])  # fmt: skip
    for number, name in enumerate(SOFTMAX.values()):
        across = LEFT + 150 * number
        parts.append(f'<rect x="{across}" y="{height - 14}" width="14" height="4" fill="{svg.COLOURS[number]}"/>')
        parts.append(f'<text x="{across + 20}" y="{height - 8}">{escape(name)}</text>')
    label = "share of right spans by their probability"
    return svg.file(f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{label}">{"".join(parts)}</svg>')


def pooled(every: Sequence[Sequence[Sequence[float]]]) -> list[tuple[float, float]]:
    """Mean probability and share of right spans of each bin with enough of them."""
    sums = [[sum(column) for column in zip(*each, strict=True)] for each in zip(*every, strict=True)]
    return [(p / n, right / n) for n, p, right in sums if n >= FEWEST]


def panel(left: float, title: str, curves: Sequence[Sequence[tuple[float, float]]]) -> list[str]:
    def at(p: float, share: float) -> str:
        return f"{left + SIDE * p:.1f},{TOP + SIDE * (1 - share):.1f}"

    parts = [f'<text x="{left}" y="14">{escape(title)}</text>']
    for tick in (0.0, 0.5, 1.0):
        parts.append(f'<polyline class="grid" points="{at(0, tick)} {at(1, tick)}"/>')
        parts.append(f'<text x="{left - 6}" y="{TOP + SIDE * (1 - tick) + 4:.1f}" text-anchor="end">{tick:g}</text>')
        parts.append(f'<text x="{left + SIDE * tick:.1f}" y="{TOP + SIDE + 16}" text-anchor="middle">{tick:g}</text>')
    parts.append(f'<polyline stroke="#888" stroke-dasharray="4 4" points="{at(0, 0)} {at(1, 1)}"/>')
    for number, curve in enumerate(curves):
        colour = svg.COLOURS[number]
        drawn = " ".join(at(*point) for point in curve)
        parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{drawn}"/>')
        for point in curve:
            across, down = at(*point).split(",")
            parts.append(f'<circle cx="{across}" cy="{down}" r="3" fill="{colour}"/>')
    parts.append(f'<text x="{left}" y="{TOP + SIDE + 32}">probability</text>')
    return parts


__all__ = ["write"]
