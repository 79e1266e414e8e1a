"""Only entities are labelled: how many complete sentences does a CRF need, and what helps besides?

    python studies/positive_only.py run studies/positive_only.json         some minutes on a CPU; needs BC5CDR
    python studies/positive_only.py draw studies/positive_only.json        docs/guides/incomplete-labels.svg

A linear net of features and a CRF learn from 1,500 sentences of BC5CDR. A share of the sentences have all labels. In
the others half of the entities are labelled and nothing else. An unlabelled word is

    any     any label, `UNKNOWN`
    soft    O with probability 0.9, and each other label with the same probability
    O       O

Recorded are the F1 on 1,500 test sentences and how many of their words are predicted to be in an entity.
"""

import argparse
import json
import statistics
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from equipoise import UNKNOWN
from equipoise.labels import to_spans
from equipoise.objectives import sets_of
from equipoise.tagger.columns import Sentence
from equipoise.tagger.evaluation import evaluate
from equipoise.tagger.model import TaggingModel
from equipoise.tagger.recipes import start
from equipoise.tagger.tagset import infer
from equipoise.tagger.training import rate, shuffled
from equipoise_lab.data import tagged
from equipoise_lab.demo import svg

SENTENCES, SEEDS = 1500, 3
COMPLETE = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
METHODS = {"any": "any label", "soft": "O with probability 0.9", "O": "O"}
GUIDE = Path(__file__).parent.parent / "docs" / "guides"


