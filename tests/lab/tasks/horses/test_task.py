"""Horses: splits, batches with fillers, the metric on known cases, and names of nets."""

from pathlib import Path

import pytest
import torch
from lab.tasks.horses.synthetic import COUNT, SIZE, write

from equipoise_lab import tasks
from equipoise_lab.data import MissingFileError
from equipoise_lab.tasks import Parameters
from equipoise_lab.tasks.horses.task import Horses, Net, iou, parse

SMALL = "w2-16-d2"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("data"))


@pytest.fixture
def task(folder: Path) -> Horses:
    return Horses(SMALL, data_dir=folder)


def stacked(task: Horses, replicas: int) -> Parameters:
    each = [task.init(torch.Generator().manual_seed(seed)) for seed in range(replicas)]
    return {name: torch.stack([one[name] for one in each]) for name in each[0]}


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_splits(task: Horses, seed: int) -> None:
    """50 fixed pictures are for validation; each of the other 278 is in one of five test folds of 55 or 56."""
    splits = [task.split(fold, seed) for fold in range(5)]
    valid = splits[0].valid
    assert len(valid) == 50
    assert torch.equal(valid, task.split(2, seed + 1).valid)
    assert sorted(len(split.test) for split in splits) == [55, 55, 56, 56, 56]
    rest = torch.cat([split.test for split in splits])
    assert torch.equal(torch.cat([rest, valid]).sort().values, torch.arange(COUNT))
    for split in splits:
        assert torch.equal(split.valid, valid)
        train = split.train[split.train < COUNT]
        assert torch.equal(torch.cat([train, split.valid, split.test]).sort().values, torch.arange(COUNT))
        assert torch.equal(split.train, torch.cat([train, COUNT + train]))  # pictures and their mirror images
    assert not torch.equal(task.split(0, seed).test, task.split(0, seed + 1).test)


def test_training_without_mirror_images() -> None:
    with_them, without = Horses("w8-64").split(1, 3), Horses("w8-64+unmirrored").split(1, 3)
    assert torch.equal(without.train, with_them.train[with_them.train < COUNT])
    assert torch.equal(without.test, with_them.test)


def test_fewer_replicas_of_larger_nets_fit() -> None:
    assert Horses("w8-64").replicas_at_once == 8 * Horses("w16-128").replicas_at_once >= 512


@pytest.mark.parametrize("fold", [-1, 5])
def test_an_unknown_fold_is_refused(task: Horses, fold: int) -> None:
    with pytest.raises(ValueError, match=f"horses has test folds 0 to 4, got {fold}"):
        task.split(fold, 0)


def test_mirror_images(task: Horses) -> None:
    batch = task.batch(torch.tensor([[3, COUNT + 3]]), 0)
    assert batch.inputs.shape == (1, 2, SIZE, SIZE, 3)
    assert torch.equal(batch.inputs[0, 1], batch.inputs[0, 0].flip(1))
    assert torch.equal(batch.labels[0, 1], batch.labels[0, 0].flip(1))
    assert torch.equal(batch.inputs[0, 0].permute(2, 0, 1), task.data.images[3])
    assert torch.equal(batch.labels[0, 0], task.data.masks[3].long())


def test_a_batch_is_filled_with_its_own_examples(task: Horses) -> None:
    """The fillers have weight 0. A batch without examples is filled with example 0."""
    examples = torch.tensor([[4, 9, 5, -1, -1, -1, -1], [-1, 8, -1, 6, -1, -1, -1], [-1] * 7, [1, 2, 3, 4, 5, 6, 7]])
    batch = task.batch(examples, 0)
    assert torch.equal(batch.weights, (examples >= 0).float())
    # the filler at position i repeats example i modulo the number of examples
    first, second = [4, 9, 5, 4, 9, 5, 4], [8, 8, 8, 6, 8, 6, 8]
    want = torch.tensor([first, second, [0] * 7, [1, 2, 3, 4, 5, 6, 7]])
    assert torch.equal(batch.inputs, task.images[want])
    assert torch.equal(batch.labels, task.masks[want].long())


def test_scores_of_an_example_do_not_depend_on_the_batch(task: Horses) -> None:
    parameters = stacked(task, 2)
    together = task.batch(torch.tensor([[0, 17, 5], [17, 3, -1]]), 0)
    alone = task.batch(torch.tensor([[17], [3]]), 0)
    torch.testing.assert_close(task.unary(parameters, together)[0, 1], task.unary(parameters, alone)[0, 0])
    torch.testing.assert_close(task.unary(parameters, together)[1, 1], task.unary(parameters, alone)[1, 0])
    got, want = task.pairwise(parameters, together), task.pairwise(parameters, alone)
    torch.testing.assert_close(got.embeddings[0, 1], want.embeddings[0, 0])
    assert got.embeddings.shape == (2, 3, SIZE**2, 2)
    assert got.share.tolist() == [[0.5], [0.5]]


