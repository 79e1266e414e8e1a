"""Write the speed tables of README.md and docs/benchmarks.md from the committed results.

    python benchmarks/update_readme.py

A table replaces the text between `<!-- speed:NAME -->` and `<!-- /speed:NAME -->`.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent
QUESTIONS = {
    "likelihood": "likelihood + gradient",
    "decode": "decode",
    "marginals": "marginals",
    "marginal": "marginal loss + gradient",
}
PEERS = ("pytorch-crf", "torch-struct", "TorchCRF", "jax", "jax-tree")


def table(report: dict[str, Any], questions: Iterable[str] = QUESTIONS) -> str:
    """Milliseconds of equipoise, and how many times longer each peer takes: one row per size and question."""
    rows = {(row["size"], row["question"], row["peer"]): row for row in report["rows"]}
    sizes = dict.fromkeys(row["size"] for row in report["rows"])
    peers = [peer for peer in PEERS if any(key[2] == peer for key in rows)]
    lines = [
        f"| B,L,M | question | equipoise | {' | '.join(peers)} |",
        "| --- | --- " + "| ---: " * (len(peers) + 1) + "|",
    ]
    for size in sizes:
        for question in questions:
            own = f"{rows[size, question, 'equipoise']['milliseconds']:.2f} ms"
            cells = [own, *(cell(rows.get((size, question, peer))) for peer in peers)]
            lines.append(f"| {size} | {QUESTIONS[question]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def cell(row: dict[str, Any] | None) -> str:
    if row is None:
        return ""
    times = row["times_slower"]
    if times is not None:
        return f"{times:.{1 if times < 10 else 0}f}x"
    needed = re.match(r"needs about (.*?GiB)", row["note"])
    return f"{needed[1]} needed" if needed else "fails"


def tables() -> dict[Path, dict[str, str]]:
    """The tables of each page, by name."""
    cpu, h200 = (json.loads((HERE / "results" / f"{name}-chain.json").read_text()) for name in ("cpu", "h200"))
    return {
        ROOT / "README.md": {"cpu-likelihood": table(cpu, ["likelihood"])},
        ROOT / "docs" / "benchmarks.md": {"cpu": table(cpu), "h200": table(h200)},
    }


def main() -> None:
    for page, blocks in tables().items():
        text = page.read_text()
        for name, block in blocks.items():
            begin, end = f"<!-- speed:{name} -->", f"<!-- /speed:{name} -->"
            text = re.sub(f"{begin}.*?{end}", f"{begin}\n{block}\n{end}", text, flags=re.DOTALL)
        page.write_text(text)


if __name__ == "__main__":
    main()
