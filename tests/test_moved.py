"""Old imports and commands say in one line where they went, and the page on them names what exists."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from equipoise.cli import MOVED

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "moved.md"


@pytest.mark.parametrize("name", MOVED)
def test_an_old_command_names_the_new_one(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from equipoise import cli

    monkeypatch.setattr(sys, "argv", ["equipoise", name, "--help"])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"`equipoise {name}` is now `equipoise-lab {name}`" in line
    assert f"`equipoise-lab {name}`" in PAGE.read_text()


def test_every_command_of_the_laboratory_was_one_of_the_library() -> None:
    command = [sys.executable, "-m", "equipoise_lab", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert tuple(sorted(re.findall(r"• (\w+)", done.stdout))) == MOVED, done.stdout + done.stderr


def test_an_old_command_needs_no_other_package() -> None:
    code = "import sys; sys.modules |= {'rich': None, 'tyro': None}; sys.argv = ['equipoise', 'train', 'ocr']\n"
    code += "from equipoise.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert "equipoise-lab train" in done.stderr


@pytest.mark.parametrize("module", ["equipoise.lab", "equipoise.lab.tagger", "equipoise.lab.training.engine"])
def test_an_old_import_names_the_new_one(module: str) -> None:
    with pytest.raises(
        ImportError, match=r"now the package equipoise_lab .*; equipoise\.lab\.tagger is now equipoise\.tagg"
    ):
        importlib.import_module(module)


def test_the_page_names_modules_that_exist() -> None:
    rows = re.findall(r"^\| `(equipoise\.lab[\w.]*)`.*\| `([\w.]+)`[^|]*\|$", PAGE.read_text(), re.MULTILINE)
    assert len(rows) >= 8
    for _, now in rows:
        importlib.import_module(now)
