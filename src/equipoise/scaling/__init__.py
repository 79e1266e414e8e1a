"""How unary and pairwise scores are put in balance (§5): one file per method."""

from .broadcasting import apply, divide, leading, multiply
from .equivalence import absorb
from .fixed import Fixed
from .learned import Learned
from .method import Scaling, State, mean_penalty
from .norms import Norms, mean_abs, measure, ratio
from .offline import Offline
from .online import Online
from .regularized import Regularized
from .temperature import Temperature
from .trend import Verdict, verdict

__all__ = [
    "Fixed",
    "Learned",
    "Norms",
    "Offline",
    "Online",
    "Regularized",
    "Scaling",
    "State",
    "Temperature",
    "Verdict",
    "absorb",
    "apply",
    "divide",
    "leading",
    "mean_abs",
    "mean_penalty",
    "measure",
    "multiply",
    "ratio",
    "verdict",
]