def read(part: str) -> list[Sentence]:
    every = [Sentence(tuple(x.words), tuple(x.tags)) for x in tagged.read("bc5cdr")[part]]
    return every[:: len(every) // SENTENCES][:SENTENCES]


def hidden(train: Sequence[Sentence], complete: float, seed: int) -> list[Sentence]:
    """The sentences with "?" for each label that is missing. More complete sentences contain fewer."""
    draws = torch.Generator().manual_seed(seed)
    whole = set(torch.randperm(len(train), generator=draws)[: round(complete * len(train))].tolist())
    found = []
    for i, x in enumerate(train):
        spans = to_spans(x.tags, "BIO", on_invalid="repair")
        kept = [span for span in spans if torch.rand((), generator=draws) < 0.5]
        there = {t for span in kept for t in range(span.start, span.stop)}
        tags = x.tags if i in whole else tuple(tag if t in there else "?" for t, tag in enumerate(x.tags))
        found.append(Sentence(x.words, tags))
    return found


def loss(model: TaggingModel, batch: Sequence[Sentence], method: str) -> Tensor:
    if method == "any":
        return model.loss([x.words for x in batch], [x.tags for x in batch])
    unary, mask = model.net([x.words for x in batch])
    labels = torch.full(mask.shape, UNKNOWN)
    for row, x in zip(labels, batch, strict=True):
        row[: len(x.tags)] = torch.tensor([model.number.get(tag, UNKNOWN) for tag in x.tags])
    outside = model.number["O"]
    if method == "O":
        whole: Tensor = model.crf.loss(unary, labels.masked_fill(labels == UNKNOWN, outside), mask)
        return whole
    m = len(model.number)
    soft = torch.full((m,), 0.1 / (m - 1))
    soft[outside] = 0.9
    targets = torch.where((labels == UNKNOWN)[..., None], soft, sets_of(labels, m).float())
    mean: Tensor = model.crf.loss(unary, mask=mask, targets=targets)
    return mean


def one(train: Sequence[Sentence], test: Sequence[Sentence], method: str, complete: float, seed: int) -> dict[str, Any]:
    tags, given = infer(train, "IOB2", "BC5CDR"), hidden(train, complete, seed)
    model, own = start(tags, train, "features", seed=seed)
    optimizer = torch.optim.Adagrad(model.parameters(), own.learning_rate)
    for epoch in range(own.epochs):
        batches = shuffled(given, own.batch)
        for place, batch in enumerate(batches):
            for group in optimizer.param_groups:
                group["lr"] = own.learning_rate * rate((epoch + place / len(batches)) / own.epochs, 0.0)
            optimizer.zero_grad()
            loss(model, batch, method).backward()
            optimizer.step()
    tagged_words = [x.tags for x in model.tag([x.words for x in test], probabilities=False)]
    inside = [tag != "O" for tags_of in tagged_words for tag in tags_of]
    f1 = evaluate(tags, test, tagged_words).overall.f1
    about = {"method": method, "complete": complete, "seed": seed}
    return about | {"f1": round(f1, 4), "inside": round(sum(inside) / len(inside), 4)}


def run(path: Path) -> None:
    train, test = read("train"), read("test")
    found = json.loads(path.read_text()) if path.exists() else []
    done = {(x["method"], x["complete"], x["seed"]) for x in found}
    for seed in range(SEEDS):
        for complete in COMPLETE:
            for method in METHODS:
                if (method, complete, seed) not in done:
                    found.append(one(train, test, method, complete, seed))
                    print(found[-1], flush=True)
                    path.write_text("[\n" + ",\n".join(map(json.dumps, found)) + "\n]\n")
    true = [tag != "O" for x in test for tag in x.tags]
    print(f"{sum(true) / len(true):.4f} of the test words are in an entity")


WIDE, HIGH, LEFT, TOP = 300, 190, 48, 58


def draw(path: Path) -> None:
    """Two panels over the share of complete sentences: words in entities, and F1."""
    found, parts = json.loads(path.read_text()), []
    for number, (field, title) in enumerate((("inside", "words predicted in an entity, %"), ("f1", "test F1, %"))):
        left = LEFT + number * (WIDE + 60)

        def at(place: float, value: float, left: float = left) -> str:
            return f"{left + WIDE * place / (len(COMPLETE) - 1):.1f},{TOP + HIGH * (1 - value):.1f}"

        parts.append(f'<text x="{left}" y="{TOP - 10}">{escape(title)}</text>')
        for tick in (0.0, 0.5, 1.0):
            parts.append(f'<polyline class="grid" points="{at(0, tick)} {at(len(COMPLETE) - 1, tick)}"/>')
            down = TOP + HIGH * (1 - tick) + 4
            parts.append(f'<text x="{left - 6}" y="{down:.1f}" text-anchor="end">{100 * tick:g}</text>')
        for place, share in enumerate(COMPLETE):
            across = at(place, 0).split(",")[0]
            parts.append(f'<text x="{across}" y="{TOP + HIGH + 16}" text-anchor="middle">{100 * share:g} %</text>')
        parts.append(f'<text x="{left}" y="{TOP + HIGH + 34}">complete sentences</text>')
        for colour, method in zip(svg.COLOURS, METHODS, strict=False):
            means = [
                statistics.mean(x[field] for x in found if (x["method"], x["complete"]) == (method, share))
                for share in COMPLETE
            ]
            points = " ".join(at(place, value) for place, value in enumerate(means))
            parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{points}"/>')
    for number, name in enumerate(METHODS.values()):
        across = LEFT + 190 * number
        parts.append(f'<rect x="{across}" y="12" width="14" height="4" fill="{svg.COLOURS[number]}"/>')
        parts.append(f'<text x="{across + 20}" y="18">an unlabelled word: {escape(name)}</text>')
    label = "words predicted in an entity, and F1, by the share of complete sentences"
    size = f"0 0 {LEFT + 2 * WIDE + 80} {TOP + HIGH + 44}"
    picture = svg.file(f'<svg viewBox="{size}" role="img" aria-label="{label}">{"".join(parts)}</svg>')
    (GUIDE / "incomplete-labels.svg").write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("run", "draw"))
    parser.add_argument("path", type=Path)
    options = parser.parse_args()
    (run if options.command == "run" else draw)(options.path)
