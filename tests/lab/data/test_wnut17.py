"""WNUT-17 and BC5CDR: the published counts, both kinds of separators, and errors that name the malformed line."""

import gzip
from itertools import pairwise
from pathlib import Path

import pytest

from equipoise.labels import to_spans
from equipoise_lab.data import DataError, MalformedLineError, require, wnut17
from equipoise_lab.data.registry import dataset
from equipoise_lab.data.wnut17 import Sentence

TEXT = "at\tO\nEmpire\tB-location\nState\tI-location\n\t\nYes\tO\n\n \n#\tO\n"
SENTENCES = [
    Sentence(("at", "Empire", "State"), ("O", "B-location", "I-location")),
    Sentence(("Yes",), ("O",)),
    Sentence(("#",), ("O",)),
]


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("text", [TEXT, TEXT + "\n", TEXT.replace("\n", "\r\n"), "\t\n" + TEXT])
def test_a_tab_or_an_empty_line_separates_sentences(tmp_path: Path, text: str, zipped: bool) -> None:
    path = tmp_path / "some.conll"
    path.write_bytes(gzip.compress(text.encode()) if zipped else text.encode())
    assert list(wnut17.read(path)) == SENTENCES
    path.write_text("")
    assert list(wnut17.read(path)) == []


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("Empire", "expected a word, a tab and an entity tag, got 'Empire'"),
        ("Empire B-location", "expected a word, a tab and an entity tag, got 'Empire B-location'"),
        ("Empire\tNNP\tO", "expected a word, a tab and an entity tag, got 'Empire\\tNNP\\tO'"),
        ("\tO", "expected a word, a tab and an entity tag, got '\\tO'"),
        ("Empire\tlocation", "the entity tag must be O, B-type or I-type, got 'location'"),
        ("Empire\t", "the entity tag must be O, B-type or I-type, got ''"),
    ],
)
def test_a_malformed_line_is_named(tmp_path: Path, line: str, reason: str) -> None:
    path = tmp_path / "some.conll"
    path.write_text(TEXT.replace("Empire\tB-location", line))
    with pytest.raises(MalformedLineError) as caught:
        list(wnut17.read(path))
    assert str(caught.value) == f"{path}, line 2: {reason}"
    with pytest.raises(DataError, match="cannot be read"):
        list(wnut17.read(tmp_path / "none"))


def test_missing_files_are_named_with_their_source(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"wnut17train\.conll is missing \(and 2 more\): .*leondz/emerging_entities_17"):
        require("wnut17", tmp_path)


@pytest.mark.parametrize(
    ("part", "sentences", "tokens", "entities"),
    [("train", 3394, 62730, 1975), ("dev", 1009, 15733, 836), ("test", 1287, 23394, 1079)],
)
def test_the_published_counts(real_folder: Path, part: str, sentences: int, tokens: int, entities: int) -> None:
    path = require("wnut17", real_folder)[part]
    read = list(wnut17.read(path))
    assert (len(read), sum(map(len, read))) == (sentences, tokens)
    assert sum(len(to_spans(sentence.tags, "BIO")) for sentence in read) == entities
    kinds = ("person", "location", "group", "creative-work", "corporation", "product")
    assert {tag for sentence in read for tag in sentence.tags} == {
        "O",
        *(f"{b}-{kind}" for kind in kinds for b in "BI"),
    }
    assert ("\n\t\n" in gzip.decompress(path.read_bytes()).decode()) == (part == "train")


@pytest.mark.parametrize(
    ("part", "sentences", "tokens", "entities", "longest"),
    [("train", 4560, 118170, 9385, 154), ("dev", 4581, 117453, 9593, 225), ("test", 4797, 124750, 9809, 165)],
)
def test_the_counts_of_bc5cdr(
    real_folder: Path, part: str, sentences: int, tokens: int, entities: int, longest: int
) -> None:
    read = list(wnut17.read(require("bc5cdr", real_folder)[part]))
    assert (len(read), sum(map(len, read)), max(map(len, read))) == (sentences, tokens, longest)
    assert sum(len(to_spans(sentence.tags, "BIO")) for sentence in read) == entities
    assert {tag for sentence in read for tag in sentence.tags} == {
        "O",
        *(f"{b}-{x}" for x in ("Chemical", "Disease") for b in "BI"),
    }
    assert not any(b == f"I-{b[2:]}" and a[2:] != b[2:] for x in read for a, b in pairwise(("O", *x.tags)))


@pytest.mark.parametrize("name", ["wnut17", "bc5cdr"])
def test_a_copy_has_the_content_of_the_publishers_file(name: str) -> None:
    wanted = dataset(name)
    for source, copy in zip(wanted.sources, wanted.others, strict=True):
        assert (source.files[0].key, source.files[0].sha256) == (copy.key, copy.content_sha256)
