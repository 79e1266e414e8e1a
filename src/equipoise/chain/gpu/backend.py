"""The chain on a GPU: the functions of `reference` in Triton.

Two programs process a sequence, one from each end, so a batch takes the time of its longest chain. A few long chains
are processed in parallel over time (`scan`). Gradients of a shared matrix are summed in a fixed order: the same input
gives the same bits. No function waits for the device.

float32, M up to 4096; with more than 128 labels, all programs together process one position at a time (`wide`).
alpha differs from that of `reference`: it holds both messages, (*batch, 2, L, M), each without the score of its own
position (see `message_kernels`), and is undefined beyond the length. beta is empty, (*batch, 0), or, for long chains,
holds the matrices of their chunks (see `scan`).
"""

import torch
from torch import Tensor

from .. import decoding, deviations, reference, samples
from ..problem import per_edge
from ..reference import Messages
from . import repeat, scan
from .launch import Launcher, plan
from .losses import fused_loss as fused_loss
from .scan import Chunks
from .wide import MAX_LABELS, Wide, wide

READS_MESSAGES = True
NEEDS = f"the Triton kernels need scores on a CUDA device, in float32, with at most {MAX_LABELS} labels"


def supports(unary: Tensor, pairwise: Tensor) -> bool:
    """Whether the kernels support these scores; offsets within one chain must fit into 32 bits."""
    length, m = unary.shape[-2:]
    left_scale = max(length, pairwise.shape[-3] * m if pairwise.ndim > unary.ndim else m) * m
    return unary.is_cuda and unary.dtype == torch.float32 and m <= MAX_LABELS and left_scale < 2**31


def forward(unary: Tensor, pairwise: Tensor, lengths: Tensor, labels: Tensor | None = None) -> tuple[Tensor, Tensor]:
    chunk = scan.chunk_for_sums(unary, pairwise)
    if chunk:
        return Chunks(Launcher(unary, pairwise, lengths), chunk).forward(labels)[:2]
    return _launcher(unary, pairwise, lengths).forward(labels)


