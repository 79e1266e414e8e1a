"""The same two sentences are read from every form of file, for training and for tagging, and no tag becomes a word."""

import os
import sys
from pathlib import Path

import pytest

from equipoise.cli.tag_input import arriving, sentences
from equipoise.files.errors import DataError
from equipoise.tagger.columns import Sentence, read

WANTED = [Sentence(("New York", ",", "'\""), ("B-LOC", "O", "O")), Sentence(("Rome",), ("B-LOC",))]
PLAIN = [Sentence(("York", ",", "'\""), ("B-LOC", "O", "O")), Sentence(("Rome",), ("B-LOC",))]
OBJECTS = (
    '{"id": 1, "tokens": ["New York", ",", "\'\\""], "tags": ["B-LOC", "O", "O"]}\n\n'
    '{"words": ["Rome"], "ner_tags": ["B-LOC"]}\n'
)
FILES = {
    "columns.txt": ("York B-LOC\n, O\n'\" O\n\nRome B-LOC\n", PLAIN),
    "documents.txt": ("-DOCSTART- -X- O\n\nYork x B-LOC\n, x O\n'\" x O\n\nRome x B-LOC\n", PLAIN),
    "header.txt": ("Token ner pos\nYork B-LOC x\n, O x\n'\" O x\n\nRome B-LOC x\n", PLAIN),
    "tabs.tsv": ("New York\tB-LOC\n,\tO\n'\"\tO\n\nRome\tB-LOC\n", WANTED),
    "tabs.txt": ("New York\tB-LOC\n,\tO\n'\"\tO\n\nRome\tB-LOC\n", WANTED),
    "header.tsv": ("pos\ttag\tword\nx\tB-LOC\tNew York\nx\tO\t,\nx\tO\t'\"\n\nx\tB-LOC\tRome\n", WANTED),
    "quotes.csv": ('New York,B-LOC\n",",O\n"\'""",O\n\nRome,B-LOC\n', WANTED),
    "semicolons.csv": ('Word;Tag\nNew York;B-LOC\n,;O\n"\'""";O\n;\nRome;B-LOC\n', WANTED),
    "first.csv": (
        'Sentence #,Word,POS,Tag\nSentence: 1,New York,x,B-LOC\n,",",x,O\n,"\'""",x,O\nSentence: 2,Rome,x,B-LOC\n',
        WANTED,
    ),
    "every.csv": ('sent_id,token,label\n0,New York,B-LOC\n0,",",O\n0,"\'""",O\n1,Rome,B-LOC\n', WANTED),
    "objects.jsonl": (OBJECTS, WANTED),
    "objects.txt": (OBJECTS, WANTED),
}


