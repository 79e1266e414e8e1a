"""`equipoise-lab predict` for horses: masks and overlays of pictures, or the intersection over union on a test fold."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...data.pictures import ENDINGS, BadPictureError, Bytes, library
from ..predicting import Predictor, Request, examples_of_test_fold
from .segmenting import segment, truth_iou

Mask = NDArray[np.bool_]

TINT = np.array([213, 94, 0])
STRENGTH = 0.45


def predict(model: Predictor, request: Request) -> dict[str, Any]:
    """Masks of the given pictures, or the intersection over union on a test fold."""
    if request.source is None:
        request.only("a model of horses without pictures is tested, and", "--fold")
        return evaluate(model, request)
    request.only("a model of horses that segments pictures", "file", "--out")
    if request.out is None:
        raise ValueError("name a folder for the masks with --out")
    return write_masks(model, request, request.source, request.out)


def write_masks(model: Predictor, request: Request, source: Path, out: Path) -> dict[str, Any]:
    """Write the masks of a picture, or of all pictures in a folder: NAME.mask.png, and NAME.overlay.png to look at.

    A picture that cannot be decoded, or has only one colour, is reported, and the others are processed. A folder
    without pictures is an error.
    """
    paths = find(source)
    if out.resolve() == source.resolve():
        raise ValueError(f"the masks cannot go to {out}, where the pictures are: name another folder with --out")
    out.mkdir(parents=True, exist_ok=True)
    done: list[dict[str, Any]] = []
    for name, one in zip(names(paths), segment(model, paths), strict=True):
        if isinstance(one, BadPictureError):
            request.failed.append(str(one))
            request.warn(str(one))
            continue
        mask, overlaid = out / f"{name}.mask.png", out / f"{name}.overlay.png"
        write(mask, one.mask.astype(np.uint8) * 255)
        write(overlaid, overlay(one.picture, one.mask))
        share = float(one.mask.mean())
        done.append({"picture": str(one.path), "mask": str(mask), "overlay": str(overlaid), "foreground": share})
        request.say(f"{one.path}: {100 * share:.1f} % foreground, {mask}")
    if request.failed:
        request.warn(f"{len(request.failed)} of {len(paths)} pictures could not be used")
    return {"pictures": done, "failed": request.failed}


def evaluate(model: Predictor, request: Request) -> dict[str, Any]:
    """The intersection over union on a test fold, at the resolution of the net and at that of the masks."""
    fold, examples = examples_of_test_fold(model, request)
    result = {"iou": model.evaluate(examples), "iou_at_mask_size": float(truth_iou(model, examples).mean())}
    request.say(
        f"IoU on {len(examples)} pictures of test fold {fold}: {100 * result['iou']:.2f} %, "
        f"at the size of the masks {100 * result['iou_at_mask_size']:.2f} %"
    )
    return result | {"fold": fold, "pictures": len(examples)}


def find(source: Path) -> list[Path]:
    """The picture itself, or all pictures in a folder, recognised by their file extension."""
    if not source.is_dir():
        return [source]
    paths = sorted(path for path in source.iterdir() if path.suffix.lower() in ENDINGS and path.is_file())
    if not paths:
        raise ValueError(f"{source} has no pictures: none of its files ends in {', '.join(ENDINGS)}")
    return paths


def names(paths: list[Path]) -> Iterator[str]:
    """The name of each picture's masks: the file name without extension, unless two files differ only in that.

    >>> list(names([Path("a.jpg"), Path("a.png"), Path("b.jpg")]))
    ['a.jpg', 'a.png', 'b']
    """
    often = Counter(path.stem for path in paths)
    return (path.stem if often[path.stem] == 1 else path.name for path in paths)


def overlay(picture: Bytes, mask: Mask) -> Bytes:
    """The picture with its foreground tinted, and a white line around it."""
    tinted = np.where(mask[..., None], (1 - STRENGTH) * picture + STRENGTH * TINT, picture).astype(np.uint8)
    tinted[edge(mask)] = 255
    return tinted


def edge(mask: Mask) -> Mask:
    """The pixels of the mask that touch a pixel outside it.

    >>> edge(np.pad(np.ones((3, 3), bool), 1))[2].tolist()
    [False, True, False, True, False]
    """
    padded = np.pad(mask, 1, mode="edge")
    inside = padded[:-2, 1:-1] & padded[2:, 1:-1] & padded[1:-1, :-2] & padded[1:-1, 2:]
    return mask & ~inside


def write(path: Path, pixels: Bytes) -> None:
    """Write a PNG file completely or not at all."""
    temporary = path.with_name(f".{path.name}.part")
    try:
        library().fromarray(pixels).save(temporary, "PNG")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
