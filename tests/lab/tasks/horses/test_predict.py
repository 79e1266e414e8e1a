"""Masks and overlays of a folder of pictures, and the page that compares models."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from lab.tasks.horses.synthetic import NET, model, write

from equipoise_lab.data.pictures import decode
from equipoise_lab.report import gallery
from equipoise_lab.tasks.horses import Horses
from equipoise_lab.tasks.horses.predict import predict
from equipoise_lab.tasks.horses.segmenting import truth_iou
from equipoise_lab.tasks.predicting import Request
from equipoise_lab.training import Model

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")


@pytest.fixture(autouse=True)
def _synthetic_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EQUIPOISE_DATA", str(write(tmp_path / "data")))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Three pictures of different size, and a file that is not a picture."""
    folder, task = tmp_path / "pictures", Horses(NET)
    folder.mkdir()
    for i, (name, size) in enumerate({"a.png": (30, 20), "b.JPG": (64, 48), "b.png": (16, 16)}.items()):
        Image.fromarray(task.images[i].numpy()).resize(size).save(folder / name)
    (folder / "notes.txt").write_text("no picture")
    return folder


def request(source: Path | None = None, out: Path | None = None, fold: int | None = None) -> Request:
    """A request whose messages are not printed."""
    messages: list[str] = []
    return Request(source, out, fold=fold, say=messages.append, warn=messages.append)


def test_masks_and_overlays_of_a_folder(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "deep" / "out"
    predict(model("offline", 5), Request(source, out))
    names = {f"{name}.{what}.png" for name in ("a", "b.JPG", "b.png") for what in ("mask", "overlay")}
    assert {path.name for path in out.iterdir()} == names
    for name, (height, width) in {"a": (20, 30), "b.JPG": (48, 64), "b.png": (16, 16)}.items():
        mask, shown = decode(out / f"{name}.mask.png", "L"), decode(out / f"{name}.overlay.png")
        assert mask.shape == (height, width)
        assert set(np.unique(mask)) <= {0, 255}
        assert shown.shape == (height, width, 3)
        original = decode(source / (name if "." in name else f"{name}.png"))
        assert np.array_equal(shown[mask == 0], original[mask == 0])  # only the foreground is tinted
    assert np.array_equal(decode(out / "b.png.mask.png", "L") > 0, (model("offline", 5).predict([2])[0] > 0).numpy())
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_a_bad_picture_is_reported_and_the_others_are_processed(source: Path, tmp_path: Path) -> None:
    (source / "broken.jpg").write_bytes(b"nothing")
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(source / "night.png")
    warned: list[str] = []
    asked = Request(source, tmp_path / "out", warn=warned.append)
    found = predict(model("unary", 5), asked)
    assert [Path(one["picture"]).name for one in found["pictures"]] == ["a.png", "b.JPG", "b.png"]
    assert all(Path(one["mask"]).is_file() and 0 <= one["foreground"] <= 1 for one in found["pictures"])
    assert found["failed"] == asked.failed
    assert "broken.jpg cannot be decoded" in asked.failed[0]
    assert "night.png" in asked.failed[1]
    assert warned == [*asked.failed, "2 of 5 pictures could not be used"]


def test_the_command_exits_with_1_if_a_picture_failed(
    command: Callable[..., int], source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (source / "broken.jpg").write_bytes(b"nothing")
    path = tmp_path / "model.safetensors"
    model("unary", 5).save(path)
    assert command("predict", path, source, "--out", tmp_path / "out", "--json") == 1
    printed = capsys.readouterr()
    assert len(json.loads(printed.out)["pictures"]) == 3
    assert "broken.jpg cannot be decoded" in printed.err
    (source / "broken.jpg").unlink()
    assert command("predict", path, source, "--out", tmp_path / "out") == 0


def test_mask_and_overlay_of_one_picture(source: Path, tmp_path: Path) -> None:
    predict(model("unary", 5), request(source / "a.png", tmp_path / "out"))
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"a.mask.png", "a.overlay.png"}


def test_invalid_requests_are_refused(source: Path, tmp_path: Path) -> None:
    one = model("unary", 5)
    with pytest.raises(ValueError, match=r"the masks cannot go to .* name another folder with --out"):
        predict(one, request(source, source))
    with pytest.raises(ValueError, match="name a folder for the masks with --out"):
        predict(one, request(source))
    with pytest.raises(ValueError, match="segments pictures takes no --fold"):
        predict(one, request(source, tmp_path / "out", fold=1))
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"empty has no pictures: none of its files ends in .jpg"):
        predict(one, request(tmp_path / "empty", tmp_path / "out"))
    missing = request(tmp_path / "missing.jpg", tmp_path / "out")
    assert predict(one, missing)["pictures"] == []
    assert len(missing.failed) == 1


def test_the_metric_of_a_model_at_both_resolutions(capsys: pytest.CaptureFixture[str]) -> None:
    """On its own test fold, and on another."""
    one = model("offline", 5, fold=3)
    for fold, where in ((None, 3), (1, 1)):
        test = one.task.split(where, 0).test
        want = {"iou": one.evaluate(test), "iou_at_mask_size": float(truth_iou(one, test).mean())}
        assert predict(one, request(fold=fold)) == want | {"fold": where, "pictures": len(test)}
    predict(one, Request())
    assert "pictures of test fold 3: " in capsys.readouterr().out


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    models = {"unary": model("unary", 1), "joint": model("joint", 2), "balanced": model("offline", 3)}
    for scheme, one in models.items():
        one.save(tmp_path / scheme)
    return {scheme: tmp_path / scheme for scheme in models}


def test_the_page_shows_the_best_the_median_and_the_worst(files: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    gallery.gallery(files, out, count=2)
    text = out.read_text()
    assert "http" not in text  # the page is self-contained
    test = Horses(NET).split(0, 0).test
    joint, balanced = (truth_iou(Model.load(files[scheme]), test) for scheme in ("joint", "balanced"))
    gains = sorted(zip((balanced - joint).tolist(), test.tolist(), strict=True), key=lambda x: (-x[0], x[1]))
    parts = re.split(r"<h2>(\w+)</h2>", text)
    shown = {name: re.findall(r'alt="(horse\d+)"', body) for name, body in zip(parts[1::2], parts[2::2], strict=True)}
    named = [f"horse{i + 1:03}" for _, i in gains]
    assert shown == {"Best": named[:2], "Median": named[27:29], "Worst": named[-2:]}
    for scheme, scores in (("joint", joint), ("balanced", balanced)):
        assert f"{scheme}: {100 * float(scores.mean()):.1f}" in text
    assert f"on {sum(gain > 0 for gain, _ in gains)} and" in text
    assert len(re.findall(r'src="data:image/jpeg;base64,', text)) == 6 * 6


def test_a_page_needs_three_models_with_the_same_seed_and_fold(files: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the page needs the models unary, joint, balanced, got joint"):
        gallery.gallery({"joint": files["joint"]}, tmp_path / "page.html")
    model("joint", 2, fold=1).save(files["joint"])
    with pytest.raises(ValueError, match="the models must have the same seed and fold"):
        gallery.gallery(files, tmp_path / "page.html")
