"""When the callbacks of Lightning and transformers warn: if one part of a CRF has almost no influence, and stays so."""

from collections.abc import Sequence

from .. import scaling
from ..crf import ChainCRF

RECOVERING = {"unary dominates": "falling", "pairwise dominates": "rising"}
"""In these states one part has almost no influence. With this trend that may end."""


def warning(crf: ChainCRF, ratios: Sequence[float], *, final: bool) -> str | None:
    """What `scaling.verdict` says about the ratios of this layer, or None if there is no reason for a warning.

    Args:
        crf: a layer with `scaling.Learned` gives no warning: its ratio starts high, and training chooses it.
        ratios: one per evaluation since training started.
        final: whether training has ended. Before, one ratio is not enough, and the trend counts too.

    >>> print(warning(ChainCRF(3), [50.0, 50.0], final=False))
    pairwise part has almost no influence: ratio 50 and steady; try scaling.Learned() or scaling.Offline()
    >>> warning(ChainCRF(3), [90.0, 50.0], final=False), warning(ChainCRF(3, scaling.Learned()), [50.0], final=True)
    (None, None)
    """
    if crf.scaling.learns_balance or len(ratios) < (1 if final else 2):
        return None
    found = scaling.verdict(ratios)
    recovering = not final and RECOVERING.get(found.state) == found.trend
    return found.advice if found.state in RECOVERING and not recovering else None
