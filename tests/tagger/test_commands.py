"""`equipoise tag train | run | score`: what they print, and one line for each wrong input."""

import io
import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tagger.pages import parsed
from tagger.small import sentences, write

from equipoise.tagger import load
from equipoise.tagger.folder import REPORTS

Call = Callable[..., int]
FAST = ("--epochs", 8, "--batch", 8, "--learning-rate", 0.01)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with train.conll, valid.conll and a model."""
    from equipoise import cli

    folder = tmp_path_factory.mktemp("tagger")
    train, valid = write(folder / "train.conll", 60), write(folder / "valid.conll", 30, seed=1)
    argv = ["tag", "train", "--train", train, "--valid", valid, "--out", folder / "model", *FAST]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["equipoise", *map(str, argv)])
        cli.main()
    return folder


def failure(capsys: pytest.CaptureFixture[str]) -> str:
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1, lines
    return lines[0].removeprefix("equipoise: ")


def test_training_prints_plain_lines_and_a_report(
    command: Call, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    test = write(tmp_path / "test.conll", 20, seed=2)
    files = ("--train", trained / "train.conll", "--valid", trained / "valid.conll", "--test", test)
    assert command("tag", "train", *files, "--out", tmp_path / "model", *FAST) == 0
    output = capsys.readouterr()
    assert "60 sentences to learn from, 30 for validation, 5 tags, scheme IOB2" in output.err
    assert output.err.count("\nepoch ") == 8
    lines = output.out.splitlines()
    assert lines[0] == "test sentences:"
    assert [line.split()[0] for line in lines[2:5]] == ["all", "LOC", "PER"]
    assert "balance of net and CRF: " in output.out
    names = {path.name for path in (tmp_path / "model").iterdir()}
    assert names == {"model.safetensors", "tagger.json", *REPORTS}
    first, second = (path / "model" / "model.safetensors" for path in (trained, tmp_path))
    assert first.read_bytes() == second.read_bytes()


def test_score_counts_the_spans_of_the_file(command: Call, trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("tag", "score", trained / "model", trained / "valid.conll", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    gold = sentences(30, seed=1)
    assert found["true"] == sum(tag.startswith("B") for x in gold for tag in x.tags)
    assert found["f1"] > 0.9
    assert set(found["types"]) == {"LOC", "PER"}


def test_run_reads_every_form_and_writes_every_form(
    command: Call, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = trained / "model"
    text = tmp_path / "text.txt"
    text.write_text("we met  Grace  Hopper in Oslo again.\n\nin Rome\n")
    assert command("tag", "run", model, text, "--json") == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [len(row["words"]) for row in rows] == [8, 0, 2]
    assert [span["text"] for span in rows[0]["spans"]] == ["Grace  Hopper", "Oslo"]
    spans = [span for row in rows for span in row["spans"]]
    assert [text.read_text()[x["start_char"] : x["end_char"]] for x in spans] == ["Grace  Hopper", "Oslo", "Rome"]
    assert command("tag", "run", model, text) == 0
    shown = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"we met \[Grace Hopper\]\(PER \d\.\d\d\) in \[Oslo\]\(LOC \d\.\d\d\) again\.", shown[0])
    assert shown[1] == ""
    assert all(0.5 < span["probability"] <= 1 for row in rows for span in row["spans"])
    assert command("tag", "run", model, text, "--conll") == 0
    printed = capsys.readouterr().out
    assert printed.startswith("we\tO\nmet\tO\nGrace\tB-PER\nHopper\tI-PER\n")
    again = tmp_path / "again.conll"
    again.write_text(printed)
    assert command("tag", "run", model, again, "--conll") == 0
    assert capsys.readouterr().out.split() == printed.split()
    assert command("tag", "run", model, again, "--json") == 0
    first = json.loads(capsys.readouterr().out.splitlines()[0])["spans"][0]
    assert first["text"] == "Grace Hopper"
    assert "start_char" not in first  # columns have words, and no text around them
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"We met Ada. In Rome\nwe met Ada.")))
    assert command("tag", "run", model, "-", "--input", "text") == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("We met [Ada](PER 0.")


def test_a_training_leaves_a_report_and_score_writes_one(
    command: Call, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (trained / "model" / "report.txt").read_text().splitlines()
    assert text[0] == "validation sentences:"
    assert text[2].split()[:2] == ["all", "100.00"]
    assert "<svg" in (trained / "model" / "report.html").read_text()
    wrong = tmp_path / "wrong.conll"
    wrong.write_text("in\tO\nRome\tB-PER\n\nin\tO\nOslo\tB-LOC\n")
    assert command("tag", "score", trained / "model", wrong, "--html", tmp_path / "page.html") == 0
    assert "LOC tagged as PER" not in capsys.readouterr().out
    body = parsed((tmp_path / "page.html").read_text())
    (one,) = body.by_class("section", "sentence")
    assert [x.text for x in one.by_class("a", "span")] == ["RomeLOC"]
    assert [x.text for x in body.by_class("p", "true")] == ["in RomePER"]


def test_the_page_escapes_text_and_needs_no_other_file(command: Call, trained: Path, tmp_path: Path) -> None:
    text, page = tmp_path / "<i>.txt", tmp_path / "page.html"
    text.write_text("in <script>alert('1')</script> & \"Rome\"\n")
    assert command("tag", "run", trained / "model", text, "--input", "words", "--html", page) == 0
    html = page.read_text()
    assert "<script" not in html
    assert "&lt;script&gt;alert(&#x27;1&#x27;)&lt;/script&gt;" in html
    assert "<i>" not in html
    assert "&amp;" in html
    assert "://" not in html


@pytest.mark.parametrize(
    ("train", "valid", "options", "message"),
    [
        ("a DT\nb NN\n", "a DT\n", (), "label 'DT' does not fit IOB2"),
        ("a DT\nb NN\n", "a DT\n", (), "for plain labels use --scheme none"),
        ("a B-X\nb\nc O\n", "a O\n", (), "line 2: expected 2 columns as in other lines, got 1: 'b'"),
        ("", "a O\n", (), "has no sentences"),
        ("a B-X\n", "a B-Y\n", (), "have no tags in common but O"),
        ("a B-X\n", "a E-X\n", (), "label 'E-X' does not fit IOB2"),
        (
            "a B-X\n",
            "a B-X\n",
            ("--encoder", "/no/such/folder"),
            "cannot be loaded: it must be a folder with config.json",
        ),
        ("a B-X\n", "a B-X\n", ("--encoder", "./no"), "(there is no such folder)"),
        ("a B-X\n", "a B-X\n", ("--encoder", "a/b/c"), "(there is no such folder, and no such name on the hub)"),
        ("a B-X\n", "a B-X\n", ("--tag-column", 3), "column 3 (--tag-column) is missing"),
        ("a B-X\n", "a B-X\n", ("--resume", "--overwrite"), "exclude each other"),
        ("a B-X\n", "a B-X\n", ("--epochs", 0), "--epochs must be positive, got 0"),
        ("a B-X\n", "a B-X\n", ("--batch", 0), "--batch must be positive, got 0"),
    ],
)
def test_wrong_input_is_one_line(
    command: Call,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    train: str,
    valid: str,
    options: tuple[object, ...],
    message: str,
) -> None:
    if "--encoder" in options:
        pytest.importorskip("transformers")
    paths = tmp_path / "train.conll", tmp_path / "valid.conll"
    for path, text in zip(paths, (train, valid), strict=True):
        path.write_text(text)
    assert command("tag", "train", "--train", paths[0], "--valid", paths[1], "--out", tmp_path / "m", *options) == 1
    assert message in failure(capsys)
    assert not (tmp_path / "m").exists()


def test_a_reader_that_ends_early_is_no_error(trained: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("in Rome\n" * 6000)  # more than a pipe holds
    call = [sys.executable, "-m", "equipoise", "tag", "run", str(trained / "model"), str(text)]
    with subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        assert run.stderr is not None
        assert run.stdout.readline().startswith("in [Rome](LOC ")
        run.stdout.close()
        assert run.stderr.read() == ""


def test_standard_input_is_tagged_as_it_comes(trained: Path) -> None:
    """Each sentence is printed before the next one is written. An interrupt ends a command that waits for more."""
    call = [sys.executable, "-m", "equipoise", "tag", "run", str(trained / "model"), "-"]
    pipe = subprocess.PIPE
    with subprocess.Popen(call, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as run:
        assert run.stdin is not None
        assert run.stdout is not None
        for _ in range(2):
            run.stdin.write("in Rome\n")
            run.stdin.flush()
            assert re.fullmatch(r"in \[Rome\]\(LOC [01].\d\d\)\n", run.stdout.readline())
        run.send_signal(signal.SIGINT)
        assert run.communicate(timeout=60)[1].splitlines()[-1] == "equipoise: interrupted"
        assert run.returncode == 130


def test_a_model_is_not_replaced_by_accident(
    command: Call, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("tag", "train", "--train", trained / "train.conll", "--out", trained / "model") == 1
    assert "choose another --out, or continue with --resume, or use --overwrite" in failure(capsys)
    assert command("tag", "run", tmp_path, trained / "train.conll") == 1
    assert "is not a tagger: it has no tagger.json" in failure(capsys)


@pytest.mark.parametrize("page", ["README.md", "docs/guides/tag-your-files.md"])
def test_the_commands_on_a_page_run(
    page: str, command: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In order, with short training and a tiny encoder."""
    pytest.importorskip("transformers")
    import tiny_encoder

    monkeypatch.chdir(tmp_path)
    for seed, name in enumerate(("train", "valid", "test", "more")):
        write(tmp_path / f"{name}.conll", 12, seed=seed)
    tiny_encoder.save(tmp_path / "my-bert")
    Path("text.txt").write_text("we met Ada in Rome.\n")
    text = (Path(__file__).parents[2] / page).read_text()
    lines = re.findall(r"^ *(?:\$ )?(?:cat text.txt \| )?equipoise (tag .*)$", text, re.MULTILINE)
    assert {line.split()[1] for line in lines} >= {"train", "run"}
    for line in lines:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"in Rome\n")))
        short = ("--epochs", 1, "--overwrite") if line.startswith("tag train") else ()
        assert command(*line.split(), *short) == 0, line
        assert capsys.readouterr().out or "--html" in line


