"""Masks of pictures of any size: the margins of the model, interpolated to the size of the picture."""

from pathlib import Path

import numpy as np
import pytest
import torch
from lab.tasks.horses import synthetic
from lab.tasks.horses.synthetic import SIZE

from equipoise_lab.data.pictures import BadPictureError
from equipoise_lab.tasks.horses import iou
from equipoise_lab.tasks.horses.segmenting import AT_ONCE, Segmented, at_size, margins, segment, truth_iou
from equipoise_lab.training import Model

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")


@pytest.fixture(params=["unary", "offline"])
def model(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Model:
    monkeypatch.setenv("EQUIPOISE_DATA", str(synthetic.write(tmp_path / "data")))
    return synthetic.model(request.param, seed=5)


def test_margins_are_above_0_where_the_label_is_foreground(model: Model) -> None:
    numbers = torch.arange(20)
    batch = model.task.batch(numbers[None], 0)
    assert torch.equal(margins(model, batch) > 0, model.predict(numbers) > 0)
    assert 0.1 < float((margins(model, batch) > 0).float().mean()) < 0.9


def test_at_the_size_of_the_net_the_mask_is_unchanged(model: Model) -> None:
    margin = margins(model, model.task.batch(torch.tensor([[0]]), 0))[0]
    assert torch.equal(at_size(margin, SIZE, SIZE), margin > 0)
    assert at_size(margin, 5, 40).shape == (5, 40)


def test_a_straight_edge_is_not_moved_by_interpolation() -> None:
    margin = torch.tensor([-1.0, -1.0, 1.0, 1.0]).expand(4, 4)
    mask = at_size(margin, 20, 40)
    assert not bool(mask[:, :20].any())
    assert bool(mask[:, 20:].all())


def test_pictures_of_the_size_of_the_net_get_the_predicted_masks(model: Model, tmp_path: Path) -> None:
    """More pictures than in one batch. A broken one and one with a single colour give errors."""
    task, paths = model.task, []
    for i in range(AT_ONCE + 3):
        paths.append(tmp_path / f"{i}.png")
        Image.fromarray(task.images[i].numpy()).save(paths[-1])
    paths[4].write_bytes(b"nothing")
    Image.fromarray(np.full((9, 9, 3), 80, np.uint8)).save(paths[6])
    found = list(segment(model, paths))
    assert len(found) == len(paths)
    want = model.predict(torch.arange(len(paths))) > 0
    for i, one in enumerate(found):
        if i in (4, 6):
            assert isinstance(one, BadPictureError)
            assert str(paths[i]) in str(one)
        else:
            assert isinstance(one, Segmented)
            assert np.array_equal(one.mask, want[i].numpy())
    assert "cannot be decoded" in str(found[4])
    assert "has only one colour" in str(found[6])
    assert list(segment(model, [])) == []


def test_a_mask_has_the_size_of_its_picture(model: Model, tmp_path: Path) -> None:
    path = tmp_path / "x.png"
    Image.fromarray(model.task.images[3].numpy()).resize((70, 33)).save(path)
    (found,) = segment(model, [path])
    assert isinstance(found, Segmented)
    assert found.mask.shape == found.picture.shape[:2] == (33, 70)


def test_iou_at_the_size_of_the_masks(model: Model) -> None:
    """The masks of the synthetic data are three times as high and twice as wide as the input of the net."""
    numbers = torch.tensor([7, 3, 200, 327])
    found = truth_iou(model, numbers)
    margin = margins(model, model.task.batch(numbers[None], 0))
    for place, i in enumerate(numbers.tolist()):
        truth = model.task.masks[i].repeat_interleave(3, 0).repeat_interleave(2, 1) > 0
        assert torch.equal(model.task.data.truth(i), truth)
        torch.testing.assert_close(found[place], iou(at_size(margin[place], 48, 32), truth))
    assert float((found - iou(margin > 0, model.task.masks[numbers] > 0)).abs().max()) < 0.2
    with pytest.raises(ValueError, match="examples must be below 328"):
        truth_iou(model, torch.tensor([400]))


def test_prediction_needs_no_data_folder(model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.png"
    Image.fromarray(model.task.images[3].numpy()).save(path)
    model.save(tmp_path / "model")
    monkeypatch.setenv("EQUIPOISE_DATA", str(tmp_path / "nowhere"))
    (found,) = segment(Model.load(tmp_path / "model"), [path])
    assert isinstance(found, Segmented)
    assert np.array_equal(found.mask, (model.predict([3])[0] > 0).numpy())
