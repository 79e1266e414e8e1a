"""`equipoise predict` with a model of horses: masks and overlays of pictures, or how good it is on a test fold."""

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data.pictures import ENDINGS, BadPictureError, Bytes, library
from ..tasks.segmenting import segment as segmented
from ..tasks.segmenting import truth_iou
from ..training import Model

Mask = NDArray[np.bool_]

TINT = np.array([213, 94, 0])
STRENGTH = 0.45


def segment(model: Model, source: Path, out: Path, *, as_json: bool = False) -> None:
    """Write the masks of a picture, or of all in a folder: NAME.mask.png, and NAME.overlay.png to look at.

    A picture that cannot be decoded, or is of one colour, is named on standard error, and the rest goes on; the exit
    code is then 1. A folder without pictures is an error.
    """
    paths = find(source)
    if out.resolve() == source.resolve():
        raise ValueError(f"the masks cannot go to {out}, where the pictures are: name another folder with --out")
    out.mkdir(parents=True, exist_ok=True)
    done: list[dict[str, Any]] = []
    failed: list[str] = []
    for name, one in zip(names(paths), segmented(model, paths), strict=True):
        if isinstance(one, BadPictureError):
            failed.append(str(one))
            print(f"equipoise: {one}", file=sys.stderr)
            continue
        mask, overlaid = out / f"{name}.mask.png", out / f"{name}.overlay.png"
        write(mask, one.mask.astype(np.uint8) * 255)
        write(overlaid, overlay(one.picture, one.mask))
        share = float(one.mask.mean())
        done.append({"picture": str(one.path), "mask": str(mask), "overlay": str(overlaid), "foreground": share})
        if not as_json:
            print(f"{one.path}: {100 * share:.1f} % foreground, {mask}")
    if as_json:
        json.dump({"pictures": done, "failed": failed}, sys.stdout, indent=1)
        print()
    if failed:
        print(f"equipoise: {len(failed)} of {len(paths)} pictures could not be used", file=sys.stderr)
        sys.exit(1)


def evaluate(model: Model, fold: int | None = None, *, as_json: bool = False) -> None:
    """Print the intersection over union on a test fold, at the resolution of the net and at that of the masks."""
    recipe = model.recipe
    where = recipe.fold if fold is None else fold
    test = model.task.split(where, recipe.seed).test
    found = {"iou": model.evaluate(test), "iou_at_mask_size": float(truth_iou(model, test).mean())}
    if as_json:
        json.dump(found | {"fold": where, "pictures": len(test)}, sys.stdout, indent=1)
        print()
        return
    print(
        f"IoU on {len(test)} pictures of test fold {where}: {100 * found['iou']:.2f} %, "
        f"at the size of the masks {100 * found['iou_at_mask_size']:.2f} %"
    )


def find(source: Path) -> list[Path]:
    """The picture itself, or the pictures that lie in a folder, known by how their names end."""
    if not source.is_dir():
        return [source]
    paths = sorted(path for path in source.iterdir() if path.suffix.lower() in ENDINGS and path.is_file())
    if not paths:
        raise ValueError(f"{source} has no pictures: none of its files ends in {', '.join(ENDINGS)}")
    return paths


def names(paths: list[Path]) -> Iterator[str]:
    """What to call each picture's masks: its name without the ending, unless two differ in that alone.

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
    """The pixels of the mask that touch one outside it.

    >>> edge(np.pad(np.ones((3, 3), bool), 1))[2].tolist()
    [False, True, False, True, False]
    """
    padded = np.pad(mask, 1, mode="edge")
    inside = padded[:-2, 1:-1] & padded[2:, 1:-1] & padded[1:-1, :-2] & padded[1:-1, 2:]
    return mask & ~inside


def write(path: Path, pixels: Bytes) -> None:
    """There whole, or not at all."""
    beside = path.with_name(f".{path.name}.part")
    try:
        library().fromarray(pixels).save(beside, "PNG")
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