@pytest.mark.parametrize("name", FILES)
def test_forms_are_recognized(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, wanted = FILES[name]
    path = tmp_path / name
    path.write_text(text)
    assert read(path) == wanted
    assert [x.words for x in sentences(path, "auto", None, None)] == [x.words for x in wanted]
    guessed = "as its first lines look like it; --input lines reads it as text" in capsys.readouterr().err
    assert guessed == name.endswith(".txt")


@pytest.mark.parametrize(
    "spans",
    [
        '"spans": [{"start": 13, "end": 21, "label": "LOC", "id": 1}, {"start": 0, "end": 4, "label": "LOC"}]',
        '"label": [[13, 21, "LOC"], [0, 4, "LOC"]]',
    ],
)
def test_spans_of_characters_become_tags(spans: str, tmp_path: Path) -> None:
    """A word begins and ends where a span does, also inside what is one word otherwise."""
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"text": "Romelike pre-New York.", {spans}}}\n')
    assert read(path) == [
        Sentence(("Rome", "like", "pre", "-", "New", "York", "."), ("B-LOC", "O", "O", "O", "B-LOC", "I-LOC", "O"))
    ]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("text.txt", "Vitamins B and O\nare good\n", [("Vitamins", "B", "and", "O"), ("are", "good")]),
        ("text.txt", "# Title\nso be it\n", [("#", "Title"), ("so", "be", "it")]),
        ("tab.txt", "one\ttwo\nthree\n", [("one", "two"), ("three",)]),
        ("brace.txt", "{so\n", [("{", "so")]),
        ("texts.csv", 'id,text\n1,"Rome, now."\n2,"so\nit"\n', [("Rome", ",", "now", "."), ("so", "it")]),
        ("texts.jsonl", '{"text": "Rome, now."}\n{"text": ""}\n', [("Rome", ",", "now", "."), ()]),
        ("word.csv", "text,O\nRome,B-LOC\n", [("text", "Rome")]),
    ],
)
def test_texts_stay_texts(name: str, text: str, words: list[tuple[str, ...]], tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    found = list(sentences(path, "auto", None, None))
    assert [x.words for x in found] == words
    if name == "texts.jsonl":
        assert [x.start for x in found] == [0, 0]


@pytest.mark.parametrize(
    "lines", ["in Rome\n", "in\tO\nRome\tB-LOC\n\n", '{"words": ["in", "Rome"]}\n', "# id = 1\nin O\nRome B-LOC\n \n"]
)
def test_sentences_of_standard_input_arrive_one_by_one(lines: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In every form, which the first line decides; a tag is no word."""
    read, write = os.pipe()
    with os.fdopen(read) as stdin, os.fdopen(write, "w") as pipe:
        monkeypatch.setattr(sys, "stdin", stdin)
        print(lines, end="", file=pipe, flush=True)
        batches = arriving(sentences(Path("-"), "auto", None, None))
        assert [x.words for x in next(batches)] == [("in", "Rome")]
        print(lines, end="", file=pipe, flush=True)
        assert [x.words for x in next(batches)] == [("in", "Rome")]
        pipe.close()
        assert list(batches) == []


def test_an_error_in_standard_input_comes_after_what_arrived(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "in Rome"}\n[]\n')
    batches = arriving(sentences(path, "auto", None, None))
    assert [x.words for x in next(batches)] == [("in", "Rome")]
    with pytest.raises(DataError, match="line 2: expected an object"):
        next(batches)


def test_columns_are_chosen_by_the_names_of_a_header(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("surface,coarse,fine\nRome,LOC,city\n")
    assert read(path, "Surface", "fine") == [Sentence(("Rome",), ("city",))]
    assert read(path, word_column="surface") == [Sentence(("Rome",), ("city",))]
    with pytest.raises(
        DataError, match=r"line 1: the header has no column 'x' \(--tag-column\): it has surface, coarse, "
    ):
        read(path, tag_column="x")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", 'Rome,B-LOC\n",O\n', "line 2: not CSV: unexpected end of data"),
        ("a.csv", 'Rome,O\n"\n",O\n', "line 3: the word in column 1 has a line break (a quote may be missing)"),
        (
            "a.jsonl",
            '{"words": ["a"]}\n',
            "line 1: expected an object with lists of texts of the same length",
        ),
        ("a.jsonl", '{"words": ["a"], "tags": [1]}\n', "line 1: expected an object with lists of texts"),
        ("a.jsonl", '{"text": "Rome"}', "line 1: expected a list of spans beside the text: spans, entities"),
        (
            "a.jsonl",
            '{"text": "Rome", "spans": [[0, 9, "A"]]}',
            "expected a span with start, end and label within 4",
        ),
        ("a.jsonl", '{"text": "Rome", "label": [[0, 3, "A"], [2, 4, "B"]]}', "the span [2, 4, 'B'] overlaps with the"),
        ("a.jsonl", "\n{\n", "line 2: not JSON (Expecting property name"),
        ("a.jsonl", "[1]\n", "line 1: expected an object with words and tags: '[1]'"),
        ("a.jsonl", '{"words": ["\\ud800"], "tags": ["O"]}', "line 1: half of a pair of surrogates is no character"),
    ],
)
def test_wrong_files_are_refused_in_one_line(name: str, text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(DataError) as error:
        read(path)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
