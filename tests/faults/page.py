"""The counts of the campaign on the page docs/reliability.md. `python tests/faults/page.py` writes them."""

import json
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE, RESULTS = ROOT / "docs" / "reliability.md", ROOT / "benchmarks" / "results" / "soak.json"
BEGIN, END = "<!-- counts: written by `python tests/faults/page.py` -->\n", "<!-- end of counts -->"
WHAT = {
    "training": "`train` and `equipoise-lab train --checkpoint`, killed at random",
    "sweeps": "sweeps in one process, killed at random",
    "two_runners": "two sweeps on one store, killed at random",
    "local_workers": "sweeps with worker processes; workers and sweeps killed",
    "ray": "sweeps on Ray; workers and sweeps killed",
    "tag_training": "`equipoise tag train --resume`, killed at random",
    "chains": "chains against enumeration, three backends of the CPU",
    "interpreter": "chains by the GPU's kernels, in Triton's interpreter",
    "gaussians": "Gaussian CRFs against a dense float64 solution",
    "layers": "layers in C against the torch code in float64",
    "archives": "archives",
    "headers": "headers of tensor files",
    "models": "models and checkpoints",
    "stores": "stores of runs",
    "pictures": "pictures",
    "bilstm_folders": "folders of taggers with a BiLSTM",
    "encoder_folders": "folders of taggers with an encoder",
    "overwrites": "`equipoise tag train --overwrite`, killed at random",
    "texts": "texts for `equipoise tag`",
    "downloads": "downloads from a faulty server",
}


def counts(known: dict) -> str:
    """The table in Markdown."""
    total = known["totals"]
    sentences = (
        f"The campaign ran for {known['minutes']:.0f} minutes on a busy machine ({known['machine']}): "
        f"{total['kills']:,} kills, {total['problems']:,} numeric problems with {total['answers']:,} answers, "
        f"{total['files']:,} hostile files and {total['downloads']:,} faulty downloads. Failures: "
        f"{len(known['failures'])}; failures that were repaired: {len(known['repaired'])}."
    )
    lines = [
        *textwrap.wrap(sentences, 120),
        "",
        "| part | what | rounds | counts |",
        "| --- | --- | --: | --- |",
    ]
    for part, one in known["parts"].items():
        shown = ", ".join(f"{count:,} {name}" for name, count in one["counts"].items())
        lines.append(f"| `{part}` | {WHAT[part]} | {one['rounds']:,} | {shown} |")
    lines += ["", "| part, seed | failure | repaired by commit | the same seed again |", "| --- | --- | --- | --- |"]
    for one in known["repaired"]:
        lines.append(f"| `{one['part']}`, {one['seed']} | {one['error']} | {one['commit']} | {one['again']} |")
    return "\n".join(lines) + "\n"


def updated(page: str, known: dict) -> str:
    """The page with the current table."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n{counts(known)}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text(), json.loads(RESULTS.read_text())))
