"""A compiler that fails or that is stricter than ours, and a processor with small registers."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from equipoise.chain.cpu import library as chain_library
from equipoise.crf.cpu import prepare as layer
from equipoise.native import compiler

CODE = """
import torch
from equipoise import chain
unary = torch.randn(2, 5, 3, requires_grad=True)
log_z = chain.log_partition(unary, torch.zeros(3, 3))
torch.testing.assert_close(log_z, unary.logsumexp(-1).sum(-1))
log_z.sum().backward()
torch.testing.assert_close(unary.grad, unary.softmax(-1))
"""


SMALL_REGISTERS = """
import torch
from equipoise.chain import reference
from equipoise.chain.checks import problem
from equipoise.native import compiler
compiler.TARGETS = ([],)  # not for this processor, so that vectors have 16 bytes
from equipoise.chain.cpu import backend
from equipoise.chain.cpu.library import lanes, library_for
generator = torch.Generator().manual_seed(0)
for dtype, m in ((torch.float32, 3), (torch.float32, 26), (torch.float32, 70), (torch.float64, 5)):
    assert lanes(library_for(dtype, m)) * dtype.itemsize == 16
    unary, pairwise = (torch.randn(*n, m, generator=generator, dtype=dtype) for n in ((6, 40), (m,)))
    pairwise[0, 1] = -torch.inf
    chain = problem(unary, pairwise, torch.tensor([40, 1, 39, 7, 8, 2]))
    weight, labels = torch.rand(6, generator=generator, dtype=dtype), torch.ones(6, 40, dtype=torch.int64)
    value, alpha = reference.forward(*chain, labels)
    known = reference.messages(*chain)
    torch.testing.assert_close(backend.forward(*chain, labels)[0], value)
    torch.testing.assert_close(backend.log_marginals(*chain), known.log_p)
    likelihood = reference.marginals(weight, *chain, alpha, labels)
    torch.testing.assert_close(backend.marginals(weight, *chain, alpha, labels), likelihood, rtol=1e-4, atol=1e-5)
    expected = reference.cross_entropy_gradient(weight, *chain, labels, known)
    got = backend.cross_entropy_gradient(weight, *chain, labels, known)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
    assert torch.equal(backend.decode(*chain)[0], reference.decode(*chain)[0])
"""


@pytest.mark.slow
def test_small_registers(tmp_path: Path) -> None:
    environment = {**os.environ, "EQUIPOISE_CACHE": str(tmp_path)}
    command = [sys.executable, "-c", SMALL_REGISTERS]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr


def test_fallback_if_the_compiler_fails(tmp_path: Path) -> None:
    environment = {**os.environ, "CC": "/bin/false", "EQUIPOISE_CACHE": str(tmp_path)}
    command = [sys.executable, "-c", CODE]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    assert "exit status 1" in result.stderr
    assert result.stderr.count("plain PyTorch") == 1


WITHOUT_THREADS = """#!/bin/sh
for x; do [ "$before" = -o ] && out=$x; before=$x; done
case "$*" in *-fopenmp*) echo "not a library" > "$out" ;; *) exec gcc "$@" ;; esac
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_without_a_runtime_for_threads_vectors_have_their_usual_size(tmp_path: Path) -> None:
    """Some compilers accept -fopenmp, and make a library that cannot be loaded."""
    script = tmp_path / "compiler"
    script.write_text(WITHOUT_THREADS)
    script.chmod(0o700)
    environment = {**os.environ, "CC": str(script), "EQUIPOISE_CACHE": str(tmp_path / "cache")}
    code = CODE + "from equipoise.chain.cpu.library import lanes, library\nprint(lanes(library(torch.float32)))"
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert result.stderr == ""
    assert int(result.stdout) == chain_library.lanes(chain_library.library(torch.float32))


@pytest.mark.parametrize("name", ["gcc", "clang"])
@pytest.mark.parametrize("dtype", compiler.TYPES)
@pytest.mark.parametrize("module", [chain_library, layer])
def test_no_compiler_warns(module: object, dtype: torch.dtype, name: str) -> None:
    """What is a warning for one compiler is an error for the next version: GCC 14 rejects implicit conversions."""
    if shutil.which(name) is None:
        pytest.skip(f"needs {name}")
    source = module.SOURCES[0]  # type: ignore[attr-defined]
    warnings = ["-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers", "-Wno-unused-command-line-argument"]
    for flags in (["-march=native", "-fopenmp", "-DWIDE_VECTORS"], ["-fopenmp"]):
        command = [name, *compiler.FLAGS, *flags, *compiler.TYPES[dtype], *warnings, "-fsyntax-only", str(source)]
        result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert result.returncode == 0, result.stderr
