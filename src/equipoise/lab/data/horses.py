"""The Weizmann horses (§6.1): 328 pictures and which of their pixels are horse, at one size S x S.

    rgb/horse001.jpg             the picture, at the size of its source
    figure_ground/horse001.jpg   its mask, nearly always at another size: both are brought to S x S
    gray/horse318.jpg            stands in for rgb/horse318.jpg, which is black

Decoding takes seconds and Pillow, so what comes out is kept in one file, `horses-S-vN.npz`: beside the pictures, or in
the user's own cache folder where those are read-only. It holds the masks at their own size too. A data folder that has
this file needs nothing else.
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
"""Of how pictures become tensors; raise it with every change, so that no file of the old way is taken for a new one."""
ALIKE = 0.02
"""How far, relatively, the shapes of a picture and its mask may differ. The publisher's differ by at most 0.6 %."""


@dataclass(frozen=True)
class Horses:
    names: tuple[str, ...]
    images: Tensor  # (N, 3, S, S), uint8
    masks: Tensor  # (N, S, S), uint8: 1 is horse
    bits: Tensor  # uint8: the masks at their own size, eight pixels a byte, each from a new byte on
    sizes: Tensor  # (N, 2): height and width of those
    replaced: tuple[str, ...]
    """Pictures of one colour, for which the publisher's grey version stands in."""

    def truth(self, i: int) -> Tensor:
        """The mask of picture i at its own size, (h, w), bool."""
        height, width = self.sizes[i].tolist()
        count = (self.sizes[: i + 1].prod(1) + 7) // 8
        start = int(count[:-1].sum())
        packed = self.bits[start : start + int(count[-1])].numpy()
        return torch.from_numpy(np.unpackbits(packed, count=height * width).reshape(height, width)).bool()


def load(size: int, data_dir: str | Path | None = None) -> Horses:
    """The horses at this size, from the file that holds them, or else from the pictures.

    Every picture must serve: if one cannot be decoded, is of one colour, has an empty mask or one of another shape,
    `BadPictureError` names it.
    """
    complete = present("horses", data_dir).complete
    source = _digest(require("horses", data_dir)) if complete else None
    spoilt: DataError | None = None
    for path in (cache_file(size, data_dir), _own_cache_file(size)):
        if path.is_file():
            try:
                kept, made_from = _read(path)
            except DataError as failure:
                spoilt = failure
                continue
            if source in (None, made_from):
                return kept
    if spoilt is not None and not complete:
        raise spoilt
    made = read(require("horses", data_dir), size)
    _keep(made, source or "", size, data_dir)
    return made


def cache_file(size: int, data_dir: str | Path | None = None) -> Path:
    """Where the tensors of this size lie in a data folder.

    >>> cache_file(128, "data").as_posix()
    'data/horses/horses-128-v1.npz'
    """
    return data_folder(data_dir) / "horses" / f"horses-{size}-v{VERSION}.npz"


def read(files: dict[str, Path], size: int) -> Horses:
    """Decode the pictures and bring them to S x S."""
    names = sorted(key.removeprefix("rgb/") for key in files if key.startswith("rgb/"))
    images, masks, truths = [], [], []
    replaced: list[str] = []
    faults: list[str] = []
    for name in names:
        try:
            image, stands_in = _picture(files, name)
            truth = _mask(files[f"figure_ground/{name}"], image)
        except BadPictureError as failure:
            faults += failure.faults
            continue
        replaced += [Path(name).stem] * stands_in
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
    """The picture in colour, or its grey version where it is of one colour and has one; and whether it is that."""
    image, grey = decode(files[f"rgb/{name}"]), files.get(f"gray/{name}")
    if not flat(image):
        return image, False
    if grey is None:
        raise BadPictureError(f"{files[f'rgb/{name}']} is of one colour, and has no grey version in gray/")
    image = decode(grey)
    if flat(image):
        raise BadPictureError(f"{grey} is of one colour, as is {files[f'rgb/{name}']}")
    return image, True


def _mask(path: Path, image: Bytes) -> np.ndarray:
    mask = decode(path, "L") > 127  # JPEG has blurred 0 and 255 a little
    if not mask.any():
        raise BadPictureError(f"{path} is empty: no pixel of it is foreground")
    (h, w), (height, width) = mask.shape, image.shape[:2]
    if abs(h * width / (w * height) - 1) > ALIKE:
        raise BadPictureError(f"{path} is {w} x {h}, and its picture {width} x {height}: they are of different shapes")
    return mask


def _digest(files: dict[str, Path]) -> str:
    """What the pictures are known by: their names and sizes, which are had without reading them."""
    text = "".join(f"{key} {path.stat().st_size}\n" for key, path in sorted(files.items()))
    return hashlib.sha256(text.encode()).hexdigest()


def _own_cache_file(size: int) -> Path:
    named = os.environ.get("XDG_CACHE_HOME")
    return (Path(named) if named else Path.home() / ".cache") / "equipoise" / cache_file(size).name


def _read(path: Path) -> tuple[Horses, str]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            names, replaced = (tuple(map(str, arrays[key])) for key in ("names", "replaced"))
            images, masks, bits, sizes = (torch.from_numpy(arrays[key]) for key in ("images", "masks", "bits", "sizes"))
            return Horses(names, images, masks, bits, sizes, replaced), str(arrays["source"])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as failure:
        raise DataError(f"{path} is damaged ({failure}): remove it, and it is made anew from the pictures") from None


def _keep(made: Horses, source: str, size: int, data_dir: str | Path | None) -> None:
    """Write the file where that is possible; where it is not, the next start decodes again."""
    parts = {name: getattr(made, name).numpy() for name in ("images", "masks", "bits", "sizes")}
    words = {"names": made.names, "replaced": made.replaced, "source": source}
    arrays = parts | {name: np.array(x, dtype=np.str_) for name, x in words.items()}
    failures = []
    for path in (cache_file(size, data_dir), _own_cache_file(size)):
        beside = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.parent.stat().st_mode & 0o222:  # root could, but whoever marked it did not want that
                raise PermissionError(errno.EACCES, "the folder is marked read-only")
            number, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
            with os.fdopen(number, "wb") as file:
                np.savez_compressed(file, **arrays)
            Path(beside).chmod(0o644)
            Path(beside).replace(path)
            return
        except OSError as failure:
            failures.append(f"{path}: {failure.strerror}")
            if beside is not None:
                with contextlib.suppress(OSError):
                    Path(beside).unlink(missing_ok=True)
    warnings.warn(f"the decoded horses could not be kept ({'; '.join(failures)})", stacklevel=3)
