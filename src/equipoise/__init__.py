"""Deep structured prediction whose potentials stay in balance: exact CRF layers for PyTorch."""

from typing import TYPE_CHECKING, Any

from . import chain, constraints, gaussian, labels, objectives, scaling
from .crf import ChainCRF, GaussianCRF, explain
from .incomplete import UNKNOWN
from .spans import ScoredSpan, SpanDecoder

if TYPE_CHECKING:
    from .tagger import Tagger

__version__ = "0.1.0"
__all__ = [
    "UNKNOWN",
    "ChainCRF",
    "GaussianCRF",
    "ScoredSpan",
    "SpanDecoder",
    "Tagger",
    "chain",
    "constraints",
    "explain",
    "gaussian",
    "labels",
    "objectives",
    "scaling",
]


def __getattr__(name: str) -> Any:
    """`Tagger` is imported when it is used first."""
    if name == "Tagger":
        from .tagger import Tagger

        return Tagger
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
