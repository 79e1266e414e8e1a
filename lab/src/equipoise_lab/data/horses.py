"""The Weizmann horses (§6.1): 328 pictures with foreground masks, resized to S x S.

    rgb/horse001.jpg             the picture, at its original size
    figure_ground/horse001.jpg   its mask, nearly always at a different size; both are resized to S x S
    gray/horse318.jpg            replaces rgb/horse318.jpg, which is black

Decoding takes several seconds and needs Pillow, so the result is cached in one file, `horses-S-vN.npz`: next to the
pictures, or in the user's cache folder if the data folder is read-only. The cache also holds the masks at their
original size. A data folder with this file needs no other file and no Pillow.
"""

import contextlib
import errno
import hashlib
import os
import tempfile
import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from .errors import DataError
from .folder import data_folder, present, require
from .pictures import BadPictureError, Bytes, decode, flat, resize, resize_mask

VERSION = 1
"""Version of the decoding. Increase it with every change, so that old cache files are not used."""
ASPECT_TOLERANCE = 0.02
"""Maximum relative difference of the aspect ratios of a picture and its mask. The publisher's differ by up to 0.6 %."""


@dataclass(frozen=True)
class Horses:
    names: tuple[str, ...]
    images: Tensor  # (N, 3, S, S), uint8
    masks: Tensor  # (N, S, S), uint8: 1 is horse
    bits: Tensor  # uint8: the masks at their original size, eight pixels per byte; each mask starts at a new byte
    sizes: Tensor  # (N, 2): original height and width of each mask
    replaced: tuple[str, ...]
    """Names of the single-colour pictures that were replaced by the publisher's grey version."""

    def truth(self, i: int) -> Tensor:
        """The mask of picture i at its original size, (h, w), bool."""
        height, width = self.sizes[i].tolist()
        count = (self.sizes[: i + 1].prod(1) + 7) // 8
        start = int(count[:-1].sum())
        packed = self.bits[start : start + int(count[-1])].numpy()
        return torch.from_numpy(np.unpackbits(packed, count=height * width).reshape(height, width)).bool()


def load(size: int, data_dir: str | Path | None = None) -> Horses:
    """The horses at this size, from the cache file if it is valid, else decoded from the pictures.

    Raises `BadPictureError` if a picture cannot be decoded or has a single colour, or if its mask is empty or has a
    different aspect ratio.
    """
    complete = present("horses", data_dir).complete
    source = _digest(require("horses", data_dir)) if complete else None
    damaged: DataError | None = None
    for path in (cache_file(size, data_dir), _user_cache_file(size)):
        if path.is_file():
            try:
                cached, cached_source = _read_cache(path)
            except DataError as failure:
                damaged = failure
                continue
            if source in (None, cached_source):
                return cached
    if damaged is not None and not complete:
        raise damaged
    decoded = read(require("horses", data_dir), size)
    _write_cache(decoded, source or "", size, data_dir)
    return decoded


def cache_file(size: int, data_dir: str | Path | None = None) -> Path:
    """The cache file for this size in the data folder.

    >>> cache_file(128, "data").as_posix()
    'data/horses/horses-128-v1.npz'
    """
    return data_folder(data_dir) / "horses" / f"horses-{size}-v{VERSION}.npz"


def read(files: dict[str, Path], size: int) -> Horses:
    """Decode the pictures and masks and resize them to S x S."""
    names = sorted(key.removeprefix("rgb/") for key in files if key.startswith("rgb/"))
    images, masks, truths = [], [], []
    replaced: list[str] = []
    faults: list[str] = []
    for name in names:
        try:
            image, is_grey = _picture(files, name)
            truth = _mask(files[f"figure_ground/{name}"], image)
        except BadPictureError as failure:
            faults += failure.faults
            continue
        replaced += [Path(name).stem] * is_grey
        images.append(resize(image, size, size).transpose(2, 0, 1))
        masks.append(resize_mask(truth, size, size))
        truths.append(truth)
    if faults:
        raise BadPictureError(*faults)
    return Horses(
        tuple(Path(name).stem for name in names),
        torch.from_numpy(np.stack(images)),
        torch.from_numpy(np.stack(masks).astype(np.uint8)),
        torch.from_numpy(np.concatenate([np.packbits(truth) for truth in truths])),
        torch.tensor([truth.shape for truth in truths]),
        tuple(replaced),
    )


