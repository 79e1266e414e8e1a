"""A tagger for users with files: train on CoNLL columns, tag text, score files. `equipoise tag` is its command.

It is separate from the experiments: one model, one training loop in plain torch, one folder for the result.
"""

from .columns import Sentence, read
from .estimator import Tagger
from .model import TaggingModel, load

__all__ = ["Sentence", "Tagger", "TaggingModel", "load", "read"]
