"""Training files with tags that leave open which label is right."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tagger.small import sentences, write

from equipoise.tagger import load
from equipoise.tagger.columns import Sentence
from equipoise.tagger.estimator import Tagger
from equipoise.tagger.features import Vocabulary
from equipoise.tagger.model import TaggingModel
from equipoise.tagger.net import BiLSTM
from equipoise.tagger.tagset import infer

TAGS = "B-LOC", "B-PER", "I-LOC", "I-PER"


def unsure(share: float, seed: int = 0) -> list[Sentence]:
    """Tags that are unknown, in the two ways to write it, or a set with the right label and another."""
    draw = random.Random(seed)

    def tag(right: str) -> str:
        if draw.random() >= share:
            return right
        return draw.choice(["-", "?", f"{right}|{draw.choice([x for x in TAGS if x != right])}"])

    every = sentences(120)
    return [Sentence(x.words, tuple(map(tag, x.tags))) if i % 10 else x for i, x in enumerate(every)]


def test_the_loss_is_that_of_sets() -> None:
    tags = infer(sentences(20), None, "a.conll")
    torch.manual_seed(0)
    one = sentences(1)[0]
    model = TaggingModel(tags, BiLSTM(Vocabulary.of([one.words]), len(tags.labels))).eval()
    given = ["?", *one.tags[1:]]
    given[1] = f"{one.tags[1]}|B-PER"
    unary, mask = model.net([one.words])
    allowed = torch.ones(1, len(given), len(tags.labels), dtype=torch.bool)
    for t in range(1, len(given)):
        allowed[0, t] = torch.tensor([label in given[t].split("|") for label in tags.labels])
    torch.testing.assert_close(model.loss([one.words], [given]), model.crf.loss(unary, mask=mask, allowed=allowed))
    with pytest.raises(KeyError):
        model.loss([one.words], [["B-XYZ", *given[1:]]])


def test_a_scheme_is_detected_and_labels_are_learned_with_half_of_the_tags_unsure() -> None:
    train, test = unsure(0.5), sentences(40, seed=1)
    tagger = Tagger("features", epochs=6).fit([x.words for x in train], [x.tags for x in train])
    assert tagger.tags_.labels == ("O", *TAGS)
    assert tagger.tags_.scheme == "IOB2"
    assert tagger.score([x.words for x in test], [x.tags for x in test]) > 0.95


def test_with_plain_labels_the_same_characters_are_labels() -> None:
    assert infer([Sentence(("a", "b"), ("?", "X|Y"))], "none", "a.conll").labels == ("?", "X|Y")


def test_the_command(command: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Only sentences whose tags are sure are held out, and a file for validation must have such tags."""
    rows = ("".join(f"{word}\t{tag}\n" for word, tag in zip(*x, strict=True)) for x in unsure(0.3))
    train, valid = tmp_path / "train.conll", write(tmp_path / "valid.conll", 20, seed=1)
    train.write_text("\n".join(rows))
    fast = "--epochs", 2, "--batch", 8
    assert command("tag", "train", "--train", train, "--out", tmp_path / "a", *fast) == 0
    assert load(tmp_path / "a").tags.labels == ("O", *TAGS)
    capsys.readouterr()
    swapped = "--train", valid, "--valid", train, "--out", tmp_path / "b"
    assert command("tag", "train", *swapped, *fast) != 0
    assert "train.conll: labels[" in capsys.readouterr().err
    train.write_text("in\t?\nRome\tB-LOC\n\nin\tO\nOslo\tB-LOC|B-PER\n")
    assert command("tag", "train", "--train", train, "--out", tmp_path / "c", *fast) != 0
    assert "no sentence in which each tag is one label: give a file for --valid" in capsys.readouterr().err
