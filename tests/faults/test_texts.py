"""Texts are read in one way: byte order marks, odd line ends and odd spaces change neither words nor characters."""

import gzip
import io
import os
import sys
import threading
import time
from pathlib import Path

import pytest

from equipoise.cli.tag_input import sentences
from equipoise.files.errors import DataError
from equipoise.files.text import lines, placed_lines
from equipoise.tagger import columns, sentence
from equipoise.tagger.splitting import split_sentences

ENDS = ["\n", "\r\n", "\r", "\r\r\n"]
MARK = "\ufeff"
ROWS = ["-DOCSTART- O", "", "Rome B-LOC", "fell O", "", "so O"]
READ = [("Rome", "fell"), ("so",)]


def stored(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("mark", ["", MARK, MARK * 2])
def test_marks_and_line_ends_change_no_sentence(
    end: str, mark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In training, prediction and standard input; also where two files with a mark were joined."""
    text = mark + end.join(ROWS) + end * 2 + mark + end.join(ROWS) + end
    path = stored(tmp_path / "a.conll", text)
    assert [x.words for x in columns.read(path)] == READ * 2
    assert {x.tags for x in columns.read(path)} == {("B-LOC", "O"), ("O",)}
    assert [x.words for x in sentences(path, "auto", 1, None)] == READ * 2
    for data in (text.encode(), gzip.compress(text.encode())):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        assert [x.words for x in sentences(Path("-"), "columns", 1, None)] == READ * 2


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("kind", ["lines", "words", "text"])
def test_characters_are_those_that_python_reads(end: str, kind: str, tmp_path: Path) -> None:
    rows = ["So, Dr. No left", "New", f"{MARK}York. Then", "", "it\u00a0rained 10\u00a0000 times.", f"{MARK}", "Why?"]
    for last in ("", end):
        path = stored(tmp_path / "text.txt", MARK + end.join(rows) + last)
        text = path.read_text(encoding="utf-8")
        assert "".join(line.before + line.text for line in placed_lines(path)) == (
            text if not last else text[: -len(last.replace("\r\n", "\n"))]
        )
        parts = list(sentences(path, kind, 1, None))
        assert sum(len(part.words) for part in parts) > 10
        for part in parts:
            assert part.start is not None
            assert text[part.start : part.start + len(part.characters)] == part.characters
            assert [part.characters[a:b] for a, b in part.places()] == list(part.words)
            assert not any(MARK in word for word in part.words)


def test_only_spaces_and_tabs_separate_columns(tmp_path: Path) -> None:
    """A column of words alone is read as it was in training, where another column follows."""
    words = ("10\u00a0000", "a\u3000b", "x\u2009y", "\u00a0")
    trained = stored(tmp_path / "train.conll", "".join(f"{word}\tO\n" for word in words))
    spaces = stored(tmp_path / "spaces.conll", "".join(f"{word} O\n" for word in words))
    alone = stored(tmp_path / "run.conll", "".join(f"{word}\n" for word in words))
    line = stored(tmp_path / "run.txt", " ".join(words))
    assert columns.read(trained) == columns.read(spaces) == [columns.Sentence(words, ("O",) * 4)]
    assert [x.words for x in sentences(alone, "auto", 1, None)] == [words]
    assert [x.words for x in sentences(line, "words", 1, None)] == [words]


def test_a_pipe_is_read_as_a_file_is(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(b"Rome B-LOC\nfell O\n",))
    writer.start()
    assert list(lines(pipe)) == [(1, "Rome B-LOC"), (2, "fell O")]
    writer.join()


def test_a_closed_standard_input_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(DataError, match="standard input cannot be read: it is closed"):
        list(lines(Path("-")))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"a O\nb\xff O\n", "line 2: not UTF-8"),
        (b"a O\r\xed\xa0\x80 O\n", "not UTF-8"),
        ("a O\nb O\n".encode("utf-16-le"), "line 1: it has a zero byte"),
        ("a O\nb O\n".encode("utf-16"), "line 1: not UTF-8"),
    ],
)
def test_other_encodings_are_refused(data: bytes, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "a.conll"
    path.write_bytes(data)
    with pytest.raises(DataError, match=reason):
        columns.read(path)


def test_a_sentence_that_is_too_long_is_refused_where_it_is(tmp_path: Path) -> None:
    most = sentence.LONGEST
    path = stored(tmp_path / "a.conll", "a O\n\n" + "a O\n" * most)
    assert [len(x.words) for x in columns.read(path)] == [1, most]
    path = stored(tmp_path / "a.conll", "a O\n\n" + "a O\n" * (most + 1))
    limit = "the sentence has more than 20,000 words, which is the limit"
    with pytest.raises(DataError, match=f"line {most + 3}: {limit}.*blank lines"):
        columns.read(path)
    path = stored(tmp_path / "a.txt", "so\n" + "a " * (most + 1))
    for kind, advice in (("lines", "--input text"), ("words", "--input text"), ("text", "stops and blank lines")):
        with pytest.raises(DataError, match=f"a.txt, line 2: {limit}.*{advice}"):
            list(sentences(path, kind, 1, None))


@pytest.mark.parametrize("text", ["." * 30_000, "A. " * 30_000, '." ' * 30_000, ". " + "(" * 30_000, "x" * 100_000])
def test_the_time_of_a_split_grows_linearly(text: str) -> None:
    """The first two took a time that grew with the square of the length."""
    begin = time.process_time()
    assert "".join(split_sentences(text)).replace(" ", "") == text.replace(" ", "")
    assert time.process_time() - begin < 2
