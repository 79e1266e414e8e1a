"""With many labels, no function takes memory of order (B, M, M) or (L, M, M): what a process needs at most.

Of 1,000 labels, a matrix takes 4 MB, and one per sequence or per position 256 MB.

    python tests/chain/test_memory.py: prints by how many MB each call grows the memory of its process
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from equipoise import ChainCRF, chain, objectives, scaling
from equipoise.chain.cpu.library import library

LABELS, MATRIX_MB = 1000, 4
SHAPES = (64, 2), (2, 64)  # sequences and their length
Call = Callable[[Tensor, Tensor, Tensor], object]


def gradient(function: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Call:
    return lambda u, w, y: torch.autograd.grad(function(u, w, y).sum(), (u, w))


def layer(unary: Tensor, pairwise: Tensor, labels: Tensor) -> None:
    crf = ChainCRF(unary.shape[-1], scaling.Learned())
    crf.loss(unary, labels, mask=labels >= 0).backward()
    crf.decode(unary)


CALLS: dict[str, Call] = {
    "likelihood": gradient(objectives.likelihood),
    "marginal": gradient(objectives.marginal),
    "margin": gradient(objectives.margin),
    "score": gradient(chain.score),
    "log_marginals": gradient(lambda u, w, y: chain.log_marginals(u, w)),
    "entropy": gradient(lambda u, w, y: chain.entropy(u, w)),
    "decode": lambda u, w, y: chain.decode(u, w),
    "top_k": gradient(lambda u, w, y: chain.top_k(u, w, k=3)[1]),
    "sample": lambda u, w, y: chain.sample(u, w, n=3),
    "layer": layer,
}


def inputs(sequences: int, length: int, m: int) -> tuple[Tensor, Tensor, Tensor]:
    unary, pairwise = torch.randn(sequences, length, m), torch.randn(m, m)
    return unary.requires_grad_(), pairwise.requires_grad_(), torch.randint(m, (sequences, length))


@pytest.mark.skipif(library(torch.float32) is None, reason="needs a C compiler")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="units of the peak memory differ")
def test_peak_memory_with_many_labels() -> None:
    """Of many short sequences, and of few long ones."""
    # Memory that is freed returns to the system, so that what lies between blocks is not counted.
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "1000000"}
    command = [sys.executable, __file__]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600, env=environment)
    grown = [json.loads(line) for line in done.stdout.splitlines()]
    assert [name for name, _, _ in grown] == [name for name in CALLS for _ in SHAPES]
    assert not [one for one in grown if one[2] >= 20 * MATRIX_MB]


def peak() -> int:
    """The kilobytes that this process has needed at most. `ru_maxrss` includes those of the process that started it."""
    found = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1])


def measure(name: str, shape: tuple[int, int]) -> None:
    torch.set_num_threads(1)
    CALLS[name](*inputs(2, 3, 5))  # loads libraries
    given = inputs(*shape, LABELS)
    before = peak()
    CALLS[name](*given)
    print(json.dumps([name, shape, (peak() - before) / 1024]), flush=True)


def main() -> None:
    """Each call in a process of its own, forked from one that has imported torch and computed nothing."""
    for name in CALLS:
        for shape in SHAPES:
            child = os.fork()
            if child == 0:
                measure(name, shape)
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0, name


if __name__ == "__main__":
    main()
