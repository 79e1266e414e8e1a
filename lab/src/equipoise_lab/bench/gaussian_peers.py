"""The solvers to compare: equipoise, linear_operator if installed, and conjugate gradients.

A peer maps a `Question` to s, (B, L, M), differentiable with respect to unary and embeddings.
"""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from equipoise import gaussian
from equipoise.gaussian.operator import multiply


@dataclass(frozen=True)
class Size:
    images: int
    side: int
    dims: int
    labels: int
    share: float = 0.5  # sigma_max / ridge; conjugate gradients need more steps as it approaches 1
    dtype: str = "float32"

    def __str__(self) -> str:
        kind = "" if self.dtype == "float32" else f", {self.dtype}"
        return f"{self.images} x {self.side}², D {self.dims}, M {self.labels}, share {self.share:g}{kind}"


class Question(NamedTuple):
    unary: Tensor  # (B, L, M), requires a gradient
    embeddings: Tensor  # (B, L, D), requires a gradient
    ridge: float
    weight: Tensor  # (B, L, M), the gradient with respect to s
    steps: int = 0  # of conjugate gradients, for a residual of 1e-6

    def gradient(self, scores: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(scores, (self.unary, self.embeddings), self.weight.to(scores.dtype))

    def wide(self) -> tuple[Tensor, Tensor, Tensor]:
        """The inputs in float32 or float64, for peers without other dtypes."""
        dtype = torch.promote_types(self.unary.dtype, torch.float32)
        ridge = torch.full(self.unary.shape[:1], self.ridge, dtype=dtype, device=self.unary.device)
        return self.unary.to(dtype), self.embeddings.to(dtype), ridge

    @torch.no_grad()
    def counted(self) -> "Question":
        """The same problem with the number of steps set."""
        unary, embeddings, ridge = self.wide()
        answer = gaussian.cg(multiply, unary, (embeddings, ridge))
        assert answer.iterations is not None
        return self._replace(steps=int(answer.iterations.max()))


def equipoise(q: Question) -> Tensor:
    return gaussian.solve(q.unary, q.embeddings, q.ridge)


def implicit(q: Question) -> Tensor:
    return gaussian.solve(q.unary, q.embeddings, q.ridge, method="cg")


def dense(q: Question) -> Tensor:
    return gaussian.solve(q.unary, q.embeddings, q.ridge, method="dense")


def unrolled(q: Question) -> Tensor:
    """Conjugate gradients recorded by autograd. More steps than needed would divide 0 by 0."""
    unary, embeddings, ridge = q.wide()
    x, r = torch.zeros_like(unary), unary
    p, left = r, (r * r).sum((-2, -1), keepdim=True)
    for _ in range(q.steps):
        image = multiply(p, embeddings, ridge)
        alpha = left / (p * image).sum((-2, -1), keepdim=True)
        x, r = x + alpha * p, r - alpha * image
        now = (r * r).sum((-2, -1), keepdim=True)
        p, left = r + now / left * p, now
    return x


def linear_operator(q: Question) -> Tensor:
    return low_rank(*q.wide()[:2], q.ridge)


def low_rank(unary: Tensor, embeddings: Tensor, ridge: float) -> Tensor:
    """linear_operator's low-rank solve, once for the mean over labels and once for the deviations from it, whose system
    is A A^T - ridge I."""
    from linear_operator import operators as peer

    length, m = unary.shape[-2:]
    mean = unary.mean(-1, keepdim=True)
    diagonal = torch.full((*unary.shape[:-2], 1), ridge, dtype=unary.dtype, device=unary.device)

    def solve(root: Tensor, diagonal: Tensor, rhs: Tensor) -> Tensor:
        diagonals = peer.ConstantDiagLinearOperator(diagonal, length)
        return peer.LowRankRootAddedDiagLinearOperator(peer.LowRankRootLinearOperator(root), diagonals).solve(rhs)

    return solve((m - 1) ** 0.5 * embeddings, diagonal, mean) + solve(embeddings, -diagonal, mean - unary)


PEERS: dict[str, tuple[str, Callable[[Question], Tensor]]] = {
    "equipoise": ("torch", equipoise),
    "linear_operator": ("linear_operator", linear_operator),
    "cg, implicit": ("torch", implicit),
    "cg, unrolled": ("torch", unrolled),
    "dense": ("torch", dense),
}


def importable() -> list[str]:
    """The peers that are installed."""
    return [name for name, (module, _) in PEERS.items() if importlib.util.find_spec(module) is not None]


def question(size: Size, device: str) -> Question:
    """A random problem: embeddings whose channels differ in scale, and ridge = sigma_max / share."""
    generator = torch.Generator().manual_seed(0)
    dtype = getattr(torch, size.dtype)

    def pixels(channels: int) -> Tensor:
        return torch.randn(
            size.images, channels, size.side**2, generator=generator
        ).mT  # the memory layout of a net's output

    unary, weight, embeddings = pixels(size.labels), pixels(size.labels), pixels(size.dims)
    embeddings = (embeddings * torch.logspace(0, -1, size.dims)).to(device, dtype)
    ridge = float((gaussian.sigma_max(embeddings) / size.share).max())
    problem = Question(unary.to(device, dtype).requires_grad_(), embeddings.requires_grad_(), ridge, weight.to(device))
    return problem.counted()


def answer(name: str, problem: Question) -> tuple[Tensor, ...]:
    """The gradients with respect to unary and embeddings."""
    return problem.gradient(PEERS[name][1](problem))
