"""Compile C on first use, with the system's compiler or that of the package ziglang, for this processor.

    $EQUIPOISE_CACHE/NAME-TYPE-FINGERPRINT-DIGEST.so      by default in ~/.cache/equipoise

The fingerprint is of the source, the compiler and the processor, the digest of the library itself. A library is code,
so it is loaded only if its content has this digest and nobody else can have written it: folder and file belong to this
user, and neither group nor others may write to them. Otherwise it is compiled again, in a private folder if necessary.
"""

import atexit
import ctypes
import hashlib
import importlib.util
import logging
import os
import platform
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

import torch

logger = logging.getLogger("equipoise")

TYPES = {
    torch.float32: ["-DREAL=float", "-DINTEGER=int32_t", "-DDIGITS=23"],
    torch.float64: ["-DREAL=double", "-DINTEGER=int64_t", "-DDIGITS=52"],
}
# No flag may assume that infinities do not occur, or reorder additions.
FLAGS = ["-O3", "-std=gnu11", "-fwrapv", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math"]
FLAGS += ["-shared", "-fPIC"]
# The first that works is used: not every compiler supports -march=native or OpenMP. Vectors gain more than threads.
PROCESSOR: tuple[list[str], ...] = (["-march=native"], ["-mcpu=native"])
TARGETS: tuple[list[str], ...] = (*([*x, "-fopenmp"] for x in PROCESSOR), *PROCESSOR, ["-fopenmp"], [])

VECTORS = Path(__file__).with_name("vectors.h")
"""A file that the sources may include."""
WAY_OUT = "`pip install ziglang` brings a compiler (the extra `compiler`), or set CC"
COMPILER_SECONDS = 120
"""The time limit of the compiler."""
SCRATCH = "compiling-"
"""How the names of folders begin in which a library is made."""
PRIVATE = "equipoise-"
"""How the names of private folders begin, in the folder for temporary files."""


def build(name: str, sources: tuple[Path, ...], dtype: torch.dtype, fallback: str, *flags: str) -> ctypes.CDLL | None:
    """Compile sources[0], which includes the others, for this dtype, and load it. The name must imply the flags.

    Returns None on failure. The log then has the reason and the `fallback`.
    """
    compiler = _compiler()
    if compiler is None:
        logger.warning("no C compiler: %s. %s", fallback, WAY_OUT)
        return None
    stem = f"{name}-{dtype}-{_fingerprint(compiler, sources)}".replace("torch.", "")
    folder = _folder()
    path = _cached(folder, stem)
    if path is None:
        start = time.perf_counter()
        path, error = _compile(compiler, [*TYPES[dtype], *flags], sources[0], folder, stem)
        if path is None:
            logger.warning("%s failed: %s\n%s", shlex.join(compiler), fallback, error)
            return None
        logger.info("compiled %s in %.1f s", path, time.perf_counter() - start)
    try:
        return ctypes.CDLL(str(path))
    except OSError as failure:
        logger.warning("%s cannot be loaded: %s\n%s", path, fallback, failure)
        return None


def _compiler() -> list[str] | None:
    """The command that compiles C: CC, a compiler of the system, or the Zig compiler of the package ziglang."""
    if given := os.environ.get("CC"):
        return given.split()
    for name in ("cc", "gcc", "clang"):
        if path := shutil.which(name):
            return [path]
    return [sys.executable, "-m", "ziglang", "cc"] if importlib.util.find_spec("ziglang") else None


def _cached(folder: Path, stem: str) -> Path | None:
    """The library in the cache, if it is complete and ours."""
    for path in sorted(folder.glob(f"{stem}-*.so")):
        try:
            if _ours(path) and path.name == _name(stem, path.read_bytes()):
                return path
        except OSError:
            continue
    return None


def _name(stem: str, content: bytes) -> str:
    return f"{stem}-{hashlib.sha256(content).hexdigest()[:32]}.so"


def _compile(compiler: list[str], types: list[str], source: Path, folder: Path, stem: str) -> tuple[Path | None, str]:
    """Compile into the folder, atomically; return the library, or None and the error."""
    _remove_scratch(folder)
    error = ""
    for target in TARGETS:
        with tempfile.TemporaryDirectory(prefix=SCRATCH, dir=folder) as scratch:
            made = Path(scratch, "library.so")
            command = [*compiler, *FLAGS, *target, *types, str(source), "-o", str(made), "-lm"]
            try:
                result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=COMPILER_SECONDS)
            except subprocess.TimeoutExpired:
                return None, f"no result after {COMPILER_SECONDS} s"
            except OSError as failure:
                return None, str(failure)
            complete = result.returncode == 0 and made.exists()
            problem = _load_error(made) if complete else result.stderr
            if problem is None:
                return _keep(made, folder, stem), ""
        error = error or problem or f"exit status {result.returncode}, no compiler output"
    return None, error


