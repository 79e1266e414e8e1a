"""Imports the Triton backend: compiled where there is a GPU, otherwise in Triton's interpreter."""

import importlib
import importlib.util
import os
from typing import Any
from unittest.mock import patch

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
INTERPRET = {"TRITON_INTERPRET": "1" if DEVICE == "cpu" else "0"}
gpu: Any = None
if importlib.util.find_spec("triton") is not None:
    with patch.dict(os.environ, INTERPRET):  # read once, when Triton and our kernels are first imported
        gpu = importlib.import_module("equipoise.gaussian.gpu.backend")
