"""A trained model of `horses` put to use: masks of any pictures, at their own size.

A net sees S x S pixels. What it says of each is by how much the foreground's score is higher than the background's;
that is brought to the picture's size, by bilinear interpolation, and the foreground is where it is above 0.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import interpolate

from ..data.pictures import BadPictureError, Bytes, decode, flat, resize
from .horses import COUNT, Horses, iou
from .task import Batch

AT_ONCE = 8


class Segmented(NamedTuple):
    path: Path
    picture: Bytes  # (H, W, 3)
    mask: NDArray[np.bool_]  # (H, W)


@torch.no_grad()
def margins(model: Any, batch: Batch) -> Tensor:
    """By how much the foreground is ahead, (B, S, S), for a `training.Model` and a batch of one replica."""
    stack = model._stack
    ((objective, part, u, w, _),) = stack.balanced(stack.parameters, batch)
    scores = stack.task.energy.scores(objective, u, w)[0]
    return (scores[..., 1] - scores[..., 0]).reshape(part.labels.shape[1:])


def at_size(margin: Tensor, height: int, width: int) -> Tensor:
    """The mask, (height, width), that margins (S, S) stand for."""
    return interpolate(margin[None, None], (height, width), mode="bilinear", align_corners=False)[0, 0] > 0


def segment(model: Any, paths: Iterable[Path]) -> Iterator[Segmented | BadPictureError]:
    """The foreground of each picture, in order; in the place of one that cannot serve, the error that says why."""
    waiting: list[Segmented | BadPictureError] = []
    for path in paths:
        try:
            picture = decode(path)
            if flat(picture):
                raise BadPictureError(f"{path} is of one colour")
            waiting.append(Segmented(path, picture, np.zeros(picture.shape[:2], bool)))
        except BadPictureError as failure:
            waiting.append(failure)
        if len(waiting) == AT_ONCE:
            yield from _segmented(model, waiting)
            waiting = []
    yield from _segmented(model, waiting)


def _segmented(model: Any, waiting: Sequence[Segmented | BadPictureError]) -> Iterator[Segmented | BadPictureError]:
    pictures = [one.picture for one in waiting if isinstance(one, Segmented)]
    found = iter(margins(model, laid(model.task, pictures))) if pictures else iter(())
    for one in waiting:
        if isinstance(one, Segmented):
            mask = at_size(next(found).cpu(), *one.mask.shape).numpy()
            one = one._replace(mask=mask)
        yield one


def laid(task: Horses, pictures: Sequence[Bytes]) -> Batch:
    """Pictures of any size as a batch of one replica. Their labels are not known, and are all 0."""
    images = np.stack([resize(picture, task.size, task.size) for picture in pictures])
    numbers = torch.arange(len(images), device=task.device)[None]
    labels = torch.zeros(1, len(images), task.size, task.size, dtype=torch.long, device=task.device)
    return Batch(numbers, torch.from_numpy(images)[None].to(task.device), labels, None)


def truth_iou(model: Any, examples: Tensor) -> Tensor:
    """The intersection over union at the resolution of the masks, (n,), of examples of the task that are no mirrors."""
    task: Horses = model.task
    if int(examples.max()) >= COUNT:
        raise ValueError(f"examples must be below {COUNT}: masks at their own size are not mirrored")
    found = []
    for numbers in examples.split(AT_ONCE):
        margin = margins(model, task.batch(numbers[None].to(task.device), task.room(numbers))).cpu()
        for i, one in zip(numbers.tolist(), margin, strict=True):
            truth = task.data.truth(i)
            found.append(iou(at_size(one, *truth.shape), truth))
    return torch.stack(found)
