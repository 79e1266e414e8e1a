"""How unary and pairwise scores are put in balance (§5): one file a method."""

from .fixed import Fixed
from .method import Scaling
from .norms import mean_abs, ratio

__all__ = ["Fixed", "Scaling", "mean_abs", "ratio"]
