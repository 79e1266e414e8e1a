"""Tagging with a pretrained encoder: chunks of CoNLL-2000, entities of WNUT-17, chemicals and diseases of BC5CDR."""

from .task import TaggingBC5CDR, TaggingCoNLL2000, TaggingWNUT17

__all__ = ["TaggingBC5CDR", "TaggingCoNLL2000", "TaggingWNUT17"]
