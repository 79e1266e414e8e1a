"""The two wheels: the library's has nothing of the laboratory, and works with torch and numpy alone."""

import importlib.metadata
import importlib.util
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import equipoise
from equipoise.repository import URL

ROOT = Path(__file__).parent.parent


def build(project: Path, folder: Path) -> tuple[Path, Path]:
    """The wheel and the source distribution that it is built from."""
    pytest.importorskip("build", reason="needs the package build")
    offline = ["--no-isolation"] if importlib.util.find_spec("hatchling") else []
    command = [sys.executable, "-m", "build", *offline, "--outdir", str(folder), str(project)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(folder.glob("*.whl")), next(folder.glob("*.tar.gz"))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return build(ROOT, tmp_path_factory.mktemp("library"))


@pytest.fixture(scope="module")
def built_laboratory(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return build(ROOT / "lab", tmp_path_factory.mktemp("laboratory"))


def tracked(folder: str) -> set[str]:
    """The files of a source folder, named from there on."""
    names = subprocess.run(["git", "ls-files", folder], cwd=ROOT, capture_output=True, text=True).stdout.split()
    return {name.removeprefix(f"{folder}/") for name in names if (ROOT / name).exists()}


def requirements(wheel: Path) -> set[str]:
    """What a wheel needs without extras."""
    archive = zipfile.ZipFile(wheel)
    (metadata,) = (archive.read(name).decode() for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    lines = re.findall(r"^Requires-Dist: (.*)$", metadata.partition("\n\n")[0], re.MULTILINE)
    return {line for line in lines if "extra ==" not in line}


@pytest.mark.slow
def test_the_wheel_has_sources_and_types_and_nothing_else(built: tuple[Path, Path]) -> None:
    names = set(zipfile.ZipFile(built[0]).namelist())
    assert tracked("src") <= names
    assert "equipoise/py.typed" in names
    assert any(name.endswith(".c") for name in names)
    assert {name.split("/")[0] for name in names} == {"equipoise", f"equipoise-{equipoise.__version__}.dist-info"}
    assert {re.split(r"\W", line)[0] for line in requirements(built[0])} == {"torch", "numpy"}
    with tarfile.open(built[1]) as source:
        top = {name.split("/")[1] for name in source.getnames() if "/" in name}
    assert {"src", "pyproject.toml", "README.md", "LICENSE"} <= top
    assert not top & {"tests", "results", "studies", "docs", "data", "lab"}


@pytest.mark.slow
def test_the_pages_of_an_index_have_absolute_links_to_files_of_the_repository(
    built: tuple[Path, Path], built_laboratory: tuple[Path, Path]
) -> None:
    """A package index shows the README of a wheel, where relative links lead nowhere."""
    for wheel, _ in (built, built_laboratory):
        archive = zipfile.ZipFile(wheel)
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        fields, _, readme = archive.read(name).decode().partition("\n\n")
        assert f"Project-URL: Repository, {URL}" in fields
        targets = re.findall(r"\]\(([^)\s]+)\)", re.sub(r"```.*?```", "", readme, flags=re.DOTALL))
        outside = [target for target in targets if not target.startswith("#")]
        assert all(target.startswith(f"{URL}/") for target in outside), outside
        for target in outside:
            kind, tag, path = target.removeprefix(f"{URL}/").split("/", 2)
            assert tag == f"v{equipoise.__version__}"
            assert kind == ("raw" if path.endswith(".svg") else "blob"), target
            assert (ROOT / path.partition("#")[0]).exists(), target
        assert (len(outside) > 10) == (wheel == built[0])


@pytest.mark.slow
def test_an_index_accepts_the_distributions(built: tuple[Path, Path], built_laboratory: tuple[Path, Path]) -> None:
    pytest.importorskip("twine", reason="needs the package twine")
    command = [sys.executable, "-m", "twine", "check", "--strict", *map(str, (*built, *built_laboratory))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.count("PASSED")) == (0, 4), done.stdout + done.stderr


@pytest.mark.slow
def test_the_laboratory_is_in_its_own_wheel(built: tuple[Path, Path], built_laboratory: tuple[Path, Path]) -> None:
    names = set(zipfile.ZipFile(built_laboratory[0]).namelist())
    assert tracked("lab/src") <= names
    assert any(name.endswith("ocr.npz") for name in names)
    files = {name for name in names if not name.startswith("equipoise_lab-")}
    assert {name.split("/")[0] for name in files} == {"equipoise_lab"}
    in_library = {name.partition("/")[2] for name in zipfile.ZipFile(built[0]).namelist() if not name.endswith(".py")}
    assert {name.partition("/")[2] for name in files if not name.endswith(".py")} & in_library == {"py.typed"}
    assert f"equipoise=={equipoise.__version__}" in requirements(built_laboratory[0])


def needed(name: str, found: set[str]) -> set[str]:
    """A package and all that it needs, without extras."""
    from packaging.requirements import Requirement

    if name not in found:
        found.add(name)
        for line in importlib.metadata.requires(name) or []:
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                needed(requirement.name.lower(), found)
    return found


@pytest.mark.slow
def test_the_wheel_works_with_torch_and_numpy_alone(built: tuple[Path, Path], tmp_path: Path) -> None:
    """A fresh interpreter sees the wheel, and links to torch, numpy and what these two need."""
    packages = tmp_path / "packages"
    packages.mkdir()
    for name in needed("torch", needed("numpy", set())):
        for file in importlib.metadata.files(name) or []:
            top = Path(str(file.locate())).parents[len(file.parts) - 2] if len(file.parts) > 1 else file.locate()
            if file.parts[0] != ".." and not (packages / file.parts[0]).exists():
                (packages / file.parts[0]).symlink_to(Path(str(top)))
    zipfile.ZipFile(built[0]).extractall(tmp_path / "wheel")
    code = f"""
import sys
sys.path += [{str(tmp_path / "wheel")!r}, {str(packages)!r}]
import importlib.util, torch, equipoise, equipoise.compat.torchcrf
assert equipoise.__file__.startswith({str(tmp_path)!r}), equipoise.__file__
assert importlib.util.find_spec("pytest") is None
unary = torch.randn(2, 5, 3, requires_grad=True)
crf = equipoise.ChainCRF(3, equipoise.scaling.Learned())
crf.loss(unary, crf.decode(unary)).backward()
import equipoise.tagger
assert importlib.util.find_spec("equipoise_lab") is None
"""
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
