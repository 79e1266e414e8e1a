"""The Gaussian CRF layer over images (§4.2). It owns next to nothing; the mathematics is in `gaussian`.

    s* = (b' W + ridge I)^-1 a U,      p_j = softmax(s*_j),      W = (11^T - I) (x) A A^T
    (a, b) = scaling(||U||, ||W||);  b' <= b is what keeps the system definite

A factor on W is a divisor of ridge: (b W + r I)^-1 U = 1/b (W + r/b I)^-1 U. So the embeddings are never multiplied:
scaling and bound only choose the ridge of each image.
"""

import warnings
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from .. import gaussian, scaling
from ..chain.visibility import readable
from ..gaussian.definite import check_share
from ..gaussian.images import check_images, check_labels, cross_entropy, rows
from ..gaussian.problem import check_finite, explain, problem
from ..gaussian.sampling import CHEAP, estimate
from ..gaussian.solving import METHODS
from ..scaling import Fixed, Online, Scaling
from ..scaling.method import leading, multiply, positive

DEFINITE = ("bounded", "normalized", "checked", "raw")


class GaussianCRF(nn.Module):
    """A Gaussian CRF layer: unary scores and embeddings of pixels in; loss, labels or marginals out.

    Shapes: unary (*batch, M, H, W), embeddings (*batch, D, H, W), labels (*batch, H, W), any H and W. Pixels whose
    label is -100 do not count in the loss.

    Args:
        num_labels: M.
        ridge: the weight of |s|^2 in the energy.
        scaling: how unary and pairwise are put in balance, `scaling.Fixed(1.0)` if not given.
        definite: what is done so that the system has a maximum, for which ridge > sigma_max(A^T A) is needed.
            "bounded": W is made smaller where it must be for sigma_max <= share * ridge. "normalized": and larger, for
            sigma_max = share * ridge always. "checked": a system that is not definite is an error. "raw": nothing; s*
            may then be no maximum, as in the paper.
        share: of ridge that sigma_max may take, between 0 and 1: a number, or one a replica.
        learn_share: whether training adjusts the share, as the sigmoid of a parameter.
        method: "direct", "cg" or "dense", see `gaussian.solve`.
        pairs: how many pairs of pixels ||W|| is estimated from, always the same ones, in images that have more than a
            hundred times as many. None measures all L^2 pairs of any image.
        tolerance: for "cg".
        max_iterations: for "cg", which warns where it does not converge.
        validate: whether to look at values (NaN, labels out of range): None wherever that means no waiting for a
            device, True always, False never.

    >>> crf = GaussianCRF(num_labels=3)
    >>> unary, embeddings = torch.randn(2, 3, 8, 6), torch.randn(2, 4, 8, 6)
    >>> crf.loss(unary, embeddings, torch.randint(3, (2, 8, 6))).isfinite()
    tensor(True)
    >>> crf.decode(unary, embeddings).shape
    torch.Size([2, 8, 6])
    """

    ridge: Tensor
    share_logit: Tensor
    draws: Tensor | None

    def __init__(
        self,
        num_labels: int,
        ridge: float | Tensor = 1.0,
        scaling: Scaling | None = None,
        *,
        definite: str = "bounded",
        share: float | Tensor = 0.5,
        learn_share: bool = False,
        method: str = "direct",
        pairs: int | None = 16384,
        tolerance: float = 1e-6,
        max_iterations: int = 200,
        validate: bool | None = None,
    ) -> None:
        super().__init__()
        if num_labels < 1:
            raise ValueError(f"num_labels must be at least 1, got {num_labels}")
        if definite not in DEFINITE:
            raise ValueError(f"definite must be one of {', '.join(DEFINITE)}, got {definite!r}")
        if method not in METHODS:
            raise ValueError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
        if pairs is not None and pairs < 2:
            raise ValueError(f"pairs must be at least 2, or None for all, got {pairs}")
        self.num_labels, self.definite, self.method = num_labels, definite, method
        self.tolerance, self.max_iterations, self.validate = tolerance, max_iterations, validate
        self.scaling = Fixed() if scaling is None else scaling
        self.register_buffer("ridge", positive("ridge", ridge))
        logit = torch.logit(torch.as_tensor(check_share(share), dtype=torch.get_default_dtype()))
        if learn_share:
            self.share_logit = nn.Parameter(logit)
        else:
            self.register_buffer("share_logit", logit)
        # The same places in every image and at every call, or the same image would not get the same answer.
        fixed = torch.Generator().manual_seed(0)
        draws = None if pairs is None else torch.rand(2, pairs, dtype=torch.float64, generator=fixed)
        self.register_buffer("draws", draws, persistent=False)

    @property
    def share(self) -> Tensor:
        """The share of ridge that sigma_max may take."""
        return self.share_logit.sigmoid()

    def forward(self, unary: Tensor, embeddings: Tensor, labels: Tensor) -> Tensor:
        """The same as `loss`."""
        return self.loss(unary, embeddings, labels)

    def scores(self, unary: Tensor, embeddings: Tensor) -> Tensor:
        """s*, (*batch, M, H, W): where the energy, in balance, is highest.

        >>> GaussianCRF(num_labels=2).scores(torch.randn(2, 8, 6), torch.randn(4, 8, 6)).shape
        torch.Size([2, 8, 6])
        """
        energy, scores = self._answer(unary, embeddings)
        return multiply(energy.alpha, scores).mT.reshape(unary.shape)

    def log_marginals(self, unary: Tensor, embeddings: Tensor) -> Tensor:
        """log p_j(y_j | X), (*batch, M, H, W): the softmax of the scores.

        >>> log_p = GaussianCRF(num_labels=2).log_marginals(torch.randn(3, 2, 8, 6), torch.randn(3, 4, 8, 6))
        >>> log_p.exp().sum(-3).allclose(torch.ones(3, 8, 6))
        True
        """
        return self.scores(unary, embeddings).log_softmax(-3)

    def decode(self, unary: Tensor, embeddings: Tensor) -> Tensor:
        """The label of the highest score at every pixel, (*batch, H, W)."""
        return self.scores(unary, embeddings).argmax(-3)

    def loss(self, unary: Tensor, embeddings: Tensor, labels: Tensor) -> Tensor:
        """The cross-entropy of the marginals, a scalar: the mean over an image's pixels, then over images.

        An image without a label that counts does not count.
        """
        energy, scores = self._answer(unary, embeddings, labels)
        losses, counted = cross_entropy(multiply(energy.alpha, scores), labels)
        penalty = self.scaling.penalty_of(self._norms(energy)).mean()
        return losses.sum() / counted.sum().clamp(min=1) + penalty.to(losses.dtype)

    @torch.no_grad()
    def balance(self, unary: Tensor, embeddings: Tensor) -> Tensor:
        """||U|| / ||W|| after scaling and bound, a scalar: how loud the unary part is beside the pairwise part.

        >>> crf = GaussianCRF(num_labels=2, definite="raw", scaling=Fixed(alpha=2.0))
        >>> crf.balance(torch.full((2, 8, 6), -4.0), torch.ones(4, 8, 6))  # 2 * 4 beside 4
        tensor(2.)
        """
        check_images(unary, embeddings, self.num_labels)
        energy = self._energy(unary, embeddings)
        u, w = self._norms(energy)()
        return (multiply(energy.alpha, u) / (w * self._weight(energy))).mean()

    @torch.no_grad()
    def rebalance(self, batches: Iterable[Sequence[Tensor]]) -> Tensor:
        """Search the factor alpha anew, as `scaling.Online` wants it after each epoch (Algorithm 1), and return it.

        `batches` yields (unary, embeddings, labels) of training data, until there are as many images as the method's
        `subset` wants. Scores are proportional to alpha, so one solve an image serves the whole grid.
        """
        method = self.scaling
        if not isinstance(method, Online):
            raise TypeError(f"rebalance needs scaling=Online(...), but this layer has {type(method).__name__}")
        seen: list[tuple[Tensor, Tensor]] = []
        count = 0
        for unary, embeddings, labels in batches:
            seen.append((self._answer(unary, embeddings, labels)[1], labels))
            count += unary.shape[:-3].numel()
            if count >= method.subset:
                break
        if count < method.subset:
            warnings.warn(f"the search wants {method.subset} images, got {count}: alpha rests on those", stacklevel=3)

        def losses(alpha: Tensor) -> Tensor:
            def one(factor: Tensor) -> Tensor:
                each = [cross_entropy(multiply(factor, scores), labels)[0] for scores, labels in seen]
                return torch.stack([x.sum(tuple(range(factor.ndim, x.ndim))) for x in each]).sum(0)

            return torch.stack([one(factor) for factor in alpha])

        return method.choose(losses, count)

    def extra_repr(self) -> str:
        share = f", share={self.share.tolist():.3g}" if self.share.ndim == 0 else ""
        return f"{self.num_labels}, definite={self.definite}{share}, method={self.method}"

    def _answer(self, unary: Tensor, embeddings: Tensor, labels: Tensor | None = None) -> tuple["Energy", Tensor]:
        """The energy, and its highest point before the factor of the unary part, (*batch, L, M)."""
        check_images(unary, embeddings, self.num_labels)
        if labels is not None:
            check_labels(unary, labels, look=readable(labels) if self.validate is None else self.validate)
        try:
            energy = self._energy(unary, embeddings)
            return energy, self._solve(energy)
        except ValueError:
            check_finite("unary", unary)  # says where in the image, not in its row of pixels
            check_finite("embeddings", embeddings)
            raise

    def _energy(self, unary: Tensor, embeddings: Tensor) -> "Energy":
        """Pixels in a row, and the factor and the ridge that put them in balance and make the system definite."""
        u, a = rows(unary), rows(embeddings)
        energy = Energy(u, a, u.new_ones(()), self.ridge)
        alpha, beta = self.scaling.factors(self._norms(energy))
        batch = u.shape[:-2]
        ridge = leading(self.ridge, len(batch)) / leading(beta, len(batch))
        if self.definite in ("bounded", "normalized"):
            bound = gaussian.spectral_bound(a)
            enough = bound / leading(self.share, len(batch))
            ridge = torch.where(bound > 0, enough, ridge) if self.definite == "normalized" else ridge.maximum(enough)
        ridge = ridge.expand(batch)
        if self.definite == "checked":
            gaussian.check(a, ridge)
        return Energy(u, a, alpha, ridge)

    def _norms(self, energy: "Energy") -> scaling.Norms:
        def norms() -> tuple[Tensor, Tensor]:
            a, draws = energy.embeddings, self.draws
            every = draws is None or a.shape[-2] ** 2 <= CHEAP * draws.shape[-1]
            w = gaussian.mean_abs(a) if draws is None or every else estimate(a, draws).value
            return scaling.mean_abs(energy.unary), w

        return norms

    def _weight(self, energy: "Energy") -> Tensor:
        """b', the factor of W, (*batch,)."""
        return leading(self.ridge, energy.ridge.ndim) / energy.ridge

    def _solve(self, energy: "Energy") -> Tensor:
        """(b' W + ridge I)^-1 U, (*batch, L, M)."""
        u, a, _, ridge = energy
        scores = gaussian.solve(
            u, a, ridge, method=self.method, tolerance=self.tolerance, max_iterations=self.max_iterations
        )
        if self.validate and not bool(scores.isfinite().all()):
            explain(problem(u, a, ridge))
        return scores / self._weight(energy)[..., None, None]


class Energy(NamedTuple):
    """An energy in balance: s* = alpha ridge / self.ridge (W + ridge I)^-1 U."""

    unary: Tensor  # U, (*batch, L, M)
    embeddings: Tensor  # A, (*batch, L, D)
    alpha: Tensor  # the factor of U: a number, one a replica, or one an image
    ridge: Tensor  # (*batch,)
