"""The documentation is correct: its code runs, its links and files exist, and the API pages list every public name."""

import inspect
import os
import re
import socket
from pathlib import Path
from typing import Any

import pretrained
import pytest
import torch
from public_names import methods_of, public

import equipoise
from equipoise import chain, constraints, gaussian, objectives, scaling

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


def test_files_named_on_the_architecture_page_exist() -> None:
    text = (DOCS / "explanations" / "architecture.md").read_text()
    for folder, section in re.findall(r"^### `(.*?)/`$(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL):
        source = ROOT if folder.startswith("lab/") else ROOT / "src" / "equipoise"
        for cell in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE):
            for path in re.findall(r"`([\w./*]+)`", cell):
                assert list((source / folder).glob(path.rstrip("/"))), f"{folder}/{path}"
