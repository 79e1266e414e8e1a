"""Files of named tensors, for models and checkpoints; the format is in `data.tensors`, which tasks also read."""

from equipoise.files.tensors import KINDS, LARGEST_HEADER, BadFileError, load, parse, save

__all__ = ["KINDS", "LARGEST_HEADER", "BadFileError", "load", "parse", "save"]
