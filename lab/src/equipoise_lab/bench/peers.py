"""The chain-CRF libraries to compare, and four computations ("questions") for each of them.

    likelihood   -log P(Y | X) and its gradient with respect to unary and pairwise
    decode       the labelling with the highest score
    marginals    P(y_t | X)
    marginal     the cross-entropy of the marginals and its gradient with respect to unary and pairwise

A peer maps `Scores` to one call without arguments for each question it supports. A call does what a user of the library
would do, from input tensors to gradients. If a library has no marginals, they are the gradient of log Z.
"""

import importlib.util
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from equipoise import chain, objectives

QUESTIONS = ("likelihood", "decode", "marginals", "marginal")
Call = Callable[[], Any]


class Scores(NamedTuple):
    unary: Tensor  # (B, L, M), a leaf that requires a gradient
    pairwise: Tensor  # (M, M), a leaf that requires a gradient
    labels: Tensor  # (B, L)
    lengths: Tensor | None  # (B,)

    @property
    def mask(self) -> Tensor:
        length = self.unary.shape[1]
        places = torch.arange(length, device=self.unary.device)
        lengths = torch.full_like(self.labels[:, 0], length) if self.lengths is None else self.lengths
        return places < lengths[:, None]

    def gradient(self, loss: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(loss, (self.unary, self.pairwise))


def equipoise(s: Scores) -> dict[str, Call]:
    arguments = s.unary, s.pairwise, s.labels, s.lengths

    def marginals() -> Tensor:
        with torch.no_grad():
            return chain.log_marginals(s.unary, s.pairwise, s.lengths)

    return {
        "likelihood": lambda: s.gradient(objectives.likelihood(*arguments, reduction="sum")),
        "decode": lambda: chain.decode(s.unary.detach(), s.pairwise.detach(), s.lengths)[0],
        "marginals": marginals,
        "marginal": lambda: s.gradient(objectives.marginal(*arguments, reduction="sum")),
    }


def equipoise_one_thread(s: Scores) -> dict[str, Call]:
    """The losses on a GPU, with the backward pass in the calling thread instead of autograd's own."""

    def in_one_thread(call: Call) -> Call:
        def run() -> Any:
            with torch.autograd.set_multithreading_enabled(False):
                return call()

        return run

    losses = ("likelihood", "marginal") if s.unary.is_cuda else ()
    return {question: in_one_thread(call) for question, call in equipoise(s).items() if question in losses}


def pytorch_crf(s: Scores) -> dict[str, Call]:
    import torchcrf

    crf = torchcrf.CRF(s.unary.shape[-1], batch_first=True).to(s.unary.device, s.unary.dtype)
    for boundary in (crf.start_transitions, crf.end_transitions):
        torch.nn.init.zeros_(boundary)
    crf.transitions = torch.nn.Parameter(s.pairwise.detach().clone())
    s = s._replace(pairwise=crf.transitions)
    mask = s.mask
    places = mask / mask.sum(1, keepdim=True)
    unary_t, mask_t = s.unary.transpose(0, 1), mask.transpose(0, 1)

    def marginals(create_graph: bool = False) -> Tensor:
        log_z = crf._compute_normalizer(unary_t, mask_t)
        return torch.autograd.grad(log_z.sum(), s.unary, create_graph=create_graph)[0]

    def marginal() -> tuple[Tensor, ...]:
        p = marginals(create_graph=True)
        return s.gradient(-(p.gather(-1, s.labels[..., None])[..., 0].clamp(min=1e-38).log() * places).sum())

    calls: dict[str, Call] = {
        "likelihood": lambda: s.gradient(-crf(s.unary, s.labels, mask, reduction="sum")),
        "marginals": marginals,
        "marginal": marginal,
    }
    return _if_memory_suffices(calls, s) | {"decode": lambda: crf.decode(s.unary, mask)}


def torch_struct(s: Scores) -> dict[str, Call]:
    import torch_struct as peer

    mask, (b, length, m) = s.mask, s.unary.shape
    # torch-struct multiplies M x M matrices in the log domain with all M^3 terms in memory, about 8 arrays at once.
    _require_memory(8 * b * (length // 2) * m**3 * s.unary.itemsize, s.unary.device)
    lengths = mask.sum(1)
    places = mask / mask.sum(1, keepdim=True)

    def model() -> Any:
        # (batch, edge, next label, previous label); unary scores are added, the first ones to the first edge
        first = torch.nn.functional.pad(s.unary[:, :1], (0, 0, 0, s.unary.shape[1] - 2))
        potentials = s.pairwise.mT + s.unary[:, 1:, :, None] + first[:, :, None, :]
        return peer.LinearChainCRF(potentials.contiguous(), lengths=lengths)

    # torch-struct's conversion of labels is a Python loop, so it is not timed.
    gold = peer.LinearChainCRF.struct.to_parts(s.labels, m, lengths=lengths).type_as(s.unary)

    def to_nodes(edges: Tensor) -> Tensor:
        return torch.cat([edges[:, :1].sum(-2), edges.sum(-1)], 1)

    def marginal() -> tuple[Tensor, ...]:
        p = to_nodes(model().marginals).gather(-1, s.labels[..., None])[..., 0]
        return s.gradient(-(p.clamp(min=1e-38).log() * places).sum())

    return {
        "likelihood": lambda: s.gradient(-model().log_prob(gold).sum()),
        "decode": lambda: to_nodes(model().argmax).argmax(-1),
        "marginals": lambda: to_nodes(model().marginals).detach(),
        "marginal": marginal,
    }


def _require_memory(memory: float, device: torch.device) -> None:
    """Raise MemoryError if there is too little, before the system kills the process."""
    free = (
        torch.cuda.mem_get_info()[0]
        if device.type == "cuda"
        else os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    )
    if memory > free:
        raise MemoryError(f"needs about {memory / 2**30:.0f} GiB, but {free / 2**30:.0f} GiB are free")


def _if_memory_suffices(calls: dict[str, Call], s: Scores) -> dict[str, Call]:
    """Calls with gradients. Each raises if what it keeps for every position does not fit into memory.

    That is about 2.1 arrays of (B, M, M). A gradient through a gradient keeps about 6.3 of them, and one as large as
    the unary scores, because their gradient is a sum over positions.
    """
    length, m = s.unary.shape[-2:]
    size = s.labels.numel() * m**2 * s.unary.itemsize
    marginal = 7 * size + s.unary.nbytes * length
    return {name: _guarded(call, marginal if name == "marginal" else 3 * size, s) for name, call in calls.items()}


def _guarded(call: Call, memory: float, s: Scores) -> Call:
    """The call, or one that raises MemoryError."""
    try:
        _require_memory(memory, s.unary.device)
    except MemoryError as failure:
        reason = str(failure)

        def fail() -> None:
            raise MemoryError(reason)

        return fail
    return call


def torchcrf_package(s: Scores) -> dict[str, Call]:
    import TorchCRF

    crf = TorchCRF.CRF(s.unary.shape[-1], use_gpu=s.unary.is_cuda).to(s.unary.device, s.unary.dtype)
    for boundary in (crf.start_trans, crf.end_trans):
        torch.nn.init.zeros_(boundary)
    crf.trans_matrix = torch.nn.Parameter(s.pairwise.detach().clone())
    s = s._replace(pairwise=crf.trans_matrix)
    mask = s.mask
    calls: dict[str, Call] = {"likelihood": lambda: s.gradient(-crf(s.unary, s.labels, mask).sum())}
    return _if_memory_suffices(calls, s) | {"decode": lambda: crf.viterbi_decode(s.unary, mask)}


def jax(name: str) -> Callable[[Scores], dict[str, Call]]:
    """The calls with this partition function of `jax_peer`."""

    def peer(s: Scores) -> dict[str, Call]:
        from . import jax_peer

        calls: dict[str, Call] = jax_peer.questions(s, getattr(jax_peer, name))
        if not name.startswith("tree"):
            return calls
        # One M x M matrix per edge; all levels before and after division, and gradients.
        memory = 8 * s.labels.numel() * s.unary.shape[-1] ** 2 * s.unary.itemsize
        return {question: _guarded(call, memory, s) for question, call in calls.items()}

    return peer


PEERS: dict[str, tuple[str, Callable[[Scores], dict[str, Call]]]] = {
    "equipoise": ("torch", equipoise),
    "equipoise-one-thread": ("torch", equipoise_one_thread),
    "pytorch-crf": ("torchcrf", pytorch_crf),
    "torch-struct": ("torch_struct", torch_struct),
    "TorchCRF": ("TorchCRF", torchcrf_package),
    "jax": ("jax", jax("scan")),
    "jax-highest": ("jax", jax("scan_highest")),
    "jax-tree": ("jax", jax("tree")),
    "jax-tree-highest": ("jax", jax("tree_highest")),
}


def importable() -> list[str]:
    """The peers that are installed."""
    return [name for name, (module, _) in PEERS.items() if importlib.util.find_spec(module) is not None]
