"""Promises about the package as a whole: its names, its imports, and that the README's example runs."""

import ast
import importlib.metadata
import importlib.util
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest
from release import fifteen_lines

import equipoise
from equipoise.repository import URL, install

ROOT = Path(__file__).parent.parent
LIBRARY = ROOT / "src" / "equipoise"
LABORATORY = ROOT / "lab" / "src" / "equipoise_lab"
OF_LIBRARY = (
    "repository arguments native chain gaussian incomplete objectives constraints labels masking scaling diagnosis "
    "energies crf spans compat integrations files tagger cli"
)
OF_LABORATORY = "scales schemes recipe data nets tasks training plan run judge report demo bench cli"
LAYERS = {LIBRARY: OF_LIBRARY.split(), LABORATORY: OF_LABORATORY.split()}
PUBLIC = (
    *("equipoise", "equipoise.chain", "equipoise.gaussian", "equipoise.objectives", "equipoise.scaling"),
    *("equipoise.constraints", "equipoise.labels", "equipoise.crf", "equipoise.compat.torchcrf"),
    *("equipoise.cli.running", "equipoise.crf.counts", "equipoise.energies", "equipoise.files"),
    *("equipoise.files.tensors", "equipoise.gaussian.operator", "equipoise.repository"),
    *("equipoise.scaling.learned", "equipoise.tagger.evaluation"),
)
"""The modules of the library whose names without an underscore other packages may use."""


def test_public_names() -> None:
    names = "ChainCRF GaussianCRF ScoredSpan SpanDecoder Tagger chain constraints gaussian labels objectives scaling"
    for name in [*names.split(), "UNKNOWN"]:
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
    names += [equipoise.ChainCRF, equipoise.GaussianCRF, equipoise.SpanDecoder, equipoise.scaling.Fixed]
    names += [equipoise.constraints.from_labels]
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


