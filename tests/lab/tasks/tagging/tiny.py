"""A tiny random encoder, packed with two corpora of invented sentences whose tags can be learned."""

import random
from pathlib import Path

import torch

from equipoise_lab.data.tagged import PARTS
from equipoise_lab.data.wnut17 import Sentence
from equipoise_lab.nets.encoder import Config, Encoder
from equipoise_lab.tasks.tagging import pack
from equipoise_lab.tasks.tagging.pack import Pack

NAMES = [f"Name{i}" for i in range(6)]
OTHERS = [f"word{i}" for i in range(10)]
SIZES = {"train": 40, "dev": 20, "test": 20}


def sentence(source: random.Random) -> Sentence:
    """Words and names; neighbouring names are one entity."""
    words = [source.choice(NAMES if source.random() < 0.4 else OTHERS) for _ in range(source.randint(1, 9))]
    tags, before = [], False
    for word in words:
        tags.append("O" if word in OTHERS else "I-X" if before else "B-X")
        before = word in NAMES
    return Sentence(tuple(words), tuple(tags))


def made(dropout: float = 0.1) -> Pack:
    """Names have two or three pieces, other words one."""
    pieces = {word: (2 + i,) for i, word in enumerate(OTHERS)}
    pieces |= {name: (12 + i, 18) if i % 2 else (12 + i, 18, 19) for i, name in enumerate(NAMES)}
    config = Config(vocabulary=20, hidden=16, layers=2, heads=2, inner=32, positions=40, types=2, dropout=dropout)
    generator = torch.Generator().manual_seed(0)
    parameters = {
        name: 0.3 * torch.randn(shape, generator=generator) + float(name.endswith("gain"))
        for name, shape in Encoder(config).shapes.items()
    }
    parameters = {name: x.half().float() for name, x in parameters.items()}
    source = random.Random(0)
    corpora = {
        name: {part: [sentence(source) for _ in range(SIZES[part])] for part in parts} for name, parts in PARTS.items()
    }
    return Pack(config, parameters, 0, 1, pieces, corpora, {"name": "tiny"})


def write(folder: Path, dropout: float = 0.1) -> Pack:
    """Write it as the default encoder."""
    one = made(dropout)
    pack.save(one, folder / "minilm.safetensors")
    return one