def test_iou_on_known_cases() -> None:
    left, right = torch.zeros(2, 4, 4, dtype=torch.bool)
    left[:, :2] = True  # 8 pixels
    right[:, 1:] = True  # 12, of which 4 are also on the left
    none = torch.zeros_like(left)
    pairs = [(left, left), (left, right), (left, ~left), (left, none), (none, left), (none, none), (~none, left)]
    want = [1, 4 / 16, 0, 0, 0, 1, 0.5]
    predicted, true = (torch.stack(each) for each in zip(*pairs, strict=True))
    torch.testing.assert_close(iou(predicted, true), torch.tensor(want))
    torch.testing.assert_close(iou(true, predicted), torch.tensor(want))


def test_the_metric_is_averaged_over_pictures(task: Horses) -> None:
    """Small and large horses count the same."""
    batch = task.batch(torch.tensor([[0, 1, 2]]), 0)
    predictions = batch.labels.clone()
    mask = predictions[0, 0]
    on = mask.nonzero()
    half = on[: len(on) // 2]
    mask.zero_()
    mask[half[:, 0], half[:, 1]] = 1
    scores = task.scores(predictions, batch)
    torch.testing.assert_close(scores[0, :, 0], torch.tensor([len(half) / len(on), 1, 1]))
    torch.testing.assert_close(task.measure(scores[:, :2].sum(1)), torch.tensor([(len(half) / len(on) + 1) / 2]))


def test_names_of_nets() -> None:
    assert parse("default") == parse("w8-64+unmirrored") == Net(8, 64, 4, mirrored=False)
    assert parse("default+raw+ridge4096") == Net(8, 64, 4, "raw", ridge=4096.0, mirrored=False)
    assert parse("w16-128-d3+normalized+share0.9") == Net(16, 128, 3, "normalized", 0.9)
    assert parse("w16-128+learned") == Net(16, 128, 4, learned=True)
    assert parse("w4-32+checked+ridge1e-3").ridge == 1e-3
    assert parse("default+norelu") == Net(8, 64, 4, mirrored=False, end="norm")
    assert parse("default+linear+raw").end == "linear"
    assert parse("w8-64+unmirrored+raw") == Net(8, 64, 4, "raw", mirrored=False)


@pytest.mark.parametrize(
    "name", ["resnet", "w8", "w8-64-d0", "w8-64+hoped", "w8-64+raw+checked", "w8-64+norelu+linear", "w8-64+share",
             "w8-64+share0.5+share0.6", "defaultw", "w0-64", "w8-64+"]
)  # fmt: skip
def test_unknown_nets_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"horses has the nets default, wN-S and wN-S-dK"):
        Horses(name)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("w8-60", "a side of 60 pixels cannot be halved 4 times, got 'w8-60'"),
        ("w8-64+share1", "share must be above 0 and below 1"),
        ("w8-64+ridge0", "and ridge positive"),
    ],
)
def test_impossible_nets_are_refused(name: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Horses(name)


def test_the_option_learned_adds_a_parameter_for_the_share(folder: Path) -> None:
    task = Horses(f"{SMALL}+share0.9+learned", data_dir=folder)
    parameters = stacked(task, 2)
    parameters["pairwise.share"][1] = -100.0
    pairwise = task.pairwise(parameters, task.batch(torch.tensor([[0], [1]]), 0))
    torch.testing.assert_close(pairwise.share, torch.tensor([[0.9], [0.0]]))
    assert "pairwise.share" not in Horses(SMALL).init(torch.Generator())


@pytest.mark.parametrize("form", ["+norelu", "+linear"])
def test_embeddings_without_the_last_relu_have_both_signs(form: str, folder: Path) -> None:
    """The net for the scores is the same."""
    forms = [Horses(f"{SMALL}{option}", data_dir=folder) for option in ("", form)]
    batch = forms[0].batch(torch.tensor([[0, 1]]), 0)
    relu, signed = (one.pairwise(stacked(one, 1), batch).embeddings for one in forms)
    assert float(relu.min()) == 0
    assert float(signed.min()) < 0 < float(signed.max())
    torch.testing.assert_close(*(one.unary(stacked(one, 1), batch) for one in forms))


def test_the_task_reads_its_data_on_first_use(tmp_path: Path) -> None:
    """So prediction needs no data folder."""
    task = tasks.load("horses")
    assert task.metric == "IoU"
    with pytest.raises(MissingFileError, match=r"horse001.jpg is missing"):
        Horses(SMALL, data_dir=tmp_path).batch(torch.tensor([[0]]), 0)


def test_the_seed_determines_the_initial_parameters(task: Horses) -> None:
    one, same, other = (task.init(torch.Generator().manual_seed(seed)) for seed in (0, 0, 1))
    assert all(torch.equal(x, same[name]) for name, x in one.items())
    assert not torch.equal(one["pairwise.down0.0.weight"], other["pairwise.down0.0.weight"])
    assert not torch.equal(one["pairwise.down0.0.weight"], one["unary.down0.0.weight"])
    parts = {name.split(".")[0] for name in one}
    assert parts == {"unary", "pairwise", "statistics"}
    assert "unary.scores.weight" in one
    assert "pairwise.scores.weight" not in one
