"""Sentences that are longer than the encoder's window: in training only words that it reads count."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

pytest.importorskip("transformers")

import tiny_encoder

from equipoise.tagger import TaggingModel, encoder
from equipoise.tagger.columns import Sentence
from equipoise.tagger.tagset import TagSet
from equipoise.tagger.training import Settings, fit

TAGS = TagSet(("O", "B-X", "I-X"), "IOB2")
WORDS = ("anna",) * 700  # the window has 64 tokens: 62 words and both ends
SHORT = ("anna", "went", "to")


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> TaggingModel:
    return encoder.make(TAGS, tiny_encoder.save(tmp_path_factory.mktemp("encoder")))


def loss(tagger: TaggingModel, sentences: list[tuple[str, ...]], tags: list[tuple[str, ...]]) -> torch.Tensor:
    torch.manual_seed(0)
    tagger.train()
    tagger.net.model.eval()  # without dropout
    return tagger.loss(sentences, tags).detach()


def test_tags_beyond_the_window_do_not_change_the_loss(tagger: TaggingModel) -> None:
    plain = loss(tagger, [WORDS], [("O",) * 700])
    for changed in (62, 64, 600):
        beyond = ("B-X", "I-X") * ((700 - changed) // 2)
        assert loss(tagger, [WORDS], [("O",) * changed + beyond]) == plain
    assert loss(tagger, [WORDS], [("O",) * 61 + ("B-X",) + ("O",) * 638]) != plain
    torch.testing.assert_close(plain, loss(tagger, [WORDS[:62]], [("O",) * 62]))


def test_words_without_a_token_do_not_count_in_training(tagger: TaggingModel) -> None:
    words, tags = ("anna", "\u00a0", "went", "\u3000"), ("B-X", "B-X", "I-X", "B-X")
    plain = loss(tagger, [("anna", "went")], [("B-X", "I-X")])
    torch.testing.assert_close(loss(tagger, [words], [tags]), plain)
    other = loss(tagger, [SHORT, ("\u00a0",) * 5], [("O",) * 3, ("B-X",) * 5])
    torch.testing.assert_close(other, loss(tagger, [SHORT], [("O",) * 3]))
    nothing = loss(tagger, [("\u00a0",) * 5], [("B-X",) * 5])
    assert nothing == 0
    assert len(next(tagger.tag([words])).tags) == 4


def test_prediction_reads_every_word(tagger: TaggingModel) -> None:
    """In windows; the best epoch is chosen by all words, so also by those that training did not read."""
    words = tuple(tiny_encoder.WORDS[i % 5] for i in range(700))
    tagger.eval()
    unary, mask = tagger.net([SHORT, words])
    assert mask.sum(-1).tolist() == [3, 700]
    assert len({tuple(x) for x in unary[1].tolist()}) > 200
    assert [len(x.tags) for x in tagger.tag([SHORT, words])] == [3, 700]


def test_the_number_of_words_is_said_once(
    command: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tiny_encoder.save(tmp_path / "encoder")
    short, long = "anna B-X\nwent O\n\u00a0 O\n\n", "anna B-X\n" * 100 + "\n"
    train, valid = tmp_path / "train.conll", tmp_path / "valid.conll"
    train.write_text(short * 8 + long * 2, encoding="utf-8")
    valid.write_text(long)
    call = ("tag", "train", "--train", train, "--valid", valid, "--out", tmp_path / "m", "--encoder", folder)
    assert command(*call, "--epochs", 2) == 0
    said = f"84 words of 10 sentences of {train} have no token among the first 64"
    assert capsys.readouterr().err.count(said) == 1  # 8 of the short ones, 38 of each long one
    train.write_text(short.replace("\u00a0 O\n", "") * 8)
    assert command(*call, "--epochs", 1, "--overwrite") == 0
    assert "no token" not in capsys.readouterr().err


def test_steps_do_not_depend_on_tags_beyond_the_window(tmp_path: Path) -> None:
    """Transitions may start from counts of all tags."""
    models = []
    for beyond in ("O", "B-X"):
        own = encoder.make(TAGS, tiny_encoder.save(tmp_path / "encoder"))
        torch.manual_seed(0)
        own.net.model.classifier.reset_parameters()
        data = [Sentence(WORDS[:100], ("B-X",) * 62 + (beyond,) * 38), Sentence(SHORT, ("B-X", "O", "O"))]
        fit(own, data, data[1:], Settings(2, 1e-3, 2, start_from_labels=False), tmp_path / beyond)
        models.append(own.state_dict())
    assert all(torch.equal(x, models[1][name]) for name, x in models[0].items() if "crf" not in name)
