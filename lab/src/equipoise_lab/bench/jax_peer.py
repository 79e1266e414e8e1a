"""Chain CRFs in JAX, in the exp domain, jitted, with gradients from jax.grad: a scan and a tree.

scan    a_t = (a_{t-1} @ exp W) * exp(U_t - max U_t), divided by its sum; log Z = the sum of the logs of these sums
tree    exp W * exp(U_t - max U_t) for every edge, neighbours multiplied until one matrix is left: log2 L steps

Each with JAX's default precision of matrix products, which on a GPU is less than float32, and with the highest.
"""

import functools
import os
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # leave memory for the other peers

import jax
import jax.numpy as jnp
import numpy as np
import torch

from .peers import Call, Scores


def scan(unary: Any, pairwise: Any, mask: Any, precision: str | None = None) -> Any:
    """log Z, (B,)."""
    peak = unary.max(-1)
    scaled = jnp.exp(unary - peak[..., None]).swapaxes(0, 1)  # (L, B, M)
    top = pairwise.max()
    step_matrix = jnp.exp(pairwise - top)
    total = scaled[0].sum(-1)

    def step(carry: Any, now: Any) -> tuple[Any, None]:
        message, log_z = carry
        score, on, best = now
        new = jnp.matmul(message, step_matrix, precision=precision) * score
        size = new.sum(-1)
        message = jnp.where(on[:, None], new / size[:, None], message)
        return (message, log_z + jnp.where(on, jnp.log(size) + best + top, 0.0)), None

    start = (scaled[0] / total[:, None], jnp.log(total) + peak[:, 0])
    (_, log_z), _ = jax.lax.scan(step, start, (scaled[1:], mask.T[1:], peak.T[1:]))
    return log_z


def tree(unary: Any, pairwise: Any, mask: Any, precision: str | None = None) -> Any:
    """log Z, (B,)."""
    peak, top = unary.max(-1), pairwise.max()
    scaled = jnp.exp(unary - peak[..., None])
    nothing = jnp.eye(unary.shape[-1])
    matrices = jnp.where(mask[:, 1:, None, None], jnp.exp(pairwise - top) * scaled[:, 1:, None, :], nothing)
    log_z = peak[:, 0] + jnp.where(mask, peak + top, 0.0)[:, 1:].sum(-1)
    while matrices.shape[1] > 1:
        if matrices.shape[1] % 2:
            matrices = jnp.concatenate([matrices, jnp.broadcast_to(nothing, matrices[:, :1].shape)], 1)
        matrices = jnp.matmul(matrices[:, ::2], matrices[:, 1::2], precision=precision)
        size = matrices.max((-2, -1), keepdims=True)
        matrices, log_z = matrices / size, log_z + jnp.log(size).sum((1, 2, 3))
    return log_z + jnp.log(jnp.einsum("bi,bij->b", scaled[:, 0], matrices[:, 0], precision=precision))


scan_highest, tree_highest = (functools.partial(f, precision="highest") for f in (scan, tree))


def score(unary: Any, pairwise: Any, labels: Any, mask: Any) -> Any:
    nodes = jnp.take_along_axis(unary, labels[..., None], -1)[..., 0] * mask
    return nodes.sum(-1) + (pairwise[labels[:, :-1], labels[:, 1:]] * mask[:, 1:]).sum(-1)


@functools.partial(jax.jit, static_argnums=0)
def likelihood(log_partition: Any, unary: Any, pairwise: Any, labels: Any, mask: Any) -> Any:
    def loss(u: Any, w: Any) -> Any:
        return (log_partition(u, w, mask) - score(u, w, labels, mask)).sum()

    return jax.value_and_grad(loss, (0, 1))(unary, pairwise)


@functools.partial(jax.jit, static_argnums=0)
def marginals(log_partition: Any, unary: Any, pairwise: Any, mask: Any) -> Any:
    return jax.grad(lambda u: log_partition(u, pairwise, mask).sum())(unary)


@functools.partial(jax.jit, static_argnums=0)
def marginal(log_partition: Any, unary: Any, pairwise: Any, labels: Any, mask: Any) -> Any:
    def loss(u: Any, w: Any) -> Any:
        p = jax.grad(lambda x: log_partition(x, w, mask).sum())(u)
        picked = jnp.take_along_axis(p, labels[..., None], -1)[..., 0]
        return -(jnp.log(jnp.where(mask, picked, 1.0)) / mask.sum(-1, keepdims=True)).sum()

    return jax.value_and_grad(loss, (0, 1))(unary, pairwise)


@jax.jit
def decode(unary: Any, pairwise: Any, mask: Any) -> Any:
    stay = jnp.arange(unary.shape[-1])

    def step(delta: Any, now: Any) -> tuple[Any, Any]:
        u, on = now
        ways = delta[:, :, None] + pairwise
        pointer = jnp.where(on[:, None], ways.argmax(1), stay)
        return jnp.where(on[:, None], ways.max(1) + u, delta), pointer

    delta, pointers = jax.lax.scan(step, unary[:, 0], (unary.swapaxes(0, 1)[1:], mask.T[1:]))

    def back(label: Any, pointer: Any) -> tuple[Any, Any]:
        before = jnp.take_along_axis(pointer, label[:, None], 1)[:, 0]
        return before, before

    last = delta.argmax(-1)
    _, path = jax.lax.scan(back, last, pointers, reverse=True)
    return jnp.concatenate([path, last[None]], 0).T


def questions(s: Scores, log_partition: Any) -> dict[str, Call]:
    """The calls with `scan` or `tree` as the partition function; decoding only with `scan`."""
    if s.unary.dtype == torch.float64:
        jax.config.update("jax_enable_x64", True)
    u, w, y, mask = (jnp.asarray(np.asarray(x.detach().cpu())) for x in (s.unary, s.pairwise, s.labels, s.mask))

    def done(answer: Any) -> Any:
        return jax.block_until_ready(answer)

    calls: dict[str, Call] = {
        "likelihood": lambda: done(likelihood(log_partition, u, w, y, mask))[1],
        "marginals": lambda: done(marginals(log_partition, u, w, mask)),
        "marginal": lambda: done(marginal(log_partition, u, w, y, mask))[1],
    }
    if log_partition is scan:
        calls["decode"] = lambda: done(decode(u, w, mask))
    return calls
