"""What is printed: no control character of data, no codec error, and files of any kind are written to, not replaced."""

import errno
import io
import json
import os
import re
import subprocess
import sys
import threading
import unicodedata
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tagger.small import write

from equipoise.files.escaping import HIDDEN, escaped, to_json
from equipoise.files.writing import WritingError, write_whole

Call = Callable[..., int]
BAD = "\x1b[31mX\x07\x9b2J\u202etxt\u2066\x7f\u2028"
linux = pytest.mark.skipif(sys.platform != "linux", reason="it needs the devices of Linux")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose types have control characters."""
    from equipoise import cli

    folder = tmp_path_factory.mktemp("tagger")
    train = write(folder / "train.conll", 40)
    train.write_text(train.read_text().replace("PER", f"PER{BAD}"))
    argv = ["tag", "train", "--train", train, "--out", folder / "model", "--epochs", 6, "--batch", 8]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["equipoise", *map(str, argv), "--learning-rate", "0.01"])
        cli.main()
    return folder / "model"


def printable(text: str) -> None:
    assert not [c for c in text if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") and c not in "\n\t"], text
    assert not re.search("[\u202a-\u202e\u2066-\u2069]", text), ascii(text)


def test_what_is_escaped() -> None:
    every = list(map(chr, range(sys.maxunicode + 1)))
    hidden = {c for c in every if HIDDEN.match(c)}
    assert {c for c in every if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")} <= hidden
    assert {c for c in every if unicodedata.bidirectional(c) in ("LRE", "RLE", "LRO", "RLO", "PDF")} <= hidden
    assert {c for c in every if unicodedata.bidirectional(c) in ("LRI", "RLI", "FSI", "PDI")} <= hidden
    assert not hidden & set("\u200c\u200d\u00a0\u00adé\U0001f600")  # letters are joined with these
    assert escaped("".join(hidden)).isascii()
    assert json.loads(to_json(every)) == every


def test_messages_and_tables_have_no_control_characters(
    command: Call, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gold = write(tmp_path / "gold.conll", 10)
    gold.write_text(gold.read_text().replace("Ada", f"Ada{BAD}").replace("LOC", f"PER{BAD}") + f"\nx\tB-NEW{BAD}\n")
    assert command("tag", "score", trained, gold) == 0
    output = capsys.readouterr()
    assert "PER\\x1b[31mX\\x07\\x9b2J\\u202etxt" in output.out
    assert "B-NEW\\x1b[31mX" in output.err
    printable(output.out)
    printable(output.err)
    for bad in (f"a{BAD}\tB-X\nb\t{BAD}-X\n", f"a\tB{BAD}\n", f"{BAD}\n"):
        gold.write_text(bad)
        assert command("tag", "train", "--train", gold, "--out", tmp_path / "m") == 1
        output = capsys.readouterr()
        assert len(output.err.splitlines()) == 1
        printable(output.err)


@pytest.mark.parametrize("option", [(), ("--conll",), ("--json",), ("--html",)])
@pytest.mark.parametrize("kind", ["lines", "words", "text", "columns"])
def test_tagged_text_has_no_control_characters(
    option: tuple[str, ...], kind: str, command: Call, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, page = tmp_path / "a\x1b\udcff.txt", tmp_path / "page.html"
    text.write_text(f"we met Ada{BAD}<b> in Rome{BAD}\n", encoding="utf-8")
    option = ("--html", str(page)) if option == ("--html",) else option
    separator = ("--separator", ";") if kind == "columns" else ()  # the line is a word
    assert command("tag", "run", trained, text, "--input", kind, *option, *separator) == 0
    shown = page.read_text(encoding="utf-8") if "--html" in option else capsys.readouterr().out
    printable(shown)
    if "--json" in option:
        assert "\x1b" in "".join(json.loads(shown)["words"])
    elif "--html" in option:
        assert "<b>" not in shown
        HTMLParser().feed(shown)
    else:
        assert "\\x1b" in shown


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
@pytest.mark.parametrize("option", [(), ("--conll",), ("--json",)])
def test_any_encoding_of_standard_output_will_do(
    encoding: str,
    option: tuple[str, ...],
    command: Call,
    trained: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text, printed = tmp_path / "text.txt", io.BytesIO()
    text.write_text("we met Zoë in Рим \U0001f600\n", encoding="utf-8")
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(printed, encoding=encoding))
    assert command("tag", "run", trained, text, *option) == 0
    shown = printed.getvalue().decode(encoding)
    if option == ("--json",):
        assert json.loads(shown)["words"] == ["we", "met", "Zoë", "in", "Рим", "\U0001f600"]
    else:
        assert "\\u0420\\u0438\\u043c" in shown


@linux
@pytest.mark.parametrize("command", ["train", "run"])
def test_a_full_disk_is_named_with_what_was_kept(command: str, trained: Path, tmp_path: Path) -> None:
    gold, out = write(tmp_path / "gold.conll", 4), str(tmp_path / "m")
    more = ["--train", str(gold), "--out", out, "--epochs", "1"] if command == "train" else [str(trained), str(gold)]
    with Path("/dev/full").open("w") as full:
        call = [sys.executable, "-m", "equipoise", "tag", command, *more]
        done = subprocess.run(call, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    kept = f"the model is in {out}" if command == "train" else "it is incomplete"
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        f"equipoise: standard output could not be written: No space left on device; {kept}"
    )
    assert "Exception ignored" not in done.stderr


def test_a_closed_standard_output_is_no_error(trained: Path, tmp_path: Path) -> None:
    call = f'"{sys.executable}" -m equipoise tag run "{trained}" "{write(tmp_path / "a.conll", 4)}" >&-'
    done = subprocess.run(["sh", "-c", call], stderr=subprocess.PIPE, text=True, check=False)
    assert done.stderr == ""


def test_pipes_are_written_to_and_links_stay(tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    write_whole(pipe, "<p>é")
    reader.join()
    assert read == ["<p>é"]
    assert pipe.is_fifo()
    (tmp_path / "deep").mkdir()
    page, link = tmp_path / "deep" / "page.html", tmp_path / "link.html"
    link.symlink_to(page)
    for text in ("new", "newer"):  # the link led to no file at first
        write_whole(link, text)
        assert link.is_symlink()
        assert page.read_text() == text
    assert [x.name for x in (tmp_path / "deep").iterdir()] == ["page.html"]


@linux
def test_devices_are_written_to(
    command: Call, trained: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = write(tmp_path / "a.conll", 2)
    for device in ("/dev/null", "/dev/stdout"):
        before = Path(device).stat().st_mode
        assert command("tag", "run", trained, text, "--html", device) == 0
        assert Path(device).stat().st_mode == before
        assert ("</html>" in capfd.readouterr().out) == (device == "/dev/stdout")
    assert command("tag", "run", trained, text, "--html", "/dev/full") == 1
    assert capfd.readouterr().err == (
        "equipoise: /dev/full could not be written: No space left on device; it may have a part of it\n"
    )


def test_a_page_that_does_not_fit_is_named_with_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(number: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    page = tmp_path / "page.html"
    with pytest.raises(WritingError, match=r"page\.html could not be written: .*; nothing was written$"):
        write_whole(page, "a")
    page.write_text("before")
    with pytest.raises(
        WritingError, match=r"page\.html could not be written: .*; the file that was there is unchanged$"
    ):
        write_whole(page, "a")
    assert page.read_text() == "before"
