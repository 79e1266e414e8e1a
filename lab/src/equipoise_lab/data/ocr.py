"""The handwritten words of the OCR task (§6.1), read from a file inside the package: no download, no pickle."""

import hashlib
import io
from dataclasses import dataclass
from importlib import resources

import numpy as np
import torch
from torch import Tensor

from .errors import DataError
from .registry import PACKED_OCR_SHA256


@dataclass(frozen=True)
class Letters:
    """52,152 letters of 6,877 words in 10 folds; the letters of word w are starts[w] to starts[w] + lengths[w] - 1."""

    pixels: Tensor  # (letters, 16, 8), uint8: 1 is ink
    labels: Tensor  # (letters,), int64: 0 to 25 for a to z
    lengths: Tensor  # (words,), int64: 3 to 14; the data omits the first letter of each word, a capital
    folds: Tensor  # (words,), int64: 0 to 9
    starts: Tensor  # (words,), int64: index of the first letter


def load() -> Letters:
    """Read the packed letters. Each call returns new tensors on the CPU.

    >>> letters = load()
    >>> letters.pixels.shape, len(letters.lengths)
    (torch.Size([52152, 16, 8]), 6877)
    >>> word = slice(int(letters.starts[0]), int(letters.starts[0] + letters.lengths[0]))
    >>> "".join(chr(ord("a") + label) for label in letters.labels[word].tolist())
    'ommanding'
    """
    data = resources.files(__package__).joinpath("ocr.npz").read_bytes()
    if hashlib.sha256(data).hexdigest() != PACKED_OCR_SHA256:
        raise DataError("ocr.npz inside the package is damaged: reinstall the package")
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        pixels = torch.from_numpy(np.unpackbits(arrays["pixels"], axis=1).reshape(-1, 16, 8))
        labels, lengths, folds = (torch.from_numpy(arrays[key]).long() for key in ("labels", "lengths", "folds"))
    return Letters(pixels, labels, lengths, folds, starts=lengths.cumsum(0) - lengths)
