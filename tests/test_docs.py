"""The documentation is correct: its code runs, its links exist, the API pages list every public name, and it builds."""

import importlib
import importlib.util
import inspect
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import browser
import pretrained
import pytest
import torch

import equipoise
from equipoise import chain, constraints, gaussian, objectives, scaling
from equipoise.compat import torchcrf
from equipoise.repository import URL

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
PAGES += [page for part in ("guides", "explanations", "reference") for page in sorted(DOCS.glob(f"{part}/*.md"))]
TUTORIAL = DOCS / "tutorials" / "fine-tune.md"
LINKED = [*PAGES, TUTORIAL, *sorted(DOCS.glob("results/*.md")), ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
LINKED += [ROOT / "studies" / "README.md"]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


def run(page: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Run the code of a page from top to bottom, and return its variables. What "This prints" says must be printed."""
    torch.manual_seed(0)
    names: dict[str, Any] = {}
    with torch.autograd.set_multithreading_enabled(True):  # a guide disables it
        for block in blocks(page):
            exec(compile(block, str(page), "exec"), names)
    output = capsys.readouterr().out
    for printed in re.findall(r"This prints `(.*?)`", page.read_text()):
        assert printed in output
    return names


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=name)
def test_the_code_of_a_page_runs_from_top_to_bottom(
    page: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if any("from transformers import" in block for block in blocks(page)):
        pytest.importorskip("accelerate")
        tiny_encoder = pytest.importorskip("tiny_encoder")
        tiny_encoder.save(tmp_path / "bert-base-cased")  # found by this name, instead of the pretrained encoder
        monkeypatch.chdir(tmp_path)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torchrun = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    for variable, value in torchrun.items():
        monkeypatch.setenv(variable, value)
    run(page, capsys)


@pytest.mark.slow
def test_the_tutorial_runs_with_a_tiny_encoder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    if "EQUIPOISE_DATA" not in os.environ:
        pytest.skip("needs EQUIPOISE_DATA with conll2000")
    import tiny_encoder

    monkeypatch.setenv("EQUIPOISE_ENCODER", tiny_encoder.save(tmp_path))
    names = run(TUTORIAL, capsys)
    assert len(names["tags"]) == len(names["words"])


@pretrained.LONG
@pytest.mark.encoder
@pytest.mark.slow
def test_the_tutorial_states_what_it_measures(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    pretrained.chunked("train", 1)  # skips where there are no data
    monkeypatch.setenv("EQUIPOISE_ENCODER", pretrained.minilm())
    names = run(TUTORIAL, capsys)
    stated = re.findall(r"^\| (?:softmax|CRF) \| ([\d.]+) % \|$", TUTORIAL.read_text(), re.MULTILINE)
    assert [100 * names["softmax_f1"], 100 * names["crf_f1"]] == pytest.approx([float(x) for x in stated], abs=3)


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
    for item, function in methods_of(layer).items():
        if item not in inherited:
            assert f"`{signature(function)}`" in text, item


def methods_of(layer: type) -> dict[str, Any]:
    """The public methods of a layer, also those of its own base classes."""
    own = [vars(base) for base in layer.__mro__ if base.__module__.startswith("equipoise.")]
    return {x: f for each in own for x, f in each.items() if inspect.isfunction(f) and not x.startswith("_")}


def test_files_named_on_the_architecture_page_exist() -> None:
    text = (DOCS / "explanations" / "architecture.md").read_text()
    for folder, section in re.findall(r"^### `(.*?)/`$(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL):
        source = ROOT if folder.startswith("lab/") else ROOT / "src" / "equipoise"
        for cell in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE):
            for path in re.findall(r"`([\w./*]+)`", cell):
                assert list((source / folder).glob(path.rstrip("/"))), f"{folder}/{path}"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built without warnings."""
    for package in ("mkdocs", "material", "mkdocstrings_handlers"):
        if importlib.util.find_spec(package) is None:
            pytest.skip("needs equipoise[docs]")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_the_reference_has_every_public_name(site: Path) -> None:
    html = "".join(page.read_text() for page in site.glob("reference/*.html"))
    shown = set(re.findall(r'id="(equipoise[\w.]*)"', html))
    modules = [equipoise, chain, gaussian, scaling, objectives, constraints, equipoise.labels, torchcrf]
    for name in ("export", "lightning", "transformers"):
        if name == "export" or importlib.util.find_spec(name):
            modules.append(importlib.import_module(f"equipoise.integrations.{name}"))
    for module in modules:
        for item in public(module):
            if not inspect.ismodule(getattr(module, item)):
                assert f"{module.__name__}.{item}" in shown, f"{module.__name__}.{item}"
    for layer in (equipoise.ChainCRF, equipoise.GaussianCRF):
        assert {f"equipoise.{layer.__name__}.{x}" for x in methods_of(layer) if x != "extra_repr"} <= shown


@pytest.mark.slow
def test_docstrings_keep_their_stars_examples_and_formulas(site: Path) -> None:
    for page in site.glob("reference/*.html"):
        text = page.read_text().partition("<article")[2]
        assert "<blockquote>" not in text, page.name  # what Markdown makes of ">>>"
        assert not re.search(r"<em>(?!required)", text), page.name  # and of two stars
    objective = (site / "reference" / "objectives.html").read_text()
    assert "likelihood   -log P(Y | X)    " in re.sub(r"<[^>]+>", "", objective)  # spaces stay, so it is code
    assert "(*batch, L, M), labels (*batch, L)" in (site / "reference" / "equipoise.html").read_text()


@pytest.mark.slow
def test_the_site_has_markdown_in_details_and_no_links_outside(site: Path) -> None:
    assert re.search(r"<details>\s*<summary>[^<]*</summary>\s*<table>", (site / "results" / "ocr.html").read_text())
    assert "<code>examples/ocr.py</code>" in (site / "guides" / "training-a-crf.html").read_text()
    assert not (site / "rendering").exists()


@pytest.mark.slow
def test_pages_load_nothing_from_other_hosts(site: Path) -> None:
    for page in site.rglob("*.html"):
        loaded = re.findall(
            r"<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)=\"?([^\">\s]+)", page.read_text()
        )
        assert loaded, page
        assert not [target for target in loaded if re.match(r"(https?:)?//", target)], page
    for style in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", style.read_text()), style


CUT_OFF = """(() => {
    document.querySelectorAll("details").forEach(details => details.open = true);
    const tables = [...document.querySelectorAll("article table")].filter(table => table.offsetParent);
    const boxes = tables.map(table => table.closest(".md-typeset__scrollwrap") || table.parentElement);
    return {
        sideways: document.documentElement.scrollWidth - document.documentElement.clientWidth,
        cut: boxes.filter(box => box.scrollWidth > box.clientWidth + 1).map(box => box.innerText.slice(0, 60)),
        unreachable: boxes.filter(box => getComputedStyle(box).overflowX === "hidden").length,
        tables: tables.length,
    };
})()"""


@pytest.mark.slow
@pytest.mark.skipif(browser.program() is None, reason="needs Chromium on the path, or its path in EQUIPOISE_CHROMIUM")
def test_pages_fit_a_screen_and_a_telephone(site: Path, tmp_path: Path) -> None:
    """No table is cut off at 1280 px. At 400 px no page scrolls sideways: a wide table scrolls in its own box."""
    shown = 0
    with browser.tab(tmp_path) as tab:
        for page in site.rglob("*.html"):
            tab.open(page)
            for width in (1280, 400):
                tab.resize(width)
                fit = tab.run(CUT_OFF)
                assert (fit["sideways"], fit["unreachable"]) == (0, 0), (page, width)
                assert width < 1280 or not fit["cut"], (page, fit)
                shown += fit["tables"]
    assert shown > 100


@pytest.mark.slow
@pytest.mark.skipif(browser.program() is None, reason="needs Chromium on the path, or its path in EQUIPOISE_CHROMIUM")
def test_the_home_page_is_one_screen_and_the_search_works_from_disk(site: Path, tmp_path: Path) -> None:
    with browser.tab(tmp_path) as tab:
        tab.open(site / "index.html", 1280)
        first = "document.querySelector('.first-screen')"
        assert tab.run(f"{first}.getBoundingClientRect().bottom") <= 800
        assert tab.run(f"{first}.querySelector('img').naturalWidth") > 0
        assert equipoise.__version__ in tab.run("document.querySelector('a.md-source').innerText")
        assert tab.run("document.querySelector('a.md-source').href") == URL
        scheme = "document.body.getAttribute('data-md-color-scheme')"
        before = tab.run(scheme)
        tab.run("document.querySelector('[data-md-component=palette] label:not([hidden])').click()")
        assert {before, tab.run(scheme)} == {"default", "slate"}
        tab.open(site / "guides" / "masks.html", 400)
        tab.run("document.querySelector('label[for=__search]').click()")
        tab.run("document.querySelector('[data-md-component=search-query]').focus()")
        tab.call("Input.insertText", text="mean_field")
        links = "[...document.querySelectorAll('.md-search-result__link')].map(x => x.getAttribute('href'))"
        end = time.monotonic() + 20
        while not (hits := tab.run(links)) and time.monotonic() < end:
            time.sleep(0.1)
        assert any("reference/chain.html" in link for link in hits), hits
