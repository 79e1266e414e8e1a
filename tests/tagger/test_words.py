"""Plain text is split by the rule that the guide documents."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from equipoise.files.text import Line, placed_lines
from equipoise.tagger.words import Text, from_lines, from_text, split_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("It's 5 p.m., isn't it?", "It 's 5 p.m. , is n't it ?"),
        ("AT&T paid $1,000.50 for co-op's e-mail", "AT&T paid $ 1,000.50 for co-op 's e-mail"),
        ("@user: see #tag http://x.org/a", "@user : see #tag http : / / x.org/a"),
        ("हिन्दी में लिखो।", "हिन्दी में लिखो ।"),
        ("Mr. J.P. Morgan of U.S.-based Co.", "Mr. J.P. Morgan of U.S.-based Co ."),
        ("naïve café 😀 ok", "naïve café 😀 ok"),
        ("  \t ", ""),
    ],
)
def test_words(text: str, words: str) -> None:
    assert list(split_words(text)) == words.split()


def test_no_character_is_lost() -> None:
    text = "".join(chr(i) for i in range(32, 0x3000) if not 0xD800 <= i < 0xE000)
    assert "".join(split_words(text)) == "".join(text.split())


def test_empty_lines_are_empty_sentences_and_only_they() -> None:
    rows = [Line(1, "So be it.", ""), Line(2, "", "\n"), Line(3, "Don't", "\n")]
    assert [x.words for x in from_lines(rows, "a.txt")] == [("So", "be", "it", "."), (), ("Do", "n't")]
    assert [x.words for x in from_lines(rows, "a.txt", tokenized=True)] == [("So", "be", "it."), (), ("Don't",)]


def test_running_text_ends_sentences_at_stops_and_paragraphs() -> None:
    parts = ["Dr. No left the", "U.S. market. Why? He", "said so", "", "A title", "", ""]
    rows = [Line(number, part, "\n") for number, part in enumerate(parts, 1)]
    sentences = [" ".join(sentence.words) for sentence in from_text(rows, "a.txt")]
    assert sentences == ["Dr. No left the U.S. market .", "Why ?", "He said so", "A title"]


@pytest.mark.parametrize("split", [from_lines, partial(from_lines, tokenized=True), from_text])
def test_every_word_is_at_its_place_in_the_text(split: Callable[..., Iterator[Text]], tmp_path: Path) -> None:
    raw = '\n  Dr. No didn\'t   leave. "Why?" he\r\n\tasked \U0001f600 twice, twice.\r\n\n \nA  title\nso be it'
    path = tmp_path / "text.txt"
    path.write_bytes(raw.encode())
    text = path.read_text()  # the two characters of a Windows line break are one
    found = list(split(placed_lines(path), path))
    assert "".join(word for one in found for word in one.words) == "".join(text.split())
    for one in found:
        assert one.start is not None
        assert text[one.start :].startswith(one.characters.split("\n")[0])
        for word, (first, last) in zip(one.words, one.places(), strict=True):
            assert text[one.start + first : one.start + last] == word
