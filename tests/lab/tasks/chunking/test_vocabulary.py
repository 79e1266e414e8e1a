"""The vocabulary in a model file: the same task without the corpus, and no vectors whose licence forbids copies."""

from pathlib import Path

import pytest
import torch
from lab.tasks.chunking.synthetic import KNOWN, write

from equipoise_lab.data import MissingFileError
from equipoise_lab.tasks.chunking import Chunking
from equipoise_lab.tasks.chunking.vocabulary import Vocabulary


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Chunking:
    return Chunking(data_dir=write(tmp_path_factory.mktemp("data")))


@pytest.fixture
def restored(task: Chunking, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Chunking:
    """The same task where the data folder is empty."""
    monkeypatch.setenv("EQUIPOISE_DATA", str(tmp_path))
    return Chunking.restored("default", "cpu", *task.saved())


def test_a_restored_task_is_the_same_without_data(task: Chunking, restored: Chunking) -> None:
    assert (restored.tags, restored.speech) == (task.tags, task.speech)
    assert restored.net.shapes == task.net.shapes
    encoded = restored.encode(task.corpus.both)
    assert torch.equal(encoded.vectors, task.sentences.vectors)
    assert torch.equal(encoded.has_vector, task.sentences.has_vector)
    assert torch.equal(encoded.speech, task.sentences.speech)
    with pytest.raises(MissingFileError, match="conll2000"):
        restored.split(0, 0)


def test_only_vectors_of_words_in_the_corpus_are_saved(task: Chunking) -> None:
    fields, tensors = task.saved()
    assert set(fields["words"]) == set(KNOWN) - {"fine"}
    assert tensors["vectors"].shape == (len(KNOWN) - 1, 50)


def test_vectors_of_senna_are_not_saved(task: Chunking) -> None:
    fields, tensors = task.vocabulary.saved("senna")
    assert tensors == {}
    assert fields.keys() == {"tags", "speech"}
    again = Vocabulary.restored("senna", fields, tensors)
    assert again.vectors.look_up(["the"])[1].tolist() == [False]
    assert again.vectors.form("1990") == "0"


def test_a_corpus_with_other_tags_is_refused(task: Chunking) -> None:
    fields, tensors = task.saved()
    few = Vocabulary.restored("glove", fields | {"tags": ["B-NP", "I-NP", "O"]}, tensors)
    with pytest.raises(ValueError, match="tags that the model does not have: B-LST, B-VP, I-LST, I-VP"):
        Chunking(data_dir=task.data_dir, vocabulary=few).sentences  # noqa: B018
