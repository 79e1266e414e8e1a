"""One rank of distributed training with `scaling.Learned`. Stores parameters and buffers.

python learned_ranks.py FILE FOLDER RANK: FILE initialises the process group, FOLDER gets RANK.pt.
"""

import gc
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn

from equipoise import ChainCRF
from equipoise.scaling import Learned

STEPS = 5


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net, self.crf = nn.Linear(4, 3), ChainCRF(3, Learned(), boundaries=True)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        return self.crf.loss(self.net(x), labels)


def data(rank: int, step: int) -> tuple[Tensor, Tensor]:
    """Features of rank 1 are ten times larger, so that each rank measures another size."""
    generator = torch.Generator().manual_seed(100 * rank + step)
    return 10 ** (1 + rank) * torch.randn(4, 6, 4, generator=generator), torch.randint(3, (4, 6), generator=generator)


def train(rank: int) -> dict[str, Tensor]:
    """Parameters and buffers after a few steps."""
    torch.manual_seed(rank)  # the ranks start differently; the first one counts
    model = nn.parallel.DistributedDataParallel(Model())
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for step in range(STEPS):
        optimizer.zero_grad()
        model(*data(rank, step)).backward()
        optimizer.step()
    with torch.no_grad():
        model(*data(rank, STEPS))  # sends the buffers of the first rank to the others
    return model.module.state_dict()


def main(meeting: str, folder: Path, rank: int) -> None:
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    torch.save(train(rank), folder / f"{rank}.pt")
    gc.collect()  # the model holds the group, whose threads may abort the process when they outlive Python
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
