"""The page and the figure of the records of `partial`: docs/results/incomplete-labels.md.

    python studies/partial_page.py results/partial.jsonl

A cell is the mean over seeds with its 95 % interval by Student's t; differences are paired by seed.
"""

import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Sequence
from html import escape
from math import sqrt
from pathlib import Path
from typing import Any

from equipoise_lab.demo import svg

RESULTS = Path(__file__).parent.parent / "docs" / "results"
CORPORA = {"tagging-wnut17": "WNUT-17", "tagging-conll2000": "CoNLL-2000", "tagging-bc5cdr": "BC5CDR"}
MISSING = {"words": "The labels of random words are missing", "entities": "The labels of whole entities are missing"}
TREATMENTS = {
    "any": "any label",
    "removed": "removed, as by -100",
    "outside": "O",
    "complete": "only complete sentences",
}
POSITIVE = {
    "any": "any label",
    "some": "any label, but a tenth of the sentences are complete",
    "soft": "O with probability 0.9",
    "outside": "O",
}
SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""The 97.5 % quantiles of Student's t with 1, 2, ... degrees of freedom."""
OPENING = """# Missing labels in training

MiniLM with a CRF and `scaling.Learned`, fine-tuned at the rate 1e-4 with a share of its training labels missing. What
should a missing label be for the loss? Test F1 in percent, mean and 95 % interval of {seeds} seeds. All runs of a
corpus have the same number of steps, and nothing was tuned. [The guide](../guides/incomplete-labels.md) has the code.

"""
POSITIVE_TEXT = """
## Only entities are labelled

Half of the entities are labelled and nothing else, so no label says O. In brackets: predicted entities for each true
one.

"""
CLOSING = """
A missing label is drawn by seed, and a larger share contains a smaller one. "Only complete sentences" repeats the
sentences without a missing label; a dash means that there are none. "O" is right for a missing word whose label is O,
which most are in WNUT-17 and BC5CDR, and few in CoNLL-2000. The records are in `results/partial.jsonl`, made by
`studies/partial.sh OUT`; this page by `python studies/partial_page.py results/partial.jsonl`.
"""
Key = tuple[str, str, float, str]
Cells = dict[Key, dict[int, dict[str, Any]]]


def read(path: Path) -> Cells:
    """The runs by task, what is missing, share and treatment; then by seed."""
    cells: Cells = defaultdict(dict)
    for line in path.read_text(encoding="utf-8").splitlines():
        one = json.loads(line)
        if not one.get("tiny"):
            cells[one["task"], one["missing"], one["share"], one["treatment"]][one["seed"]] = one
    return cells


