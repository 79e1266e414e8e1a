"""How `equipoise tag` prints tagged sentences and scores."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .. import scaling
from ..files.escaping import escaped, on_one_line, to_json
from ..tagger.evaluation import Evaluation, confusion_lines, table
from ..tagger.folder import describe
from ..tagger.model import Tagged
from ..tagger.pieces import pieces
from ..tagger.training_state import Epoch
from ..tagger.words import Text


def as_json(one: Tagged, text: Text) -> str:
    places = text.places()
    spans = []
    for span, probability in zip(one.spans, one.probabilities, strict=True):
        first, last = places[span.start][0], places[span.stop - 1][1]
        found: dict[str, Any] = {**span._asdict(), "text": text.characters[first:last]}
        if text.start is not None:
            found |= {"start_char": text.start + first, "end_char": text.start + last}
        spans.append(found | {"probability": round(probability, 6)})
    return to_json({"words": one.words, "tags": one.tags, "spans": spans})


def as_columns(one: Tagged, text: Text) -> str:
    return "".join(f"{escaped(word)}\t{escaped(label)}\n" for word, label in zip(one.words, one.tags, strict=True))


def in_brackets(one: Tagged, text: Text) -> str:
    parts = [
        part if span is None else f"[{part}]({span.kind} {probability:.2f})"
        for part, span, probability in pieces(one, text)
    ]
    return on_one_line("".join(parts)).strip(" ")


def fields(found: Evaluation) -> dict[str, Any]:
    by_kind = {kind: one._asdict() for kind, one in found.by_kind.items()}
    return {**found.overall._asdict(), "types": by_kind, "errors": [one._asdict() for one in found.confusions]}


def report(found: Evaluation, history: Sequence[Epoch], out: Path, part: str, *, machine_readable: bool) -> None:
    verdict = scaling.verdict([epoch.ratio for epoch in history])
    best = describe(out)["training"]
    seconds = sum(epoch.seconds for epoch in history)
    if machine_readable:
        about = {"model": str(out), "epoch": best["epoch"], "valid_f1": best["valid_f1"], "seconds": seconds}
        print(to_json(about | {"balance": verdict.ratio, part: fields(found)}, 1))
        return
    print("\n".join([f"{part} sentences:", *table(found), *confusion_lines(found)]))
    print(f"balance of net and CRF: ratio {verdict.ratio:.3g} and {verdict.trend}")  # training chose it: see `Learned`
    epochs = f"epoch {best['epoch']} of {len(history)}, F1 {100 * best['valid_f1']:.2f} % in validation"
    print(escaped(f"model: {out} ({epochs}; {seconds:.0f} s)"))
