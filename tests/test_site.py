"""The documentation site builds, its reference has every public name, and its pages fit a screen and a telephone."""

import importlib
import importlib.util
import inspect
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import browser
import pytest
from public_names import methods_of, public

import equipoise
from equipoise import chain, constraints, gaussian, objectives, scaling
from equipoise.compat import torchcrf
from equipoise.repository import URL

ROOT = Path(__file__).parent.parent


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
        links = "[...document.querySelectorAll('.md-search-result__link')].map(x => x.getAttribute('href'))"
        end = time.monotonic() + 60
        while not (hits := tab.run(links)) and time.monotonic() < end:  # typed again: the index may not be read yet
            tab.run("document.querySelector('[data-md-component=search-query]').select()")
            tab.call("Input.insertText", text="mean_field")
            time.sleep(1)
        assert any("reference/chain.html" in link for link in hits), hits