def _load_error(library: Path) -> str | None:
    """Why a library cannot be loaded: some compilers accept -fopenmp and have no runtime for it. None if it can."""
    try:
        ctypes.CDLL(str(library))
    except OSError as error:
        return str(error)
    return None


def _keep(made: Path, folder: Path, stem: str) -> Path:
    """Move a library to its name in the cache, complete on disk before it has that name."""
    path = folder / _name(stem, made.read_bytes())
    made.chmod(0o700)
    with made.open("rb") as file:
        os.fsync(file.fileno())
    for old in folder.glob(f"{stem}-*.so"):
        if old != path:  # damaged, or it would have been used
            old.unlink(missing_ok=True)
    made.replace(path)
    return path


def _remove_scratch(folder: Path) -> None:
    """Remove folders that a process left behind when it was killed while compiling."""
    for left in folder.glob(f"{SCRATCH}*"):
        try:
            if time.time() - left.stat().st_mtime > 2 * COMPILER_SECONDS:
                shutil.rmtree(left, ignore_errors=True)
        except OSError:
            continue


def _folder() -> Path:
    wanted = _wanted_folder()
    if wanted is not None:
        try:
            wanted.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=wanted):
                pass
            if _ours(wanted):
                return wanted
            reason = f"other users can write to {wanted}"
        except OSError as failure:
            reason = f"{wanted} cannot be used ({failure})"
    else:
        reason = "there is no home directory"
    return _private_folder(reason)


@cache
def _private_folder(reason: str) -> Path:
    """A folder for this process alone, which is removed when the process ends; said once."""
    _remove_private_folders()
    folder = Path(tempfile.mkdtemp(prefix=f"{PRIVATE}{os.getpid()}-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    logger.warning("%s: compiled kernels are kept in %s; set EQUIPOISE_CACHE to a folder of your own", reason, folder)
    return folder


def _remove_private_folders() -> None:
    """Remove those of processes that were killed."""
    for left in Path(tempfile.gettempdir()).glob(f"{PRIVATE}*"):
        pid = left.name.removeprefix(PRIVATE).partition("-")[0]
        try:
            if pid.isdigit() and not left.is_symlink() and _ours(left) and not _is_alive(int(pid)):
                shutil.rmtree(left, ignore_errors=True)
        except OSError:
            continue


def _is_alive(pid: int) -> bool:
    """Whether there is such a process. True where this cannot be asked without harm."""
    if os.name != "posix":
        return True
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _wanted_folder() -> Path | None:
    if os.environ.get("EQUIPOISE_CACHE"):
        return Path(os.environ["EQUIPOISE_CACHE"])
    try:
        return Path.home() / ".cache" / "equipoise"
    except RuntimeError:  # neither $HOME nor an entry for this user
        return None


def _ours(path: Path) -> bool:
    """Whether only this user can have written it. On systems without users this is not checked."""
    if not hasattr(os, "getuid"):
        return True
    status = path.stat()
    return status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _fingerprint(compiler: list[str], sources: tuple[Path, ...]) -> str:
    cpu = Path("/proc/cpuinfo")
    lines = cpu.read_text().splitlines() if cpu.exists() else [platform.processor()]
    kind = sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))}) or lines
    parts = [*(path.read_text() for path in sources), *FLAGS, *compiler, platform.machine(), *kind]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
