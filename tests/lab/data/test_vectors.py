"""Word vectors: each set has its own spelling of words, and errors name the malformed line."""

import gzip
from collections import Counter
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from equipoise_lab.data import DataError, MalformedLineError, MissingFileError, conll, vectors


def line(first: float) -> str:
    return " ".join(f"{first + i / 4:g}" for i in range(50))


def glove(path: Path, *words: str) -> Path:
    path.write_text("".join(f"{word} {line(i)}\n" for i, word in enumerate(words)), encoding="utf-8")
    return path


@pytest.mark.parametrize("zipped", [False, True])
def test_glove_is_lower_case_with_unchanged_digits(tmp_path: Path, zipped: bool) -> None:
    path = glove(tmp_path / "glove.txt", "the", "1990", "né", "other")
    if zipped:
        path.write_bytes(gzip.compress(path.read_bytes()))
    known = vectors.read_glove(path, ["The", "THE", "1990", "1991", "Né"])
    found, there = known.look_up(["The", "1991", "THE", "1990", "Né", "other"])
    assert there.tolist() == [True, False, True, True, True, False]  # "other" was not requested
    assert found[:, 0].tolist() == [0, 0, 0, 1, 2, 0]
    assert found[3].tolist() == [1 + i / 4 for i in range(50)]
    assert not bool(found[1].any())


def test_senna_is_lower_case_and_replaces_numbers_by_0(tmp_path: Path) -> None:
    words, numbers = tmp_path / "words.lst", tmp_path / "embeddings.txt"
    words.write_text("PADDING\nUNKNOWN\n0\nthe\n0th\n")
    numbers.write_text("".join(line(i) + "\n" for i in range(5)))
    asked = ["The", "1,990.5", "-7", "20th", "UNKNOWN", "padding", "unseen"]
    found, there = vectors.read_senna(words, numbers, asked).look_up(asked)
    assert there.tolist() == [True, True, True, True, False, False, False]
    assert found[:4, 0].tolist() == [3, 2, 2, 4]


def test_merged_vectors_prefer_the_first(tmp_path: Path) -> None:
    first = vectors.read_glove(glove(tmp_path / "one.txt", "the", "dog"), ["the", "dog"])
    second = vectors.read_glove(glove(tmp_path / "two.txt", "cat", "of", "the", "dog"), ["of", "the", "cat"])
    found, there = first.merged(second).look_up(["of", "The", "dog", "cat", "none"])
    assert there.tolist() == [True, True, True, True, False]
    assert found[:, 0].tolist() == [1, 0, 1, 0, 0]
    assert first.look_up(["cat"])[1].tolist() == [False]


def number_at(text: str, start: int) -> int:
    """The length of the number that starts there, by SENNA's automaton: an optional sign, an optional separator, then
    digits with single separators between them; a trailing separator does not count."""
    steps = {0: {"s": 1, "p": 2, "d": 4}, 1: {"p": 2, "d": 4}, 2: {"d": 4}, 3: {"d": 4}, 4: {"p": 3, "d": 4}}
    state, size = 0, 0
    for length, character in enumerate(text[start:], 1):
        kind = "s" if character in "+-" else "p" if character in ".," else "d" if character in "0123456789" else "x"
        if kind not in steps[state]:
            break
        state = steps[state][kind]
        size = length if state == 4 else size
    return size


@given(st.text("07+-.,ax/", max_size=12))
def test_numbers_match_those_of_sennas_tokenizer(word: str) -> None:
    out, place = "", 0
    while place < len(word):
        size = number_at(word, place)
        out += "0" if size else word[place]
        place += size or 1
    assert vectors.senna_form(word) == out


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("the 1 2 3", "expected 50 numbers, got 3"),
        ("the", "expected a word and 50 numbers, got 'the'"),
        ("the " + line(0).replace(" 1 ", " one "), "could not convert string to float: 'one'"),
        ("the " + line(0).replace(" 1 ", " nan "), "a number is not finite"),
    ],
)
def test_a_malformed_line_is_named(tmp_path: Path, bad: str, reason: str) -> None:
    path = tmp_path / "glove.txt"
    path.write_text(f"of {line(0)}\n{bad}\n")
    with pytest.raises(MalformedLineError) as caught:
        vectors.read_glove(path, ["the"])
    assert str(caught.value) == f"{path}, line 2: {reason}"


def test_files_of_different_length_are_refused(tmp_path: Path) -> None:
    words, numbers = tmp_path / "words.lst", tmp_path / "embeddings.txt"
    words.write_text("the\nof\n")
    numbers.write_text(line(0) + "\n")
    with pytest.raises(DataError, match=r"words\.lst has more lines than .*embeddings\.txt"):
        vectors.read_senna(words, numbers, ["a"])
    numbers.write_text((line(0) + "\n") * 3)
    with pytest.raises(DataError, match=r"embeddings\.txt has more lines than .*words\.lst"):
        vectors.read_senna(words, numbers, ["a"])


def test_errors_name_missing_files_and_unknown_sets(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"senna/words\.lst is missing \(and 1 more\): put senna/hash"):
        vectors.load("senna", ["a"], tmp_path)
    with pytest.raises(ValueError, match="vectors must be one of glove, senna, got 'word2vec'"):
        vectors.load("word2vec", ["a"], tmp_path)


def test_look_up_without_any_known_word(tmp_path: Path) -> None:
    found, there = vectors.read_glove(glove(tmp_path / "glove.txt", "the"), ["a"]).look_up(["a", "b"])
    assert torch.equal(found, torch.zeros(2, 50))
    assert not bool(there.any())


def test_the_published_coverage_of_the_corpus(real_folder: Path) -> None:
    """Lower-cased: 17,633 of 19,460 word types, 98.65 % of the training tokens and 98.31 % of the test tokens."""
    tokens = {
        part: Counter(word for s in conll.read(real_folder / "conll2000" / f"{part}.txt.gz") for word in s.words)
        for part in ("train", "test")
    }
    known = vectors.load("glove", {word for part in tokens.values() for word in part}, real_folder)
    assert known.values.shape == (17633, 50)
    assert len({word.lower() for part in tokens.values() for word in part}) == 19460
    for part, share in (("train", 98.65), ("test", 98.31)):
        _, there = known.look_up(list(tokens[part]))
        counts = torch.tensor(list(tokens[part].values()))
        assert float(100 * counts[there].sum() / counts.sum()) == pytest.approx(share, abs=0.006)
