"""A CRF as scaling, layers and training see it: the sizes of its parts, its losses and its predictions.

The layers in `crf/` and the training engine use the same two energies, `chain` and `gaussian`; `balance` is the one
place where a scaling method meets an energy. Kernels that take its place are compared with it by
`tests/crf/test_kernels.py`.
"""

from ..scaling.factors import Factors
from .balance import Balanced, balance, factors, scaled
from .chain import ChainEnergy
from .energy import Energy, Pairwise
from .gaussian import DEFINITE, Embedded, GaussianEnergy
from .size import PixelGrid, RandomPairs

__all__ = [
    "DEFINITE",
    "Balanced",
    "ChainEnergy",
    "Embedded",
    "Energy",
    "Factors",
    "GaussianEnergy",
    "Pairwise",
    "PixelGrid",
    "RandomPairs",
    "balance",
    "factors",
    "scaled",
]
