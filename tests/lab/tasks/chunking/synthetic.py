"""A synthetic corpus in a data folder: noun and verb phrases whose tags follow from the words."""

import gzip
import random
from pathlib import Path

PHRASES = {
    "NP": [("the", "DT"), ("Old", "JJ"), ("dog", "NN"), ("dogs", "NNS"), ("1990", "CD")],
    "VP": [("was", "VBD"), ("barking", "VBG"), ("unheard-of", "VBN")],
}
KNOWN = ["the", "old", "dog", "was", "barking", ",", "fine"]
TRAIN, TEST = 60, 15


def sentence(draw: random.Random) -> list[str]:
    rows = []
    for _ in range(draw.randint(1, 5)):
        kind = draw.choice(["NP", "VP", "O"])
        if kind == "O":
            rows.append(", , O")
            continue
        words = PHRASES[kind][: draw.randint(1, len(PHRASES[kind]))]
        rows += [f"{word} {pos} {'BI'[i > 0]}-{kind}" for i, (word, pos) in enumerate(words)]
    return rows


def write(folder: Path) -> Path:
    """Only the test part has a sentence with I-LST and with words that occur nowhere else."""
    draw = random.Random(0)
    (folder / "conll2000").mkdir()
    (folder / "glove").mkdir()
    for part, count in (("train", TRAIN), ("test", TEST - 1)):
        sentences = [sentence(draw) for _ in range(count)]
        if part == "test":
            sentences.append(["First LS B-LST", "and LS I-LST"])
        text = "".join("\n".join(rows) + "\n\n" for rows in sentences)
        (folder / "conll2000" / f"{part}.txt.gz").write_bytes(gzip.compress(text.encode()))
    rows = [f"{word} " + " ".join(f"{draw.gauss(0, 0.5):.4f}" for _ in range(50)) for word in KNOWN]
    (folder / "glove" / "glove.6B.50d.txt").write_text("\n".join(rows) + "\n")
    return folder
