"""Plain text is split by the rule that the guide documents."""

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from equipoise import Tagger
from equipoise.files.text import MARK, Line, placed_lines
from equipoise.tagger.splitting import split_sentences
from equipoise.tagger.words import Text, from_lines, from_text, split_words

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "tag-your-files.md"


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


def rows_of_the_guide() -> list[tuple[str, str, str]]:
    """Script, text and words, of the table of scripts."""
    table = GUIDE.read_text().partition("| script | text | words |\n")[2].partition("\n\n")[0]
    return [tuple(cell.strip().strip("`") for cell in row.split("|")[1:4]) for row in table.splitlines()[1:]]  # type: ignore[misc]


def test_the_table_of_scripts_in_the_guide_is_what_comes_out() -> None:
    rows = rows_of_the_guide()
    assert len(rows) >= 14
    for script, text, words in rows:
        assert list(split_words(text)) == words.split(), script


def test_models_of_earlier_versions_keep_the_rule_that_does_not_know_clusters() -> None:
    assert split_words("我住在北京。", 1) == ("我住在北京", "。")
    assert len(split_words("👨\u200d👩\u200d👧", 1)) == 5


ALPHABET = "a.n't's-@#1 \u0301\u200d\ufe0f\u20e3\u0600👨👩🏽🇩🇪北、カー\uff9eกำကို\u1039ខ្ញុំ한ᄀ\u0000\r\n\ufeff\u3000ि"


@given(st.one_of(st.text(ALPHABET), st.text()))
def test_no_cluster_is_cut_and_no_character_is_lost(text: str) -> None:
    """Spaces divide clusters, as no word has one."""
    words = split_words(text)
    assert "".join(words) == "".join(c for c in text if not c.isspace() and c != MARK)
    runs = regex.finditer(r"[^\s\x1c-\x1f]+", text)
    boundaries = {run.start() + x.end() for run in runs for x in regex.finditer(r"\X", run[0])}
    boundaries |= {run.start() for run in regex.finditer(r"[^\s\x1c-\x1f]+", text)}
    place = 0
    for word in words:
        place = text.index(word, place)
        assert place in boundaries
        place += len(word)
        assert place in boundaries
        assert len(split_words(word)) <= len(regex.findall(r"\X", word))


def test_stops_of_other_scripts_end_sentences_without_a_space() -> None:
    assert split_sentences("他说“好。”我走了。真的吗。Yes. No") == ["他说“好。”", "我走了。", "真的吗。", "Yes.", "No"]
    assert split_sentences("वह गया। मैं रुका।") == ["वह गया।", "मैं रुका।"]
    assert split_sentences("他走了。我留下。", 1) == ["他走了。我留下。"]


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


def test_a_chinese_sentence_gets_spans_inside_it() -> None:
    parts = [("我", "住在"), ("她", "去了"), ("他", "离开")]
    places = ("北京", "上海", "东京", "巴黎市")
    train, tags = [], []
    for (person, verb), place in itertools.product(parts, places):
        train.append([*person, *verb, *place, "。"])
        tags.append(["O"] * (len(person) + len(verb)) + ["B-LOC"] + ["I-LOC"] * (len(place) - 1) + ["O"])
    tagger = Tagger(net="features", epochs=6).fit(train, tags)
    text = "2024年她离开上海。"
    (span,) = tagger.predict(text)
    assert (text[span.start : span.end], span.label) == ("上海", "LOC")
