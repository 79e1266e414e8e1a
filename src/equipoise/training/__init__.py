"""One engine that trains many replicas at once."""

from ..recipe import Recipe
from .engine import train
from .monitor import BalanceMonitor
from .replica import Epoch, Run
from .tensors import BadFileError

__all__ = ["BadFileError", "BalanceMonitor", "Epoch", "Recipe", "Run", "train"]
