"""Plain text is split by the rule that the guide documents."""

import pytest

from equipoise.lab.tagger.words import from_lines, from_text, split_words


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
    rows = [(1, "So be it."), (2, ""), (3, "Don't")]
    assert list(from_lines(rows)) == [("So", "be", "it", "."), (), ("Do", "n't")]
    assert list(from_lines(rows, tokenized=True)) == [("So", "be", "it."), (), ("Don't",)]


def test_running_text_ends_sentences_at_stops_and_paragraphs() -> None:
    rows = enumerate(["Dr. No left the", "U.S. market. Why? He", "said so", "", "A title", "", ""], 1)
    sentences = [" ".join(sentence) for sentence in from_text(rows)]
    assert sentences == ["Dr. No left the U.S. market .", "Why ?", "He said so", "A title"]
