"""Triton kernels that compute totals of losses, or carry mass, compile for a GPU that is not here."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

COMPILE = """
from triton import compile
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from equipoise.chain.gpu import gradient_kernels, marginals_kernels, transport_kernels, weigh_kernels, wide_kernels

arrays = "unary pairwise state nodes edges losses total shares log_p masses moved weight weighted gradient matrices"
arrays += " boundaries ends bounds tops norms z sums"
numbers = "stride N chunk chunks L inner count terms parts blocks s groups"
types = dict.fromkeys(arrays.split(), "*fp32") | dict.fromkeys(numbers.split(), "i32")
types |= {"lengths": "*i64", "labels": "*i64", "empty": "*u8"}
shape = {"M": 23, "SIZE": 32, "PER_EDGE": False, "STAGES": 3}


def check(kernel, constants):
    signature = {name: "constexpr" if name in constants else types[name] for name in kernel.arg_names}
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
    compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 1})


for reduction in ("sum", "mean", "token_mean"):
    total = {"weight": None, "REDUCTION": reduction, "OF_MEANS": True, "BLOCK": 32}
    check(marginals_kernels.marginals_kernel, shape | total)
    check(gradient_kernels.gradient_kernel, shape | total | {"nodes": None})
    check(gradient_kernels.gradient_kernel, shape | total | {"nodes": None, "empty": None, "shares": None})
for per_edge in (False, True):
    narrow, start = shape | {"PER_EDGE": per_edge}, {"boundaries": None, "masses": None}
    for form in ({"ends": None, "boundaries": None}, {"ends": None, "nodes": None}, start, start | {"nodes": None}):
        check(transport_kernels.transport_kernel, narrow | form)
    check(transport_kernels.mass_boundary_kernel, narrow)
    tiles = {"ROWS": 16, "COLUMNS": 32, "DEPTH": 64, "BLOCKS": 9, "BLOCKS_SIZE": 16}
    check(wide_kernels.mass_kernel, tiles | {"M": 270, "PER_EDGE": per_edge})
check(weigh_kernels.weigh_kernel, {"M": 23, "ROWS": 32, "COLUMNS": 32})
print("compiled")
"""


@pytest.mark.slow
def test_the_kernels_compile_for_an_h200(tmp_path: Path) -> None:
    """On a machine without a GPU, and without the interpreter, which does not notice different types in branches."""
    pytest.importorskip("triton", reason="the kernels are written in Triton, which is not installed")
    environment = {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path), "HOME": str(tmp_path)}
    environment["PYTHONPATH"] = os.environ["PYTHONPATH"]
    done = subprocess.run([sys.executable, "-c", COMPILE], env=environment, capture_output=True, text=True)
    assert done.stdout.split() == ["compiled"], done.stderr
