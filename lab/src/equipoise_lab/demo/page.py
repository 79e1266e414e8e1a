"""The results of the demo as one self-contained HTML file."""

from collections.abc import Sequence
from html import escape
from string import ascii_lowercase

from . import crf_alone, svg
from .experiment import Outcome, Word

STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1b; --paper: #fff; --soft: #6b6b6b; --line: #ddd; --good: #009e73; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e8e8; --paper: #16181b; --soft: #a0a0a0; --line: #3a3d42; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 0 auto;
  max-width: 56rem; padding: 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; } th, td { padding: .3rem .7rem; text-align: right;
  border-bottom: 1px solid var(--line); }
th:first-child, td:first-child, td:last-child, th:last-child { text-align: left; }
td:last-child { min-width: 16rem; }
svg text { fill: var(--soft); font: 12px system-ui, sans-serif; } svg .grid { stroke: var(--line); }
figure { margin: 0; } figure > svg { width: 100%; height: auto; } .heat > svg { max-width: 30rem; }
.words { display: flex; flex-wrap: wrap; gap: 1.2rem; } .word { display: inline-flex; gap: 2px; }
.word div { text-align: center; font: 13px/1.3 ui-monospace, monospace; } .letter path { fill: var(--ink); }
.right { color: var(--good); font-weight: bold; } .wrong { color: #d55e00; text-decoration: line-through; }
.note { color: var(--soft); }
"""


def page(outcome: Outcome, rows: Sequence[crf_alone.Row]) -> str:
    """The whole page: first the CRF alone, then handwriting."""
    ratios = {
        scheme: [epoch.ratio for epoch in run.history] for scheme, run in outcome.runs.items() if scheme != "unary"
    }
    counts = outcome.counts
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>equipoise: why a CRF may learn nothing, and seven ways to train it</title><style>{STYLE}</style></head><body>
<h1>A plain CRF learns nothing at a small learning rate</h1>
{_alone(rows)}
<h1>Seven ways to train the same model</h1>
<p>A small net reads handwritten letters one by one (unary). A CRF on top of it scores which letters follow each other.
Net and CRF can be trained together (joint), one after the other (stage), or together with their scores kept in balance
(online, offline, offline_reg, learned). All models were trained just now on one fold, for a few epochs.</p>
<div class="wide">{_table(outcome)}</div>
<h2>The ratio of the two parts</h2>
<p>The size of the net's scores divided by the size of the CRF's transition scores, after each epoch. Where this ratio
is high, the transitions have almost no influence.</p>
<figure>{svg.curves(ratios, x="epoch (for stage, of all three stages)", y="unary / pairwise")}</figure>
<h2>Letters that the CRF repaired</h2>
<p>The test words have {counts["letters"]} letters. The CRF of the learned model reads {counts["repaired"]} letters
right that the net alone reads wrong, and {counts["spoilt"]} letters wrong that the net alone reads right. These are the
words with the most repaired letters. Below each letter: the reading of the net alone, then the true letter.</p>
<div class="words">{"".join(_word(word) for word in outcome.words)}</div>
<h2>The learned transitions</h2>
<p>The score of each letter (row) followed by another (column). Blue pairs are favoured, orange pairs are avoided.</p>
<figure class="heat">{svg.heatmap(outcome.transitions, ascii_lowercase)}</figure>
<p class="note">Data: R. Kassel, B. Taskar. The publisher removed the first letter of each word.</p>
</body></html>
"""


def _alone(rows: Sequence[crf_alone.Row]) -> str:
    ticks = [f"{rate:g}" for rate in crf_alone.RATES]
    head = "<tr><th>method</th>" + "".join(f"<th>{tick}</th>" for tick in ticks) + "<th>net</th></tr>"
    body = "".join(
        f"<tr><td>{escape(row.method)}</td>{''.join(f'<td>{round(100 * x)}</td>' for x in row.shares)}"
        f"<td>{escape(row.case)}</td></tr>"
        for row in rows
    )
    series = {row.method: [100 * x for x in row.shares] for row in rows if row.case == rows[0].case}
    picture = svg.curves(series, x="learning rate", y="share of the gain in %", logarithmic=False, ticks=ticks)
    return f"""<p>{crf_alone.SHOWN}</p>
<div class="wide"><table>{head}{body}</table></div>
<figure>{picture}</figure>
<p>A larger rate for the CRF helps, but how much larger it must be depends on the rate of the net and on the size of its
scores. With <code>scaling.Learned()</code> neither matters.</p>"""


def _table(outcome: Outcome) -> str:
    rows = []
    for scheme, run in outcome.runs.items():
        balance = "no pairwise part" if scheme == "unary" else str(outcome.verdicts.get(scheme) or run.failed)
        ratio = "" if scheme == "unary" else f"{run.ratio:.2f}"
        figures = (
            f"<td>{100 * run.test:.1f}</td><td>{100 * run.train:.1f}</td><td>{ratio}</td><td>{run.seconds:.0f}</td>"
        )
        rows.append(f"<tr><td>{scheme}</td>{figures}<td>{escape(balance)}</td></tr>")
    head = "<tr><th>scheme</th><th>test %</th><th>train %</th><th>ratio</th><th>seconds</th><th>balance</th></tr>"
    return f"<table>{head}{''.join(rows)}</table>"


def _word(word: Word) -> str:
    cells = []
    for pixels, truth, unary, repaired in zip(word.pixels, word.truth, word.unary, word.repaired, strict=True):
        read = f'<span class="wrong">{unary}</span>' if unary != truth else unary
        correct = f'<span class="right">{truth}</span>' if repaired else truth
        cells.append(f"<div>{svg.letter(pixels)}<br>{read}<br>{correct}</div>")
    return f'<div class="word">{"".join(cells)}</div>'
