"""`equipoise predict` for text chunking: tags for a file in CoNLL columns, or the scores on the test part."""

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ..report.files import write_whole
from ..tasks.chunking import Tagged, read_and_tag, report
from ..tasks.chunks import Scores
from ..training import Model


def tag(model: Model, source: Path, out: Path | None, marginals: bool, as_json: bool) -> None:
    """Write a line for each word: the word, its part of speech, the tag found; a blank line ends a sentence."""
    sentences = list(read_and_tag(model, source))
    text = _json(sentences, marginals) if as_json else "".join(_columns(sentences, marginals))
    if out is None:
        sys.stdout.write(text)
        return
    write_whole(out, text)
    words = sum(len(sentence.words) for sentence in sentences)
    Console(stderr=True).print(f"{words} words of {len(sentences)} sentences tagged: [bold]{out}[/bold]")


def evaluate(model: Model, as_json: bool) -> None:
    """Print precision, recall and F1 on the publisher's test part, overall and by type."""
    test = model.task.split(model.recipe.fold, model.recipe.seed).test
    scores = report(model, test)
    if as_json:
        json.dump({model.task.metric: scores.overall.f1, **details(scores)}, sys.stdout, indent=1)
        print()
        return
    show(scores)
    Console().print(f"{model.task.metric} on {len(test)} sentences of the test part: {100 * scores.overall.f1:.2f} %")


def after_training(model: Model) -> Scores:
    """On the test part, which training has not seen."""
    return report(model, model.task.split(model.recipe.fold, model.recipe.seed).test)


def details(scores: Scores) -> dict[str, Any]:
    """For JSON."""
    by_type = {kind: score._asdict() for kind, score in scores.by_kind.items()}
    return {"overall": scores.overall._asdict(), "by_type": by_type}


def show(scores: Scores) -> None:
    """A line for each type, and one for all together."""
    table = Table("chunks", title="Test part, %")
    for heading in ("precision", "recall", "F1", "predicted", "true"):
        table.add_column(heading, justify="right")
    for kind, score in (*scores.by_kind.items(), ("all", scores.overall)):
        shares = (f"{100 * x:.2f}" for x in (score.precision, score.recall, score.f1))
        table.add_row(kind, *shares, str(score.predicted), str(score.true))
    Console().print(table)


def _columns(sentences: Iterable[Tagged], marginals: bool) -> Iterator[str]:
    for sentence in sentences:
        for word, pos, tag, p in zip(*sentence, strict=True):
            yield f"{word} {pos} {tag} {p:.4f}\n" if marginals else f"{word} {pos} {tag}\n"
        yield "\n"


def _json(sentences: Iterable[Tagged], marginals: bool) -> str:
    names = ("words", "pos", "tags", "confidences") if marginals else ("words", "pos", "tags")
    return json.dumps([{name: getattr(sentence, name) for name in names} for sentence in sentences], indent=1) + "\n"
