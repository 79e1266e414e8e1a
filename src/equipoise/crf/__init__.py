"""The modules a user puts on top of a net: they own parameters, and the mathematics is in the layers below."""

from .chain import ChainCRF
from .explaining import explain
from .gaussian import GaussianCRF

__all__ = ["ChainCRF", "GaussianCRF", "explain"]
