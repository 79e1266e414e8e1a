"""Spans from scores: valid spans of any token classifier, and the exact probability of each."""

from .biases import Biases, Point
from .decoder import SpanDecoder
from .scored import ScoredSpan

__all__ = ["Biases", "Point", "ScoredSpan", "SpanDecoder"]
