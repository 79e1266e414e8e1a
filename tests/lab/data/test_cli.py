"""The `equipoise-lab data` commands: their output, their exit codes, and that Ctrl-C keeps the received data."""

import hashlib
import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from lab.data.loopback import Site

from equipoise_lab.cli import data as cli_data
from equipoise_lab.data.entries import Dataset, File, Source
from equipoise_lab.data.registry import DATASETS

BODY = bytes(range(256)) * 1000


def toy(url: str) -> Dataset:
    file = File("all", "toy/all.bin", len(BODY), hashlib.sha256(BODY).hexdigest())
    return Dataset("toy", "a toy", "http://127.0.0.1/", "nobody", "none", (Source(url, (file,)),))


def call(*args: str) -> int:
    """The exit code of the command."""
    try:
        cli_data.data.cli(args=args, prog="equipoise-lab data")
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def test_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("list", "--data-dir", str(tmp_path)) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in DATASETS)
    assert call("list", "--json", "--data-dir", str(tmp_path)) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in printed["datasets"]] == list(DATASETS)
    assert printed["datasets"][1]["found"] == 0


def test_download_then_verify(
    site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(DATASETS, "toy", toy(site.serve("all.bin", BODY)))
    where = ("--data-dir", str(tmp_path))
    assert call("verify", "toy", *where) == 1
    assert f"{tmp_path}/toy/all.bin: missing" in capsys.readouterr().out
    assert call("download", "toy", *where) == 0
    out = capsys.readouterr().out
    assert "toy: downloaded, 1 ok" in out
    assert "no digest of the publisher's all.bin is known" in out
    assert call("download", "toy", "--json", *where) == 0
    assert json.loads(capsys.readouterr().out)["obtained"][0]["fetched"] is False
    assert call("verify", *where, "--json") == 0
    assert json.loads(capsys.readouterr().out)["toy"][0]["state"] == "ok"
    (tmp_path / "toy" / "all.bin").write_bytes(BODY[1:])
    assert call("verify", *where) == 1
    assert "wrong size, expected 256000 bytes, got 255999" in capsys.readouterr().out


def test_one_failure_does_not_stop_the_others(
    site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(DATASETS, "bad", toy(f"{site.address}/none"))
    monkeypatch.setitem(DATASETS, "toy", toy(site.serve("all.bin", BODY)))
    monkeypatch.setitem(DATASETS, "bad", Dataset("bad", "", "", "", "", DATASETS["bad"].sources))
    assert call("download", "bad", "toy", "--data-dir", str(tmp_path)) == 1
    printed = capsys.readouterr()
    assert "toy: downloaded" in printed.out
    assert printed.err.strip() == f"{site.address}/none: the server answered 404 Not Found"


def test_usage_errors_exit_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("download", "hors") == 2
    assert "did you mean horses?" in capsys.readouterr().err
    assert call("download") == 2
    assert "name at least one data set" in capsys.readouterr().err
    assert call("verify", "nothing") == 2
    assert call("download", "--no-such-option") == 2
    assert call("fetch") == 2


def test_consent_is_required(
    site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = replace(toy(site.serve("all.bin", BODY)), must_agree=True, terms="for research only")
    monkeypatch.setitem(DATASETS, "toy", made)
    assert call("download", "toy", "--data-dir", str(tmp_path)) == 1
    error = capsys.readouterr().err
    assert "for research only" in error
    assert "--agree" in error
    assert call("download", "toy", "--agree", "--data-dir", str(tmp_path)) == 0


def test_senna_must_be_placed_by_hand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("download", "senna", "--data-dir", str(tmp_path)) == 1
    error = capsys.readouterr().err
    assert error.startswith(
        "senna is not downloaded, because no digest of words.lst is known: get senna-v3.0.tgz from "
    )
    assert f"senna/hash/words.lst as {tmp_path}/senna/words.lst" in error
    assert call("download", "--help") == 0
    assert "mismatched" not in capsys.readouterr().out


def test_ctrl_c_keeps_the_received_bytes(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGINT to a separate process in the middle of a response."""
    url = site.serve("all.bin", BODY, stall=60.0)
    code = """
import signal
import sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores SIGINT in background jobs
from equipoise_lab.cli import data as cli_data
from equipoise_lab.data.entries import Dataset, File, Source
from equipoise_lab.data.registry import DATASETS
file = File("all", "toy/all.bin", 256000, sys.argv[3])
DATASETS["toy"] = Dataset("toy", "", "", "", "", (Source(sys.argv[1], (file,)),))
cli_data.data.cli(args=["download", "toy", "--data-dir", sys.argv[2]])
"""
    part = tmp_path / ".downloads" / "toy" / "all.bin.part"
    command = [sys.executable, "-c", code, url, str(tmp_path), hashlib.sha256(BODY).hexdigest()]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        end = time.monotonic() + 60
        while not (part.exists() and part.stat().st_size > 65_536) and time.monotonic() < end:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "The same command continues the download of toy." in error
    received = part.stat().st_size
    assert received > 65_536
    site.files["/all.bin"].stall = 0.0
    monkeypatch.setitem(DATASETS, "toy", toy(url))
    assert call("download", "toy", "--data-dir", str(tmp_path)) == 0
    assert (tmp_path / "toy" / "all.bin").read_bytes() == BODY
    assert site.requests[-1][1] == f"bytes={received}-"
