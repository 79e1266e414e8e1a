"""The packaged letters equal those of the publisher's file, and a damaged file is refused."""

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch

from equipoise_lab.data import ocr, pack_ocr
from equipoise_lab.data.errors import DataError, MalformedLineError


def line(id: int, letter: str, next_id: int, word: int, position: int, fold: int = 0, pixels: str = "01" * 64) -> str:
    return "\t".join([str(id), letter, str(next_id), str(word), str(position), str(fold), *pixels]) + "\t\n"


GOOD = [line(1, "a", 2, 1, 1), line(2, "b", -1, 1, 2), line(3, "c", -1, 2, 1, 7)]


def test_counts_equal_those_of_the_published_data() -> None:
    letters = ocr.load()
    assert len(letters.labels) == 52152
    assert len(letters.lengths) == 6877
    assert letters.folds.bincount().tolist() == [626, 704, 684, 698, 693, 651, 739, 717, 690, 675]
    counts = dict(zip("abcdefghijklmnopqrstuvwxyz", letters.labels.bincount().tolist(), strict=True))
    assert (counts["a"], counts["e"], counts["j"], counts["n"], counts["z"]) == (4034, 4955, 189, 5024, 1094)
    assert letters.pixels.shape == (52152, 16, 8)
    assert letters.pixels.unique().tolist() == [0, 1]


def test_words_are_contiguous() -> None:
    letters = ocr.load()
    assert letters.starts[0] == 0
    assert torch.equal(letters.starts[1:], (letters.starts + letters.lengths)[:-1])
    assert letters.starts[-1] + letters.lengths[-1] == len(letters.labels)


def test_each_call_returns_new_tensors() -> None:
    ocr.load().pixels.fill_(7)
    assert ocr.load().pixels.max() == 1


def test_a_wrong_digest_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ocr, "PACKED_OCR_SHA256", "0" * 64)
    with pytest.raises(DataError, match="reinstall the package"):
        ocr.load()


def test_the_real_file_packs_to_the_committed_one(real_folder: Path, tmp_path: Path) -> None:
    assert pack_ocr.main([str(real_folder / "ocr" / "letter.data.gz"), str(tmp_path / "ocr.npz")]) is None
    made, committed = (tmp_path / "ocr.npz").read_bytes(), (Path(ocr.__file__).parent / "ocr.npz").read_bytes()
    assert made == committed
    assert len(made) < 500_000


def test_every_pixel_equals_that_of_the_real_file(real_folder: Path) -> None:
    with gzip.open(real_folder / "ocr" / "letter.data.gz", "rb") as text:
        rows = np.frombuffer(b"".join(b"".join(row.split(b"\t")[6:134]) for row in text), dtype=np.uint8) - ord("0")
    assert np.array_equal(rows.reshape(-1, 16, 8), ocr.load().pixels.numpy())


@pytest.mark.parametrize("zipped", [False, True])
def test_reading_groups_lines_by_word(tmp_path: Path, zipped: bool) -> None:
    path = tmp_path / "letter.data"
    data = "".join(GOOD).encode()
    path.write_bytes(gzip.compress(data) if zipped else data)
    words = list(pack_ocr.read(path))
    assert [[row.label for row in word] for word in words] == [[0, 1], [2]]
    assert words[1][0].fold == 7


@pytest.mark.parametrize(
    ("number", "bad", "reason"),
    [
        (1, "1\ta\t2\n", "expected 134 columns, got 3"),
        (1, line(1, "A", 2, 1, 1), "the letter must be one of a to z, got 'A'"),
        (1, line(1, "a", 2, 1, 1, 10), "the fold must be from 0 to 9, got 10"),
        (1, line(1, "a", 2, 1, 1, pixels="01" * 63 + "02"), "pixels must be 0 or 1, got '2' for p_15_7"),
        (1, line(1, "a", 2, 1, 1).replace("a\t2", "a\ttwo"), "id, next_id, word_id, position and fold must be integ"),
        (2, line(2, "b", -1, 1, 3), "expected position 2 of a word, got 3"),
        (2, line(5, "b", -1, 1, 2), "expected id 2 of word 1, fold 0, got id 5 of word 1, fold 0"),
        (2, line(2, "b", -1, 1, 2, 4), "expected id 2 of word 1, fold 0, got id 2 of word 1, fold 4"),
    ],
)
def test_a_malformed_line_is_named(tmp_path: Path, number: int, bad: str, reason: str) -> None:
    path = tmp_path / "letter.data"
    path.write_text("".join([*GOOD[: number - 1], bad, *GOOD[number:]]))
    with pytest.raises(MalformedLineError) as caught:
        list(pack_ocr.read(path))
    assert str(caught.value).startswith(f"{path}, line {number}: {reason}")


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "letter.data"
    path.write_text(GOOD[0])
    with pytest.raises(DataError, match="ends in the middle of word 1"):
        list(pack_ocr.read(path))
    path.write_bytes(gzip.compress("".join(GOOD).encode())[:-9])
    with pytest.raises(DataError, match="cannot be read"):
        pack_ocr.pack(path)


def test_an_incomplete_file_is_not_packed(tmp_path: Path) -> None:
    path, out = tmp_path / "letter.data", tmp_path / "out.npz"
    path.write_text("".join(GOOD))
    assert pack_ocr.main([str(path), str(out)]) == f"{path}: expected 626 words in fold 0, got 1"
    assert "No such file" in str(pack_ocr.main([str(tmp_path / "none"), str(out)]))
    assert not out.exists()
    assert str(pack_ocr.main([])).startswith("usage")
