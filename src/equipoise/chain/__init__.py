"""Linear-chain CRF (§4.1): exact inference as pure functions of unary and pairwise scores."""

from . import operators as operators
from .checks import check
from .inference import (
    decode,
    edge_marginals,
    entropy,
    log_marginals,
    log_partition,
    mean_field,
    mean_field_bound,
    sample,
    score,
    top_k,
)

__all__ = [
    "check",
    "decode",
    "edge_marginals",
    "entropy",
    "log_marginals",
    "log_partition",
    "mean_field",
    "mean_field_bound",
    "sample",
    "score",
    "top_k",
]
