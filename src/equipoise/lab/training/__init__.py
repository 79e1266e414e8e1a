"""One engine that trains many replicas at once."""

from ..recipe import Recipe
from .engine import train
from .model import Model
from .monitor import BalanceMonitor
from .replica import Epoch, Run
from .tensors import BadFileError

__all__ = ["BadFileError", "BalanceMonitor", "Epoch", "Model", "Recipe", "Run", "train"]
