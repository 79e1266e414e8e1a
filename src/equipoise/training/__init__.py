"""One engine that trains many replicas at once."""

from ..recipe import Recipe
from .engine import train
from .replica import Epoch, Run
from .tensors import BadFileError

__all__ = ["BadFileError", "Epoch", "Recipe", "Run", "train"]
