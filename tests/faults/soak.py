"""The campaign against faults: random kills, numbers, hostile files and downloads, for a given time.

    python tests/faults/soak.py --minutes 60                             all parts
    python tests/faults/soak.py --parts training --seed 17 --rounds 1    one round again

A round of a part is determined by its seed, up to the times of kills. Every part continues with the seed after the last
one in the file of results, whose counts add up over several calls. A failure is printed with the command that repeats
it.
"""

import argparse
import json
import math
import multiprocessing
import os
import platform
import queue
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from datetime import date
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / folder) for folder in ("tests", "src", "lab/src")]
os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:3])  # for the processes that parts start
os.environ.setdefault("TRITON_INTERPRET", "1")

PARTS = {
    "training": "kills",
    "sweeps": "kills",
    "two_runners": "kills",
    "local_workers": "kills",
    "ray": "kills",
    "tag_training": "kills",
    "chains": "chains",
    "interpreter": "chains",
    "gaussians": "gaussians",
    "layers": "layers",
    "archives": "hostile",
    "headers": "hostile",
    "models": "hostile",
    "stores": "hostile",
    "pictures": "hostile",
    "bilstm_folders": "taggers",
    "encoder_folders": "taggers",
    "overwrites": "overwrites",
    "texts": "texts",
    "downloads": "downloads",
}
"""The module of each part. A part is a function of a seed and an empty folder, and returns counts."""
LANES = [["training", "tag_training", "sweeps", "two_runners"], ["local_workers", "ray"], ["overwrites"]]
LANES += [[part for part, module in PARTS.items() if module not in ("kills", "overwrites")]]
"""Parts that take turns in one process."""
WEIGHTS = {"training": 2, "ray": 2, "chains": 12, "interpreter": 2, "gaussians": 2, "layers": 2}
"""Relative times of the parts of a lane; 1 for others."""
REPORT_SECONDS = 60.0


def one_round(part: str, seed: int) -> Counter[str]:
    """One round of a part, in this process. Raises an exception if a promise is broken."""
    module = __import__(f"faults.{PARTS[part]}", fromlist=[part])
    with tempfile.TemporaryDirectory(prefix="soak-") as folder, warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=RuntimeWarning)  # numpy's, about NaN in Triton's interpreter
        return getattr(module, part)(seed, Path(folder))


def _rounds(seeds: dict[str, int], most: int | None, end: float, outbox: multiprocessing.Queue) -> None:
    """Rounds of some parts in turn, from these seeds, until the time is over; sends (part, seed, counts, error)."""
    import torch

    torch.set_num_threads(1)
    used, left = dict.fromkeys(seeds, 0.0), dict.fromkeys(seeds, math.inf if most is None else most)
    while time.monotonic() < end and any(left.values()):
        part = min((part for part in seeds if left[part]), key=lambda part: used[part] / WEIGHTS.get(part, 1))
        begin = time.monotonic()
        try:
            outbox.put((part, seeds[part], one_round(part, seeds[part]), ""))
        except Exception as error:
            outbox.put((part, seeds[part], None, "".join(traceback.format_exception(error))[-3000:]))
        seeds[part] += 1
        left[part] -= 1
        used[part] += time.monotonic() - begin
    outbox.put(None)


class Results:
    """The counts of all calls so far, in a file."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        known = json.loads(path.read_text()) if path is not None and path.exists() else {}
        self.parts: dict[str, dict] = known.get("parts", {})
        self.failures: list[dict] = known.get("failures", [])
        self.repaired: list[dict] = known.get("repaired", [])  # failures that were moved here after their repair
        self.minutes: float = known.get("minutes", 0.0)

    def next_seed(self, part: str) -> int:
        return self.parts.get(part, {}).get("next_seed", 0)

    def add(self, part: str, seed: int, counts: Counter[str] | None, error: str) -> None:
        known = self.parts.setdefault(part, {"next_seed": 0, "rounds": 0, "counts": {}})
        known["next_seed"] = max(known["next_seed"], seed + 1)
        known["rounds"] += 1
        if counts is None:
            self.failures.append({"part": part, "seed": seed, "error": error.strip().splitlines()[-1]})
        else:
            known["counts"] = dict(sorted((Counter(known["counts"]) + counts).items()))

    def write(self, minutes: float) -> None:
        if self.path is None:
            return
        parts = {part: self.parts[part] for part in PARTS if part in self.parts}
        content = {
            "date": date.today().isoformat(),
            "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
            "minutes": round(self.minutes + minutes, 1),
            "totals": totals(parts),
            "failures": self.failures,
            "repaired": self.repaired,
            "parts": parts,
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.path.with_suffix(".part")
        temporary.write_text(json.dumps(content, indent=1) + "\n")
        temporary.replace(self.path)

    def table(self) -> str:
        lines = [f"{'part':16}{'rounds':>8}  counts"]
        for part in PARTS:
            if part in self.parts:
                counts = ", ".join(f"{count:,} {name}" for name, count in self.parts[part]["counts"].items())
                lines.append(f"{part:16}{self.parts[part]['rounds']:8,}  {counts}")
        return "\n".join([*lines, f"failures: {len(self.failures)}"])


def totals(parts: dict[str, dict]) -> dict[str, int]:
    """Sums over all parts."""
    names = ("kills", "problems", "answers", "files", "downloads")
    return {name: sum(part["counts"].get(name, 0) for part in parts.values()) for name in names}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0, help="time for new rounds")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="parts to run")
    parser.add_argument("--seed", type=int, help="first seed; by default the one after the last in the results")
    parser.add_argument("--rounds", type=int, help="maximum number of rounds of each part")
    parser.add_argument("--out", type=Path, help="file of results, to which counts are added")
    options = parser.parse_args()
    results, failed, begin = Results(options.out), 0, time.monotonic()
    outbox: multiprocessing.Queue = multiprocessing.Queue()
    end = begin + 60 * options.minutes
    processes = []
    for lane in LANES:
        chosen = [part for part in lane if part in options.parts]
        seeds = {part: results.next_seed(part) if options.seed is None else options.seed for part in chosen}
        if seeds:
            processes.append(multiprocessing.Process(target=_rounds, args=(seeds, options.rounds, end, outbox)))
            processes[-1].start()
    reported, running = begin, len(processes)
    while running:
        try:
            message = outbox.get(timeout=5.0)
        except queue.Empty:
            if any(process.exitcode not in (None, 0) for process in processes):
                print("a process of the campaign died", flush=True)
                failed += 1
                break
            continue
        if message is None:
            running -= 1
            continue
        part, seed, counts, error = message
        results.add(part, seed, counts, error)
        if counts is None:
            failed += 1
            print(f"{error}\nrepeat: python tests/faults/soak.py --parts {part} --seed {seed} --rounds 1", flush=True)
        if time.monotonic() - reported > REPORT_SECONDS:
            reported = time.monotonic()
            print(f"\n{(reported - begin) / 60:.0f} of {options.minutes:g} minutes\n{results.table()}", flush=True)
            results.write((reported - begin) / 60)
    for process in processes:
        process.join()
    results.write((time.monotonic() - begin) / 60)
    print(f"\n{results.table()}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
