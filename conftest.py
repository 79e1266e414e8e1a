"""Which modules are not looked through for examples: those whose libraries are not installed.

And where there is no GPU, kernels are run in Triton's interpreter, which is settled when Triton is first imported.
Processes that tests start import both packages from this tree, installed or not.
"""

import os
from importlib.util import find_spec
from pathlib import Path

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

SOURCES = [str(Path(__file__).parent / folder) for folder in ("src", "lab/src")]
os.environ["PYTHONPATH"] = os.pathsep.join([*SOURCES, *filter(None, [os.environ.get("PYTHONPATH")])])

collect_ignore_glob = ["src/equipoise/lab.py"]  # its import is an error, on purpose
if find_spec("jax") is None:
    collect_ignore_glob += ["lab/src/equipoise_lab/bench/jax_peer.py"]
if find_spec("triton") is None:
    collect_ignore_glob += [f"src/equipoise/{part}/gpu/*.py" for part in ("chain", "gaussian", "crf")]
    collect_ignore_glob += ["src/equipoise/native/triton_start.py"]
    collect_ignore_glob += ["lab/src/equipoise_lab/nets/triton_*.py"]
if find_spec("griffe") is None:
    collect_ignore_glob += ["docs/rendering/docstrings.py"]
if find_spec("transformers") is None:
    collect_ignore_glob += ["src/equipoise/integrations/transformers/*.py"]
