"""How many functions and files a warm call of a layer passes through on a CPU: what a reader has to follow."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import equipoise
from equipoise import ChainCRF, scaling
from equipoise.crf.cpu import prepare as cpu

PACKAGE = str(Path(equipoise.__file__).parent)
pytestmark = pytest.mark.skipif(cpu.library(torch.float32) is None, reason="there is no C compiler")


def path(call: Callable[[], object]) -> tuple[int, int]:
    """The number of calls of functions of the package, comprehensions included, and of the files they are in."""
    files = []

    def count(frame: object, event: str, _: object) -> None:
        code = frame.f_code  # type: ignore[attr-defined]
        if event == "call" and code.co_filename.startswith(PACKAGE):
            files.append(code.co_filename)

    call(), call()  # shapes are checked and code is compiled
    sys.setprofile(count)
    try:
        call()
    finally:
        sys.setprofile(None)
    return len(files), len(set(files))


@pytest.mark.parametrize(
    ("name", "validate", "most_calls", "most_files"),
    [("loss", None, 30, 9), ("loss", True, 80, 14), ("decode", None, 30, 9)],
)
def test_a_warm_call_is_short(name: str, validate: bool | None, most_calls: int, most_files: int) -> None:
    crf, labels = ChainCRF(26, scaling.Learned(), validate=validate), torch.randint(26, (32, 14))
    unary = torch.randn(32, 14, 26, requires_grad=name == "loss")
    calls, files = path((lambda: crf.loss(unary, labels)) if name == "loss" else (lambda: crf.decode(unary)))
    assert calls <= most_calls
    assert files <= most_files
