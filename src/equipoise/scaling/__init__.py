"""How unary and pairwise scores are put in balance (§5): one file a method."""

from .balance import Verdict, verdict
from .equivalence import absorb
from .fixed import Fixed
from .learned import Learned
from .method import Norms, Scaling
from .norms import mean_abs, ratio
from .offline import Offline
from .online import Online
from .regularized import Regularized
from .temperature import Temperature

__all__ = [
    "Fixed",
    "Learned",
    "Norms",
    "Offline",
    "Online",
    "Regularized",
    "Scaling",
    "Temperature",
    "Verdict",
    "absorb",
    "mean_abs",
    "ratio",
    "verdict",
]
