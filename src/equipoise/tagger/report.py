"""The report of a training: the scores by type, the learning curve, confusions, transitions, and errors in context.

report.html          all of it, one page as in `html`
report.txt           precision, recall and F1 by type, and the most frequent errors
learning-curve.svg   F1 and loss by epoch
confusion.svg        words by true and predicted type
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from ..files.writing import write_whole
from .charts import confusion, learning_curve
from .evaluation import Evaluation, confusion_lines, evaluate, table, word_confusion
from .html import BEST, Colours, document, marked, matrix, plain, rows_of, sentence
from .model import TaggingModel
from .sentence import Sentence
from .training_state import Epoch
from .words import from_words

MOST_ERRORS, MOST_KINDS = 200, 20
"""Sentences with errors, and kinds of errors, that a report shows."""


class Report(NamedTuple):
    evaluation: Evaluation
    tags: list[tuple[str, ...]]  # of each sentence, as predicted


def scored(model: TaggingModel, sentences: Sequence[Sentence]) -> Report:
    """The predicted tags of sentences, and their scores."""
    tags = [one.tags for one in model.tag([x.words for x in sentences], probabilities=False)]
    return Report(evaluate(model.tags, sentences, tags), tags)


def write(folder: Path, model: TaggingModel, report: Report, sentences: Sequence[Sentence], part: str) -> None:
    """Write the four files. `part` says which sentences were scored."""
    history = [Epoch(**epoch) for epoch in model.about.get("history", [])]
    charts = {"confusion.svg": _confusion(model, report, sentences)}
    if history:
        charts["learning-curve.svg"] = learning_curve(history, model.about.get("epoch", 0))
    for name, chart in charts.items():
        write_whole(folder / name, chart)
    write_whole(folder / "report.txt", "\n".join([f"{part} sentences:", *_lines(report.evaluation)]) + "\n")
    write_whole(
        folder / "report.html", page(f"{folder.resolve().name}: {part} sentences", model, report, sentences, charts)
    )


def page(
    title: str, model: TaggingModel, report: Report, sentences: Sequence[Sentence], charts: dict[str, str] | None = None
) -> str:
    """The page of all parts."""
    if charts is None:
        charts = {"confusion.svg": _confusion(model, report, sentences)}
    colours = Colours()
    wrong = [i for i, (gold, tags) in enumerate(zip(sentences, report.tags, strict=True)) if gold.tags != tags]
    shown = wrong[:MOST_ERRORS]
    errors = _errors(model, [sentences[i] for i in shown], [i + 1 for i in shown], colours)
    count = f"{len(shown)} of the {len(wrong)} sentences with errors" if len(shown) < len(wrong) else f"{len(wrong)}"
    what = "True spans stand above, predicted ones below. A click shows probabilities and the best labellings."
    body = [
        f"<h1>{plain(title)}</h1>",
        _scores(report.evaluation),
        *(f'<div class="wide">{chart}</div>' for chart in reversed(charts.values())),
        f"<h2>Sentences with errors: {count}</h2>",
        f"<p>{what} {colours.legend()}</p>",
        *errors,
        *matrix(model.tags, model.transitions()),
    ]
    return document(title, body, colours)


def _scores(evaluation: Evaluation) -> str:
    """The scores by type, and the most frequent errors."""
    rows = [("all", evaluation.overall), *evaluation.by_kind.items()]
    scores = [
        (kind, *(f"{100 * x:.2f}" for x in (one.precision, one.recall, one.f1)), str(one.true)) for kind, one in rows
    ]
    errors = [(one.error, str(one.number), one.example) for one in evaluation.confusions[:MOST_KINDS]]
    return rows_of(("type", "precision", "recall", "F1", "spans"), scores) + (
        rows_of(("error", "number", "for example"), errors) if errors else "<p>no errors</p>"
    )


def _lines(evaluation: Evaluation) -> list[str]:
    return [*table(evaluation), "", *confusion_lines(evaluation, MOST_KINDS)]


def _errors(model: TaggingModel, gold: Sequence[Sentence], numbers: Sequence[int], colours: Colours) -> list[str]:
    """Each sentence with its true spans, and with the predicted ones as links."""
    blocks = []
    predicted = model.tag([x.words for x in gold], best=BEST)
    for true, one, number in zip(gold, predicted, numbers, strict=True):
        text = from_words(one.words)
        blocks.append(f'<p class="true" dir="auto">{marked(one, true.tags, text, model.tags, colours)}</p>')
        blocks.append(sentence(one, text, model.tags, colours, number))
    return blocks


def _confusion(model: TaggingModel, report: Report, sentences: Sequence[Sentence]) -> str:
    counts = word_confusion(model.tags, sentences, report.tags)
    kinds = sorted({kind for pair in counts for kind in pair} - {"O"})
    return confusion(counts, [*kinds, "O"])
