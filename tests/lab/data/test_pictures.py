"""Decoding and resizing pictures, and errors that name the bad picture."""

import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from equipoise.repository import install
from equipoise_lab.data import DataError
from equipoise_lab.data.pictures import BadPictureError, decode, flat, resize, resize_mask

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def test_decoding_returns_the_written_pixels(tmp_path: Path) -> None:
    colours, grey = noise(5, 7, 3), noise(5, 7)
    Image.fromarray(colours).save(tmp_path / "a.png")
    Image.fromarray(grey).save(tmp_path / "b.png")
    assert np.array_equal(decode(tmp_path / "a.png"), colours)
    assert np.array_equal(decode(tmp_path / "b.png", "L"), grey)
    assert np.array_equal(decode(tmp_path / "b.png"), np.repeat(grey[..., None], 3, 2))


@pytest.mark.parametrize("mode", ["1", "P", "RGBA", "CMYK", "LA"])
def test_every_mode_is_decoded_to_three_channels(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "x.tif"
    Image.fromarray(noise(5, 7, 3)).convert(mode).save(path)
    assert decode(path).shape == (5, 7, 3)


def test_the_exif_rotation_is_applied(tmp_path: Path) -> None:
    """Orientation 6 means a quarter turn, clockwise."""
    picture, pixels = Image.fromarray(noise(8, 16, 3)), noise(8, 16, 3)
    exif = picture.getexif()
    exif[0x0112] = 6
    picture.save(tmp_path / "x.png", exif=exif)
    assert np.array_equal(decode(tmp_path / "x.png"), np.rot90(pixels, -1))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not a picture in a known format"),
        (b"no picture", "not a picture in a known format"),
        (None, "No such file or directory"),
        ("half", "truncated"),
    ],
)
def test_an_undecodable_file_is_named(tmp_path: Path, content: bytes | str | None, reason: str) -> None:
    path = tmp_path / "horse007.jpg"
    if content == "half":
        whole = io.BytesIO()
        Image.fromarray(noise(40, 40, 3)).save(whole, "JPEG")
        content = whole.getvalue()[: len(whole.getvalue()) // 2]
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BadPictureError, match=rf"horse007.jpg cannot be decoded: .*{reason}"):
        decode(path)


def test_the_message_names_the_first_fault_and_counts_the_others() -> None:
    error = BadPictureError("a is empty", "b is black", "c is missing")
    assert isinstance(error, DataError)
    assert str(error) == "a is empty (and 2 more)"
    assert error.faults == ("a is empty", "b is black", "c is missing")


def test_resizing_averages_over_the_covered_area() -> None:
    """Vertical stripes, one pixel wide, become grey when the picture shrinks; a constant stays constant."""
    stripes = np.tile(np.array([0, 255], np.uint8), (32, 16))
    assert abs(resize(stripes, 8, 8).astype(int)[2:-2, 2:-2] - 127.5).max() <= 1
    assert (resize(np.full((9, 13, 3), 77, np.uint8), 4, 20) == 77).all()


def test_resizing_a_mask_preserves_its_relative_area() -> None:
    y, x = np.mgrid[:240, :300]
    disc = ((y - 120) / 100) ** 2 + ((x - 150) / 120) ** 2 < 1
    for height, width in ((32, 32), (64, 128), (240, 300), (500, 500)):
        found = resize_mask(disc, height, width)
        assert found.shape == (height, width)
        assert found.dtype == bool
        assert found.mean() == pytest.approx(disc.mean(), abs=0.01)
    assert np.array_equal(resize_mask(disc, 240, 300), disc)


def test_pictures_of_one_colour() -> None:
    picture = np.full((4, 4, 3), (10, 200, 90), np.uint8)
    assert flat(picture)
    picture[0, 0, 1] += 4
    assert flat(picture)
    picture[0, 0, 1] += 1
    assert not flat(picture)


def test_without_pillow_the_error_names_the_extra_to_install() -> None:
    code = """
import sys
sys.modules["PIL"] = None
from pathlib import Path
from equipoise_lab.data.pictures import decode
decode(Path("x.jpg"))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert f"DataError: reading and writing pictures needs Pillow: {install(laboratory=True)}" in done.stderr


def test_the_content_decides_the_format_and_only_some_are_decoded(tmp_path: Path) -> None:
    """Pillow would hand an EPS file to Ghostscript, whatever its name is."""
    path = tmp_path / "horse.jpg"
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n%%EOF\n")
    with pytest.raises(BadPictureError, match="not a picture in a known format"):
        decode(path)


def test_a_picture_with_too_many_pixels_is_refused_before_it_is_decoded(tmp_path: Path) -> None:
    """A file of 60 kB can ask for gigabytes of memory."""
    pillow = pytest.importorskip("PIL.Image")
    path = tmp_path / "large.png"
    pillow.new("1", (8000, 7000)).save(path)
    with pytest.raises(BadPictureError, match="8000 x 7000 pixels, more than 50,000,000"):
        decode(path)
