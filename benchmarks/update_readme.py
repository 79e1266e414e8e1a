"""Write the README's speed table from the committed results: python benchmarks/update_readme.py"""

import json
import re
from pathlib import Path

HERE = Path(__file__).parent
README = HERE.parent / "README.md"
QUESTIONS = {
    "likelihood": "likelihood + gradient",
    "decode": "decode",
    "marginals": "marginals",
    "marginal": "marginal loss + gradient",
}
PEERS = ("pytorch-crf", "torch-struct", "TorchCRF", "jax", "jax-tree")


def table(report: dict) -> str:
    """How many times longer each peer takes, a row a size and question."""
    rows = {(r["size"], r["question"], r["peer"]): r for r in report["rows"]}
    sizes = list(dict.fromkeys(r["size"] for r in report["rows"]))
    peers = [p for p in PEERS if any(key[2] == p for key in rows)]
    lines = [
        f"| B,L,M | question | equipoise | {' | '.join(peers)} |",
        "| --- | --- " + "| ---: " * (len(peers) + 1) + "|",
    ]
    for size in sizes:
        for question, name in QUESTIONS.items():
            cells = [f"{rows[size, question, 'equipoise']['milliseconds']:.2f} ms"]
            for peer in peers:
                row = rows.get((size, question, peer))
                if row is None:
                    cells.append("")
                elif row["times_slower"] is None:
                    cells.append(
                        row["note"].split(",")[0].removeprefix("needs about ") + " needed"
                        if "GiB" in row["note"]
                        else "fails"
                    )
                else:
                    cells.append(f"{row['times_slower']:.{1 if row['times_slower'] < 10 else 0}f}x")
            lines.append(f"| {size} | {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    text = README.read_text()
    for name in ("cpu", "h200"):
        path = HERE / "results" / f"{name}-chain.json"
        block = f"<!-- speed:{name} -->\n{table(json.loads(path.read_text()))}\n<!-- /speed:{name} -->"
        text = re.sub(f"<!-- speed:{name} -->.*?<!-- /speed:{name} -->", block, text, flags=re.DOTALL)
    README.write_text(text)


if __name__ == "__main__":
    main()
