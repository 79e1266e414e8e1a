"""The lookup tables of the study and of the guide: small cases by hand, and the committed results."""

import importlib.util
import json
import os
from pathlib import Path
from types import ModuleType

import pytest

from equipoise_lab.data import conll
from equipoise_lab.data.conll import Sentence
from equipoise_lab.data.folder import require

ROOT = Path(__file__).parents[4]
GUIDE = ROOT / "docs" / "guides" / "chunking.md"


@pytest.fixture(scope="module")
def study() -> ModuleType:
    spec = importlib.util.spec_from_file_location("lookup_study", ROOT / "studies" / "lookup.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


def sentence(*rows: str) -> Sentence:
    words, speech, tags = zip(*(row.split() for row in rows), strict=True)
    return Sentence(words, speech, tags)


def test_ties_and_unseen_keys_are_decided_by_the_coarser_table(study: ModuleType) -> None:
    seen = [sentence("a DT B-NP", "b NN I-NP", "c NN I-NP"), sentence("b NN B-NP", "d VB O", "d VB O", "d VB O")]
    table = study.Lookup((study.word, study.speech(0)), seen)
    # "b NN" has both tags once, and NN has I-NP twice; "e NN" is unseen; of all words, O is the most frequent
    assert table.tag(sentence("b NN O", "e NN O", "a DT O", "f XX O")) == ["I-NP", "I-NP", "B-NP", "O"]


def test_neighbours_tell_what_a_word_does_not(study: ModuleType) -> None:
    """A noun after a determiner continues the phrase, and one at the beginning of a sentence begins it."""
    seen = [sentence("a DT B-NP", "b NN I-NP"), sentence("b NN B-NP", "d VB O")]
    assert study.measure((study.word,), seen, seen)["tags"] == 75
    assert study.measure((study.speech(1),), seen, seen) == {"f1": 100, "tags": 100}


def test_the_guide_has_the_committed_results() -> None:
    rows = {
        (row["key"], row["fitted"], row["tested"]): row
        for row in json.loads((ROOT / "studies/lookup.json").read_text())
    }
    lines = {
        "part of speech (the shared": "part of speech",
        "word and part of speech |": "word and part of speech",
        "parts of speech of the word and its two neighbours |": "parts of speech of the word and its two neighbours",
        "word, and the three": "word, and parts of speech of the word and its two neighbours",
    }
    for start, key in lines.items():
        cells = [rows[key, *pair] for pair in (("train", "test"), ("train", "train"), ("test", "test"))]
        shown = " | ".join(f"{cell['f1']:.1f} ({cell['tags']:.1f})" for cell in cells)
        (line,) = (line for line in GUIDE.read_text().splitlines() if line.startswith(f"| {start}"))
        assert line.endswith(f"| {shown} |")


@pytest.mark.skipif(not os.environ.get("EQUIPOISE_DATA"), reason="EQUIPOISE_DATA is not set")
def test_the_committed_results_are_those_of_the_corpus(study: ModuleType) -> None:
    files = require("conll2000", None)
    train, test = (list(conll.read(files[part])) for part in ("train", "test"))
    rows = json.loads((ROOT / "studies" / "lookup.json").read_text())
    name = "word and part of speech"
    kept = next(row for row in rows if (row["key"], row["fitted"], row["tested"]) == (name, "train", "test"))
    assert study.measure(study.KEYS[name], train, test) == {"f1": kept["f1"], "tags": kept["tags"]}
