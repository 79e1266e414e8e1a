"""How long do the entropy, samples and the k best labellings take, and how long in torch-struct?

CPU time of one thread. torch-struct is measured where its arrays, (B, L, M, M, M) in the log domain, fit into memory.

    OMP_NUM_THREADS=1 python studies/distribution_answers.py      # about four minutes; writes distribution_answers.json
"""

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch_struct
from torch.nn.functional import pad

from equipoise import chain
from equipoise_lab.bench.chain import SIZES, Size, scores
from equipoise_lab.bench.peers import Scores

MEASURED, FITTING = [SIZES[i] for i in (0, 3, 5, 7)], [SIZES[i] for i in (0, 3)]
SECONDS, MANY, K = 1.0, 100, 5
Calls = dict[str, Callable[[], object]]


def ours(s: Scores) -> Calls:
    unary, pairwise = s.unary.detach(), s.pairwise.detach()
    return {
        "entropy": lambda: chain.entropy(unary, pairwise),
        "entropy + gradient": lambda: s.gradient(chain.entropy(s.unary, s.pairwise).sum()),
        "one sample": lambda: chain.sample(unary, pairwise, n=1),
        f"{K} best": lambda: chain.top_k(unary, pairwise, k=K),
    }


def peer(s: Scores) -> Calls:
    def model() -> torch_struct.LinearChainCRF:
        first = pad(s.unary[:, :1], (0, 0, 0, s.unary.shape[1] - 2))
        return torch_struct.LinearChainCRF(
            (s.pairwise.mT + s.unary[:, 1:, :, None] + first[:, :, None, :]).contiguous()
        )

    return {
        "entropy": lambda: model().entropy,
        "entropy + gradient": lambda: s.gradient(model().entropy.sum()),
        "one sample": lambda: model().sample((1,)),
        f"{K} best": lambda: model().topk(K),
    }


def milliseconds(call: Callable[[], object]) -> float:
    """The median of some calls, without the first one if it is short."""
    taken: list[float] = []
    while not taken or (sum(taken) < SECONDS and len(taken) < MANY):
        start = time.process_time()
        call()
        taken.append(time.process_time() - start)
    return 1e3 * statistics.median(taken[1:] or taken)


def measure(size: Size) -> list[dict[str, object]]:
    s, rows = scores(size, "cpu"), []
    libraries = {"equipoise": ours(s)} | ({"torch-struct": peer(s)} if size in FITTING else {})
    for library, calls in libraries.items():
        for name, call in calls.items():
            rows.append({"size": str(size), "library": library, "result": name, "milliseconds": milliseconds(call)})
            print(*rows[-1].values())
    return rows


def main() -> None:
    torch.set_num_threads(1)
    rows = [row for size in MEASURED for row in measure(size)]
    text = json.dumps({"torch": torch.__version__, "rows": rows}, indent=1)
    Path(__file__).with_suffix(".json").write_text(text + "\n")


if __name__ == "__main__":
    main()
