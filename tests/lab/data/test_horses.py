"""The horses: the published counts and defects, the cache file, and errors that name the bad picture."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from equipoise_lab.data import DataError, MissingFileError, horses
from equipoise_lab.data.pictures import BadPictureError
from equipoise_lab.data.registry import HORSES

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")

DRAW = np.random.default_rng(0)


def save(path: Path, pixels: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, "PNG")
    return path


def noise(*shape: int) -> np.ndarray:
    return DRAW.integers(0, 256, shape, dtype=np.uint8)


def mask(height: int, width: int) -> np.ndarray:
    found = np.zeros((height, width), np.uint8)
    found[height // 4 : height // 2, width // 4 :] = 255
    return found


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """Three horses: the second is black and has a grey version; the mask of the third has a different size."""
    sizes = {"horse001.jpg": (20, 30), "horse002.jpg": (20, 30), "horse003.jpg": (40, 60)}
    found = {}
    for name, (height, width) in sizes.items():
        found[f"rgb/{name}"] = save(tmp_path / "rgb" / name, noise(height, width, 3))
        found[f"figure_ground/{name}"] = save(tmp_path / "figure_ground" / name, mask(20, 30))
    save(found["rgb/horse002.jpg"], DRAW.integers(0, 3, (20, 30, 3), dtype=np.uint8))
    found["gray/horse002.jpg"] = save(tmp_path / "gray" / "horse002.jpg", noise(20, 30))
    return found


def test_reading(files: dict[str, Path]) -> None:
    found = horses.read(files, 16)
    assert found.names == ("horse001", "horse002", "horse003")
    assert found.replaced == ("horse002",)
    assert (found.images.shape, found.images.dtype) == ((3, 3, 16, 16), torch.uint8)
    assert (found.masks.shape, found.masks.dtype) == ((3, 16, 16), torch.uint8)
    assert torch.equal(found.images[1, 0], found.images[1, 2])  # it is grey
    assert not torch.equal(found.images[0, 0], found.images[0, 2])
    assert found.masks[2].float().mean() == pytest.approx(3 / 16, abs=0.03)


def test_masks_are_also_kept_at_their_original_size(files: dict[str, Path]) -> None:
    """The number of pixels need not be a multiple of eight."""
    truths = {"horse001.jpg": noise(21, 31) > 127, "horse002.jpg": noise(19, 29) > 90, "horse003.jpg": mask(40, 60) > 0}
    for name, truth in truths.items():
        save(files[f"figure_ground/{name}"], truth.astype(np.uint8) * 255)
    found = horses.read(files, 16)
    assert found.sizes.tolist() == [[21, 31], [19, 29], [40, 60]]
    for i, truth in enumerate(truths.values()):
        assert np.array_equal(found.truth(i).numpy(), truth)


def test_masks_are_thresholded_at_half(files: dict[str, Path]) -> None:
    save(files["figure_ground/horse001.jpg"], np.where(mask(20, 30) > 0, 128, 127).astype(np.uint8))
    assert np.array_equal(horses.read(files, 16).truth(0).numpy(), mask(20, 30) > 0)


@pytest.mark.parametrize(
    ("key", "pixels", "reason"),
    [
        ("rgb/horse001.jpg", np.full((20, 30, 3), 7, np.uint8), "rgb/horse001.jpg is of one colour and has no grey"),
        ("gray/horse002.jpg", np.full((20, 30), 7, np.uint8), "gray/horse002.jpg is of one colour, and so is"),
        ("figure_ground/horse003.jpg", np.zeros((20, 30), np.uint8), "horse003.jpg is empty: it has no foreground"),
        (
            "figure_ground/horse003.jpg",
            mask(30, 20),
            "is 20 x 30, but its picture is 60 x 40: the aspect ratios",
        ),
        ("rgb/horse001.jpg", None, "rgb/horse001.jpg cannot be decoded: not a picture in a known format"),
        ("figure_ground/horse001.jpg", None, "figure_ground/horse001.jpg cannot be decoded"),
    ],
)
def test_a_bad_picture_is_named(files: dict[str, Path], key: str, pixels, reason: str) -> None:
    if pixels is None:
        files[key].write_bytes(b"nothing")
    else:
        save(files[key], pixels)
    with pytest.raises(BadPictureError, match=reason):
        horses.read(files, 16)


def test_the_error_lists_all_bad_pictures(files: dict[str, Path]) -> None:
    files["rgb/horse001.jpg"].write_bytes(b"nothing")
    save(files["figure_ground/horse003.jpg"], np.zeros((20, 30), np.uint8))
    with pytest.raises(BadPictureError, match=r"horse001.jpg cannot be decoded.*\(and 1 more\)") as caught:
        horses.read(files, 16)
    assert "horse003.jpg is empty" in caught.value.faults[1]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with 328 synthetic horses, and a separate user cache folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    picture, grey = tmp_path / "picture", tmp_path / "mask"
    save(picture, noise(8, 12, 3))
    save(grey, mask(8, 12))
    for file in HORSES.files:
        if not file.optional:
            path = tmp_path / "data" / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes((grey if "figure_ground" in file.path else picture).read_bytes())
    return tmp_path / "data"


def same(a: horses.Horses, b: horses.Horses) -> bool:
    tensors = all(torch.equal(getattr(a, name), getattr(b, name)) for name in ("images", "masks", "bits", "sizes"))
    return tensors and (a.names, a.replaced) == (b.names, b.replaced)


def test_the_cache_file_is_enough(folder: Path, tmp_path: Path) -> None:
    decoded = horses.load(16, folder)
    cache = horses.cache_file(16, folder)
    assert cache == folder / "horses" / "horses-16-v1.npz"
    assert [path.name for path in cache.parent.iterdir() if path.is_file()] == [cache.name]
    alone = horses.cache_file(16, tmp_path / "alone")
    alone.parent.mkdir(parents=True)
    alone.write_bytes(cache.read_bytes())
    assert same(horses.load(16, folder), decoded)
    assert same(horses.load(16, tmp_path / "alone"), decoded)
    assert horses.load(8, folder).images.shape[-1] == 8  # each size has its own cache file
    with pytest.raises(MissingFileError, match=r"rgb/horse001.jpg is missing \(and 656 more\)"):
        horses.load(32, tmp_path / "alone")


def test_a_missing_mask_is_named(folder: Path) -> None:
    (folder / "horses" / "figure_ground" / "horse007.jpg").unlink()
    with pytest.raises(MissingFileError, match=r"figure_ground/horse007.jpg is missing: get it with"):
        horses.load(16, folder)


def test_a_read_only_folder_is_not_written(folder: Path, tmp_path: Path) -> None:
    """Not even by root."""
    (folder / "horses").chmod(0o555)
    before = set((folder / "horses").rglob("*"))
    decoded = horses.load(16, folder)
    assert set((folder / "horses").rglob("*")) == before
    assert (tmp_path / "cache" / "equipoise" / "horses-16-v1.npz").is_file()
    assert same(horses.load(16, folder), decoded)
    (folder / "horses").chmod(0o755)


def test_a_cache_that_cannot_be_written_gives_a_warning(folder: Path, tmp_path: Path) -> None:
    (folder / "horses").chmod(0o555)
    (tmp_path / "cache").write_text("a file where a folder is needed")
    with pytest.warns(UserWarning, match="the decoded horses could not be cached"):
        horses.load(16, folder)
    (folder / "horses").chmod(0o755)


def test_changed_pictures_are_decoded_again(folder: Path) -> None:
    before = horses.load(16, folder)
    save(folder / "horses" / "rgb" / "horse005.jpg", noise(16, 24, 3))
    after = horses.load(16, folder)
    changed = (before.images != after.images).flatten(1).any(1)
    assert changed.nonzero().flatten().tolist() == [4]


@pytest.mark.parametrize("damage", [lambda data: data[:1000], lambda data: b"", lambda data: b"PK" + data[2:500]])
def test_a_damaged_cache_is_rebuilt_or_named(folder: Path, tmp_path: Path, damage) -> None:
    decoded = horses.load(16, folder)
    cache = horses.cache_file(16, folder)
    cache.write_bytes(damage(cache.read_bytes()))
    alone = horses.cache_file(16, tmp_path / "alone")
    alone.parent.mkdir(parents=True)
    alone.write_bytes(cache.read_bytes())
    assert same(horses.load(16, folder), decoded)
    with pytest.raises(DataError, match=r"alone/horses/horses-16-v1.npz is damaged .* delete it to decode"):
        horses.load(16, tmp_path / "alone")


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    path = horses.cache_file(16, tmp_path)
    path.parent.mkdir()
    np.savez(path, names=np.array([os.getcwd], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match="is damaged"):
        horses.load(16, tmp_path)


def test_the_published_horses(real_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Foreground is 25.2 % on average, from 5.2 % (horse011) to 43.1 % (horse317); horse318 is black in colour."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = horses.load(64, real_folder)
    assert len(found.names) == len(found.images) == len(found.masks) == len(found.sizes) == 328
    assert found.names[0] == "horse001"
    assert found.names[-1] == "horse328"
    assert found.replaced == ("horse318",)
    shares = torch.stack([found.truth(i).double().mean() for i in range(328)])
    assert float(shares.mean()) == pytest.approx(0.252, abs=5e-4)
    assert (int(shares.argmin()), int(shares.argmax())) == (10, 316)
    assert float(shares.min()) == pytest.approx(0.052, abs=5e-4)
    assert float(shares.max()) == pytest.approx(0.431, abs=5e-4)
    assert float(found.masks.double().mean()) == pytest.approx(float(shares.mean()), abs=5e-4)
    assert float(found.images[317].float().std()) > 20  # not black
    assert torch.equal(found.images[316, 0], found.images[316, 1])  # horse317 has no colour
