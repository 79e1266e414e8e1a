"""Compile C on first use, with the system's compiler, for this processor.

Libraries are cached in $EQUIPOISE_CACHE, by default ~/.cache/equipoise. The file name depends on the source, the
compiler and the processor.
"""

import ctypes
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
import time
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
# The first that works is used: not every compiler supports -march=native or OpenMP.
TARGETS: tuple[list[str], ...] = (["-march=native", "-fopenmp"], ["-mcpu=native", "-fopenmp"], ["-fopenmp"], [])


def build(name: str, sources: tuple[Path, ...], dtype: torch.dtype, fallback: str) -> ctypes.CDLL | None:
    """Compile sources[0], which includes the others, for this dtype, and load it.

    Returns None on failure. The log then has the reason and the `fallback`.
    """
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        logger.warning("no C compiler found (set CC): %s", fallback)
        return None
    path = _folder() / f"{name}-{dtype}-{_fingerprint(compiler, sources)}.so".replace("torch.", "")
    if not path.exists():
        start = time.perf_counter()
        error = _compile(compiler, TYPES[dtype], sources[0], path)
        if error:
            logger.warning("%s failed: %s\n%s", compiler, fallback, error)
            return None
        logger.info("compiled %s in %.1f s", path, time.perf_counter() - start)
    try:
        return ctypes.CDLL(str(path))
    except OSError as failure:
        logger.warning("%s cannot be loaded: %s\n%s", path, fallback, failure)
        return None


def _compile(compiler: str, types: list[str], source: Path, path: Path) -> str:
    """Compile to `path`, atomically; return the error, or an empty string."""
    error = ""
    for target in TARGETS:
        with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
            made = Path(scratch, path.name)
            command = [*compiler.split(), *FLAGS, *target, *types, str(source), "-o", str(made), "-lm"]
            try:
                result = subprocess.run(command, capture_output=True, text=True, check=False)
            except OSError as failure:
                return str(failure)
            if result.returncode == 0 and made.exists():
                made.replace(path)
                return ""
        error = error or result.stderr or f"exit status {result.returncode}, no compiler output"
    return error


def _folder() -> Path:
    folder = Path(os.environ.get("EQUIPOISE_CACHE") or Path.home() / ".cache" / "equipoise")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:  # the home directory is not writable
        return Path(tempfile.mkdtemp(prefix="equipoise-"))


def _fingerprint(compiler: str, sources: tuple[Path, ...]) -> str:
    cpu = Path("/proc/cpuinfo")
    lines = cpu.read_text().splitlines() if cpu.exists() else [platform.processor()]
    kind = sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))}) or lines
    parts = [*(path.read_text() for path in sources), *FLAGS, compiler, platform.machine(), *kind]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
