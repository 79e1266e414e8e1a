"""A few long chains, cut into chunks that run side by side: messages and decoding in parallel over time.

The labels at every C-th position of a chain form a chain again. Its unary scores are those of these positions, and its
pairwise scores sum over everything between them,

    W'_k(i, j) = log sum of exp F over the labels between, given y_{kC} = i and y_{(k+1)C} = j,

one run of the forward recursion from each label i. The messages of the short chain are those of the long one at these
positions; from there every chunk goes on by itself. Three passes of sqrt(L) steps take the place of one of L steps, for
M times the work, which an idle GPU has to spare. With max for sum, the same holds for decoding.
"""

import math

import torch
from torch import Tensor

from ..problem import Problem
from ..reference import finite
from .launch import Launcher


def pays(unary: Tensor) -> bool:
    """Whether these chains are long, and few enough for M times the work to cost less than the wait.

    On an H200 8 chains of 1024 x 23 take 0.54 ms one position after the other, and 0.88 ms in chunks.
    """
    *batch, length, m = unary.shape
    return length >= 2048 and math.prod(batch) * m * max(m, 32) ** 2 <= 2**19


def forward(chain: Problem, labels: Tensor | None) -> tuple[Tensor, Tensor]:
    """log Z, less the score of labels, and both messages, (*batch, 2, L, M)."""
    launcher, chunk = Launcher(*chain), _chunk(chain)
    matrices, gains, golds = launcher.products(chunk, labels)
    log_z, ends = launcher.ends(matrices, gains, None if labels is None else golds, chunk)
    return log_z, launcher.forward(None, ends, chunk)[1]


def decode(chain: Problem) -> tuple[Tensor, Tensor]:
    chunk = _chunk(chain)
    short, gain = coarsen(chain, chunk)
    ends, best = Launcher(*short).decode()
    return Launcher(*chain).decode(ends, chunk)[0], (best + gain).to(best.dtype)


def coarsen(chain: Problem, chunk: int) -> tuple[Problem, Tensor]:
    """The chain of every chunk-th position and the last, its matrices the best that lies between them, and how much
    less its best score is, (*batch,), in float64."""
    matrices, gains, _ = Launcher(*chain).products(chunk, best=True)
    top = finite(gains.amax(-1, keepdim=True))  # float32 holds what sets the rows apart, not what they share
    pairwise = matrices + (gains - top)[..., None].to(matrices.dtype)
    position = torch.arange(0, chain.unary.shape[-2] - 1 + chunk, chunk, device=top.device)
    position = position.minimum(chain.lengths[..., None] - 1)
    unary = chain.unary.gather(-2, position[..., None].expand(*position.shape, chain.unary.shape[-1]))
    return Problem(unary, pairwise, (chain.lengths + chunk - 2) // chunk + 1), top.sum((-2, -1))


def _chunk(chain: Problem) -> int:
    return math.isqrt(chain.unary.shape[-2])