@pytest.mark.parametrize("missing", ["rich", "tyro"])
@pytest.mark.parametrize(
    ("package", "line"),
    [
        ("equipoise", f"equipoise: the command needs more packages than the library: {install('tagger')}"),
        (
            "equipoise_lab",
            f"equipoise-lab: the command needs more packages than the library: {install(laboratory=True)}",
        ),
    ],
)
def test_a_command_says_in_one_line_that_packages_are_missing(missing: str, package: str, line: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; from {package}.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert done.stderr == line + "\n"


def test_the_extra_for_transformers_has_what_the_command_needs() -> None:
    """One extra is enough for `equipoise tag train --encoder`, without the laboratory."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(extras["tagger"]) <= set(extras["transformers"])
    code = """
import sys
sys.modules |= {"matplotlib": None, "PIL": None, "equipoise_lab": None}
sys.argv = ["equipoise", "tag", "train", "--train", "no-such-file", "--out", "model"]
from equipoise.cli import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert "no-such-file cannot be read" in done.stderr


def layer(module: str) -> str:
    """The layer of a module named without its package: "nets" for "nets.lenet"."""
    return module.split(".")[0]


def imports(path: Path, source: Path) -> Iterator[str]:
    """The modules and names that a file imports from its package, named without the package."""
    here = path.relative_to(source).parts[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").split(".")[0] == source.name):
            base = here[: len(here) - node.level + 1] if node.level else ()
            rest = (node.module or "").split(".")[0 if node.level else 1 :]
            target = ".".join([*base, *filter(None, rest)])
            known = layer(target) in LAYERS[source]
            yield from ([target] if known else (f"{target}.{a.name}".strip(".") for a in node.names))


@pytest.mark.parametrize("source", LAYERS, ids=lambda source: source.name)
def test_a_layer_imports_only_from_those_before_it(source: Path) -> None:
    assert list(imports(source / "__main__.py", source)) == ["cli"]
    layers = LAYERS[source]
    for path in source.rglob("*.py"):
        mine = layer(".".join(path.relative_to(source).with_suffix("").parts))
        if mine in ("__init__", "__main__") or path == LIBRARY / "lab.py":
            continue
        assert mine in layers, f"{path} belongs to no layer"
        for name in imports(path, source):
            if name != "__version__":
                assert layer(name) in layers[: layers.index(mine) + 1], f"{path} imports {name}"


def test_no_file_has_more_than_300_lines() -> None:
    """A file is one idea. A longer one has several."""
    files = [path for folder in (LIBRARY, LABORATORY, ROOT / "tests") for path in folder.rglob("*.*")]
    lines = {path: len(path.read_bytes().splitlines()) for path in files if path.suffix in (".py", ".c", ".h")}
    assert len(lines) > 500
    assert not [f"{path.relative_to(ROOT)}: {count}" for path, count in lines.items() if count > 300]


def test_the_library_never_imports_the_laboratory() -> None:
    """`lab.py` names it, in the message that the old imports get."""
    assert [path.name for path in LIBRARY.rglob("*.py") if "equipoise_lab" in path.read_text()] == ["lab.py"]


def test_the_laboratory_uses_public_names_of_the_library_only() -> None:
    for path in LABORATORY.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                assert not any(alias.name.split(".")[0] == "equipoise" for alias in node.names), path
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "equipoise":
                exported = getattr(importlib.import_module(node.module), "__all__", None)
                for alias in node.names:
                    name = f"{node.module}.{alias.name}"
                    if name not in (*PUBLIC, "equipoise.__version__"):
                        assert node.module in PUBLIC, f"{path} imports {name}"
                        assert not alias.name.startswith("_"), f"{path} imports {name}"
                        assert exported is None or alias.name in exported, f"{path} imports {name}"


def test_the_api_page_names_the_public_modules() -> None:
    text = (ROOT / "docs" / "api.md").read_text()
    assert [module for module in PUBLIC if f"`{module}`" not in text and module != "equipoise"] == []


def test_the_architecture_page_has_every_file_of_the_library() -> None:
    page = (ROOT / "docs" / "explanations" / "architecture.md").read_text()
    for folder in (LIBRARY / name for name in LAYERS[LIBRARY] if (LIBRARY / name).is_dir()):
        for path in folder.glob("*.py"):
            assert path.stem.startswith("__") or f"`{path.name}`" in page, path.relative_to(LIBRARY)


def test_the_readme_example_runs_and_is_as_short_as_it_says() -> None:
    code = fifteen_lines()
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


def test_the_readme_has_two_short_speed_tables() -> None:
    tables = re.findall(r"<!-- speed:[\w-]+ -->\n(.*?)\n<!-- /speed", (ROOT / "README.md").read_text(), re.DOTALL)
    assert [len(table.splitlines()) - 2 for table in tables] == [7, 5]


def test_both_distributions_have_one_version() -> None:
    assert importlib.import_module("equipoise_lab").__version__ == equipoise.__version__
    needs = tomllib.loads((ROOT / "lab" / "pyproject.toml").read_text())["project"]["dependencies"]
    assert f"equipoise=={equipoise.__version__}" in needs


def test_one_address_of_the_repository_is_used_everywhere() -> None:
    """And nothing tells people to install a name of an index that may be a stranger's."""
    for folder in (ROOT, ROOT / "lab"):
        urls = tomllib.loads((folder / "pyproject.toml").read_text())["project"]["urls"]
        assert {"Homepage", "Repository", "Documentation", "Changelog", "Issues"} == set(urls)
        assert all(url == URL or url.startswith(f"{URL}/") for url in urls.values())
    texts = [*chain.from_iterable((ROOT / name).rglob("*.py") for name in ("src", "lab/src", "examples", "studies"))]
    texts += [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]
    bare = re.compile(r"""pip install (-\S+ )*['"]?equipoise(?!.*@ git\+)""")
    for path in texts:
        assert not [line for line in path.read_text().splitlines() if bare.search(line) and "bare" not in line], path


def test_every_extra_is_part_of_dev() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    own = next(re.findall(r"\w+", line)[1:] for line in extras["dev"] if line.startswith("equipoise["))
    assert own == sorted(set(extras) - {"dev", "compiler"})  # a development system has a compiler


def test_constraints_pin_what_the_extras_name() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()[1:]
    assert lines == sorted(lines, key=str.lower)
    wanted = []
    for folder in (ROOT, ROOT / "lab"):
        project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
        extras = project["optional-dependencies"]
        wanted += chain.from_iterable([project["dependencies"], *(extras[x] for x in extras if x != "compiler")])
    assert {name_of(line) for line in wanted} <= {name_of(line) for line in lines if "==" in line} | {"equipoise"}


def name_of(requirement: str) -> str:
    """The normalised name in a line such as "mkdocstrings[python]>=1"."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", requirement)[0]).lower()


def test_the_citation_file_has_the_keys_of_its_format() -> None:
    yaml = pytest.importorskip("yaml")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= set(citation)  # required by the format
    for author in [*citation["authors"], *citation["references"][0]["authors"]]:
        assert set(author) <= {"name", "family-names", "given-names"}
    assert str(citation["version"]) == equipoise.__version__
    assert citation["license"] == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["license"]
