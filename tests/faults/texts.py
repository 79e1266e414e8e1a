"""Hostile texts for `equipoise tag run | score | train`, in every form of input and output.

A text is refused with one printable line, or answered rightly: every word in its place, characters that reproduce the
text, JSON and HTML that say the same. Nothing printed has control characters.
"""

import io
import json
import random
import re
import sys
import tempfile
import unicodedata
from collections import Counter
from functools import cache
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from tagger.small import sentences

from equipoise import cli
from equipoise.files.escaping import escaped
from equipoise.tagger import TaggingModel
from equipoise.tagger.features import Vocabulary
from equipoise.tagger.net import BiLSTM, Sizes
from equipoise.tagger.tagset import infer
from equipoise.tagger.training import Settings, fit

PER_ROUND = 24
ELEMENTS = {"html", "head", "meta", "title", "style", "body", "section", "div", "p", "hr", "h2", "a", "mark", "small"}
ELEMENTS |= {"table", "thead", "tr", "th", "td"}
ATTRIBUTES = {"charset", "http-equiv", "content", "class", "title", "id", "href", "dir", "style"}
KINDS, OPTIONS = (
    ("lines", "words", "text", "columns", "auto", "csv", "jsonl"),
    ("", "--conll", "--html", "--json", "--json"),
)
ENDS = ("\n", "\r\n", "\r", "\r\r\n")
MARK = "\ufeff"
HOSTILE = "LOC<script>\x1b[2J&\u202e"
"""The type of some spans of the model."""
PIECES = [
    *("Rome", "in", "we met Ada", "New York.", "-DOCSTART-", "#", "# a", "U.S.", "didn't", "O", "B-LOC", "x" * 300),
    *(".", "?! ", '."', "(((", "--", "@#@", "A. ", "1,000.5", "<b>", "&amp;", "</p>", "\"'", "\\x1b", "[a](LOC 0.9)"),
    *("\x1b[31m", "\x1b]0;t\x07", "\x07", "\x08", "\x0b", "\x0c", "\x1c", "\x7f", "\x85", "\x9b2J", "\x9d"),
    *("\u00a0", "\u00ad", "\u200b", "\u200d", "\u2028", "\u2029", "\u202e", "\u2066", "\u2069", "\u3000", MARK),
    *("é", "e\u0301", "हिन्दी", "東京", "\U0001f600", "\U0001f468\u200d\U0001f469", "\U000e0041", "\ue000", "\uffff"),
    *(" ", "  ", "\t", " ", "\t"),
    *("in Rome", "we met Ada in Oslo") * 8,
]
BROKEN = [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\0", b"\xf4\x90\x80\x80", "é".encode("utf-16"), b"\x1f\x8b"]
TAGS = ["O", "B-PER", f"B-{HOSTILE}", f"I-{HOSTILE}", "B-\x1b[31mX", "", "B", "\x9b", "O\u00a0"]


@cache
def _files(pretrained: bool) -> dict[str, bytes]:
    """The files of a model whose types have control characters and markup."""
    data = [x._replace(tags=tuple(tag.replace("LOC", HOSTILE) for tag in x.tags)) for x in sentences(40)]
    torch.manual_seed(0)
    tags = infer(data, None, "small")
    if pretrained:
        import tiny_encoder

        from equipoise.tagger import encoder

        with tempfile.TemporaryDirectory() as untrained:
            tagger = encoder.make(tags, tiny_encoder.save(Path(untrained)))
    else:
        sizes = Sizes(word=8, character=4, filters=8, shape=4, hidden=8)
        tagger = TaggingModel(tags, BiLSTM(Vocabulary.of([x.words for x in data]), 5, sizes))
    with tempfile.TemporaryDirectory() as folder:
        fit(tagger, data, data, Settings(6, 0.02, 8), Path(folder))
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def texts(seed: int, folder: Path) -> Counter[str]:
    chance, counts = random.Random(seed), Counter[str]()
    model = folder / "tagger"
    model.mkdir()
    for name, content in _files(seed % 2 == 1 and find_spec("transformers") is not None).items():
        (model / name).write_bytes(content)
    for number in range(PER_ROUND):
        kind, option = chance.choice(KINDS), chance.choice(OPTIONS)
        wanted, text = _columns(chance) if kind == "columns" else (None, _running(chance))
        rows, text = _rows(text), _stored(text, kind, chance)
        data = _broken(text.encode(), chance)
        path = folder / f"{number}.txt"
        path.write_bytes(data)
        answered = _run(model, path, kind, option, chance.random() < 0.3)
        if answered is not None and data == text.encode() and kind in ("csv", "jsonl"):
            _check_rows(answered, rows, option)
        elif answered is not None and data == text.encode() and kind != "auto":
            _check(answered, path.read_text(encoding="utf-8"), text, wanted, kind, option)
        counts["refused"] += answered is None
        counts["files"] += 1
    for command in ("score", "train"):
        path = folder / f"{command}.conll"
        path.write_bytes(_broken(_columns(chance)[1].encode(), chance))
        more = ("--train", path, "--out", folder / "model", "--epochs", 1) if command == "train" else (model, path)
        counts["refused"] += called("tag", command, *more)[0]
        counts["files"] += 1
    return counts


def _running(chance: random.Random) -> str:
    parts = chance.choices(PIECES, k=chance.choice((0, 1, 1, 5, 5, 5, 40, 40, 1000)))
    return "".join(part + chance.choice((*ENDS, " ", " ", "")) for part in parts)


def _columns(chance: random.Random) -> tuple[list[list[str]], str]:
    """Sentences, and a file of them with words and tags, or with words only."""
    separator, end = chance.choice(("\t", " ", " \t")), chance.choice(ENDS)
    mark, tagged = chance.choice(("", MARK)), chance.random() < 0.8
    word = [x for x in PIECES if not re.search(r"[ \t]|^[#-]|^\ufeff", x)]
    wanted = [chance.choices(word, k=chance.choice((1, 2, 9))) for _ in range(chance.randrange(6))]
    blocks = []
    for words in wanted:
        tags = chance.choices(TAGS if chance.random() < 0.2 else TAGS[:4], k=len(words))
        rows = [x + (separator + tag) * tagged for x, tag in zip(words, tags, strict=True)]
        blocks.append("".join(row + end for row in rows))
    text = mark + f"-DOCSTART-{separator}O{end}" * chance.randrange(2) + end.join(blocks)
    return wanted, text


def _broken(data: bytes, chance: random.Random) -> bytes:
    if chance.random() < 0.8:
        return data
    place = chance.randrange(len(data) + 1)
    return data[:place] + chance.choice(BROKEN) + data[place:]


def _stored(text: str, kind: str, chance: random.Random) -> str:
    """A text as a file of this kind has it: each line in a field of CSV, or in an object."""
    rows = _rows(text)
    if kind == "jsonl":
        return "".join(json.dumps({"text": row}, ensure_ascii=chance.random() < 0.5) + "\n" for row in rows)
    if kind == "csv":
        return "id,text\n" + "".join('{},"{}"\n'.format(i, row.replace('"', '""')) for i, row in enumerate(rows))
    return text


def called(*arguments: object, stdin: bytes = b"") -> tuple[int, str]:
    """The exit code of the command, and what it printed, after a check that all of it can be printed."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("argv", ["equipoise", *map(str, arguments)]), ("stdout", out), ("stderr", err)):
            patch.setattr(sys, name, value)
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        try:
            cli.main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        out.flush(), err.flush()
    printed, messages = (x.buffer.getvalue().decode() for x in (out, err))
    only_printable(printed)
    only_printable(messages)
    if code:
        last = messages.splitlines()[-1]
        assert code == 1, f"exit code {code}: {messages}"
        assert last.startswith("equipoise: "), messages
        assert "Traceback" not in messages, messages
        assert len(last) < 2000, f"the message is too long: {last[:200]!r}"
    return code, printed


def only_printable(text: str) -> None:
    bad = {c for c in text if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") and c not in "\n\t"}
    bad |= {c for c in text if "\u202a" <= c <= "\u202e" or "\u2066" <= c <= "\u2069"}
    assert not bad, f"control characters were printed: {sorted(map(ascii, bad))}"


def _run(model: Path, path: Path, kind: str, option: str, piped: bool) -> str | None:
    """What `tag run` prints, or the page; None if it refuses the text."""
    page = path.with_suffix(".html")
    options = (option, page) if option == "--html" else (option,) * bool(option)
    source, stdin = ("-", path.read_bytes()) if piped else (path, b"")
    code, printed = called("tag", "run", model, source, "--input", kind, *options, stdin=stdin)
    return None if code else page.read_text(encoding="utf-8") if option == "--html" else printed


def _check(shown: str, text: str, raw: str, wanted: list[list[str]] | None, kind: str, option: str) -> None:
    """`text` is what Python reads, `raw` what is in the file, and `wanted` the sentences of columns."""
    rows = _rows(raw)
    if wanted is None and kind == "words":
        wanted = [re.findall(r"[^ \t]+", row) for row in rows]
    if option == "--html":
        _check_page(shown, wanted)
    elif option == "--conll":
        lines = shown.split("\n")
        assert all(line == "" or line.count("\t") == 1 for line in lines)
        if wanted is not None:
            assert [line.partition("\t")[0] for line in lines if line] == [escaped(x) for y in wanted for x in y]
    elif option == "--json":
        found = [json.loads(line) for line in shown.split("\n") if line]
        words = [one["words"] for one in found]
        if wanted is not None:
            assert words == [x for x in wanted if x or kind != "columns"]
        else:
            assert "".join(map("".join, words)) == _squeezed(text)
            assert kind == "text" or len(found) == len(rows)
        for one, span in [(x, span) for x in found for span in x["spans"]]:
            assert 0 <= span["probability"] <= 1
            assert _squeezed(span["text"]) == _squeezed("".join(one["words"][span["start"] : span["stop"]]))
            if kind != "columns":
                assert text[span["start_char"] : span["end_char"]] == span["text"]
    elif kind != "text":
        assert shown.count("\n") == len(rows if wanted is None else wanted)


def _check_rows(shown: str, rows: list[str], option: str) -> None:
    """Each row is a sentence, whose spans are at their characters."""
    if option != "--json":
        return
    for one, row in zip(map(json.loads, shown.splitlines()), rows, strict=True):
        assert "".join(one["words"]) == _squeezed(row)
        for span in one["spans"]:
            assert row[span["start_char"] : span["end_char"]] == span["text"]


def _squeezed(text: str) -> str:
    return re.sub(rf"[\s{MARK}]+", "", text)


def _rows(raw: str) -> list[str]:
    """The lines of a text, without the marks at their beginning."""
    rows = re.split(r"\r+\n|\r|\n", raw)
    return [row.lstrip(MARK) for row in (rows if rows[-1] else rows[:-1])]


def _check_page(page: str, wanted: list[list[str]] | None) -> None:
    """Only the page's own elements, and every word in order."""
    shown: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
            assert tag in ELEMENTS, tag
            assert {name for name, _ in attributes} <= ATTRIBUTES

        def handle_data(self, data: str) -> None:
            shown.append(data)

    Reader().feed(page)
    text = re.sub(r"\s+", "", "".join(shown))
    for word in (word for words in wanted or [] for word in words):
        assert re.sub(r"\s+", "", escaped(re.sub(r"\s+", " ", word))) in text