def marginals(
    weight: Tensor, unary: Tensor, pairwise: Tensor, lengths: Tensor, alpha: Tensor, labels: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    return _launcher(unary, pairwise, lengths).marginals(weight, alpha, labels)


def messages(unary: Tensor, pairwise: Tensor, lengths: Tensor) -> Messages:
    return _messages(unary, pairwise, lengths)[1]


def log_beta(messages: Messages) -> Tensor:
    return messages.alpha[..., 1, :, :]


def log_marginals(unary: Tensor, pairwise: Tensor, lengths: Tensor) -> Tensor:
    """The log_p of `messages`."""
    if not wide(unary):
        chunk = scan.chunk_for_sums
        return repeat.repeated("log_marginals", repeat.log_marginals, chunk, unary, pairwise, lengths)[0]
    return messages(unary, pairwise, lengths).log_p


def transport(
    nodes: Tensor,
    edges: Tensor | None,
    weight: Tensor,
    unary: Tensor,
    pairwise: Tensor,
    lengths: Tensor,
    messages: Messages,
) -> tuple[Tensor, Tensor, Tensor]:
    if edges is not None:  # the second derivative of log Z: rare, so the reference computes it
        messages = reference.messages(unary, pairwise, lengths)
        return reference.transport(nodes, edges, weight, unary, pairwise, lengths, messages)
    moved, gradient = _carry(nodes, None, weight, unary, pairwise, lengths, *messages)
    return moved, gradient, torch.zeros_like(weight)


def cross_entropy(unary: Tensor, pairwise: Tensor, lengths: Tensor, labels: Tensor) -> tuple[Tensor, Messages]:
    """-1/length sum_t log p_t(y_t), (*batch,), +inf if a label has probability 0, and the messages for its gradient."""
    return _messages(unary, pairwise, lengths, labels)


def cross_entropy_gradient(
    weight: Tensor, unary: Tensor, pairwise: Tensor, lengths: Tensor, labels: Tensor, messages: Messages
) -> tuple[Tensor, Tensor]:
    """The gradient of sum_b weight_b cross_entropy_b: `transport` of -1/length at each possible label."""
    return _carry(None, labels, weight, unary, pairwise, lengths, *messages)


def decode(unary: Tensor, pairwise: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    if wide(unary):
        return Wide(unary, pairwise, lengths).decode()
    labels, best = repeat.repeated("decode", repeat.decode, scan.chunk_for_decode, unary, pairwise, lengths)
    return labels, best


def edge_marginals(unary: Tensor, pairwise: Tensor, lengths: Tensor) -> Tensor:
    if not supports(unary, per_edge(pairwise, unary)):  # offsets within so many matrices
        return reference.edge_marginals(unary, pairwise, lengths)
    return decoding.edge_marginals(forward, marginals, unary, pairwise, lengths)


def sample(
    unary: Tensor, pairwise: Tensor, lengths: Tensor, n: int, generator: torch.Generator | None = None
) -> Tensor:
    """n independent labellings, (*batch, n, L), in few launches where there are not too many labels."""
    passed = messages(unary, pairwise, lengths)
    draw = samples.sample if unary.shape[-1] <= samples.MOST_LABELS else decoding.sample
    return draw(unary, pairwise, lengths, passed.log_p, log_beta(passed), n, generator)


def top_k(unary: Tensor, pairwise: Tensor, lengths: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k best labellings, best first, (*batch, k, L), and their scores, (*batch, k)."""
    return decoding.scored(_best, unary, pairwise, lengths, k)


def _best(unary: Tensor, pairwise: Tensor, lengths: Tensor, k: int) -> Tensor:
    if wide(unary):
        return decoding.top_k(unary, pairwise, lengths, k)
    launcher = Launcher(unary, pairwise, lengths)
    chunks = Chunks(launcher, scan.chunk_for_decode(unary, pairwise) or unary.shape[-2])
    return deviations.top_k(unary, pairwise, lengths, k, *chunks.best_scores())


def likeliest(unary: Tensor, pairwise: Tensor, lengths: Tensor) -> Tensor:
    """The most probable label of each position, (*batch, L); -100 beyond the length and if log p is NaN."""
    if wide(unary):
        many = Wide(unary, pairwise, lengths)
        return many.likeliest(many.forward()[1])
    chunk = scan.chunk_for_sums
    return repeat.repeated("likeliest", repeat.likeliest, chunk, unary, pairwise, lengths)[0]


def has_fused_loss(unary: Tensor, pairwise: Tensor) -> bool:
    """Whether `fused_loss` supports these chains: edges share a matrix, at most 128 labels."""
    p = plan(unary.shape, pairwise.shape)
    return p.indexable and not p.per_edge and p.sequences > 0 and not wide(unary)


def _launcher(unary: Tensor, pairwise: Tensor, lengths: Tensor) -> Launcher | Wide:
    return (Wide if wide(unary) else Launcher)(unary, pairwise, lengths)


def _messages(
    unary: Tensor, pairwise: Tensor, lengths: Tensor, labels: Tensor | None = None
) -> tuple[Tensor, Messages]:
    """-1/length sum_t log p_t(y_t), undefined without labels, and the messages."""
    chunk = scan.chunk_for_sums(unary, pairwise)
    launcher = _launcher(unary, pairwise, lengths)
    if chunk:
        _, alpha, beta = Chunks(Launcher(unary, pairwise, lengths), chunk).forward()
    else:
        (_, alpha), beta = launcher.forward(None), unary.new_empty((*lengths.shape, 0))
    log_p, loss = launcher.log_marginals(alpha, labels)
    return loss, Messages(log_p, alpha, beta)


def _carry(
    nodes: Tensor | None,
    labels: Tensor | None,
    weight: Tensor,
    unary: Tensor,
    pairwise: Tensor,
    lengths: Tensor,
    log_p: Tensor,
    alpha: Tensor,
    matrices: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """`transport` of nodes, or of the gradient of the cross-entropy of labels."""
    chunk = scan.chunk_for_sums(unary, pairwise)
    if chunk:
        chunks = Chunks(Launcher(unary, pairwise, lengths), chunk)
        saved = matrices if matrices is not None and matrices.ndim > lengths.ndim + 1 else None
        return chunks.transport(nodes, labels, weight, log_p, alpha, saved)
    return _launcher(unary, pairwise, lengths).transport(nodes, labels, weight, log_p, alpha)
