"""Small tagged sentences that a net can learn: the word before a place or a person tells which it is."""

import random
from pathlib import Path

from equipoise.tagger.columns import Sentence

PLACES = ("Rome", "New York", "Rio de Janeiro", "Oslo")
PEOPLE = ("Ada", "Grace Hopper", "Alan Turing", "Emmy Noether")


def sentences(number: int, seed: int = 0) -> list[Sentence]:
    """Sentences such as "we met Ada in Rome" with tags in IOB2."""
    draw = random.Random(seed)
    return [_sentence(draw.choice(PEOPLE), draw.choice(PLACES), draw.random() < 0.5) for _ in range(number)]


def _sentence(person: str, place: str, long: bool) -> Sentence:
    parts = [("we met", "O"), (person, "PER"), ("in", "O"), (place, "LOC"), ("again .", "O")]
    words, tags = [], []
    for text, kind in parts if long else parts[2:4]:
        for i, word in enumerate(text.split()):
            words.append(word)
            tags.append("O" if kind == "O" else f"{'I' if i else 'B'}-{kind}")
    return Sentence(tuple(words), tuple(tags))


def write(path: Path, number: int, seed: int = 0) -> Path:
    rows = ["".join(f"{word}\t{tag}\n" for word, tag in zip(*x, strict=True)) for x in sentences(number, seed)]
    path.write_text("\n".join(rows))
    return path
