"""A tagger on a pretrained encoder of transformers, here a tiny one with random values."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pretrained
import pytest
import torch
from tagger.small import sentences, write

pytest.importorskip("transformers")

from equipoise.tagger import encoder, load
from equipoise.tagger.model import save
from equipoise.tagger.tagset import infer
from equipoise.tagger.training import Settings, fit

TRAIN, VALID = sentences(24), sentences(12, seed=1)
LETTERS = "abcdefghijklmnopqrstuvwxyz."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of width 16 that reads letters: the tokens of "Rome" are r, ##o, ##m, ##e."""
    from transformers import BertConfig, BertModel, BertTokenizerFast

    path = tmp_path_factory.mktemp("encoder")
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = {x: i for i, x in enumerate([*special, *LETTERS, *(f"##{x}" for x in LETTERS)])}
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = BertConfig(vocab_size=len(vocabulary), **sizes, intermediate_size=32, max_position_embeddings=48)
    BertModel(config).save_pretrained(path)
    BertTokenizerFast(vocab=vocabulary, model_max_length=48).save_pretrained(path)
    return path


def test_scores_are_those_of_first_tokens_at_any_length(folder: Path) -> None:
    tagger = encoder.make(infer(TRAIN, None, "train"), str(folder)).eval()
    long = ("abc",) * 30  # 90 tokens, of which the encoder reads 48
    with torch.no_grad():
        unary, mask = tagger.net([("Rome", "fell"), (), long])
        assert mask.sum(-1).tolist() == [2, 0, 30]
        model, tokenizer = tagger.net.model, tagger.net.tokenizer
        tokens = tokenizer("rome fell", return_tensors="pt")
        direct = model.unary(**tokens)[0, [1, 5]]
    torch.testing.assert_close(unary[0, :2], direct)
    assert len({tuple(row) for row in unary[2].tolist()}) == 30  # every word was read in its place
    assert [len(x.tags) for x in tagger.tag([("Rome", "\u200b", "fell"), (), long])] == [3, 0, 30]


def test_a_saved_tagger_gives_identical_tags_and_probabilities(folder: Path, tmp_path: Path) -> None:
    settings = Settings(3, 0.01, 8, warmup=0.1, decay=0.01, clip=1.0)
    tags = infer(TRAIN, None, "train")

    def made() -> Any:
        torch.manual_seed(1)
        return encoder.make(tags, str(folder))

    trained = made()
    history = fit(trained, TRAIN, VALID, settings, tmp_path / "a")
    assert history[-1].loss < history[0].loss
    save(trained, tmp_path / "c", {})
    words = [x.words for x in VALID]
    assert list(load(tmp_path / "c").tag(words)) == list(trained.tag(words))
    with pytest.raises(KeyboardInterrupt):
        fit(made(), TRAIN, VALID, settings, tmp_path / "b", step=_interrupt_at(8))
    again = fit(made(), TRAIN, VALID, settings, tmp_path / "b", resume=True)
    assert [(x.loss, x.f1) for x in again] == [(x.loss, x.f1) for x in history]


def _interrupt_at(number: int) -> Callable[[int, int, float], None]:
    calls: list[int] = []

    def step(batch: int, batches: int, loss: float) -> None:
        calls.append(batch)
        if len(calls) == number:
            raise KeyboardInterrupt

    return step


def test_the_folder_of_a_tagger_is_a_model_of_transformers(
    command: Callable[..., int], folder: Path, tmp_path: Path
) -> None:
    from transformers import AutoModelForTokenClassification

    train, out = write(tmp_path / "train.conll", 12), tmp_path / "model"
    options = ("--encoder", folder, "--epochs", 1, "--out", out)
    assert command("tag", "train", "--train", train, *options) == 0
    assert command("tag", "run", out, train, "--conll") == 0
    assert AutoModelForTokenClassification.from_pretrained(out).config.id2label[0] == "O"


@pytest.mark.slow
@pytest.mark.encoder
def test_minilm_learns_small_sentences(tmp_path: Path) -> None:
    torch.manual_seed(0)
    tagger = encoder.make(infer(TRAIN, None, "train"), pretrained.minilm())
    history = fit(tagger, TRAIN, VALID, Settings(4, 2e-4, 8, warmup=0.1, clip=1.0), tmp_path)
    assert max(epoch.f1 for epoch in history) > 0.9
