"""A trained model of `horses` applied to any pictures: masks at the size of each picture.

A net works on S x S pixels. The score of the foreground minus that of the background is interpolated bilinearly to the
size of the picture; the foreground is where it is above 0.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import interpolate

from ...data.pictures import BadPictureError, Bytes, decode, flat, resize
from ..predicting import Predictor
from ..task import Batch
from .task import COUNT, Horses, iou

AT_ONCE = 8


class Segmented(NamedTuple):
    path: Path
    picture: Bytes  # (H, W, 3)
    mask: NDArray[np.bool_]  # (H, W)


@torch.no_grad()
def margins(model: Predictor, batch: Batch) -> Tensor:
    """The score of the foreground minus that of the background, (B, S, S), for a batch of one replica."""
    objective, part, u, w, _ = model.scored(batch)
    scores = model.task.energy.scores(objective, u, w)[0]
    return (scores[..., 1] - scores[..., 0]).reshape(part.labels.shape[1:])


def at_size(margin: Tensor, height: int, width: int) -> Tensor:
    """The mask, (height, width), of margins (S, S)."""
    return interpolate(margin[None, None], (height, width), mode="bilinear", align_corners=False)[0, 0] > 0


def segment(model: Predictor, paths: Iterable[Path]) -> Iterator[Segmented | BadPictureError]:
    """The foreground of each picture, in order; for a picture that cannot be used, the error instead."""
    waiting: list[Segmented | BadPictureError] = []
    for path in paths:
        try:
            picture = decode(path)
            if flat(picture):
                raise BadPictureError(f"{path} has only one colour")
            waiting.append(Segmented(path, picture, np.zeros(picture.shape[:2], bool)))
        except BadPictureError as failure:
            waiting.append(failure)
        if len(waiting) == AT_ONCE:
            yield from _segmented(model, waiting)
            waiting = []
    yield from _segmented(model, waiting)


def _segmented(
    model: Predictor, waiting: Sequence[Segmented | BadPictureError]
) -> Iterator[Segmented | BadPictureError]:
    pictures = [one.picture for one in waiting if isinstance(one, Segmented)]
    predicted = iter(margins(model, as_batch(model.task, pictures))) if pictures else iter(())
    for one in waiting:
        if isinstance(one, Segmented):
            mask = at_size(next(predicted).cpu(), *one.mask.shape).numpy()
            one = one._replace(mask=mask)
        yield one


def as_batch(task: Horses, pictures: Sequence[Bytes]) -> Batch:
    """Pictures of any size as a batch of one replica, with labels 0."""
    images = np.stack([resize(picture, task.size, task.size) for picture in pictures])
    numbers = torch.arange(len(images), device=task.device)[None]
    labels = torch.zeros(1, len(images), task.size, task.size, dtype=torch.long, device=task.device)
    return Batch(numbers, torch.from_numpy(images)[None].to(task.device), labels, None)


def truth_iou(model: Predictor, examples: Tensor) -> Tensor:
    """The intersection over union at the resolution of the masks, (n,), of examples that are not mirrored."""
    task: Horses = model.task
    if int(examples.max()) >= COUNT:
        raise ValueError(f"examples must be below {COUNT}: masks at their own size are not mirrored")
    ious = []
    for numbers in examples.split(AT_ONCE):
        margin = margins(model, task.batch(numbers[None].to(task.device), task.room(numbers))).cpu()
        for i, one in zip(numbers.tolist(), margin, strict=True):
            truth = task.data.truth(i)
            ious.append(iou(at_size(one, *truth.shape), truth))
    return torch.stack(ious)
