"""Random numbers that are the same in every run."""

import torch
from torch import Tensor


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int = 0) -> Tensor:
    """In float64."""
    return torch.randn(shape, generator=seeded(seed), dtype=torch.float64)
