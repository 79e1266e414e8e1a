"""pytorch-partial-crf beside `ChainCRF`: the same loss of incomplete labels, and the time of it with its gradient.

    pip install pytorch-partial-crf==0.2.1
    python studies/partial_peer.py studies/partial_peer.json

32 sentences of 64 words with 23 labels, float32, on one thread; each word has one label or any, each with probability
1/2. The calls take turns in 30 rounds. Times are medians of the CPU time, since other programs may run beside it.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from pytorch_partial_crf import PartialCRF  # type: ignore[import-not-found]

from equipoise import UNKNOWN, scaling
from equipoise.compat.torchcrf import to_chain_crf
from equipoise.objectives import sets_of

BATCH, LENGTH, LABELS, ROUNDS = 32, 64, 23, 30


def milliseconds(call: Callable[[], object], number: int) -> float:
    for _ in range(max(1, number // 10)):
        call()
    begin = time.process_time()
    for _ in range(number):
        call()
    return 1000 * (time.process_time() - begin) / number


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    theirs = PartialCRF(LABELS)
    crf = to_chain_crf(theirs.state_dict())
    unary = torch.randn(BATCH, LENGTH, LABELS).requires_grad_()
    gold = torch.randint(LABELS, (BATCH, LENGTH))
    labels = gold.masked_fill(torch.rand(BATCH, LENGTH) < 0.5, UNKNOWN)  # -1 is also their unknown tag
    allowed = sets_of(labels, LABELS)
    learned = to_chain_crf(theirs.state_dict(), scaling=scaling.Learned())
    calls = {
        "one label per word": (lambda: crf.loss(unary, gold), 50),
        "labels or UNKNOWN": (lambda: crf.loss(unary, labels), 30),
        "sets": (lambda: crf.loss(unary, allowed=allowed), 30),
        "sets, learned scaling": (lambda: learned.loss(unary, allowed=allowed), 30),
        "pytorch-partial-crf": (lambda: theirs(unary, labels) / BATCH, 1),
    }
    inputs = unary, crf.pairwise, crf.start, crf.end
    ours = torch.autograd.grad(crf.loss(unary, labels), inputs)
    parameters = theirs.transitions, theirs.start_transitions, theirs.end_transitions
    other = torch.autograd.grad(theirs(unary, labels) / BATCH, (unary, *parameters))
    found: dict[str, object] = {
        "loss": [crf.loss(unary, labels).item(), (theirs(unary, labels) / BATCH).item()],
        "largest difference of gradients": max(float((a - b).abs().max()) for a, b in zip(ours, other, strict=True)),
    }
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, (call, number) in calls.items():
            times[name].append(milliseconds(lambda call=call: call().backward(), number))  # type: ignore[misc]
    found["milliseconds"] = {name: round(statistics.median(each), 3) for name, each in times.items()}
    found["torch"] = torch.__version__
    Path(sys.argv[1]).write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
