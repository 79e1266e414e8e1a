"""`equipoise-lab predict` for text chunking: tags for a file in CoNLL columns, or the scores on the test part."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from equipoise.files import write_whole

from ..predicting import Predictor, Request, examples_of_test_fold
from .chunks import Scores
from .tagging import Tagged, read_and_tag, report


def predict(model: Predictor, request: Request) -> Any:
    """Tags for the given file, or precision, recall and F1 on the test part."""
    if request.source is None:
        request.only("a model of chunking without a file is tested, and")
        _, examples = examples_of_test_fold(model, request)
        scores = report(model, examples)
        f1 = scores.overall.f1
        for line in table(scores):
            request.say(line)
        request.say(f"{model.task.metric} on {len(examples)} sentences of the test part: {100 * f1:.2f} %")
        return {model.task.metric: f1, **fields(scores)}
    request.only("a model of chunking that tags a file", "file", "--out", "--marginals")
    sentences = list(read_and_tag(model, request.source, request.warn))
    names = ("words", "pos", "tags", "confidences") if request.marginals else ("words", "pos", "tags")
    tagged = [{name: getattr(sentence, name) for name in names} for sentence in sentences]
    lines = list(columns(sentences, request.marginals))
    if request.out is None:
        for line in lines:
            request.say(line)
        return tagged
    text = json.dumps(tagged, indent=1) + "\n" if request.as_json else "".join(f"{line}\n" for line in lines)
    write_whole(request.out, text)
    count = sum(len(sentence.words) for sentence in sentences)
    request.warn(f"{count} words of {len(sentences)} sentences tagged: {request.out}")
    return None


def details(model: Predictor) -> tuple[list[str], dict[str, Any]]:
    """Precision, recall and F1 on the test part, as lines of text and as data."""
    scores = report(model, model.task.split(model.recipe.fold, model.recipe.seed).test)
    return table(scores), fields(scores)


def fields(scores: Scores) -> dict[str, Any]:
    by_type = {kind: score._asdict() for kind, score in scores.by_kind.items()}
    return {"overall": scores.overall._asdict(), "by_type": by_type}


def table(scores: Scores) -> list[str]:
    """One line per type of chunk, and one for all types together."""
    lines = [f"{'chunks':8}{'precision':>10}{'recall':>10}{'F1':>10}{'predicted':>11}{'true':>8}"]
    for kind, score in (*scores.by_kind.items(), ("all", scores.overall)):
        shares = "".join(f"{100 * x:10.2f}" for x in (score.precision, score.recall, score.f1))
        lines.append(f"{kind:8}{shares}{score.predicted:11}{score.true:8}")
    return lines


def columns(sentences: Iterable[Tagged], marginals: bool) -> Iterator[str]:
    """One line per word, and an empty line after each sentence."""
    for sentence in sentences:
        for word, pos, tag, p in zip(*sentence, strict=True):
            yield f"{word} {pos} {tag} {p:.4f}" if marginals else f"{word} {pos} {tag}"
        yield ""
