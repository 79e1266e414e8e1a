"""Handwritten words (§6.1, "Optical Character Recognition")."""

from .task import OCR

__all__ = ["OCR"]
