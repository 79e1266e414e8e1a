"""Import the Triton kernels of a net so that they run in the interpreter where there is no GPU."""

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest
import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@contextmanager
def kernels(*names: str) -> Iterator[None]:
    """Triton and our kernels read the environment once, on their first import."""
    with patch.dict(os.environ, {"TRITON_INTERPRET": "1" if DEVICE == "cpu" else "0"}):
        pytest.importorskip("triton", reason="the kernels are written in Triton, which is not installed")
        for name in names:
            importlib.import_module(f"equipoise_lab.nets.{name}")
        yield
