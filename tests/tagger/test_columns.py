"""Columns are read whatever separates them, and a malformed line is named with its number and text."""

import gzip
import os
from pathlib import Path

import pytest

from equipoise.files.errors import DataError
from equipoise.tagger.columns import Sentence, read, read_words
from equipoise.tagger.rows import rows
from equipoise_lab.data import conll, wnut17

CELLS = [("Rome", "B-LOC"), ("fell", "O"), None, ("#", "O"), ("so", "O")]  # None: a blank line
WANTED = [Sentence(("Rome", "fell"), ("B-LOC", "O")), Sentence(("#", "so"), ("O", "O"))]


@pytest.mark.parametrize(
    "text",
    [
        "Rome\tB-LOC\nfell\tO\n\n#\tO\nso\tO\n",
        "Rome B-LOC\nfell   O\n\n\n# O\nso O",
        "-DOCSTART- O\n\n# id = 1\nRome B-LOC\r\nfell O\r\n\r\n# O\r\nso O\r\n",
        "# a comment of many words\nRome NNP x B-LOC\nfell VBD x O\n \t\n# # x O\nso RB x O\n",
        "-DOCSTART-\tO\nRome\tB-LOC\nfell\tO\n\t\n#\tO\nso\tO\n",
    ],
    ids=["tabs", "spaces", "windows", "four columns", "tab on blank lines"],
)
def test_sentences_do_not_depend_on_the_separator(text: str, tmp_path: Path) -> None:
    plain, zipped = tmp_path / "a.conll", tmp_path / "a.conll.gz"
    plain.write_bytes(text.encode())
    zipped.write_bytes(gzip.compress(text.encode()))
    assert read(plain) == WANTED
    assert read(zipped) == WANTED


def test_columns_can_be_chosen(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("1\tNew York\tB-LOC\tNNP\n")
    assert read(path, word_column=2, tag_column=3) == [Sentence(("New York",), ("B-LOC",))]
    given = rows([(1, "1\tNew York"), (2, "2\tfell\tO")], "a.tsv")
    assert list(read_words(given, "a.tsv", 2)) == [Sentence(("New York", "fell"))]


@pytest.mark.parametrize("separator", [";", "|", ", ", " ||| "])
def test_any_text_may_separate_columns(separator: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("\n".join("" if x is None else separator.join(x) for x in CELLS))
    assert read(path, separator=separator) == WANTED
    with pytest.raises(ValueError, match="--separator must not be empty"):
        read(path, separator="")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a O\nb O\nc\n", "line 3: expected 2 columns as in other lines, got 1: 'c'"),
        ("a\tO\nb\t\n", "line 2: the tag in column -1 is empty: 'b\\t'"),
        ("a\nb\n", "line 1: expected a word and a tag, got one column (see --separator): 'a'"),
        ("", "has no sentences: one word and its tag per line are expected"),
        ("\n# x\n\n", "has no sentences: one word and its tag per line are expected"),
    ],
)
def test_wrong_files_are_refused_in_one_line(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "a.conll"
    path.write_text(text)
    with pytest.raises(DataError) as error:
        read(path)
    assert message in str(error.value)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_column_that_does_not_exist_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.conll"
    path.write_text("a O\n")
    with pytest.raises(DataError, match=r"line 1: column 3 \(--tag-column\) is missing, there are 2: 'a O'"):
        read(path, tag_column=3)
    with pytest.raises(ValueError, match="--word-column counts from 1"):
        read(path, word_column=0)


@pytest.mark.skipif("EQUIPOISE_DATA" not in os.environ, reason="needs the corpora in EQUIPOISE_DATA")
def test_both_corpora_are_read_as_their_own_readers_do() -> None:
    """Among them are words such as # and #hashtag, and blank lines with a tab."""
    folder = Path(os.environ["EQUIPOISE_DATA"])
    path = folder / "conll2000" / "test.txt.gz"
    assert read(path) == [Sentence(x.words, x.tags) for x in conll.read(path)]
    path = folder / "wnut17" / "train.conll.gz"
    assert [tuple(x) for x in read(path)] == [(tuple(x.words), tuple(x.tags)) for x in wnut17.read(path)]
