"""Write the speed tables of README.md and docs/benchmarks.md from the committed results.

    python benchmarks/update_readme.py

A table replaces the text between `<!-- speed:NAME -->` and `<!-- /speed:NAME -->`.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from equipoise_lab.report.readme import fill

HERE = Path(__file__).parent
ROOT = HERE.parent
QUESTIONS = {
    "likelihood": "likelihood + gradient",
    "decode": "decode",
    "marginals": "marginals",
    "marginal": "marginal loss + gradient",
}
ERRORS = {
    "likelihood": {"error": "likelihood, unary", "pairwise_error": "likelihood, pairwise"},
    "marginals": {"error": "marginals"},
    "marginal": {"error": "marginal loss, unary", "pairwise_error": "marginal loss, pairwise"},
}
README_SIZES = ("32,14,26", "256,14,26", "32,64,23 ragged", "8,1024,23", "32,64,128")
BASE = "softmax"
PEERS = (
    *("equipoise-one-thread", "pytorch-crf", "torch-struct", "TorchCRF"),
    *("jax", "jax-highest", "jax-tree", "jax-tree-highest"),
)


def table(
    report: dict[str, Any],
    questions: Iterable[str] = QUESTIONS,
    sizes: Iterable[str] | None = None,
    peers: Iterable[str] = PEERS,
    *,
    in_step: bool = False,
) -> str:
    """How many times longer each peer takes, one row per size and question, alone or in a step.

    On a GPU there are also the milliseconds of equipoise, and all calls count. On a CPU milliseconds depend too much on
    the machine.
    """
    rows = {(row["size"], row["question"], row["peer"]): row for row in report["rows"]}
    sizes = sizes or dict.fromkeys(row["size"] for row in report["rows"])
    peers = [peer for peer in peers if any(key[2] == peer for key in rows)]
    gpu = report["device"].startswith("cuda")
    headings = [*(["equipoise"] if gpu else []), *peers]
    lines = [f"| B,L,M | question | {' | '.join(headings)} |", "| --- | --- " + "| ---: " * len(headings) + "|"]
    value = "step_milliseconds" if in_step else "overall" if gpu else "milliseconds"
    for size in sizes:
        for question in questions:
            own = rows.get((size, question, "equipoise"))
            if own is None:
                continue
            cells = [f"{own[value]:.{2 if own[value] >= 0.1 else 3}f} ms"] if gpu else []
            cells += [cell(rows.get((size, question, peer)), own, value) for peer in peers]
            lines.append(f"| {size} | {QUESTIONS[question]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def cell(row: dict[str, Any] | None, own: dict[str, Any], value: str) -> str:
    if row is None:
        return ""
    if row[value] is not None:
        times = row[value] / own[value]
        return f"{times:.{1 if times < 10 else 0}f}x"
    needed = re.search(r"(?:needs about|allocate) ([0-9.]+) ?GiB", row["note"])
    return f"{float(needed[1]):.0f} GiB needed" if needed else "fails"


def error_table(report: dict[str, Any]) -> str:
    """The errors of equipoise and of JAX with both precisions, one row per size, question and gradient."""
    rows = {(row["size"], row["question"], row["peer"]): row for row in report["rows"]}
    peers = ["equipoise", *(peer for peer in PEERS if peer.startswith("jax"))]
    lines = [f"| B,L,M | result | {' | '.join(peers)} |", "| --- | --- " + "| ---: " * len(peers) + "|"]
    for size, question in dict.fromkeys(key[:2] for key in rows if key[1] != "decode"):
        for key, result in ERRORS[question].items():
            found = (rows.get((size, question, peer), {}).get(key) for peer in peers)
            cells = ("" if error is None else f"{error:.0e}" for error in found)
            lines.append(f"| {size} | {result} | {' | '.join(cells)} |")
    return "\n".join(lines)


def step_table(cpu: dict[str, Any], gpu: dict[str, Any]) -> str:
    """A whole step of each tagger relative to a softmax; on the GPU also the milliseconds of the softmax."""
    found = {(report["device"][:3], row["step"], row["peer"]): row for report in (cpu, gpu) for row in report["rows"]}
    lines = [
        "| last layer | CPU: training | inference | H200: training | inference |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for peer in dict.fromkeys(row["peer"] for row in gpu["rows"]):
        cells = []
        for device, step in (("cpu", "training"), ("cpu", "inference"), ("cud", "training"), ("cud", "inference")):
            row = found[device, step, peer]
            ratio = f"{row['times_base']:.2f}x"
            base = device != "cpu" and peer == BASE
            cells.append(f"{row['milliseconds']:.1f} ms" if base else ratio)
        lines.append(f"| {peer} | {' | '.join(cells)} |")
    return "\n".join(lines)


def span_table(report: dict[str, Any]) -> str:
    """Milliseconds of each way from scores to labels or spans, by B x L x M."""
    rows = {(row["way"], tuple(row["size"])): row for row in report["rows"]}
    sizes, ways = (list(dict.fromkeys(key[i] for key in rows)) for i in (1, 0))
    names = [" x ".join(f"{number:,}" for number in size) for size in sizes]
    lines = [f"| | {' | '.join(names)} |", f"| --- {'| ---: ' * len(names)}|"]
    for way in ways:
        cells = [milliseconds(rows.get((way, size), {}).get("milliseconds")) for size in sizes]
        lines.append(f"| {way} | {' | '.join(cells)} |")
    return "\n".join(lines)


def answer_table(path: Path) -> str:
    """Milliseconds of the best labelling, the k best and samples on a GPU, by B x L x M; empty before they exist."""
    if not path.exists():
        return ""
    rows = {(tuple(row["size"]), row["answer"]): row["milliseconds"] for row in json.loads(path.read_text())["rows"]}
    sizes, answers = (list(dict.fromkeys(key[i] for key in rows)) for i in (0, 1))
    lines = [f"| ms on an H200 | {' | '.join(answers)} |", f"| --- {'| ---: ' * len(answers)}|"]
    for size in sizes:
        cells = [f"{rows[size, answer]:.3g}" for answer in answers]
        lines.append(f"| {' x '.join(f'{number:,}' for number in size)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def milliseconds(value: float | None) -> str:
    """
    >>> milliseconds(3466.9), milliseconds(44.38), milliseconds(5.7)
    ('3,467', '44', '5.7')
    """
    return "" if value is None else f"{value:.1f}" if value < 10 else f"{value:,.0f}"


def tables() -> dict[Path, dict[str, str]]:
    """The tables of each page, by name."""
    cpu, h200, cpu_step, h200_step, spans = (
        json.loads((HERE / "results" / f"{name}.json").read_text())
        for name in ("cpu-chain", "h200-chain", "cpu-step", "h200-step", "cpu-spans")
    )
    few = [peer for peer in PEERS if not peer.endswith("-highest")]  # on a CPU, precision is the highest anyway
    likelihood = table(cpu, ["likelihood"], README_SIZES, few, in_step=True)
    return {
        ROOT / "README.md": {"step": step_table(cpu_step, h200_step), "cpu-likelihood": likelihood},
        ROOT / "docs" / "benchmarks.md": {
            "step": step_table(cpu_step, h200_step),
            "cpu-step": table(cpu, in_step=True),
            "cpu": table(cpu),
            "h200-step": table(h200, in_step=True),
            "h200": table(h200),
            "h200-errors": error_table(h200),
        },
        ROOT / "docs" / "guides" / "spans.md": {"cpu-spans": span_table(spans)},
        ROOT / "docs" / "explanations" / "chain-kernels.md": {
            "h200-answers": answer_table(HERE / "results" / "h200-answers.json")
        },
    }


def main() -> None:
    for page, blocks in tables().items():
        text = page.read_text()
        page.write_text(fill(text, "speed", blocks))


if __name__ == "__main__":
    main()
