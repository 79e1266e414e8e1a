"""Named tensors and a text in one file, in the safetensors format, written completely or not at all.

    8 bytes: length of the header | header: JSON of names, types, shapes and offsets | the numbers

The metadata of the header has a digest of everything else, so a file that was damaged or changed is refused. The format
is implemented here because it is one page of code, and experiments must run with torch and numpy alone. Any
safetensors library can read these files, and no file can run code.
"""

import hashlib
import json
import math
import os
import re
import struct
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..native.values import memory
from .errors import printable
from .writing import remove_leftovers

KINDS = {
    torch.float32: "F32",
    torch.float64: "F64",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
DTYPES = {kind: dtype for dtype, kind in KINDS.items()}
LARGEST_HEADER = 100_000_000
DIGEST = "equipoise.sha256"
"""The name of the digest in the metadata."""


class BadFileError(ValueError):
    """A file that is truncated, damaged, or of another kind."""

    def __str__(self) -> str:
        return printable(super().__str__())  # the file decides about parts of the message


def save(path: Path, tensors: dict[str, Tensor], text: str) -> None:
    """Replace the file atomically: a reader sees the old or the new one, also after a crash."""
    header: dict[str, Any] = {"__metadata__": {"equipoise": text}}
    chunks, start = [], 0
    for name, x in tensors.items():
        data = memory(x.detach().cpu().contiguous()).numpy().tobytes()
        header[name] = {"dtype": KINDS[x.dtype], "shape": list(x.shape), "data_offsets": [start, start + len(data)]}
        chunks.append(data)
        start += len(data)
    header["__metadata__"][DIGEST] = _digest(header, *chunks)
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(path.parent, rf"{re.escape(path.name)}\.[0-9]+\.part")
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            file.write(struct.pack("<Q", len(head)))
            file.write(head)
            for data in chunks:
                file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def load(path: Path, *, old: bool = True) -> tuple[dict[str, Tensor], str]:
    """The tensors, on the CPU, and the text. Raises BadFileError for any other file.

    With `old`, also files of older versions, which have no digest.
    """
    tensors, metadata = _parse(path.read_bytes(), path)
    if not isinstance(metadata.get("equipoise"), str):
        raise BadFileError(f"{path} was not written by equipoise")
    if not old and DIGEST not in metadata:
        raise BadFileError(f"{path} has no digest, so it may have been changed")
    return tensors, metadata["equipoise"]


def parse(data: bytes, path: Path | str) -> tuple[dict[str, Tensor], object]:
    """The tensors of a safetensors file of any origin, and the text if equipoise wrote it; errors name the path."""
    tensors, metadata = _parse(data, path)
    return tensors, metadata.get("equipoise")


def _parse(data: bytes, path: Path | str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the metadata."""
    if len(data) < 8:
        raise BadFileError(f"{path} is truncated: {len(data)} bytes")
    (size,) = struct.unpack("<Q", data[:8])
    if size > min(LARGEST_HEADER, len(data) - 8):
        raise BadFileError(f"{path} is not a safetensors file, or is truncated")
    try:
        header = json.loads(data[8 : 8 + size], object_pairs_hook=_without_repeats)
        body = bytearray(data[8 + size :])
        metadata = dict(header.get("__metadata__", {}).items())
        entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
        tensors = {name: _tensor(name, entry, body) for name, entry in entries.items()}
        _check_order([entry["data_offsets"] for entry in entries.values()], len(body))
        if DIGEST in metadata and header["__metadata__"].pop(DIGEST) != _digest(header, body):
            raise ValueError("its digest is wrong, so it was damaged or changed")
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError, RecursionError) as error:
        raise BadFileError(f"{path} is not a valid safetensors file: {error}") from error
    return tensors, metadata


def _digest(header: dict[str, Any], *numbers: bytes | bytearray) -> str:
    """SHA-256 of the header, without the digest itself, and the numbers."""
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for part in numbers:
        digest.update(part)
    return digest.hexdigest()


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    by_name = dict(pairs)
    if len(by_name) < len(pairs):
        raise ValueError("a name occurs twice")
    return by_name


def _tensor(name: str, entry: dict[str, Any], body: bytearray) -> Tensor:
    """A copy of the numbers of one entry of the header."""
    (start, stop), shape = entry["data_offsets"], entry["shape"]
    if not all(type(n) is int and n >= 0 for n in (start, stop, *shape)):
        raise ValueError(f"the shape or the place of {name} is not made of numbers from 0 on")
    if entry["dtype"] not in DTYPES:
        raise ValueError(f"{name} has the unknown type {entry['dtype']!r}")
    dtype = DTYPES[entry["dtype"]]
    if stop > len(body):
        raise ValueError(f"it is truncated: {name} is incomplete")
    if math.prod(shape) * dtype.itemsize != stop - start:
        raise ValueError(f"{name} has {stop - start} bytes, which do not fit {shape} numbers of type {entry['dtype']}")
    if stop == start:
        return torch.empty(shape, dtype=dtype)
    numbers = torch.frombuffer(body, dtype=torch.uint8, count=stop - start, offset=start)
    return numbers.clone().view(dtype).reshape(shape)


def _check_order(places: list[list[int]], size: int) -> None:
    """The numbers must lie one after the other, without gaps, overlaps or bytes at the end."""
    end = 0
    for start, stop in sorted(places):
        if start != end:
            raise ValueError(f"there is a gap or an overlap at byte {min(start, end)} of the numbers")
        end = stop
    if end != size:
        raise ValueError(f"{size - end} bytes at the end belong to no tensor")