def test_a_finished_model_is_trained_on(
    command: Call, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The next training starts where it ended, with its tags and words, and can be interrupted, too."""
    more = write(tmp_path / "more.conll", 8, seed=3)
    files = ("--train", more, "--valid", trained / "valid.conll", "--continue", trained / "model", "--json")
    assert command("tag", "train", *files, "--out", tmp_path / "m", "--epochs", 1, "--learning-rate", 1e-9) == 0
    assert json.loads(capsys.readouterr().out)["validation"]["f1"] == 1
    first, second = (json.loads((path / "tagger.json").read_text()) for path in (trained / "model", tmp_path / "m"))
    assert first["vocabulary"] == second["vocabulary"]
    assert first["labels"] == second["labels"]
    before, after = (load(path).state_dict() for path in (trained / "model", tmp_path / "m"))
    assert all(torch.allclose(before[name], after[name], atol=1e-6) for name in before if "scaling" not in name)
    more.write_text("x\tB-ORG\n\ny\tO\n")
    assert command("tag", "train", *files, "--out", tmp_path / "n") == 1
    assert "more.conll has tags that the trained model does not have: B-ORG" in failure(capsys)
    assert command("tag", "train", *files, "--out", tmp_path / "n", "--encoder", "x") == 1
    assert "--continue takes the net of its model: leave --encoder out" in failure(capsys)
