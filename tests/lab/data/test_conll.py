"""CoNLL columns: the published counts, and errors that name the malformed line."""

import gzip
from pathlib import Path

import pytest

from equipoise_lab.data import DataError, MalformedLineError, conll
from equipoise_lab.data.conll import Sentence

TEXT = "He PRP B-NP\nreckons VBZ B-VP\n\n\n  \nYes UH O\n"
SENTENCES = [Sentence(("He", "reckons"), ("PRP", "VBZ"), ("B-NP", "B-VP")), Sentence(("Yes",), ("UH",), ("O",))]


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("text", [TEXT, TEXT + "\n", TEXT.replace("\n", "\r\n"), "\n" + TEXT.replace(" ", "\t")])
def test_blank_lines_separate_sentences(tmp_path: Path, text: str, zipped: bool) -> None:
    path = tmp_path / "some.txt"
    path.write_bytes(gzip.compress(text.encode()) if zipped else text.encode())
    assert list(conll.read(path)) == SENTENCES
    assert list(conll.read(path, tagged=False)) == SENTENCES


def test_without_tags(tmp_path: Path) -> None:
    path = tmp_path / "some.txt"
    path.write_text("Né PRP\nreckons VBZ\n", encoding="utf-8")
    assert list(conll.read(path, tagged=False)) == [Sentence(("Né", "reckons"), ("PRP", "VBZ"), ())]
    with pytest.raises(MalformedLineError, match="line 1: expected 3 columns"):
        list(conll.read(path))
    path.write_text("")
    assert list(conll.read(path)) == []


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"reckons VBZ", "expected 3 columns (word, part of speech, chunk tag), got 2"),
        (b"reckons VBZ B-VP x", "expected 3 columns (word, part of speech, chunk tag), got 4"),
        (b"reckons VBZ VP", "the chunk tag must be O, B-type or I-type, got 'VP'"),
        (b"reckons VBZ B-", "the chunk tag must be O, B-type or I-type, got 'B-'"),
        (b"reckons VBZ E-VP", "the chunk tag must be O, B-type or I-type, got 'E-VP'"),
        (b"r\xe9ckons VBZ B-VP", "not UTF-8: invalid continuation byte"),
    ],
)
def test_a_malformed_line_is_named(tmp_path: Path, line: bytes, reason: str) -> None:
    path = tmp_path / "some.txt"
    path.write_bytes(TEXT.encode().replace(b"reckons VBZ B-VP", line))
    with pytest.raises(MalformedLineError) as caught:
        list(conll.read(path))
    assert str(caught.value) == f"{path}, line 2: {reason}"


def test_tags_must_be_on_every_line_or_on_none(tmp_path: Path) -> None:
    path = tmp_path / "some.txt"
    path.write_text("He PRP\nreckons VBZ B-VP\n")
    with pytest.raises(MalformedLineError, match=r"line 2: expected 2 columns \(word, part of speech\), got 3"):
        list(conll.read(path, tagged=False))
    path.write_text("He\n")
    with pytest.raises(MalformedLineError, match="line 1: expected 2 or 3 columns"):
        list(conll.read(path, tagged=False))


def test_an_unreadable_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot be read: .*No such file"):
        list(conll.read(tmp_path / "none"))
    path = tmp_path / "short.gz"
    path.write_bytes(gzip.compress(TEXT.encode() * 100)[:-9])
    with pytest.raises(DataError, match=r"short\.gz cannot be read"):
        list(conll.read(path))


@pytest.mark.parametrize(
    ("part", "sentences", "tokens", "tags", "pos"), [("train", 8936, 211727, 22, 44), ("test", 2012, 47377, 19, 43)]
)
def test_the_published_counts(real_folder: Path, part: str, sentences: int, tokens: int, tags: int, pos: int) -> None:
    read = list(conll.read(real_folder / "conll2000" / f"{part}.txt.gz"))
    assert (len(read), sum(map(len, read))) == (sentences, tokens)
    assert (len({tag for s in read for tag in s.tags}), len({tag for s in read for tag in s.pos})) == (tags, pos)
    assert any("I-LST" in s.tags for s in read) == (part == "test")
