"""Which modules are not looked through for examples: those whose libraries are not installed.

And where there is no GPU, kernels are run in Triton's interpreter, which is settled when Triton is first imported.
"""

import os
from importlib.util import find_spec

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

collect_ignore_glob = []
if find_spec("jax") is None:
    collect_ignore_glob += ["src/equipoise/bench/jax_peer.py"]
if find_spec("triton") is None:
    collect_ignore_glob += [f"src/equipoise/chain/{name}.py" for name in ("gpu", "scan", "triton_*")]
    collect_ignore_glob += ["src/equipoise/nets/triton_*.py"]
    collect_ignore_glob += [f"src/equipoise/gaussian/{name}.py" for name in ("gpu", "triton_kernels")]
