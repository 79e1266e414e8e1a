"""Images as rows of pixels, (*batch, C, H, W) -> (*batch, L, C) with L = H W, and the cross-entropy of their scores.

-1/L sum_j log p_j(y_j),      p_j = softmax(s_j)                                                    (§4.1, §4.2)
"""

from torch import Tensor
from torch.nn import functional

from ..chain.checks import INTEGERS, at, check_device, first, int64
from ..chain.problem import IGNORE
from .inputs import check_tensor


def rows(image: Tensor) -> Tensor:
    """(*batch, L, C), a view where the rows of the image are contiguous in memory.

    >>> import torch
    >>> rows(torch.zeros(2, 3, 4, 5)).shape
    torch.Size([2, 20, 3])
    """
    return image.flatten(-2).mT


def cross_entropy(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The mean of -log p over the labelled pixels of each image, (*batch,), and which images have labelled pixels.

    Shapes: scores (*batch, L, M), labels (*batch, H, W), -100 for pixels without a label.

    >>> import torch
    >>> cross_entropy(torch.zeros(1, 4, 2), torch.tensor([[[0, 1], [-100, -100]]]))
    (tensor([0.6931]), tensor([True]))
    """
    m, length, labels = scores.shape[-1], scores.shape[-2], int64("labels", labels)
    flat = scores.mT.reshape(-1, m, length), labels.reshape(-1, length)
    losses = functional.cross_entropy(*flat, ignore_index=IGNORE, reduction="none").reshape(scores.shape[:-1])
    counts = (labels != IGNORE).sum((-2, -1))
    return losses.sum(-1) / counts.clamp(min=1), counts > 0


def check_images(unary: Tensor, embeddings: Tensor, num_labels: int) -> None:
    for name, x, shape in (("unary", unary, "(*batch, M, H, W)"), ("embeddings", embeddings, "(*batch, D, H, W)")):
        check_tensor(name, x, shape)
        if x.ndim < 3 or x.shape[-3] == 0:
            raise ValueError(f"{name} must have shape {shape} with no size of 0 after the batch, got {tuple(x.shape)}")
    check_device("embeddings", embeddings, unary)
    if unary.shape[-3] != num_labels:
        raise ValueError(f"unary has shape {tuple(unary.shape)}, but its size in dimension -3 must be {num_labels}")
    if embeddings.shape[:-3] != unary.shape[:-3] or embeddings.shape[-2:] != unary.shape[-2:]:
        raise ValueError(
            f"embeddings has shape {tuple(embeddings.shape)}, but unary {tuple(unary.shape)} needs the same shape, "
            f"except in dimension -3"
        )


def check_labels(unary: Tensor, labels: Tensor, values: bool) -> None:
    """Check the type and shape of labels, (*batch, H, W), and with `values` also their values."""
    wanted = (*unary.shape[:-3], *unary.shape[-2:])
    if labels.dtype not in INTEGERS or labels.shape != wanted:
        raise ValueError(f"labels must be integers of shape {wanted}, got {labels.dtype} of {tuple(labels.shape)}")
    check_device("labels", labels, unary)
    most, labels = unary.shape[-3] - 1, int64("labels", labels)
    index = first((labels != IGNORE) & ((labels < 0) | (labels > most))) if values else None
    if index is not None:
        raise ValueError(f"{at('labels', index)} is {int(labels[index])}, but must be from 0 to {most}, or {IGNORE}")
