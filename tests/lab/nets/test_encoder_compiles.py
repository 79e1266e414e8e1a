"""The kernels of the encoder compile for an H200 on a machine without a GPU, and fit into its shared memory."""

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

from equipoise_lab.nets import triton_attention, triton_dropout, triton_gelu, triton_layer_norm

numbers = dict.fromkeys(("starts", "lengths", "rows", "seeds"), "*i64") | dict.fromkeys(("moments", "sums"), "*fp32")
numbers |= dict.fromkeys(("bias", "gain", "shift"), "*fp32") | dict.fromkeys(("scale", "rise", "epsilon"), "fp32")
numbers |= dict.fromkeys(("count", "width", "least", "sequences", "blocks"), "i32")
tensors = ("x", "out", "residual", "total", "grad", "dx", "dresidual", "qkv", "dqkv")
shared = {}


def made(kernel, kind, constants, warps):
    types = numbers | dict.fromkeys(tensors, f"*{kind}")
    signature = {name: types.get(name, "constexpr") for name in kernel.arg_names}
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
    compiled = compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps})
    shared[f"{kernel.__name__} {kind} {constants}"] = compiled.metadata.shared


for kind in ("fp32", "bf16"):
    made(triton_dropout.drop_kernel, kind, {"LANES": 512}, 2)
    made(triton_layer_norm.forward_kernel, kind, {"DROP": True, "LANES": 512}, 4)
    made(triton_layer_norm.backward_kernel, kind, {"DROP": True, "LANES": 512, "BLOCK": 32}, 4)
    made(triton_gelu.forward_kernel, kind, {"LANES": 512, "BLOCK": 32}, 4)
    made(triton_gelu.backward_kernel, kind, {"LANES": 512, "BLOCK": 32}, 4)
    for tile in (64, 128):
        sizes = {"HEADS": 12, "D": 32, "LANES": 32, "TILE": tile, "DROP": True, "SPAN": 512, "PRECISION": "ieee"}
        made(triton_attention.forward_kernel, kind, sizes, 4 if tile == 64 else 8)
        made(triton_attention.backward_kernel, kind, sizes, 4 if tile == 64 else 8)
print(json.dumps(shared))
"""


@pytest.mark.slow
@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
def test_the_kernels_fit_into_shared_memory(tmp_path: Path) -> None:
    """With the launch options of the nets and the sizes of MiniLM, without the interpreter."""
    environment = {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path), "HOME": str(tmp_path)}
    environment["PYTHONPATH"] = os.environ["PYTHONPATH"]
    done = subprocess.run([sys.executable, "-c", COMPILE], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    shared = json.loads(done.stdout.splitlines()[-1])
    assert len(shared) == 18
    assert max(shared.values()) <= SHARED_MEMORY, shared
