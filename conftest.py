"""Which modules are not looked through for examples: those whose libraries are not installed."""

from importlib.util import find_spec

collect_ignore_glob = []
if find_spec("jax") is None:
    collect_ignore_glob += ["src/equipoise/bench/jax_peer.py"]
if find_spec("triton") is None:
    collect_ignore_glob += [f"src/equipoise/chain/{name}.py" for name in ("gpu", "scan", "triton_*")]
    collect_ignore_glob += ["src/equipoise/nets/triton_*.py"]
    collect_ignore_glob += [f"src/equipoise/gaussian/{name}.py" for name in ("gpu", "triton_kernels")]
