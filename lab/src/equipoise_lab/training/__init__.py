"""One engine that trains many replicas at once."""

from ..recipe import Recipe
from .checkpoint import remove as remove_checkpoint
from .engine import train
from .model import Model
from .monitor import BalanceMonitor
from .replica import Epoch, Run
from .tensors import BadFileError

__all__ = ["BadFileError", "BalanceMonitor", "Epoch", "Model", "Recipe", "Run", "remove_checkpoint", "train"]
