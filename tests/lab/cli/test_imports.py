"""A reader can follow `equipoise-lab train ocr` without the code that plans, runs and judges experiments."""

import ast
from collections.abc import Iterator
from pathlib import Path

import equipoise_lab

SOURCE = Path(equipoise_lab.__file__).parent
TRAIN = SOURCE / "cli" / "train.py"
AIM = 28
OTHER_TASKS = (
    "tasks/chunking",
    "tasks/horses",
    "tasks/tagging",
    "nets/tagger",
    "nets/bilstm",
    "nets/recurrence",
    "nets/unet",
)
KERNELS = ("nets/triton_pooling", "training/fused_adam", "training/triton_adam")
NOT_TRAINING = ("tasks/ocr/predict", "tasks/predicting", "data/entries", "data/errors", "data/registry", *KERNELS)
"""Prediction, GPU kernels, and download of data."""


def file_of(parts: tuple[str, ...]) -> Path | None:
    """The file of a module or package named from `equipoise_lab` on."""
    path = SOURCE.joinpath(*parts)
    return next((one for one in (path.with_suffix(".py"), path / "__init__.py") if one.is_file()), None)


def imports(path: Path) -> Iterator[Path]:
    """The files of this package that a file imports, also inside functions."""
    here = path.relative_to(SOURCE).parts[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            parts = (node.module or "").split(".") if node.module else []
            if not node.level and parts[:1] != ["equipoise_lab"]:
                continue
            base = (*here[: len(here) - node.level + 1], *parts) if node.level else tuple(parts[1:])
            for alias in node.names:
                found = file_of((*base, alias.name)) or file_of(base)
                if found is not None:
                    yield found


def reachable(start: Path, without: tuple[str, ...] = ()) -> set[str]:
    """The files that are imported from `start`, directly or indirectly, relative to the package."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        path = waiting.pop()
        name = path.relative_to(SOURCE).as_posix()
        if name not in found and not name.startswith(without):
            found.add(name)
            waiting += imports(path)
    return found


def only_exports(path: Path) -> bool:
    """Whether a file only imports names and lists them in `__all__`: there is nothing in it to read."""
    _, *body = ast.parse(path.read_text()).body  # without the docstring
    return all(
        isinstance(node, ast.ImportFrom)
        or (isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["__all__"])
        for node in body
    )


def test_train_imports_no_code_of_the_experiments() -> None:
    folders = {name.split("/")[0] for name in reachable(TRAIN)}
    assert not folders & {"plan", "run", "judge", "report", "demo", "bench"}
    assert {"cli", "training", "tasks", "nets", "data"} <= folders


def test_train_of_ocr_is_in_few_files() -> None:
    """The files of the laboratory whose functions `equipoise-lab train ocr` calls. The library is not counted."""
    files = sorted(
        name
        for name in reachable(TRAIN, (*OTHER_TASKS, *NOT_TRAINING))
        if not name.endswith("__init__.py") or name == "tasks/__init__.py"
    )
    declarations = {"cli/choices.py", "tasks/ocr/settings.py"}
    followed = [name for name in files if name not in declarations and not only_exports(SOURCE / name)]
    assert len(followed) <= AIM, f"{len(followed)} files: {', '.join(followed)}"
