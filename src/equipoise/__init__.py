"""Deep structured prediction whose potentials stay in balance."""

__version__ = "0.1.0"
