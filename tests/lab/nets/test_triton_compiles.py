"""The LSTM kernels compile for an H200 on a machine without a GPU, and fit into its shared memory."""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

SHARED_MEMORY = 227 * 1024
"""Maximum bytes of shared memory per program on compute capability 9.0."""

COMPILE = """
import json
from triton import compile
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from equipoise_lab.nets import triton_lstm

shared = {}
for kind in ("fp32", "bf16"):
    types = dict.fromkeys(("starts", "lengths"), "*i64") | dict.fromkeys(("r", "n"), "i32") | {"cells": "*fp32"}
    tensors = ("gates", "weight", "states", "before", "active", "grad", "dgates")
    types |= dict.fromkeys(tensors, f"*{kind}")
    constants = {"H": 50, "LANES": 64, "WORDS": triton_lstm.WORDS, "PRECISION": "tf32x3"}
    for kernel in (triton_lstm.forward_kernel, triton_lstm.backward_kernel):
        signature = {name: types.get(name, "constexpr") for name in kernel.arg_names}
        source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
        options = {"num_warps": triton_lstm.WARPS, "num_stages": triton_lstm.STAGES}
        made = compile(source, target=GPUTarget("cuda", 90, 32), options=options)
        shared[f"{kernel.__name__} {kind}"] = made.metadata.shared
print(json.dumps(shared))
"""


@pytest.mark.slow
@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
def test_the_kernels_fit_into_shared_memory(tmp_path: Path) -> None:
    """With the launch options of `_constants` and the state size of the character LSTM, without the interpreter."""
    environment = {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path), "HOME": str(tmp_path)}
    environment["PYTHONPATH"] = os.environ["PYTHONPATH"]
    done = subprocess.run([sys.executable, "-c", COMPILE], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    shared = json.loads(done.stdout.splitlines()[-1])
    assert len(shared) == 4
    assert max(shared.values()) <= SHARED_MEMORY, shared
