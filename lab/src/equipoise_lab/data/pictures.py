"""Decode and resize pictures with Pillow. An error names the picture and the reason."""

from pathlib import Path
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from equipoise.repository import install

from .errors import DataError

Bytes = NDArray[np.uint8]

FLAT = 4
"""A picture counts as one colour if no channel spans more than this. JPEG alone can cause such differences."""
FORMATS = ("JPEG", "PNG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
"""The formats that are decoded, whatever the name of a file is. Others, such as EPS, would start other programs."""
MAX_PIXELS = 50_000_000
ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm")


class BadPictureError(DataError):
    """A picture or mask that cannot be used. The message names the first fault; `faults` has all of them."""

    def __init__(self, *faults: str) -> None:
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        super().__init__(f"{faults[0]}{more}")
        self.faults = faults


def decode(path: Path, mode: str = "RGB") -> Bytes:
    """The picture as an array (H, W, 3), or (H, W) in mode "L", with the EXIF rotation applied."""
    pillow = library()
    from PIL import ImageOps

    errors = (OSError, SyntaxError, ValueError, EOFError, pillow.DecompressionBombError)
    try:
        with pillow.open(path, formats=FORMATS) as file:
            if file.width * file.height > MAX_PIXELS:
                raise BadPictureError(f"{path} has {file.width} x {file.height} pixels, more than {MAX_PIXELS:,}")
            return np.array(ImageOps.exif_transpose(file).convert(mode))
    except errors as failure:
        raise BadPictureError(f"{path} cannot be decoded: {_reason(failure)}") from None


def resize(picture: Bytes, height: int, width: int) -> Bytes:
    """The picture at another size; each new pixel is a weighted mean over the area it covers."""
    pillow = library()
    resized = pillow.fromarray(picture).resize((width, height), pillow.Resampling.BILINEAR)
    return np.array(resized)


def resize_mask(mask: NDArray[np.bool_], height: int, width: int) -> NDArray[np.bool_]:
    """The mask at another size: a new pixel is on if the weighted mean over the area it covers is at least one half.

    With unweighted means, many pixels would be exactly one half, and rounding them up or down would change the
    foreground by half a percent of the picture.
    """
    return resize(mask.astype(np.uint8) * 255, height, width) > 127


def flat(picture: Bytes) -> bool:
    """Whether the picture has a single colour, up to JPEG noise.

    >>> flat(np.full((4, 4, 3), 200, np.uint8)), flat(np.arange(16, dtype=np.uint8).reshape(4, 4))
    (True, False)
    """
    channels = picture.reshape(picture.shape[0] * picture.shape[1], -1)
    return bool((np.ptp(channels, axis=0) <= FLAT).all())


def library() -> ModuleType:
    try:
        from PIL import Image
    except ImportError:
        raise DataError(f"reading and writing pictures needs Pillow: {install(laboratory=True)}") from None
    return Image


def _reason(failure: Exception) -> str:
    if isinstance(failure, OSError) and failure.strerror:
        return failure.strerror
    return "not a picture in a known format" if "cannot identify" in str(failure) else str(failure)
