"""The documentation is correct: its code runs, its links exist, and the API page lists every public name."""

import inspect
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import equipoise
from equipoise import chain, constraints, gaussian, objectives, scaling

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md")), *sorted(DOCS.glob("guides/*.md"))]
PAGES += sorted(DOCS.glob("explanations/*.md"))
LINKED = [*PAGES, *sorted(DOCS.glob("results/*.md")), ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
LINKED += [ROOT / "studies" / "README.md"]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=name)
def test_the_code_of_a_page_runs_from_top_to_bottom(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    names: dict[str, object] = {}
    for block in blocks(page):
        exec(compile(block, str(page), "exec"), names)
    output = capsys.readouterr().out
    for printed in re.findall(r"This prints `(.*?)`", page.read_text()):
        assert printed in output


@pytest.mark.parametrize("page", LINKED, ids=name)
def test_relative_links_point_to_existing_files_and_headings(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, heading = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), target
        if heading and linked.suffix == ".md":
            assert heading in headings(linked), target


def headings(page: Path) -> list[str]:
    """The anchors of a page, as GitHub makes them."""
    lines = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in lines]


def signature(function: Any) -> str:
    """`name(a, b=1, *, c)`, without annotations. Defaults that are long or no plain values are `...`."""
    parts, keywords = [], False
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not keywords:
            keywords = True
            parts.append("*")
        default = "" if parameter.default is parameter.empty else f"={parameter.default!r}"
        parts.append(parameter.name + (default if len(default) < 20 else "=..."))
    return f"{function.__name__}({', '.join(parts)})"


def public(module: ModuleType) -> list[str]:
    """`__all__`, or the functions and classes that the module itself defines."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    made = {x: value for x, value in vars(module).items() if inspect.isfunction(value) or inspect.isclass(value)}
    return [x for x, value in made.items() if value.__module__ == module.__name__ and not x.startswith("_")]


def test_the_api_page_lists_every_public_name_with_its_signature() -> None:
    text = (DOCS / "api.md").read_text()
    sections = dict(re.findall(r"^## `equipoise\.(\w+)`$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    for module in (chain, gaussian, scaling, objectives):
        section = sections[module.__name__.removeprefix("equipoise.")]
        for item in public(module):
            assert re.search(rf"`{item}\b", section), f"{module.__name__}.{item}"
            if inspect.isfunction(getattr(module, item)):
                assert f"`{signature(getattr(module, item))}`" in section, f"{module.__name__}.{item}"
    methods = (scaling.Fixed, scaling.Online, scaling.Offline, scaling.Regularized, scaling.Temperature)
    for method in (*methods, scaling.Learned):
        assert f"`{signature(method)}`" in sections["scaling"], method
    for function in (constraints.from_labels, constraints.Constraints):
        assert f"`{signature(function)}`" in sections["constraints"], function
    for item in equipoise.__all__:
        assert re.search(rf"\b{item}\b", text), item


@pytest.mark.parametrize("layer", [equipoise.ChainCRF, equipoise.GaussianCRF], ids=lambda layer: layer.__name__)
def test_the_api_page_lists_every_method_of_a_layer(layer: type) -> None:
    text = re.sub(r"\s+", " ", (DOCS / "api.md").read_text())
    assert signature(layer) in text
    inherited = {"forward", "extra_repr"}
    for item, function in vars(layer).items():
        if inspect.isfunction(function) and not item.startswith("_") and item not in inherited:
            assert f"`{signature(function)}`" in text, item


def test_files_named_on_the_architecture_page_exist() -> None:
    text = (DOCS / "explanations" / "architecture.md").read_text()
    source = ROOT / "src" / "equipoise"
    for folder, section in re.findall(r"^### `(.*?)/`$(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL):
        for cell in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE):
            for path in re.findall(r"`([\w./*]+)`", cell):
                assert list((source / folder).glob(path.rstrip("/"))), f"{folder}/{path}"
