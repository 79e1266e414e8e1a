"""The Gaussian CRF layer over images (§4.2). The mathematics is in `gaussian` and `energies`.

s* = (b' W + ridge I)^-1 a U,      p_j = softmax(s*_j),      W = (11^T - I) (x) A A^T
(a, b) = scaling(||U||, ||W||);  b' <= b keeps the system definite
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .. import gaussian
from ..arguments import check_count, check_flag, check_name
from ..energies import Embedded, GaussianEnergy, RandomPairs, balance
from ..energies.gaussian import DEFINITE
from ..gaussian.definite import check_share
from ..gaussian.images import check_images, check_labels, cross_entropy, rows
from ..gaussian.inputs import System, check_finite, explain, same_dtype
from ..gaussian.solving import check_solution, solver_by_name
from ..native.values import readable
from ..scaling import Scaling
from ..scaling.method import Sign, empty_like, positive, state_fault
from .checkpoints import add_scaling
from .parts import check_scaling
from .searching import collect, searchable

SIGNS: dict[str, Sign] = {"ridge": "positive", "share_logit": "any"}
"""The numbers of the state, which must be finite."""


class GaussianCRF(nn.Module):
    """A Gaussian CRF layer: unary scores and embeddings of pixels in; loss, labels or marginals out.

    Shapes: unary (*batch, M, H, W), embeddings (*batch, D, H, W), labels (*batch, H, W), any H and W. Pixels whose
    label is -100 do not count in the loss.

    Args:
        num_labels: M.
        ridge: the weight of |s|^2 in the energy.
        scaling: how unary and pairwise scores are balanced; `scaling.Fixed(1.0)` by default.
        definite: how the system is given a maximum, which needs ridge > sigma_max(A^T A). "bounded": W is made smaller
            where necessary, so that sigma_max <= share * ridge. "normalized": also larger, so that sigma_max = share *
            ridge always. "checked": a system that is not definite is an error. "raw": no guarantee; s* may then be no
            maximum, as in the paper.
        share: the share of ridge that sigma_max may reach, between 0 and 1: a number, or one per replica.
        learn_share: whether training adjusts the share, as the sigmoid of a parameter.
        method: "direct", "cg" or "dense", see `gaussian.solve`; or a solver such as `gaussian.CG(max_iterations=50)`.
        pairs: the number of pairs of pixels from which ||W|| is estimated, always the same pairs, in images that have
            more than a hundred times as many. None measures all L^2 pairs of any image.
        tolerance: for "cg".
        max_iterations: for "cg", which warns where it does not converge.
        validate: whether to check values (NaN, labels out of range): None wherever that does not wait for a device,
            True always, False never.

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
        method: str | gaussian.Solver = "direct",
        pairs: int | None = 16384,
        tolerance: float = 1e-6,
        max_iterations: int = 200,
        validate: bool | None = None,
    ) -> None:
        super().__init__()
        self.num_labels = check_count("num_labels", num_labels)
        check_name("definite", definite, DEFINITE)
        check_flag("learn_share", learn_share)
        check_flag("validate", validate, unset=True)
        pairs = None if pairs is None else check_count("pairs", pairs, least=2)
        self.definite, self.validate = definite, validate
        self.solver = solver_by_name(method, tolerance, max_iterations)
        self.scaling = check_scaling(scaling)
        with torch.device("cpu"):  # where values can be read, also if the default device is meta
            logit = torch.logit(torch.as_tensor(check_share(share), dtype=torch.get_default_dtype())).detach()
            ridge = positive("ridge", ridge).detach()
        self._initial = {name: x.to("cpu", copy=True) for name, x in (("ridge", ridge), ("share_logit", logit))}
        self.register_buffer("ridge", empty_like(ridge))
        logit = empty_like(logit)
        if learn_share:
            self.share_logit = nn.Parameter(logit)
        else:
            self.register_buffer("share_logit", logit)
        draws = None if pairs is None else torch.empty(2, pairs, dtype=torch.float64)
        self.register_buffer("draws", draws, persistent=False)
        self._restore()

    def reset_parameters(self) -> None:
        """Set ridge, share and scaling to their initial values, as after construction on meta and `to_empty`."""
        self._restore()
        self.scaling.reset_parameters()

    @torch.no_grad()
    def _restore(self) -> None:
        for name, value in self._initial.items():
            getattr(self, name).copy_(value)
        if self.draws is not None:
            # The same pairs in every image and call, so that the same image always gets the same result.
            fixed = torch.Generator("cpu").manual_seed(0)
            pairs = self.draws.shape[-1]
            self.draws.copy_(torch.rand(2, pairs, dtype=torch.float64, generator=fixed, device="cpu"))

    @property
    def share(self) -> Tensor:
        """The share of ridge that sigma_max may reach."""
        return self.share_logit.sigmoid()

    @property
    def energy(self) -> GaussianEnergy:
        return GaussianEnergy(self.definite, self.ridge, self.solver, RandomPairs(self.draws))

    def forward(self, unary: Tensor, embeddings: Tensor, labels: Tensor) -> Tensor:
        """The same as `loss`."""
        return self.loss(unary, embeddings, labels)

    def scores(self, unary: Tensor, embeddings: Tensor) -> Tensor:
        """s*, (*batch, M, H, W): where the balanced energy is highest.

        >>> GaussianCRF(num_labels=2).scores(torch.randn(2, 8, 6), torch.randn(4, 8, 6)).shape
        torch.Size([2, 8, 6])
        """
        return self._scores(unary, embeddings)[0].mT.reshape(unary.shape)

    def log_marginals(self, unary: Tensor, embeddings: Tensor) -> Tensor:
        """log p_j(y_j | X), (*batch, M, H, W): the log-softmax of the scores.

        >>> log_p = GaussianCRF(num_labels=2).log_marginals(torch.randn(3, 2, 8, 6), torch.randn(3, 4, 8, 6))
        >>> log_p.exp().sum(-3).allclose(torch.ones(3, 8, 6))
        True
        """
        return self.scores(unary, embeddings).log_softmax(-3)

    def decode(self, unary: Tensor, embeddings: Tensor) -> Tensor:
        """The label with the highest score of every pixel, (*batch, H, W)."""
        return self.scores(unary, embeddings).argmax(-3)

    def loss(self, unary: Tensor, embeddings: Tensor, labels: Tensor) -> Tensor:
        """The cross-entropy of the marginals, a scalar: the mean over an image's pixels, then over images.

        An image in which no label counts does not count.
        """
        scores, penalty = self._scores(unary, embeddings, labels)
        losses, counted = cross_entropy(scores, labels)
        return losses.sum() / counted.sum().clamp(min=1) + penalty.mean().to(losses.dtype)

    @torch.no_grad()
    def balance(self, unary: Tensor, embeddings: Tensor) -> Tensor:
        """||U|| / ||W|| after scaling and bound, a scalar: the size of the unary part relative to the pairwise part.

        >>> from equipoise.scaling import Fixed
        >>> crf = GaussianCRF(num_labels=2, definite="raw", scaling=Fixed(alpha=2.0))
        >>> crf.balance(torch.full((2, 8, 6), -4.0), torch.ones(4, 8, 6))  # 2 * 4 relative to 4
        tensor(2.)
        """
        check_images(unary, embeddings, self.num_labels)
        u, w, _ = balance(self.energy, self.scaling, *self._parts(unary, embeddings))
        u, w = self.energy.norms(u, w)()
        return (u / w).mean()

    @torch.no_grad()
    def rebalance(self, batches: Iterable[Sequence[Tensor]]) -> Tensor:
        """Search the factor alpha again, as `scaling.Online` does after each epoch (Algorithm 1), and return it.

        `batches` yields (unary, embeddings, labels); it is read until the method's `subset` of images is reached. Give
        it held-out images, as for `ChainCRF.rebalance`. Scores are proportional to alpha, so one solve per image serves
        the whole grid.
        """
        method, energy = searchable(self.scaling), self.energy
        parts = ((*self._parts(*self._checked(u, e, y)), y) for u, e, y in batches)
        seen, count = collect(parts, method.subset, lambda part: part[0].shape[:-2].numel(), "images")
        one = torch.ones_like(method.alpha)
        scaled = [(*energy.scaled(unary, pairwise, one, one), labels) for unary, pairwise, labels in seen]

        def losses(alpha: Tensor) -> Tensor:
            total = torch.zeros_like(alpha)
            for unary, pairwise, labels in scaled:
                each = energy.losses_for_each(alpha, "marginal", unary, pairwise, labels)  # (G, *batch)
                total = total + each.sum(tuple(range(alpha.ndim, each.ndim)))
            return total

        return method.choose(losses, count)

    def extra_repr(self) -> str:
        has_value = self.share.ndim == 0 and not self.share.is_meta
        share = f", share={self.share.tolist():.3g}" if has_value else ""
        return f"{self.num_labels}, definite={self.definite}{share}, solver={type(self.solver).__name__}"

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        add_scaling(state_dict, prefix + "scaling.", self.scaling)
        faults = [state_fault(prefix + name, state_dict.get(prefix + name), sign) for name, sign in SIGNS.items()]
        args[-1].extend(fault for fault in faults if fault)  # the errors
        super()._load_from_state_dict(state_dict, prefix, *args)

    def _check_state(self) -> None:
        self.scaling.check_state("scaling.")
        for name, sign in SIGNS.items():
            if fault := state_fault(name, getattr(self, name), sign):
                raise ValueError(fault)

    def _checked(self, unary: Tensor, embeddings: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        check_images(unary, embeddings, self.num_labels)
        check_labels(unary, labels, values=readable(labels) if self.validate is None else self.validate)
        return unary, embeddings

    def _parts(self, unary: Tensor, embeddings: Tensor) -> tuple[Tensor, Embedded]:
        """The two parts as the energy takes them: pixels row by row."""
        u, a = same_dtype(rows(unary), rows(embeddings))
        height, width = unary.shape[-2:]
        return u, Embedded(a, torch.ones_like(self.share), self.share, (height, width))

    def _scores(self, unary: Tensor, embeddings: Tensor, labels: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """s*, (*batch, L, M), and the penalty of scaling for each example."""
        if labels is None:
            check_images(unary, embeddings, self.num_labels)
        else:
            self._checked(unary, embeddings, labels)
        if self.validate:
            self._check_state()
        energy = self.energy
        try:
            if self.definite == "checked":
                self._check_definite(*self._parts(unary, embeddings))
            learning = self.scaling.learning(unary, embeddings)
            u, w, penalty = balance(energy, self.scaling, *self._parts(unary, embeddings), learning=learning)
            solved = energy.solve(u, w)
            system = System(u, w.embeddings, energy.image_ridge(w))
            check_solution(solved, system, self.solver)
            if self.validate and not bool(solved.solution.isfinite().all()):
                explain(system)
        except ValueError:
            check_finite("unary", unary)  # names the place in the image, not in the row of pixels
            check_finite("embeddings", embeddings)
            raise
        return solved.solution, penalty

    def _check_definite(self, unary: Tensor, pairwise: Embedded) -> None:
        raw = GaussianEnergy("raw", self.ridge, self.solver, RandomPairs(self.draws))
        _, w, _ = balance(raw, self.scaling, unary, pairwise)
        gaussian.check(w.embeddings, raw.image_ridge(w))
