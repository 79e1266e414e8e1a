"""`equipoise-lab predict` for handwriting: read the words of a test fold."""

from typing import Any

from torch import Tensor

from ..predicting import Predictor, Request, examples_of_test_fold


def predict(model: Predictor, request: Request) -> dict[str, Any]:
    """The first words of a test fold as the model reads them, and the accuracy on all words of the fold."""
    request.only("a model of ocr reads the words of its own data set, and", "--fold")
    fold, examples = examples_of_test_fold(model, request)
    labels, score = model.predict(examples), model.evaluate(examples)
    batch = model.task.batch(examples[None].to(labels.device), model.task.room(examples[None]))
    words = [
        {"read": text(row[:length]), "truth": text(truth[:length])}
        for row, truth, length in zip(labels, batch.labels[0], batch.lengths[0].tolist(), strict=True)
    ]
    shown = words[: request.limit or None]
    for word in shown:
        request.say(word["read"] if word["read"] == word["truth"] else f"{word['read']}  (is {word['truth']})")
    request.say(f"{model.task.metric} on {len(words)} words of test fold {fold}: {100 * score:.2f} %")
    return {model.task.metric: score, "words": shown}


def text(labels: Tensor) -> str:
    return "".join(chr(97 + label) for label in labels.tolist())
