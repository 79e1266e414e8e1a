"""Tagging with a pretrained encoder: chunks of CoNLL-2000 and entities of WNUT-17."""

from .task import TaggingCoNLL2000, TaggingWNUT17

__all__ = ["TaggingCoNLL2000", "TaggingWNUT17"]
