"""The modules a user puts on top of a net: they own parameters, and the mathematics is in the layers below."""

from .chain import ChainCRF

__all__ = ["ChainCRF"]
