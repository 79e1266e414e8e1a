"""Deep structured prediction whose potentials stay in balance: exact CRF layers for PyTorch."""

from . import chain, constraints, gaussian, labels, objectives, scaling
from .crf import ChainCRF, GaussianCRF, explain
from .spans import ScoredSpan, SpanDecoder

__version__ = "0.1.0"
__all__ = [
    "ChainCRF",
    "GaussianCRF",
    "ScoredSpan",
    "SpanDecoder",
    "chain",
    "constraints",
    "explain",
    "gaussian",
    "labels",
    "objectives",
    "scaling",
]
