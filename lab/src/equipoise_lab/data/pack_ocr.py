"""Pack Taskar's OCR data, 14.6 MB of tab-separated text, into the 0.4 MB file inside the package.

    python -m equipoise_lab.data.pack_ocr letter.data.gz ocr.npz

A line is `id letter next_id word_id position fold p_0_0 p_0_1 ... p_15_7` and ends with a tab. The packed file has the
pixels, eight per byte, the letters as 0 to 25, and the length and fold of each word. The output is deterministic.
"""

import io
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from equipoise.files import lines

from .errors import DataError, MalformedLineError, explain

PIXELS = 16 * 8
WORDS_PER_FOLD = (626, 704, 684, 698, 693, 651, 739, 717, 690, 675)
ALPHABET = "abcdefghijklmnopqrstuvwxyz"
LETTERS = (
    *(4034, 1284, 2114, 1442, 4955, 921, 2472, 861, 4913, 189, 909, 3140, 1602),  # a to m
    *(5024, 3897, 1377, 341, 2673, 1394, 2136, 2562, 664, 520, 413, 1221, 1094),  # n to z
)

Bytes = NDArray[np.uint8]


class Row(NamedTuple):
    """One line of the publisher's file."""

    id: int
    label: int
    next_id: int  # -1 at the end of a word
    word: int
    position: int
    fold: int
    pixels: bytes  # 128 values, 0 or 1


class Packed(NamedTuple):
    """The arrays of the packed file."""

    pixels: Bytes  # (letters, 16): one byte per row of the picture; the leftmost pixel is the highest bit
    labels: Bytes  # (letters,)
    lengths: Bytes  # (words,)
    folds: Bytes  # (words,)


def parse(line: str) -> Row:
    """Parse one line; raise a ValueError with the reason if it is malformed.

    >>> row = parse("1\\to\\t2\\t1\\t1\\t0\\t" + "0\\t1\\t" * 64)
    >>> row.label, row.next_id, row.pixels[:4]
    (14, 2, b'\\x00\\x01\\x00\\x01')
    """
    fields = line.rstrip("\r\n").removesuffix("\t").split("\t")
    if len(fields) != 6 + PIXELS:
        raise ValueError(f"expected {6 + PIXELS} columns, got {len(fields)}")
    letter, pixels = fields[1], "".join(fields[6:])
    if len(letter) != 1 or not "a" <= letter <= "z":
        raise ValueError(f"the letter must be one of a to z, got {letter!r}")
    if len(pixels) != PIXELS or pixels.strip("01"):
        bad = next(i for i, pixel in enumerate(fields[6:]) if pixel not in ("0", "1"))
        raise ValueError(f"pixels must be 0 or 1, got {fields[6 + bad]!r} for p_{bad // 8}_{bad % 8}")
    try:
        numbers = [int(fields[i]) for i in (0, 2, 3, 4, 5)]
    except ValueError:
        raise ValueError("id, next_id, word_id, position and fold must be integers") from None
    identity, next_id, word, position, fold = numbers
    if not 0 <= fold < len(WORDS_PER_FOLD):
        raise ValueError(f"the fold must be from 0 to 9, got {fold}")
    return Row(identity, ord(letter) - ord("a"), next_id, word, position, fold, pixels.encode().translate(_BITS))


_BITS = bytes.maketrans(b"01", b"\0\1")


def read(path: Path) -> Iterator[list[Row]]:
    """The words of a plain or gzipped file, each as a list of rows. Each line is checked against the previous one."""
    word: list[Row] = []
    for number, line in lines(path):
        try:
            row = parse(line)
            _check_order(word, row)
        except ValueError as reason:
            raise MalformedLineError(path, number, str(reason)) from None
        word.append(row)
        if row.next_id == -1:
            yield word
            word = []
    if word:
        raise DataError(f"{path}: ends in the middle of word {word[0].word}")


def _check_order(word: list[Row], row: Row) -> None:
    """A word is consecutive lines with positions 1, 2, ...; each line gives the id of the next."""
    if row.position != len(word) + 1:
        raise ValueError(f"expected position {len(word) + 1} of a word, got {row.position}")
    if word and (row.id, row.word, row.fold) != (word[-1].next_id, word[-1].word, word[-1].fold):
        last = word[-1]
        raise ValueError(
            f"expected id {last.next_id} of word {last.word}, fold {last.fold}, "
            f"got id {row.id} of word {row.word}, fold {row.fold}"
        )


def pack(path: Path) -> Packed:
    """Read the publisher's file and check that it is complete, by the words per fold and the count of each letter."""
    words = list(read(path))
    rows = [row for word in words for row in word]
    labels = np.array([row.label for row in rows], dtype=np.uint8)
    folds = np.array([word[0].fold for word in words], dtype=np.uint8)
    _check_counts(path, "words in fold", "0123456789", folds, WORDS_PER_FOLD)
    _check_counts(path, "letters", ALPHABET, labels, LETTERS)
    lengths = np.array([len(word) for word in words], dtype=np.uint8)
    pixels = np.frombuffer(b"".join(row.pixels for row in rows), dtype=np.uint8).reshape(-1, PIXELS)
    return Packed(np.packbits(pixels, axis=1), labels, lengths, folds)


def _check_counts(path: Path, what: str, names: str, values: Bytes, wanted: tuple[int, ...]) -> None:
    for name, got, want in zip(names, np.bincount(values, minlength=len(wanted)), wanted, strict=True):
        if got != want:
            raise DataError(f"{path}: expected {want} {what} {name}, got {got}")


def to_bytes(packed: Packed) -> bytes:
    """The bytes of an .npz file that depends on the arrays alone, not on the time or the operating system."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, array in packed._asdict().items():
            member = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            member.create_system, member.external_attr = 3, 0o644 << 16
            data = io.BytesIO()
            np.lib.format.write_array(data, array, version=(1, 0), allow_pickle=False)
            archive.writestr(member, data.getvalue(), zipfile.ZIP_DEFLATED, compresslevel=9)
    return out.getvalue()


def main(arguments: list[str]) -> str | None:
    if len(arguments) != 2:
        return "usage: python -m equipoise_lab.data.pack_ocr letter.data.gz ocr.npz"
    source, target = map(Path, arguments)
    try:
        data = to_bytes(pack(source))
        part = target.with_name(target.name + ".part")
        part.write_bytes(data)
        part.replace(target)
    except DataError as failure:
        return str(failure)
    except OSError as failure:
        return explain(failure, target)
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
