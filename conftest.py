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
    collect_ignore_glob += ["src/equipoise/lab/bench/jax_peer.py"]
if find_spec("triton") is None:
    collect_ignore_glob += [f"src/equipoise/{part}/gpu/*.py" for part in ("chain", "gaussian", "crf")]
    collect_ignore_glob += ["src/equipoise/native/triton_start.py"]
    collect_ignore_glob += ["src/equipoise/lab/nets/triton_*.py"]
if find_spec("griffe") is None:
    collect_ignore_glob += ["docs/rendering/docstrings.py"]
if find_spec("transformers") is None:
    collect_ignore_glob += ["src/equipoise/integrations/transformers/*.py"]
