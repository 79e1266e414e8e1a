"""Random chains, small enough to enumerate: every shape, kind of pairwise, length and pattern of -inf."""

from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor

BATCHES = [(), (1,), (3,), (2, 2), (2, 1, 2)]
KINDS = ["shared", "sequence", "broadcast", "edge"]


@dataclass
class Chain:
    unary: Tensor
    pairwise: Tensor
    lengths: Tensor | None
    seed: int

    @property
    def args(self) -> tuple[Tensor, Tensor, Tensor | None]:
        return self.unary, self.pairwise, self.lengths

    @property
    def generator(self) -> torch.Generator:
        return torch.Generator().manual_seed(self.seed)

    def labels(self) -> Tensor:
        """Labels in range, -100 beyond the length."""
        labels = torch.randint(self.unary.shape[-1], self.unary.shape[:-1], generator=self.generator)
        if self.lengths is not None:
            beyond = torch.arange(labels.shape[-1]) >= self.lengths[..., None]
            labels = labels.masked_fill(beyond, -100)
        return labels


@st.composite
def chains(
    draw: st.DrawFn,
    *,
    dtype: torch.dtype = torch.float64,
    forbid: bool = False,
    max_length: int = 4,
    max_labels: int = 3,
) -> Chain:
    """A batch of chains; with `forbid`, some scores are -inf, and a sequence may have no allowed labelling."""
    batch = draw(st.sampled_from(BATCHES))
    length, m = draw(st.integers(1, max_length)), draw(st.integers(1, max_labels))
    kind = draw(st.sampled_from(KINDS))
    seed = draw(st.integers(0, 2**31))
    scale = draw(st.sampled_from([0.1, 1.0, 10.0]))
    ragged = draw(st.booleans())
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return scale * torch.randn(shape, generator=generator, dtype=dtype)

    unary = normal(*batch, length, m)
    shapes = {
        "shared": (m, m),
        "sequence": (*batch, m, m),
        "broadcast": (*batch[:-1], *(1,) * bool(batch), m, m),
        "edge": (*batch, length - 1, m, m),
    }
    pairwise = normal(*shapes[kind])
    if forbid:
        share = draw(st.sampled_from([0.1, 0.4]))
        for scores in (unary, pairwise):
            scores[torch.rand(scores.shape, generator=generator) < share] = -torch.inf
    lengths = torch.randint(1, length + 1, batch, generator=generator) if ragged else None
    return Chain(unary, pairwise, lengths, seed)
