"""Files of named tensors, for models and checkpoints; the format is in `data.tensors`, which tasks also read."""

from ..data.tensors import KINDS, LARGEST_HEADER, BadFileError, load, parse, save

__all__ = ["KINDS", "LARGEST_HEADER", "BadFileError", "load", "parse", "save"]
