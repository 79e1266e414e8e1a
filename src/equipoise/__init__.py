"""Deep structured prediction whose potentials stay in balance: exact CRF layers for PyTorch."""

from . import chain, constraints, objectives, scaling
from .crf import ChainCRF

__version__ = "0.1.0"
__all__ = ["ChainCRF", "chain", "constraints", "objectives", "scaling"]
