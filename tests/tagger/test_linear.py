"""The linear net of features: its scores, what it learns, its weights, and its folder."""

import math
from pathlib import Path

import pytest
import torch
from tagger.small import sentences

from equipoise import Tagger
from equipoise.tagger.folder import WEIGHTS
from equipoise.tagger.linear import Linear
from equipoise.tagger.templates import of_words
from equipoise.tagger.training import fit

TRAIN, TEST = sentences(40), sentences(20, seed=1)
X, Y = [list(x.words) for x in TRAIN], [list(x.tags) for x in TRAIN]
TEST_X, TEST_Y = [list(x.words) for x in TEST], [list(x.tags) for x in TEST]


def dictionaries(words: list[str]) -> list[dict[str, object]]:
    """Each word and the one before, and numbers of two kinds."""
    return [
        {"w": word, "before": {"w": words[i - 1] if i else ""}, "title": word.istitle(), "length": len(word) / 10}
        for i, word in enumerate(words)
    ]


@pytest.fixture(scope="module")
def tagger() -> Tagger:
    return Tagger(net="features", epochs=10).fit(X, Y)


@pytest.fixture(scope="module")
def of_dictionaries() -> Tagger:
    return Tagger("features", epochs=10).fit([dictionaries(x) for x in X], Y)


def test_scores_are_sums_of_rows_with_and_without_stored_sentences() -> None:
    train, other = [("in", "Rome"), (), ("so",)], ("in", "Oslo", "so")
    net = Linear.of(train, 3)
    torch.nn.init.normal_(net.table.weight)
    batch = [*train, other]
    unary, mask = net(batch)
    assert mask.sum(-1).tolist() == [2, 0, 1, 3]
    for i, sentence in enumerate(batch):
        for t, names in enumerate(of_words(sentence)):
            rows = [net.table.weight[net.numbers[name]] for name in names if name in net.numbers]
            torch.testing.assert_close(unary[i, t], torch.stack(rows).sum(0))
    net.encoded = None
    assert torch.equal(net(batch)[0], unary)


def test_values_of_dictionaries_weigh_their_rows() -> None:
    net = Linear.of([[{"a": 2.0, "b": "x", "c": False}]], 2)
    assert net.names == ("a", "b:x", "c")
    torch.nn.init.normal_(net.table.weight)
    unary, _ = net([[{"a": -0.5, "b": "y", "c": True, "d": 7}]])
    torch.testing.assert_close(unary[0, 0], -0.5 * net.table.weight[0] + net.table.weight[2])


def test_it_learns_and_a_loaded_one_is_the_same(tagger: Tagger, of_dictionaries: Tagger, tmp_path: Path) -> None:
    tests = {"words": TEST_X, "dictionaries": [dictionaries(x) for x in TEST_X]}
    for (name, data), own in zip(tests.items(), (tagger, of_dictionaries), strict=True):
        assert own.score(data, TEST_Y) > 0.95
        own.save(tmp_path / name)
        loaded = Tagger.load(tmp_path / name)
        assert loaded.net == "features"
        assert loaded.predict(data) == own.predict(data)
        assert loaded.predict(data[0]) == own.predict(data[0]) != []


def test_gradients_are_sparse(tagger: Tagger) -> None:
    model, settings = tagger.start(TRAIN)
    assert settings.optimizer == "adagrad"
    model.train().loss([TRAIN[0].words], [TRAIN[0].tags]).backward()
    gradient = model.net.table.weight.grad
    assert gradient.is_sparse
    assert gradient._nnz() == sum(map(len, of_words(TRAIN[0].words)))


def test_weights_say_what_was_learned(tagger: Tagger) -> None:
    weights = tagger.weights("B-LOC", most=5)
    assert [abs(x.weight) for x in weights] == sorted((abs(x.weight) for x in weights), reverse=True)
    assert {x.label for x in weights} == {"B-LOC"}
    transitions = tagger.transitions()
    assert transitions["O", "I-LOC"] == -math.inf < transitions["O", "B-LOC"]
    by_feature = {x.feature: x.weight for x in tagger.weights("B-LOC", most=10**6)}
    assert by_feature["-1:lower=in"] > 0 > by_feature["-1:lower=met"]
    # the listed numbers are those that the chain adds up
    score = sum(by_feature.get(name, 0) for name in next(of_words(["in"])))
    model = tagger.model_
    unary = model.crf.potentials(*model.net([("in",)])).unary.detach()
    assert score == pytest.approx(float(unary[0, 0, model.number["B-LOC"]]), rel=1e-4)


def test_an_interrupted_training_continues_with_identical_bytes(tmp_path: Path) -> None:
    """The state of Adagrad is written and read."""
    (whole, settings), (part, _) = (Tagger(net="features", epochs=3).start(TRAIN) for _ in range(2))
    history = fit(whole, TRAIN, TEST, settings, tmp_path / "whole")

    def stop(batch: int, batches: int, loss: float) -> None:
        if batch == batches:
            calls.append(batch)
        if len(calls) == 2:
            raise KeyboardInterrupt

    calls: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        fit(part, TRAIN, TEST, settings, tmp_path / "part", step=stop)
    again, _ = Tagger(net="features", epochs=3).start(TRAIN)
    assert [x.loss for x in fit(again, TRAIN, TEST, settings, tmp_path / "part", resume=True)] == [
        x.loss for x in history
    ]
    assert (tmp_path / "part" / WEIGHTS).read_bytes() == (tmp_path / "whole" / WEIGHTS).read_bytes()


def test_errors(tagger: Tagger, of_dictionaries: Tagger) -> None:
    with pytest.raises(ValueError, match="a sentence must be a list of feature dictionaries, as in training, got 'in'"):
        of_dictionaries.predict([["in"]])
    with pytest.raises(ValueError, match=r"a sentence must be a list of words, got .'w': 1.$"):
        tagger.predict([[{"w": 1}]])
    with pytest.raises(ValueError, match="the feature 'a:b' is None; it must be a str, a number"):
        Tagger(net="features").fit([[{"a": {"b": None}}]], [["B-X"]])
    with pytest.raises(ValueError, match="label must be one of O, B-LOC"):
        tagger.weights("LOC")
    with pytest.raises(ValueError, match='net "bilstm" reads words'):
        Tagger().fit([dictionaries(x) for x in X], Y)
