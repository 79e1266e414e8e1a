"""`equipoise.Tagger`: fit, predict, score, save and load, by the conventions of scikit-learn."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tagger.small import sentences

from equipoise import ScoredSpan, Tagger
from equipoise.labels import Span

TRAIN, TEST = sentences(40), sentences(20, seed=1)
X, Y = [list(x.words) for x in TRAIN], [list(x.tags) for x in TRAIN]
TEST_X, TEST_Y = [list(x.words) for x in TEST], [list(x.tags) for x in TEST]
SENTENCE = ["we", "met", "Grace", "Hopper", "in", "New", "York", "again", "."]
TAGS = ["O", "O", "B-PER", "I-PER", "O", "B-LOC", "I-LOC", "O", "O"]


@pytest.fixture(scope="module")
def tagger() -> Tagger:
    return Tagger(epochs=10, learning_rate=0.01).fit(X, Y)


def test_importing_equipoise_imports_no_tagger() -> None:
    code = "import sys, equipoise; assert 'equipoise.tagger' not in sys.modules; equipoise.Tagger()"
    subprocess.run([sys.executable, "-c", code + "; assert 'sklearn' not in sys.modules"], check=True, timeout=120)


def test_a_text_a_sentence_and_sentences(tagger: Tagger) -> None:
    text = "we  met Grace Hopper\tin New York again."
    assert tagger.words(text) == SENTENCE
    spans = tagger.predict(text)
    assert [text[span.start : span.end] for span in spans] == ["Grace Hopper", "New York"]
    of_words = tagger.predict(SENTENCE)
    assert [type(span) for span in of_words] == [ScoredSpan, ScoredSpan]
    assert [span.span for span in of_words] == [Span("PER", 2, 4), Span("LOC", 5, 7)]
    assert [x[2:] for x in of_words] == [x[2:] for x in spans]
    assert all(0.5 < x.probability <= 1 and x.runner_up_probability < 0.5 for x in spans)
    assert tagger.predict([SENTENCE, [], ["Rome"]]) == [TAGS, [], ["B-LOC"]]
    assert tagger.predict("") == tagger.predict([]) == []


def test_a_saved_tagger_is_the_same(tagger: Tagger, tmp_path: Path) -> None:
    tagger.save(tmp_path)
    loaded = Tagger.load(tmp_path)
    assert loaded.predict("Ada in Oslo") == tagger.predict("Ada in Oslo") != []
    assert loaded.score(TEST_X, TEST_Y) == tagger.score(TEST_X, TEST_Y) > 0.9
    assert loaded.get_params() == tagger.get_params() | {"batch": 4, "scheme": "IOB2"}
    assert loaded.history_ == tagger.history_


def test_the_score_is_the_f1_of_exact_spans(tagger: Tagger) -> None:
    wrong = ["O", "O", "B-PER", "I-PER", "O", "B-LOC", "O", "O", "O"]  # one of two spans
    assert tagger.score([SENTENCE], [wrong]) == 0.5


def test_validation_sentences_choose_the_epoch() -> None:
    tagger = Tagger(epochs=4, learning_rate=0.01).fit(X, Y, valid=(TEST_X, TEST_Y))
    assert tagger.score(TEST_X, TEST_Y) == max(epoch.f1 for epoch in tagger.history_)


def test_the_seed_decides_and_progress_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    losses = [Tagger(epochs=1, seed=seed, progress=seed == 1).fit(X, Y).history_[0].loss for seed in (0, 0, 1)]
    assert losses[0] == losses[1] != losses[2]
    assert capsys.readouterr().err.startswith("epoch 1/1: loss ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((X, Y[1:]), "sentences and tags must have the same length, got 40 and 39"),
        (([["a", "b"]], [["O"]]), r"sentences\[0\] has 2 words, and tags\[0\] has 1 tags"),
        ((["a b"], ["O O"]), r"sentences\[0\] and tags\[0\] must be lists of words and of tags, got a str"),
    ],
)
def test_errors_name_the_argument(arguments: tuple[object, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Tagger().fit(*arguments)  # type: ignore[arg-type]


def test_a_tagger_without_training_says_so() -> None:
    with pytest.raises(ValueError, match=r"not trained: call fit\(sentences, tags\), or Tagger.load"):
        Tagger().predict("a")
    with pytest.raises(ValueError, match="net must be one of bilstm, features, got"):
        Tagger(net="lstm").fit(X, Y)
    with pytest.raises(ValueError, match="'layers' is not a parameter of Tagger: net, encoder"):
        Tagger().set_params(layers=2)


def test_scikit_learn_clones_it_and_validates_it() -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    from sklearn.base import clone
    from sklearn.model_selection import GridSearchCV, cross_val_score

    tagger = Tagger(epochs=1, learning_rate=0.01)
    copy = clone(tagger.fit(X, Y))
    assert copy.get_params() == tagger.get_params()
    assert not hasattr(copy, "model_")
    assert len(cross_val_score(copy, X, Y, cv=2)) == 2
    search = GridSearchCV(copy, {"learning_rate": [1e-6, 0.03]}, cv=2).fit(X, Y)
    assert search.best_params_ == {"learning_rate": 0.03}
    assert search.predict(X[:1])[0] == search.best_estimator_.predict(X[:1])[0]


def test_the_readme_shows_what_its_tagger_prints(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Path(__file__).parents[2]
    text = (root / "README.md").read_text()
    found = re.search(r"```python\n(from equipoise import Tagger\n.*?)```\n\n```text\n(.*?)```", text, re.DOTALL)
    assert found is not None
    monkeypatch.chdir(root)
    exec(compile(found[1], "README.md", "exec"), {})
    assert capsys.readouterr().out == found[2]
