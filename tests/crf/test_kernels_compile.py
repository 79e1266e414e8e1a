"""The Triton kernels before and after the chain compile for a GPU that is not here."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

COMPILE = """
from triton import compile
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from equipoise.crf.gpu import layer_gradient_kernels, layer_kernels

wide = "sizes counts results parts unary_gradient pairwise_gradient pairwise to_pairwise alpha"
optional = {name: "*u8" for name in ("allowed", "allowed_start", "allowed_end", "mask")}
optional |= {"labels": "*i64", "moved_labels": "*i64", "starts": "*fp32", "ends": "*fp32", "to_start": "*fp32"}
optional |= {"to_end": "*fp32"}
types = dict.fromkeys(wide.split(), "*fp32") | dict.fromkeys(("sequences", "length", "tiles", "total"), "i32")
types |= {"lengths": "*i64", "empty": "*u8", "rank": "*i32", "moved": "*i64"} | optional
constants = {"M": 23, "LABELS": 32, "POSITIONS": 64, "HORIZON": 1000, "BLOCK": 1024}
constants |= {"STEP": 0.01, "SLOWER_AFTER": 100, "SMOOTHING": 0.1}
count = 0
backward = layer_gradient_kernels.products_kernel, layer_gradient_kernels.gradients_kernel
for kernel in (layer_kernels.keep_kernel, layer_kernels.assemble_kernel, *backward):
    for kind in range(3):
        for kind_of_unary, missing in (("*fp32", {}), ("*bf16", dict.fromkeys(optional))):
            state = "size", "covered", "squares", "steps", "log_scales"
            known = constants | {"KIND": kind} | missing | ({} if kind else dict.fromkeys(state))
            given = types | dict.fromkeys(state, "*fp32") | {"unary": kind_of_unary}
            given["to_unary"] = "*fp32" if kernel is layer_kernels.assemble_kernel else kind_of_unary
            signature = {name: "constexpr" if name in known else given[name] for name in kernel.arg_names}
            used = {name: known[name] for name in kernel.arg_names if name in known}
            source = ASTSource(fn=kernel, signature=signature, constexprs=used)
            compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})
            count += 1
types |= {"rows": "*i64"}
for kernel in (layer_kernels.place_kernel, layer_kernels.rows_kernel):
    signature = {name: "constexpr" if name == "BLOCK" else types[name] for name in kernel.arg_names}
    source = ASTSource(fn=kernel, signature=signature, constexprs={"BLOCK": 1024})
    compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})
    count += 1
print(count)
"""


@pytest.mark.slow
def test_the_kernels_compile_for_an_h200(tmp_path: Path) -> None:
    """On a machine without a GPU, and without the interpreter, which does not notice different types in branches."""
    environment = {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path), "HOME": str(tmp_path)}
    environment["PYTHONPATH"] = os.environ["PYTHONPATH"]
    done = subprocess.run([sys.executable, "-c", COMPILE], env=environment, capture_output=True, text=True)
    assert done.stdout.split() == ["26"], done.stderr
