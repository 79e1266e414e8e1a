"""One rank of a distributed search for alpha. Prints the chosen factors.

python ranks.py FILE RANK WORLD: FILE initialises the process group.
"""

import sys

import torch
import torch.distributed as dist
from torch import Tensor

from equipoise import ChainCRF, scaling

SIZES = (5, 9)  # sequences of each rank: different numbers, so that a mean of means would be wrong


def data(rank: int) -> tuple[Tensor, Tensor]:
    """Rank 0 has mostly the best labels, rank 1 mostly random ones: alone they would choose different factors."""
    generator = torch.Generator().manual_seed(rank)
    unary = torch.randn(SIZES[rank], 5, 3, generator=generator, dtype=torch.float64)
    best, noise = unary.argmax(-1), torch.randint(3, unary.shape[:-1], generator=generator)
    wrong = torch.rand(best.shape, generator=generator) < (0.2, 0.9)[rank]
    return unary, torch.where(wrong, noise, best)


def search(ranks: range) -> list[float]:
    """The factors chosen by the grid and by the exact search, on the data of these ranks."""
    batches = [data(rank) for rank in ranks]
    chosen = []
    for exact in (False, True):
        method = scaling.Online(subset=sum(SIZES[rank] for rank in ranks), exact=exact)
        crf = ChainCRF(3, method, generator=torch.Generator().manual_seed(9)).double()
        chosen.append(float(crf.rebalance(batches, objective="likelihood")))
        assert float(method.alpha) == chosen[-1]
    return chosen


if __name__ == "__main__":
    meeting, rank, world = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=world)
    print(*search(range(rank, rank + 1)))
    dist.destroy_process_group()
