"""`explain`: which code answers a call of a layer, and why other code does not."""

from functools import partial
from typing import NamedTuple

from torch import Tensor

from ..chain import backends
from ..chain.checks import given
from .chain import ChainCRF
from .reasons import Reason

FOLDERS = "cpu", "gpu"  # of kernels


class Explanation(NamedTuple):
    path: str
    """"cpu" or "gpu" for the kernels around the chain; "reference" for the torch code of `ChainCRF`."""
    chain: str
    """The backend that computes the chain itself."""
    reasons: dict[str, str]
    """For every other path, why it does not answer this call."""

    def __str__(self) -> str:
        others = (f"    not {path}: {reason}" for path, reason in self.reasons.items())
        return "\n".join([f"around the chain: {self.path}", *others, f"in the chain: {self.chain}"])


def explain(crf: ChainCRF, unary: Tensor, labels: Tensor | None = None, mask: Tensor | None = None) -> Explanation:
    """Which code answers `crf.loss(unary, labels, mask)`, or without labels `crf.decode(unary, mask)`, and why.

    The call is tried, without a backward pass; no state changes. Gradient mode counts, as in the call itself. To force
    one path, set the environment variable EQUIPOISE_BACKEND to reference, cpu or gpu before the program starts.

    Shapes: unary (*batch, L, M), labels and mask (*batch, L).

    >>> import torch
    >>> from equipoise.scaling import Offline
    >>> crf = ChainCRF(num_labels=3, scaling=Offline(alpha=1.0))
    >>> answer = explain(crf, torch.randn(2, 5, 3), torch.zeros(2, 5, dtype=torch.long))
    >>> answer.path, answer.reasons["cpu"]
    ('reference', 'there are no kernels for this scaling method')
    """
    answer: object
    if labels is None:
        answer = crf._by_kernels(unary, mask, None)
    else:
        formula = partial(crf.loss, unary, labels, mask)
        answer = crf._loss_by_kernels(unary, labels, mask, crf._objective(None), "mean", formula)
    own = "cpu" if unary.is_cpu else "gpu"
    path = "reference" if isinstance(answer, Reason) else own
    reasons = {name: Reason.DEVICE.value for name in FOLDERS if name != own}
    if isinstance(answer, Reason):
        reasons = {own: answer.value} | reasons
    else:
        reasons["reference"] = "kernels answer"
    chain = given(*crf.potentials(unary, mask)) if path == "reference" else None
    return Explanation(path, own if chain is None else backends.choose(chain)[1], reasons)
