"""Experiments and benchmarks run on a machine with only torch and numpy."""

import pkgutil
import subprocess
import sys
from pathlib import Path

import equipoise_lab as lab
from equipoise_lab.run.store import Store

TESTS = Path(__file__).parents[2]
PACKAGES = ("data", "nets", "tasks", "training", "plan", "run", "bench")
NEEDS_MORE = ("triton_", "jax_")
"""How the names of modules begin that need another package. They are imported only where it is used."""
HIDDEN = (
    *("PIL", "matplotlib", "ray", "rich", "tyro", "triton"),
    *("TorchCRF", "jax", "linear_operator", "torch_struct", "torchcrf"),
    *("hypothesis", "numba", "pandas", "safetensors", "scipy", "seqeval"),
)


def run_without_extras(code: str, *arguments: str) -> None:
    """Run the code in a new interpreter in which importing a hidden package raises ImportError."""
    hide = f"import sys\nsys.modules.update(dict.fromkeys({HIDDEN}))\n"
    command = [sys.executable, "-c", hide + code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


def modules(package: str) -> list[str]:
    folder = str(Path(lab.__path__[0]) / package)
    return [module.name for module in pkgutil.walk_packages([folder], f"equipoise_lab.{package}.")]


def test_every_module_imports() -> None:
    names = [name for package in PACKAGES for name in modules(package)]
    code = "import importlib\nfor name in sys.argv[1:]:\n    importlib.import_module(name)\n"
    run_without_extras(code, *(name for name in names if not name.rsplit(".", 1)[1].startswith(NEEDS_MORE)))


def test_the_runner_trains_and_records(tmp_path: Path) -> None:
    code = """
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from lab.training.tiny import Tiny
from equipoise_lab import tasks
from equipoise_lab.recipe import Recipe
from equipoise_lab.run import runner
from equipoise_lab.run.store import Store
tasks.TASKS["tiny"] = Tiny
runner.run([Recipe("tiny", max_epochs=1)], Store(Path(sys.argv[2])))
"""
    run_without_extras(code, str(TESTS), str(tmp_path / "runs.jsonl"))
    (record,) = Store(tmp_path / "runs.jsonl").records()
    assert record.epochs == 1


def test_the_gaussian_benchmark_starts_from_the_command_line() -> None:
    command = [sys.executable, "-m", "equipoise_lab.bench.gaussian", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "--device" in done.stdout