def scores(cells: Cells, key: Key) -> dict[int, float]:
    """Test F1 in percent by seed."""
    return {seed: 100 * one["test"] for seed, one in cells.get(key, {}).items() if one["test"] is not None}


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The mean and half the width of its 95 % interval.

    >>> interval([1.0, 2.0, 3.0])
    (2.0, 2.484338207982183)
    """
    if len(values) < 2:
        return values[0], float("inf")
    return statistics.mean(values), STUDENT[len(values) - 2] * statistics.stdev(values) / sqrt(len(values))


def text(values: Sequence[float]) -> str:
    if not values:
        return "-"
    mean, half = interval(values)
    return f"{mean:.1f}" + (f" ± {half:.1f}" if len(values) > 1 else "")


def table(cells: Cells, missing: str) -> list[str]:
    """A row per corpus and treatment, a column per share."""
    rows = [f"| corpus | a missing label is | all labels | {' | '.join(f'{100 * share:g} %' for share in SHARES)} |"]
    rows.append(f"| --- | --- |{' ---: |' * (1 + len(SHARES))}")
    for task, corpus in CORPORA.items():
        whole = text(list(scores(cells, (task, "words", 0.0, "any")).values()))
        for treatment, name in TREATMENTS.items():
            each = [text(list(scores(cells, (task, missing, share, treatment)).values())) for share in SHARES]
            rows.append(f"| {corpus} | {name} | {whole if treatment == 'any' else ''} | {' | '.join(each)} |")
    return rows


def verdicts(cells: Cells, missing: str) -> list[str]:
    """In how many corpora and shares "any label" is ahead of another treatment, by paired differences."""
    found = []
    for treatment in ("removed", "outside", "complete"):
        ahead, behind, level, alone = [], [], 0, 0
        for task, corpus in CORPORA.items():
            for share in SHARES:
                ours, theirs = (scores(cells, (task, missing, share, name)) for name in ("any", treatment))
                if ours and not theirs and cells.get((task, missing, share, treatment)):
                    alone += 1
                pairs = [ours[seed] - theirs[seed] for seed in ours if seed in theirs]
                if len(pairs) < 2:
                    continue
                mean, half = interval(pairs)
                place = f"{corpus} at {100 * share:g} % ({mean:+.1f} ± {half:.1f})"
                if abs(mean) <= half:
                    level += 1
                else:
                    (ahead if mean > 0 else behind).append(place)
        if not (ahead or behind or level):
            continue
        name, number = TREATMENTS[treatment], len(ahead) + len(behind) + level
        line = f'- "Any label" against "{name}": ahead in {len(ahead)} of {number} cells'
        line += f", undecided in {level}" if level else ""
        line += f", behind in {len(behind)}: {', '.join(behind)}" if behind else ", behind in none"
        line += f"; in {alone} more there is no complete sentence" if alone else ""
        found.append(line + ".")
    return found


def positive(cells: Cells) -> list[str]:
    rows = [f"| an unlabelled word is | {' | '.join(CORPORA.values())} |", f"| --- |{' ---: |' * len(CORPORA)}"]
    for treatment, name in POSITIVE.items():
        each = []
        for task in CORPORA:
            runs = cells.get((task, "positive", 0.5, treatment), {})
            ratios = [run["predicted"] for run in runs.values() if "predicted" in run]
            ratio = f" ({statistics.mean(ratios):.1f})" if ratios else ""
            each.append(text(list(scores(cells, (task, "positive", 0.5, treatment)).values())) + ratio)
        rows.append(f"| {name} | {' | '.join(each)} |")
    whole = [text(list(scores(cells, (task, "words", 0.0, "any")).values())) for task in CORPORA]
    return [*rows, f"| (all labels) | {' | '.join(whole)} |"]


WIDE, HIGH, LEFT, TOP, GAP = 200, 150, 40, 42, 48


def figure(cells: Cells) -> str:
    """F1 by the share of missing labels: a row of panels per kind, a panel per corpus, a curve per treatment."""
    width, height = LEFT + len(CORPORA) * (WIDE + GAP), TOP + len(MISSING) * (HIGH + 58) + 10
    parts = []
    for row, (missing, title) in enumerate(MISSING.items()):
        for column, (task, corpus) in enumerate(CORPORA.items()):
            left, top = LEFT + column * (WIDE + GAP), TOP + row * (HIGH + 58)
            parts += panel(cells, task, missing, left, top, corpus if column else f"{corpus}. {title}")
    for number, name in enumerate(TREATMENTS.values()):
        across = LEFT + 170 * number
        parts.append(f'<rect x="{across}" y="8" width="14" height="4" fill="{svg.COLOURS[number]}"/>')
        parts.append(f'<text x="{across + 20}" y="14">{escape(name)}</text>')
    label = "test F1 by the share of missing labels"
    return svg.file(f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{label}">{"".join(parts)}</svg>')


def panel(cells: Cells, task: str, missing: str, left: float, top: float, title: str) -> list[str]:
    curves = []
    for treatment in TREATMENTS:
        points = {0.0: scores(cells, (task, "words", 0.0, "any"))}
        points |= {share: scores(cells, (task, missing, share, treatment)) for share in SHARES}
        curves.append({share: statistics.mean(each.values()) for share, each in points.items() if each})
    highest = max((value for curve in curves for value in curve.values()), default=1.0)

    def at(share: float, value: float) -> str:
        return f"{left + WIDE * share / SHARES[-1]:.1f},{top + HIGH * (1 - value / highest):.1f}"

    parts = [f'<text x="{left}" y="{top - 6}">{escape(title)}</text>']
    for tick in (0.0, highest / 2, highest):
        parts.append(f'<polyline class="grid" points="{at(0, tick)} {at(SHARES[-1], tick)}"/>')
        parts.append(
            f'<text x="{left - 6}" y="{top + HIGH * (1 - tick / highest) + 4:.1f}" text-anchor="end">{tick:.0f}</text>'
        )
    for share in (0.0, *SHARES):
        across = left + WIDE * share / SHARES[-1]
        parts.append(f'<text x="{across:.1f}" y="{top + HIGH + 16}" text-anchor="middle">{100 * share:g} %</text>')
    for number, curve in enumerate(curves):
        drawn = " ".join(at(*point) for point in sorted(curve.items()))
        parts.append(f'<polyline fill="none" stroke="{svg.COLOURS[number]}" stroke-width="2" points="{drawn}"/>')
    return parts


def page(cells: Cells) -> str:
    seeds = sorted({len(scores(cells, key)) for key in cells if scores(cells, key)})
    parts = [OPENING.format(seeds=f"{seeds[0]} to {seeds[-1]}" if seeds[0] < seeds[-1] else seeds[0])]
    parts[0] += "![Test F1 by the share of missing labels](figures/incomplete-labels.svg)\n"
    for missing, title in MISSING.items():
        lines = [f"\n## {title}\n", *verdicts(cells, missing), "", *table(cells, missing), ""]
        parts.append("\n".join(lines))
    return "".join([*parts, POSITIVE_TEXT, "\n".join(positive(cells)), "\n", CLOSING])


if __name__ == "__main__":
    of_file = read(Path(sys.argv[1]))
    (RESULTS / "incomplete-labels.md").write_text(page(of_file), encoding="utf-8")
    (RESULTS / "figures" / "incomplete-labels.svg").write_text(figure(of_file), encoding="utf-8")
