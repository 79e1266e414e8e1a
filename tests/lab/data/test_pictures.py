"""Pictures in, arrays out; whatever cannot serve is named."""

import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from equipoise.lab.data import DataError
from equipoise.lab.data.pictures import BadPictureError, decode, flat, resize, resize_mask

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    colours, grey = noise(5, 7, 3), noise(5, 7)
    Image.fromarray(colours).save(tmp_path / "a.png")
    Image.fromarray(grey).save(tmp_path / "b.png")
    assert np.array_equal(decode(tmp_path / "a.png"), colours)
    assert np.array_equal(decode(tmp_path / "b.png", "L"), grey)
    assert np.array_equal(decode(tmp_path / "b.png"), np.repeat(grey[..., None], 3, 2))


@pytest.mark.parametrize("mode", ["1", "P", "RGBA", "CMYK", "LA"])
def test_every_kind_of_picture_has_three_colours(tmp_path: Path, mode: str) -> None:
    path = tmp_path / "x.tif"
    Image.fromarray(noise(5, 7, 3)).convert(mode).save(path)
    assert decode(path).shape == (5, 7, 3)


def test_a_photograph_is_turned_as_it_should_be_looked_at(tmp_path: Path) -> None:
    """Cameras write which way is up beside the pixels: 6 means turn by a quarter, clockwise."""
    picture, pixels = Image.fromarray(noise(8, 16, 3)), noise(8, 16, 3)
    exif = picture.getexif()
    exif[0x0112] = 6
    picture.save(tmp_path / "x.png", exif=exif)
    assert np.array_equal(decode(tmp_path / "x.png"), np.rot90(pixels, -1))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not a picture of a known kind"),
        (b"no picture", "not a picture of a known kind"),
        (None, "No such file or directory"),
        ("half", "truncated"),
    ],
)
def test_what_cannot_be_decoded_is_named(tmp_path: Path, content: bytes | str | None, reason: str) -> None:
    path = tmp_path / "horse007.jpg"
    if content == "half":
        whole = io.BytesIO()
        Image.fromarray(noise(40, 40, 3)).save(whole, "JPEG")
        content = whole.getvalue()[: len(whole.getvalue()) // 2]
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BadPictureError, match=rf"horse007.jpg cannot be decoded: .*{reason}"):
        decode(path)


def test_of_several_faults_the_first_is_named_and_all_are_kept() -> None:
    error = BadPictureError("a is empty", "b is black", "c is missing")
    assert isinstance(error, DataError)
    assert str(error) == "a is empty (and 2 more)"
    assert error.faults == ("a is empty", "b is black", "c is missing")


def test_another_size_is_means_over_what_a_pixel_covers() -> None:
    """A picture of vertical stripes, one pixel wide, is grey when it is smaller; a constant stays what it is."""
    stripes = np.tile(np.array([0, 255], np.uint8), (32, 16))
    assert abs(resize(stripes, 8, 8).astype(int)[2:-2, 2:-2] - 127.5).max() <= 1
    assert (resize(np.full((9, 13, 3), 77, np.uint8), 4, 20) == 77).all()


def test_a_mask_keeps_its_share() -> None:
    """A disc at any size has the area of a disc."""
    y, x = np.mgrid[:240, :300]
    disc = ((y - 120) / 100) ** 2 + ((x - 150) / 120) ** 2 < 1
    for height, width in ((32, 32), (64, 128), (240, 300), (500, 500)):
        found = resize_mask(disc, height, width)
        assert found.shape == (height, width)
        assert found.dtype == bool
        assert found.mean() == pytest.approx(disc.mean(), abs=0.01)
    assert np.array_equal(resize_mask(disc, 240, 300), disc)


def test_one_colour() -> None:
    picture = np.full((4, 4, 3), (10, 200, 90), np.uint8)
    assert flat(picture)
    picture[0, 0, 1] += 4
    assert flat(picture)
    picture[0, 0, 1] += 1
    assert not flat(picture)


def test_without_pillow_the_error_says_what_to_install() -> None:
    code = """
import sys
sys.modules["PIL"] = None
from pathlib import Path
from equipoise.lab.data.pictures import decode
decode(Path("x.jpg"))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert "DataError: reading and writing pictures needs Pillow: pip install 'equipoise[images]'" in done.stderr
