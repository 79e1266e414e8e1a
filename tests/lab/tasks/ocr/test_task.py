"""The OCR task: the published folds, words packed letter by letter, and the metric of §6.1."""

import pytest
import torch
from torch import Tensor

from equipoise_lab import tasks
from equipoise_lab.data import ocr
from equipoise_lab.nets.lenet import LeNet, windows
from equipoise_lab.tasks.ocr import OCR

FOLD_SIZES = [626, 704, 684, 698, 693, 651, 739, 717, 690, 675]


@pytest.fixture(scope="module")
def task() -> OCR:
    return OCR()


def stacked(task: OCR, e: int) -> dict[str, Tensor]:
    each = [task.init(torch.Generator().manual_seed(seed)) for seed in range(e)]
    return {name: torch.stack([one[name] for one in each]) for name in each[0]}


def test_numbers_of_words_letters_and_folds(task: OCR) -> None:
    assert len(task.lengths) == 6877
    assert int(task.lengths.sum()) == len(task.windows) == 52152
    assert task.fold_of.bincount().tolist() == FOLD_SIZES


@pytest.mark.parametrize("fold", range(9))
def test_splits(task: OCR, fold: int) -> None:
    """They are disjoint and cover all words. Fold 9 is used for validation only."""
    train, valid, test = task.split(fold, seed=0)
    assert len(test) == FOLD_SIZES[fold]
    assert len(valid) == FOLD_SIZES[9]
    assert torch.equal(torch.cat([train, valid, test]).sort().values, torch.arange(6877))
    assert set(task.fold_of[valid].tolist()) == {9}
    assert set(task.fold_of[test].tolist()) == {fold}
    assert set(task.fold_of[train].tolist()) == set(range(9)) - {fold}
    assert torch.equal(task.split(fold, seed=5).train, train)


@pytest.mark.parametrize("fold", [-1, 9])
def test_an_unknown_fold_is_refused(task: OCR, fold: int) -> None:
    with pytest.raises(ValueError, match=f"ocr has test folds 0 to 8, got {fold}"):
        task.split(fold, 0)


def test_unknown_nets_and_tasks_are_refused() -> None:
    with pytest.raises(ValueError, match="ocr has the nets default, sigmoid, layernorm, got 'resnet'"):
        OCR("resnet")
    with pytest.raises(ValueError, match=r"there is no task 'ocrr'; did you mean ocr\?"):
        tasks.load("ocrr")
    with pytest.raises(ValueError, match=r"there is no task 'speech'; the tasks are ocr, "):
        tasks.load("speech")


EXAMPLES = torch.tensor([[0, 17, 6876, 404], [17, -1, 5, -1]])


@pytest.mark.parametrize("surplus", [0, 1, 16])
def test_a_packed_batch_equals_running_the_net_word_by_word(task: OCR, surplus: int) -> None:
    parameters = stacked(task, 2)
    batch = task.batch(EXAMPLES, task.room(EXAMPLES) + surplus)
    unary = task.unary(parameters, batch)
    assert unary.shape == (2, 4, 14, 26)
    letters, net = ocr.load(), LeNet()
    for e, i in (EXAMPLES >= 0).nonzero().tolist():
        word = int(EXAMPLES[e, i])
        n, start = int(letters.lengths[word]), int(letters.starts[word])
        pixels = letters.pixels[start : start + n].float()
        one = {name.removeprefix("unary."): x[e : e + 1] for name, x in parameters.items() if "unary" in name}
        want = net(one, windows(pixels)[None])[0]
        torch.testing.assert_close(unary[e, i, :n], want)
        assert int(batch.lengths[e, i]) == n
        assert torch.equal(batch.labels[e, i, :n], letters.labels[start : start + n])


def test_the_pairwise_part_is_one_matrix_per_replica(task: OCR) -> None:
    parameters = stacked(task, 2)
    pairwise = task.pairwise(parameters, task.batch(EXAMPLES, 64))
    assert pairwise.shape == (2, 1, 26, 26)
    assert torch.equal(pairwise[:, 0], parameters["pairwise.matrix"])
    assert 0.09 < float(pairwise.std()) < 0.11


def test_fillers_have_weight_0_and_do_not_change_other_scores(task: OCR) -> None:
    parameters = stacked(task, 2)
    full = task.batch(EXAMPLES, task.room(EXAMPLES))
    assert full.weights.tolist() == [[1, 1, 1, 1], [1, 0, 1, 0]]
    only = EXAMPLES[1:, [0, 2]]
    small = task.batch(only, task.room(only))
    want = task.unary({name: x[1:] for name, x in parameters.items()}, small)
    got = task.unary(parameters, full)[1:, [0, 2]]
    for i in range(2):
        n = int(small.lengths[0, i])
        torch.testing.assert_close(got[0, i, :n], want[0, i, :n])
    scores = task.unary(parameters, full), task.pairwise(parameters, full)
    losses = task.energy.losses("marginal", *scores, full.labels, full.lengths)
    assert bool(losses.isfinite().all())


def test_room_is_the_number_of_letters_rounded_up(task: OCR) -> None:
    """Of the replica with the most letters; a filler counts as one letter."""
    lengths = ocr.load().lengths
    full = int(lengths[EXAMPLES[0]].sum())
    part = int(lengths[17] + lengths[5]) + 2
    assert task.room(EXAMPLES) == -(-max(full, part) // 16) * 16
    assert task.room(EXAMPLES[1:]) == -(-part // 16) * 16
    assert task.room(torch.full((1, 5), -1)) == 16
    assert task.room(torch.tensor([[17], [5]])) == int(lengths.max()) == 14  # room for any word


def test_accuracy_is_the_share_of_right_letters_averaged_over_words(task: OCR) -> None:
    """A word of three letters with one wrong and a word of nine with none: (2/3 + 1) / 2, and not 11/12."""
    lengths = ocr.load().lengths
    short, long = int((lengths == 3).nonzero()[0, 0]), int((lengths == 9).nonzero()[0, 0])
    batch = task.batch(torch.tensor([[short, long]]), 32)
    predictions = batch.labels.clone()
    predictions[0, 0, 1] = (predictions[0, 0, 1] + 1) % 26
    predictions[0, 0, 3:] = predictions[0, 1, 9:] = 25  # positions beyond the word do not count
    torch.testing.assert_close(task.scores(predictions, batch), torch.tensor([[[2 / 3, 1.0], [1.0, 1.0]]]))
    predictions[0, 0, 3:] = batch.labels[0, 0, 3:]
    torch.testing.assert_close(task.scores(predictions, batch), torch.tensor([[[2 / 3, 1.0], [1.0, 1.0]]]))
    torch.testing.assert_close(task.measure(task.scores(predictions, batch).sum(1)), torch.tensor([5 / 6]))


def test_names_of_nets(task: OCR) -> None:
    assert task.net.variant == "relu"
    assert tasks.load("ocr", "sigmoid").net.variant == "sigmoid"
