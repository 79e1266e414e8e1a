"""How much longer do the k best labellings and samples take than the best one, on a GPU?

    python3 benchmarks/answers_gpu.py OUT.json      under a minute on an H200

Wall-clock time of a call with the device waited for, the median of some calls after one that is not counted.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from equipoise import chain

SIZES = ((128, 128, 33), (1, 131072, 33), (16, 500, 1440))
K = 5
SECONDS, MANY = 2.0, 50


def milliseconds(call: Callable[[], object], device: str) -> tuple[float, int]:
    """The median and the number of calls; a call that takes longer than SECONDS is counted although it is the first."""

    def timed() -> float:
        begin = time.perf_counter()
        call()
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - begin

    taken = [timed()]
    while sum(taken) < SECONDS and len(taken) <= MANY:
        taken.append(timed())
    counted = taken[1:] or taken
    return 1e3 * statistics.median(counted), len(counted)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--shrink", type=int, default=1, help="divide lengths and labels by this, as a test")
    options = parser.parse_args()
    device, rows = options.device, []
    for b, length, m in SIZES:
        length, m = length // options.shrink, max(2, m // options.shrink)
        chance = torch.Generator().manual_seed(0)
        unary = torch.randn(b, length, m, generator=chance).to(device)
        pairwise = torch.randn(m, m, generator=chance).to(device)
        calls: dict[str, Callable[[], object]] = {
            "best": lambda u=unary, w=pairwise: chain.decode(u, w),
            f"{K} best": lambda u=unary, w=pairwise: chain.top_k(u, w, k=K),
            f"{K} samples": lambda u=unary, w=pairwise: chain.sample(u, w, n=K),
        }
        calls["best"]()  # kernels are compiled
        for name, call in calls.items():
            taken, count = milliseconds(call, device)
            rows.append({"size": [b, length, m], "answer": name, "milliseconds": round(taken, 4), "calls": count})
            print(*rows[-1].values(), flush=True)
    about = {"torch": torch.__version__, "device": torch.cuda.get_device_name() if device == "cuda" else device}
    options.out.write_text(json.dumps(about | {"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
