"""Text chunking (§6.1, "CoNLL Chunking")."""

from .task import Chunking

__all__ = ["Chunking"]
