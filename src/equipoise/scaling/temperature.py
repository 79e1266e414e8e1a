"""One factor for both parts (Appendix A.2): U -> alpha U, W -> alpha W; or both divided by their sizes first.

The paper's control: it changes how sure the model is and not who is heard, so it should not repair joint training.
"""

from torch import Tensor

from .method import Norms, Scaling, divide, positive


class Temperature(Scaling):
    """Multiply both parts by alpha; with `normalize`, after dividing each by its mean absolute value.

    >>> import torch
    >>> unary, pairwise = Temperature(alpha=3.0)(torch.ones(1, 2), torch.ones(2, 2))
    >>> unary, pairwise[0]
    (tensor([[3., 3.]]), tensor([3., 3.]))
    """

    def __init__(self, alpha: float | Tensor = 1.0, normalize: bool = False) -> None:
        super().__init__()
        self.register_buffer("alpha", positive("alpha", alpha))
        self.normalize = normalize

    def factors(self, norms: Norms) -> tuple[Tensor, Tensor]:
        if not self.normalize:
            return self.alpha, self.alpha
        u, w = norms()
        return divide(self.alpha, u), divide(self.alpha, w)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, normalize={self.normalize}"
