"""Compiled libraries are loaded only if they are complete and only this user can have written them."""

import ctypes
import importlib.util
import logging
import os
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from equipoise.native import compiler

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
not_root = pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root can give files away")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("EQUIPOISE_CACHE", str(folder))
    compiler._private_folder.cache_clear()
    return folder


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "twice.c"
    path.write_text("double twice(double x) { return 2 * x; }\n")
    return path


def build(source: Path) -> ctypes.CDLL | None:
    return compiler.build("twice", (source,), torch.float64, "plain torch is used")


def twice(library: ctypes.CDLL | None) -> float:
    assert library is not None
    library.twice.restype, library.twice.argtypes = ctypes.c_double, [ctypes.c_double]
    return float(library.twice(21.0))


def the_library(folder: Path) -> Path:
    (found,) = folder.glob("*.so")
    return found


def test_the_folder_is_private_and_the_library_is_compiled_once(cache: Path, source: Path) -> None:
    assert twice(build(source)) == 42
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    first = the_library(cache).stat()
    build(source)
    assert the_library(cache).stat().st_mtime_ns == first.st_mtime_ns
    assert [path for path in cache.iterdir() if path.suffix != ".so"] == []


@pytest.mark.parametrize(
    ("command", "warning"),
    [("/bin/false", "exit status 1"), ("/no/such/compiler", "No such file"), ("/bin/true", "/bin/true failed: plain")],
)
def test_a_compiler_that_fails_is_named(
    command: str,
    warning: str,
    cache: Path,
    source: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("CC", command)
    with caplog.at_level(logging.WARNING, "equipoise"):
        assert build(source) is None
    assert len(caplog.messages) == 1
    assert warning in caplog.text


@pytest.mark.parametrize("share", [0.0, 0.999])
def test_a_truncated_library_is_compiled_again(cache: Path, source: Path, share: float) -> None:
    """Loading one would end the process with SIGBUS, so this is done in a process of its own."""
    build(source)
    path = the_library(cache)
    content = path.read_bytes()
    path.unlink()  # this process has loaded it
    path.write_bytes(content[: int(share * len(content))])
    path.chmod(0o700)
    program = (
        "import ctypes, sys, torch\nfrom pathlib import Path\nfrom equipoise.native import compiler\n"
        "library = compiler.build('twice', (Path(sys.argv[1]),), torch.float64, '')\n"
        "library.twice.restype, library.twice.argtypes = ctypes.c_double, [ctypes.c_double]\n"
        "print(library.twice(21.0))\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(source)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "42.0"), done.stderr
    assert the_library(cache).read_bytes()[:4] == content[:4]


def test_a_library_with_another_content_is_not_loaded(cache: Path, source: Path, tmp_path: Path) -> None:
    build(source)
    path = the_library(cache)
    other = tmp_path / "other.c"
    other.write_text("double twice(double x) { return -x; }\n")
    path.unlink()
    subprocess.run(["cc", "-shared", "-fPIC", str(other), "-o", str(path)], check=True)
    assert twice(build(source)) == 42


def test_a_folder_that_others_can_write_to_is_not_used(
    cache: Path, source: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache.mkdir()
    cache.chmod(0o777)
    with caplog.at_level(logging.WARNING, "equipoise"):
        assert twice(build(source)) == 42
        build(source)
    assert list(cache.iterdir()) == []
    assert len([line for line in caplog.messages if "other users can write" in line]) == 1


def test_a_library_that_others_can_write_to_is_not_loaded(cache: Path, source: Path) -> None:
    build(source)
    the_library(cache).chmod(0o777)
    assert twice(build(source)) == 42
    assert stat.S_IMODE(the_library(cache).stat().st_mode) == 0o700


@not_root
def test_a_library_or_folder_of_another_user_is_not_used(cache: Path, source: Path) -> None:
    build(source)
    path = the_library(cache)
    os.chown(path, 12345, 12345)
    assert twice(build(source)) == 42
    assert the_library(cache).stat().st_uid == os.getuid()
    os.chown(cache, 12345, 12345)
    assert twice(build(source)) == 42


def test_no_home_directory(source: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.delenv("EQUIPOISE_CACHE", raising=False)
    monkeypatch.setattr(
        Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("Could not determine home directory."))
    )
    compiler._private_folder.cache_clear()
    with caplog.at_level(logging.WARNING, "equipoise"):
        assert twice(build(source)) == 42
    assert "there is no home directory" in caplog.text


def test_private_folders_are_removed(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end of their process, or by a later one if the process was killed."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("EQUIPOISE_CACHE", str(source))  # a file
    program = (
        "import os, sys, torch\nfrom pathlib import Path\nfrom equipoise.native import compiler\n"
        "assert compiler.build('twice', (Path(sys.argv[1]),), torch.float64, '') is not None\n"
        "if sys.argv[2] == 'killed':\n    os.kill(os.getpid(), 9)\n"
    )
    for end, left in (("killed", 1), ("killed", 1), ("normal", 0)):
        subprocess.run([sys.executable, "-c", program, str(source), end], capture_output=True, check=False)
        assert len(list(tmp_path.glob("equipoise-*"))) == left


def test_a_compiler_that_does_not_end(
    cache: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setenv("CC", str(slow))
    monkeypatch.setattr(compiler, "COMPILER_SECONDS", 0.2)
    with caplog.at_level(logging.WARNING, "equipoise"):
        assert build(source) is None
    assert "no result after 0.2 s" in caplog.text
    assert "plain torch is used" in caplog.text


def test_without_a_compiler_of_the_system_that_of_ziglang_is_used_or_named(
    cache: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    package, cc = tmp_path / "packages" / "ziglang", shutil.which("cc")
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    if importlib.util.find_spec("ziglang") is None:
        assert build(source) is None
        assert "no C compiler: plain torch is used. `pip install ziglang` brings a compiler" in caplog.text
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(f"import os, sys\nos.execv({cc!r}, ['cc', *sys.argv[2:]])\n")
    monkeypatch.syspath_prepend(package.parent)
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    assert twice(build(source)) == 42


def test_folders_of_killed_processes_are_removed(cache: Path, source: Path) -> None:
    cache.mkdir(mode=0o700)
    old, new = cache / f"{compiler.SCRATCH}old", cache / f"{compiler.SCRATCH}new"
    for folder in (old, new):
        folder.mkdir()
        (folder / "library.so").write_bytes(b"half")
    long_ago = time.time() - 10 * compiler.COMPILER_SECONDS
    os.utime(old, (long_ago, long_ago))
    build(source)
    assert not old.exists()
    assert new.exists()  # another process may be compiling
