"""Promises about the package as a whole: its names, its imports, and that the README's example runs."""

import ast
import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import equipoise

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "equipoise"
CORE = "native chain gaussian objectives constraints labels masking diagnosis scaling energies crf compat integrations"
LAB = "files schemes recipe data nets tasks training plan run judge report demo bench cli"
LAYERS = [*CORE.split(), *(f"lab.{name}" for name in LAB.split())]


def test_public_names() -> None:
    for name in ("ChainCRF", "GaussianCRF", "chain", "constraints", "gaussian", "labels", "objectives", "scaling"):
        assert hasattr(equipoise, name)
    functions = "score log_partition log_marginals edge_marginals decode top_k sample entropy mean_field"
    assert set(functions.split()) <= set(equipoise.chain.__all__)
    functions = "solve cg potts bounded check mean_abs sampled_mean_abs sigma_max spectral_bound"
    assert set(functions.split()) <= set(equipoise.gaussian.__all__)


def test_every_public_function_has_an_example() -> None:
    """Which the tests run, as doctests."""
    names = [getattr(equipoise.chain, name) for name in equipoise.chain.__all__]
    names += [getattr(equipoise.gaussian, name) for name in equipoise.gaussian.__all__ if name.islower()]
    names += [getattr(equipoise.objectives, name) for name in ("likelihood", "marginal", "margin", "mean_field")]
    names += [equipoise.ChainCRF, equipoise.GaussianCRF, equipoise.scaling.Fixed, equipoise.constraints.from_labels]
    for name in names:
        assert ">>>" in name.__doc__, name


def test_the_core_imports_with_torch_and_numpy_alone() -> None:
    """Whatever else is installed is hidden from a fresh interpreter."""
    code = """
import sys
for name in ("numba", "triton", "torchcrf", "torch_struct", "rich", "ray", "matplotlib", "scipy", "pandas"):
    sys.modules[name] = None
import torch, equipoise, equipoise.compat.torchcrf
unary = torch.randn(2, 5, 3, requires_grad=True)
crf = equipoise.ChainCRF(3)
crf.loss(unary, crf.decode(unary)).backward()
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


@pytest.mark.parametrize("missing", ["rich", "tyro", "matplotlib"])
def test_the_command_says_in_one_line_that_the_extra_is_missing(missing: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; from equipoise.lab.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert done.stderr == (
        "equipoise: the command needs more packages than the library: pip install 'equipoise[lab]'\n"
    )


def layer(module: str) -> str:
    """The layer of a module named from `equipoise` on: "lab.nets" for "lab.nets.lenet"."""
    parts = module.split(".")
    return ".".join(parts[: 2 if parts[0] == "lab" else 1])


def imports(path: Path) -> Iterator[str]:
    """The modules and names that a file imports from this package, named from `equipoise` on."""
    here = path.relative_to(SOURCE).parts[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").split(".")[0] == "equipoise"):
            base = here[: len(here) - node.level + 1] if node.level else ()
            rest = (node.module or "").split(".")[0 if node.level else 1 :]
            target = ".".join([*base, *filter(None, rest)])
            yield from ([target] if layer(target) in LAYERS else (f"{target}.{a.name}".strip(".") for a in node.names))


def test_a_layer_imports_only_from_those_before_it() -> None:
    """So the core never imports the lab. The one exception is `python -m equipoise`, which is the command."""
    assert list(imports(SOURCE / "__main__.py")) == ["lab.cli"]
    for path in SOURCE.rglob("*.py"):
        mine = layer(".".join(path.relative_to(SOURCE).with_suffix("").parts))
        if mine in ("__init__", "__main__", "lab.__init__"):
            continue
        assert mine in LAYERS, f"{path} belongs to no layer"
        for name in imports(path):
            if name != "__version__":
                assert layer(name) in LAYERS[: LAYERS.index(mine) + 1], f"{path} imports {name}"


def test_the_readme_example_runs_and_is_as_short_as_it_says() -> None:
    code = re.findall(r"```python\n(import torch.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[0]
    assert len([line for line in code.splitlines() if line.strip()]) <= 15
    exec(compile(code, "README.md", "exec"), {})


def test_the_readme_table_is_that_of_the_committed_results() -> None:
    spec = importlib.util.spec_from_file_location("update_readme", ROOT / "benchmarks" / "update_readme.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    for page, blocks in script.tables().items():
        for name, table in blocks.items():
            assert f"<!-- speed:{name} -->\n{table}\n<!-- /speed:{name} -->" in page.read_text()


def test_the_readme_has_one_short_speed_table() -> None:
    tables = re.findall(r"<!-- speed:[\w-]+ -->\n(.*?)\n<!-- /speed", (ROOT / "README.md").read_text(), re.DOTALL)
    assert [len(table.splitlines()) - 2 for table in tables] == [5]
