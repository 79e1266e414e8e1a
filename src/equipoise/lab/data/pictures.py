"""Pictures as arrays of bytes, decoded by Pillow; one that cannot serve is named, with the reason."""

from pathlib import Path
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from .errors import DataError

Bytes = NDArray[np.uint8]

FLAT = 4
"""A picture none of whose channels spans more than this shows nothing; JPEG alone makes as much of one colour."""
ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm")


class BadPictureError(DataError):
    """A picture, or a mask, that cannot serve. With several, the first is named and all are in `faults`."""

    def __init__(self, *faults: str) -> None:
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        super().__init__(f"{faults[0]}{more}")
        self.faults = faults


def decode(path: Path, mode: str = "RGB") -> Bytes:
    """The picture as it should be looked at, (H, W, 3), or (H, W) in mode "L"."""
    pillow = library()
    from PIL import ImageOps

    wrong = (OSError, SyntaxError, ValueError, EOFError, pillow.DecompressionBombError)
    try:
        with pillow.open(path) as file:
            return np.array(ImageOps.exif_transpose(file).convert(mode))
    except wrong as failure:
        raise BadPictureError(f"{path} cannot be decoded: {_reason(failure)}") from None


def resize(picture: Bytes, height: int, width: int) -> Bytes:
    """The picture at another size, each new pixel a mean over what it covers."""
    pillow = library()
    resized = pillow.fromarray(picture).resize((width, height), pillow.Resampling.BILINEAR)
    return np.array(resized)


def resize_mask(mask: NDArray[np.bool_], height: int, width: int) -> NDArray[np.bool_]:
    """The mask at another size: a new pixel is on if half of what it covers is, what is near it counting more.

    Plain means would have many pixels exactly at one half, and the foreground grow or shrink by half a percent of the
    picture, as those are decided.
    """
    return resize(mask.astype(np.uint8) * 255, height, width) > 127


def flat(picture: Bytes) -> bool:
    """Whether the picture is of one colour.

    >>> flat(np.full((4, 4, 3), 200, np.uint8)), flat(np.arange(16, dtype=np.uint8).reshape(4, 4))
    (True, False)
    """
    channels = picture.reshape(picture.shape[0] * picture.shape[1], -1)
    return bool((np.ptp(channels, axis=0) <= FLAT).all())


def library() -> ModuleType:
    try:
        from PIL import Image
    except ImportError:
        raise DataError("reading and writing pictures needs Pillow: pip install 'equipoise[images]'") from None
    return Image


def _reason(failure: Exception) -> str:
    if isinstance(failure, OSError) and failure.strerror:
        return failure.strerror
    return "not a picture of a known kind" if "cannot identify" in str(failure) else str(failure)
