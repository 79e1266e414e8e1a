"""The laboratory: everything for the paper and for experiments. It uses public names of `equipoise` only."""

__version__ = "0.1.0"