def _picture(files: dict[str, Path], name: str) -> tuple[Bytes, bool]:
    """The colour picture, or its grey version if it has a single colour; and whether it is the grey version."""
    image, grey = decode(files[f"rgb/{name}"]), files.get(f"gray/{name}")
    if not flat(image):
        return image, False
    if grey is None:
        raise BadPictureError(f"{files[f'rgb/{name}']} is of one colour and has no grey version in gray/")
    image = decode(grey)
    if flat(image):
        raise BadPictureError(f"{grey} is of one colour, and so is {files[f'rgb/{name}']}")
    return image, True


def _mask(path: Path, image: Bytes) -> np.ndarray:
    mask = decode(path, "L") > 127  # JPEG compression changes 0 and 255 slightly
    if not mask.any():
        raise BadPictureError(f"{path} is empty: it has no foreground pixel")
    (h, w), (height, width) = mask.shape, image.shape[:2]
    if abs(h * width / (w * height) - 1) > ASPECT_TOLERANCE:
        raise BadPictureError(f"{path} is {w} x {h}, but its picture is {width} x {height}: the aspect ratios differ")
    return mask


def _digest(files: dict[str, Path]) -> str:
    """A digest of the names and file sizes of the pictures, which needs no reading."""
    text = "".join(f"{key} {path.stat().st_size}\n" for key, path in sorted(files.items()))
    return hashlib.sha256(text.encode()).hexdigest()


def _user_cache_file(size: int) -> Path:
    from_environment = os.environ.get("XDG_CACHE_HOME")
    folder = Path(from_environment) if from_environment else Path.home() / ".cache"
    return folder / "equipoise" / cache_file(size).name


def _read_cache(path: Path) -> tuple[Horses, str]:
    """The cached horses, and the digest of the pictures they were decoded from."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            names, replaced = (tuple(map(str, arrays[key])) for key in ("names", "replaced"))
            images, masks, bits, sizes = (torch.from_numpy(arrays[key]) for key in ("images", "masks", "bits", "sizes"))
            return Horses(names, images, masks, bits, sizes, replaced), str(arrays["source"])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as failure:
        raise DataError(f"{path} is damaged ({failure}): delete it to decode the pictures again") from None


def _write_cache(decoded: Horses, source: str, size: int, data_dir: str | Path | None) -> None:
    """Write the cache to the first writable folder; if there is none, warn."""
    tensors = {name: getattr(decoded, name).numpy() for name in ("images", "masks", "bits", "sizes")}
    texts = {"names": decoded.names, "replaced": decoded.replaced, "source": source}
    arrays = tensors | {name: np.array(x, dtype=np.str_) for name, x in texts.items()}
    failures = []
    for path in (cache_file(size, data_dir), _user_cache_file(size)):
        temporary = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.parent.stat().st_mode & 0o222:  # root could still write, but must not
                raise PermissionError(errno.EACCES, "the folder is marked read-only")
            number, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
            with os.fdopen(number, "wb") as file:
                np.savez_compressed(file, **arrays)
            Path(temporary).chmod(0o644)
            Path(temporary).replace(path)
            return
        except OSError as failure:
            failures.append(f"{path}: {failure.strerror}")
            if temporary is not None:
                with contextlib.suppress(OSError):
                    Path(temporary).unlink(missing_ok=True)
    warnings.warn(f"the decoded horses could not be cached ({'; '.join(failures)})", stacklevel=3)
