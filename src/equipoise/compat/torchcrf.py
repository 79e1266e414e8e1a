"""pytorch-crf's `CRF` on `equipoise.chain`: the same interface, parameters and checkpoints.

    log P(Y | X) = a(y_1) + sum_t U(x_t, y_t) + sum_t W(y_t, y_{t+1}) + b(y_L) - log Z

with `start_transitions` a, `end_transitions` b, `transitions` W and emissions U. To switch, replace
`from torchcrf import CRF` by `from equipoise.compat.torchcrf import CRF`. Results equal those of pytorch-crf 0.7.2,
except for a mask with holes: there pytorch-crf computes score and normaliser of different chains, so its result is no
log probability. Here the positions that are off are removed from the chain, and `decode` returns one tag per remaining
position.

Other differences: tags may have any integer type; those where the mask is off are not read and may be -100; a negative
tag where the mask is on raises IndexError; tags forbidden by -inf have log likelihood -inf and gradient 0; half
precision is computed and returned in float32.

`CRF(num_tags, balanced=True)` is not in pytorch-crf: emissions and transitions are balanced by `scaling.Learned`. Nor
are sets of tags, soft tags and weights of sequences in `forward`.

`to_chain_crf` turns a layer or checkpoint of either library into a `ChainCRF` with the same scores.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from .. import chain, objectives
from ..arguments import check_count, check_flag, shown
from ..chain.checks import INTEGERS, at, first, int64
from ..chain.problem import IGNORE
from ..crf import ChainCRF
from ..crf.checkpoints import add_scaling, stored_size
from ..crf.choice import Chosen, choose
from ..crf.fused import Parameters
from ..crf.potentials import Potentials
from ..crf.reasons import Reason
from ..crf.sets import check as check_sets
from ..crf.supervision import Supervision, total
from ..energies import ChainEnergy, balance
from ..masking import Unmasked, read_mask, rows
from ..native.values import readable
from ..scaling import Fixed, Learned
from ..scaling.kernel_state import KernelState, one

NO_START = "mask must be on at the first step of every sequence"


class CRF(nn.Module):
    """A linear-chain CRF layer over `num_tags` tags.

    Emissions are (L, B, num_tags), tags and mask (L, B); with `batch_first`, (B, L, num_tags) and (B, L). The mask is
    bool or uint8, and on at positions that count. It must be on at the first position of every sequence.

    With `balanced`, the layer learns at any learning rate (`scaling.Learned`); the default is exactly pytorch-crf.

    >>> crf = CRF(num_tags=2, batch_first=True)
    >>> for parameter in crf.parameters():
    ...     _ = nn.init.zeros_(parameter)
    >>> emissions = torch.tensor([[[0.0, 1.0], [2.0, 0.0], [0.0, 9.0]]])
    >>> mask = torch.tensor([[True, True, False]])
    >>> crf.decode(emissions, mask)
    [[1, 0]]
    >>> f"{crf(emissions, torch.tensor([[1, 0, 0]]), mask):.4f}"  # log sigmoid(1) + log sigmoid(2)
    '-0.4402'
    """

    def __init__(self, num_tags: int, batch_first: bool = False, *, balanced: bool = False) -> None:
        super().__init__()
        self.num_tags = check_count("num_tags", num_tags)
        check_flag("batch_first", batch_first)
        check_flag("balanced", balanced)
        self.batch_first = batch_first
        self.start_transitions = nn.Parameter(torch.empty(num_tags))
        self.end_transitions = nn.Parameter(torch.empty(num_tags))
        self.transitions = nn.Parameter(torch.empty(num_tags, num_tags))  # from tag i (row) to tag j (column)
        self.scaling = Learned() if balanced else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw from U(-0.1, 0.1), in pytorch-crf's order: the same seed gives the same parameters.

        With `balanced` they are normal and very small, and the state of scaling becomes its initial one.
        """
        for parameter in (self.start_transitions, self.end_transitions, self.transitions):
            if self.scaling is None:
                nn.init.uniform_(parameter, -0.1, 0.1)
            else:
                nn.init.normal_(parameter, std=self.scaling.pairwise_std)
        if self.scaling is not None:
            self.scaling.reset_parameters()

    def extra_repr(self) -> str:
        return f"num_tags={self.num_tags}"

    def forward(
        self,
        emissions: Tensor,
        tags: Tensor | None = None,
        mask: Tensor | None = None,
        reduction: str = "sum",
        *,
        allowed: Tensor | None = None,
        targets: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> Tensor:
        """log P(tags | emissions): (B,) for the reduction "none", else a scalar.

        "sum" and "mean" are over sequences; "token_mean" is the sum divided by the number of positions that are on.
        `allowed`, `targets` (both of the shape of emissions) and `weights`, (B,), are not in pytorch-crf: see
        `ChainCRF.loss`. Together with one of them a tag of -1 is `equipoise.UNKNOWN`.
        """
        if reduction not in ("none", "sum", "mean", "token_mean"):
            raise ValueError(f"reduction must be 'none', 'sum', 'mean' or 'token_mean', got {reduction!r}")
        self._check(emissions, mask)
        if mask is not None and not self._batch_first(mask)[:, 0].all():
            raise ValueError(NO_START)
        if tags is not None:
            self._check_tags(emissions, tags)
        if tags is None or not (allowed is targets is weights is None):
            tags, allowed, targets = (None if x is None else self._batch_first(x) for x in (tags, allowed, targets))
            return self._weighted(emissions, mask, Supervision(tags, allowed, targets, weights), reduction)
        in_torch = partial(self._loss_in_torch, emissions, tags, mask, reduction)
        scores_in_torch = partial(self._scores_in_torch, emissions, mask)
        call = self._by_kernels(emissions, mask, tags)
        answer: Tensor | Reason = Reason.IN_PARTS
        if not isinstance(call, Reason):
            answer = call.loss(objectives.OBJECTIVES["likelihood"], reduction, in_torch, scores_in_torch)
        log_p = -(answer if isinstance(answer, Tensor) else in_torch())
        no_mean = reduction in ("mean", "token_mean") and not emissions.shape[1 - int(self.batch_first)]
        return log_p * torch.nan if no_mean else log_p

    def _weighted(self, emissions: Tensor, mask: Tensor | None, given: Supervision, reduction: str) -> Tensor:
        """The log-likelihood of sets of tags and of soft tags, and weighted."""
        likelihood = objectives.OBJECTIVES["likelihood"]
        given.check(self._batch_first(emissions), likelihood, True)
        unary, transitions, unmasked = self._chain(emissions, mask, learning=True)
        if readable(unary):
            given.check_values(unary, None if mask is None else self._batch_first(mask).bool())
        sets = given.sets(unmasked, self.num_tags)
        losses, shares = given.losses(
            likelihood, Potentials(unary, transitions, unmasked.lengths), sets, unmasked, strict=True
        )
        if readable(losses) and sets is not None and not bool(losses.isfinite().all()):
            check_sets(None, sets, unmasked, given.name)
        return -total(given, losses, shares, None, unmasked, reduction, of_means=False)

    @torch.no_grad()
    def decode(self, emissions: Tensor, mask: Tensor | None = None) -> list[list[int]]:
        """The most likely tags of each sequence, one per position whose mask is on."""
        self._check(emissions, mask)
        call = self._by_kernels(emissions, mask)
        if not isinstance(call, Reason):
            tags = call.decode("map", in_place=False).tolist()
        else:
            tags = self._decode_in_torch(emissions, mask).tolist()
        if not all(row[-1] for row in tags):
            raise ValueError(NO_START)
        # If every path is forbidden, labels are -100, but tags must be valid indices.
        return [row[: row[-1]] if row[0] >= 0 else [0] * row[-1] for row in tags]

    def _decode_in_torch(self, emissions: Tensor, mask: Tensor | None) -> Tensor:
        """The `masking.rows` of the most likely tags."""
        unary, transitions, unmasked = self._chain(emissions, mask)
        labels, _ = chain.decode(unary, transitions, unmasked.lengths)
        return rows(labels, unmasked.lengths, None if mask is None else self._batch_first(mask))

    def _loss_in_torch(self, emissions: Tensor, tags: Tensor, mask: Tensor | None, reduction: str) -> Tensor:
        """-log P(tags | emissions) by torch operators, after a check of values."""
        self._check_values(mask, tags)
        unary, transitions, unmasked = self._chain(emissions, mask, learning=True)
        labels = unmasked.compact(self._batch_first(int64("tags", tags)))
        return objectives.likelihood(unary, transitions, labels, unmasked.lengths, reduction=reduction)

    def _scores_in_torch(self, emissions: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        return self._chain(emissions, mask, learning=True)[:2]

    def _by_kernels(self, emissions: Tensor, mask: Tensor | None, tags: Tensor | None = None) -> Chosen:
        """A call by kernels, for a prediction, or with tags for a loss; or why there is none."""
        state = KernelState(one(self.transitions)) if self.scaling is None else self.scaling.kernel_state()
        unary, given_mask = self._batch_first(emissions), None if mask is None else self._batch_first(mask)
        labels = None if tags is None else self._batch_first(int64("tags", tags))
        if labels is not None:
            labels = labels.masked_fill(labels == IGNORE, -1)  # an invalid tag, if the mask is on
        own = self.transitions, self.start_transitions, self.end_transitions
        parameters = Parameters(*own, None, None, None)
        training = self.scaling is not None and self.scaling.training
        return choose(unary, parameters, state, given_mask, labels, training=training)

    def _chain(
        self, emissions: Tensor, mask: Tensor | None, *, learning: bool = False
    ) -> tuple[Tensor, Tensor, Unmasked]:
        """Unary scores (B, L, M), unmasked positions first, pairwise scores, and which positions are unmasked."""
        unary = self._batch_first(emissions)
        unary = unary.to(torch.promote_types(unary.dtype, torch.float32))
        step = torch.arange(unary.shape[1], device=unary.device)[:, None]
        if mask is None:
            unmasked = Unmasked(None, step.new_full(unary.shape[:1], unary.shape[1]))
        else:
            unmasked = read_mask(self._batch_first(mask).bool())
        unary, first, last, pairwise = self._balanced(unmasked.compact(unary), unmasked, learning)
        start = torch.where(step == 0, first, 0)
        end = torch.where(step == unmasked.lengths[:, None, None] - 1, last, 0)
        return unary + start + end, pairwise, unmasked

    def _balanced(self, unary: Tensor, unmasked: Unmasked, learning: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Unary, start, end and pairwise scores; the last three are one part, with one factor."""
        own = (self.start_transitions, self.end_transitions, self.transitions)
        if self.scaling is None:
            return unary, *own
        row = torch.cat([x.reshape(1, -1) for x in own], -1)
        learning = learning and self.scaling.learning(unary, row)
        unary, row, _ = balance(ChainEnergy(), self.scaling, unary, row, unmasked.lengths, learning=learning)
        first, last, pairwise = row.flatten().split([x.numel() for x in own])
        return unary, first, last, pairwise.reshape(self.num_tags, self.num_tags)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """With `balanced`, a checkpoint of a layer without scaling keeps its predictions."""
        if self.scaling is not None and not any(key.startswith(prefix + "scaling.") for key in state_dict):
            state_dict[prefix + "scaling.alpha"] = torch.ones(())
            size = stored_size(state_dict, prefix, dict(self.named_parameters(recurse=False)), None)
            add_scaling(state_dict, prefix + "scaling.", self.scaling, size)
        super()._load_from_state_dict(state_dict, prefix, *args)

    def _batch_first(self, x: Tensor) -> Tensor:
        return x if self.batch_first else x.transpose(0, 1)

    def _check(self, emissions: Tensor, mask: Tensor | None) -> None:
        shape = tuple(emissions.shape)
        layout = "(B, L, num_tags)" if self.batch_first else "(L, B, num_tags)"
        if len(shape) != 3 or shape[2] != self.num_tags:
            raise ValueError(f"emissions must have shape {layout} with num_tags = {self.num_tags}, got {shape}")
        if shape[int(self.batch_first)] == 0:
            raise IndexError(f"emissions must have at least one step, got shape {shape} for {layout}")
        if mask is None:
            return
        _check_shape("mask", mask, emissions)
        if mask.dtype not in (torch.bool, torch.uint8):
            raise RuntimeError(f"mask must be bool or uint8, got {mask.dtype}")  # pytorch-crf's type of error

    def _check_tags(self, emissions: Tensor, tags: Tensor) -> None:
        _check_shape("tags", tags, emissions)
        if tags.dtype not in INTEGERS:
            raise IndexError(f"tags must be integers, got {tags.dtype}")  # pytorch-crf's type of error

    def _check_values(self, mask: Tensor | None, tags: Tensor) -> None:
        """Raise if a tag is out of range. Kernels of the CPU do not accept such tags; values on a GPU are not read."""
        if readable(tags):
            tags = int64("tags", tags)
            wrong = (tags < 0) | (tags >= self.num_tags)
            index = first(wrong if mask is None else wrong & mask.bool())
            if index is not None:
                tag, most = int(tags[index]), self.num_tags - 1
                raise IndexError(f"{at('tags', index)} is {tag}, but must be from 0 to {most}")


def to_chain_crf(source: nn.Module | Mapping[str, Tensor], **options: Any) -> ChainCRF:
    """A `ChainCRF(boundaries=True)` with the scores of a `CRF` of pytorch-crf or of this module, or of its state dict.

    A state dict of a whole model will do if it has one such layer. Its `loss` is the negative mean log likelihood. It
    is always batch first. `options` are further arguments of `ChainCRF`, such as `constraints`. Scaling is
    `scaling.Fixed()`, or for a balanced layer `scaling.Learned()` with the same state, unless the options have another.

    >>> crf = CRF(num_tags=3, batch_first=True)
    >>> emissions, tags = torch.randn(2, 5, 3), torch.randint(3, (2, 5))
    >>> to_chain_crf(crf).loss(emissions, tags).allclose(-crf(emissions, tags, reduction="mean"))
    True
    """
    state = source.state_dict() if isinstance(source, nn.Module) else source
    if not isinstance(state, Mapping):
        raise TypeError(f"source must be a layer or a state dict, got {shown(state)}")
    candidates = [key.removesuffix(SCORES["start"]) for key in state if key.endswith(SCORES["start"])]
    prefixes = [prefix for prefix in candidates if all(prefix + name in state for name in SCORES.values())]
    if len(prefixes) != 1:
        names = ", ".join(SCORES.values())
        raise ValueError(f"the state dict must have one layer with {names}, got {len(prefixes)} in {list(state)}")
    scores = {name: state[prefixes[0] + key] for name, key in SCORES.items()}
    stored = {key.removeprefix(prefixes[0]): x for key, x in state.items() if key.startswith(f"{prefixes[0]}scaling.")}
    method = options.pop("scaling", None) or (Learned() if stored else Fixed())
    crf = ChainCRF(len(scores["start"]), method, boundaries=True, **options).to(scores["pairwise"])
    if not stored and method.state_without_effect(torch.ones(())):
        stored = {"scaling.alpha": torch.ones(())}  # the state then keeps the scores, see `crf.checkpoints`
    elif not stored:
        stored = {f"scaling.{key}": x for key, x in method.state_dict().items()}
    crf.load_state_dict(scores | stored)
    return crf


SCORES = {"start": "start_transitions", "end": "end_transitions", "pairwise": "transitions"}
"""The parameters of `ChainCRF`, and their names in pytorch-crf."""


def _check_shape(name: str, x: Tensor, emissions: Tensor) -> None:
    if x.shape != emissions.shape[:2]:
        shape = tuple(emissions.shape)
        raise ValueError(f"{name} has shape {tuple(x.shape)}, but emissions {shape} needs {shape[:2]}")
