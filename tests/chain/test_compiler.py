"""Without a working C compiler the library warns once and falls back to plain torch."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
import torch
from equipoise import chain
unary = torch.randn(2, 5, 3, requires_grad=True)
log_z = chain.log_partition(unary, torch.zeros(3, 3))
torch.testing.assert_close(log_z, unary.logsumexp(-1).sum(-1))
log_z.sum().backward()
torch.testing.assert_close(unary.grad, unary.softmax(-1))
"""


@pytest.mark.parametrize(
    ("compiler", "warning"),
    [("/bin/false", "exit status 1"), ("/no/such/compiler", "No such file"), ("/bin/true", "failed")],
)
def test_fallback_if_the_compiler_fails(compiler: str, warning: str, tmp_path: Path) -> None:
    environment = {**os.environ, "CC": compiler, "EQUIPOISE_CACHE": str(tmp_path)}
    command = [sys.executable, "-c", CODE]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    assert warning in result.stderr
    assert result.stderr.count("plain PyTorch") == 1


@pytest.mark.slow
def test_a_damaged_library_in_the_cache_is_compiled_again(tmp_path: Path) -> None:
    environment = {**os.environ, "EQUIPOISE_CACHE": str(tmp_path)}
    for _ in range(2):
        result = subprocess.run(
            [sys.executable, "-c", CODE], env=environment, capture_output=True, text=True, check=False
        )
        assert result.returncode == 0, result.stderr
        assert "plain PyTorch" not in result.stderr
        for library in tmp_path.glob("*.so"):
            library.write_bytes(b"not a library")
