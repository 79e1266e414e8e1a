"""A packed encoder: weights in float16, and the corpora as numbers of words, pieces and tags, in one safetensors file.

    encoder.*                  the weights; of the vocabulary only the rows that occur
    pieces, piece_counts       the pieces of every word, as rows of the vocabulary
    conll2000.train.words ...  the words, tags and lengths of the sentences of each part

With this file the task needs neither the corpora nor a tokenizer.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from equipoise.files import tensors

from ...data import encoders
from ...data.checking import sha256
from ...data.encoders import Checkpoint
from ...data.errors import DataError
from ...data.folder import require
from ...data.tagged import PARTS, Corpus, read, tags_of
from ...data.wnut17 import Sentence
from ...nets.encoder import Config, from_checkpoint
from .pieces import Splitter

FORMAT = "equipoise encoder 2"
WEIGHTS = "encoder."


@dataclass(frozen=True)
class Pack:
    config: Config
    parameters: dict[str, Tensor]
    """Of one replica, float32."""
    first: int
    """The row of the token before a sentence, such as [CLS]."""
    last: int
    """The row of the token after a sentence, such as [SEP]."""
    pieces: dict[str, tuple[int, ...]]
    """The rows of the vocabulary that make up each word."""
    corpora: dict[str, Corpus]
    origin: dict[str, Any]
    """Name, digests of the checkpoint and of the corpora, and terms."""

    def corpus(self, name: str) -> Corpus:
        if name not in self.corpora:
            raise DataError(f"the packed encoder was made without {name}: pack the checkpoint again")
        return self.corpora[name]


def make(name: str, checkpoint: Checkpoint, data_dir: str | Path | None = None) -> Pack:
    """Pack a checkpoint with the corpora, which must be in the data folder."""
    fields = json.loads(checkpoint.config)
    config = Config.of(fields)
    every = from_checkpoint(tensors.parse(checkpoint.weights, "model.safetensors")[0], fields)
    splitter = Splitter(checkpoint.tokenizer)
    corpora = {corpus: read(corpus, data_dir) for corpus in PARTS}
    words = sorted({word for corpus in corpora.values() for part in corpus.values() for x in part for word in x.words})
    pieces = {word: splitter(word) for word in words}
    used = sorted({splitter.first, splitter.last, *(piece for each in pieces.values() for piece in each)})
    if used[-1] >= config.vocabulary:
        raise DataError(
            f"the tokenizer has a piece {used[-1]}, but the encoder has a vocabulary of {config.vocabulary}"
        )
    row = {piece: i for i, piece in enumerate(used)}
    parameters = {name: _rounded(x[used] if name == "words" else x) for name, x in every.items()}
    files = {corpus: require(corpus, data_dir) for corpus in PARTS}
    source = encoders.SOURCES.get(name)
    return Pack(
        replace(config, vocabulary=len(used)),
        parameters,
        row[splitter.first],
        row[splitter.last],
        {word: tuple(row[piece] for piece in each) for word, each in pieces.items()},
        corpora,
        {
            "name": name,
            "sha256": checkpoint.sha256,
            "terms": source.terms if source else "unknown",
            "corpora": {corpus: {part: sha256(path) for part, path in each.items()} for corpus, each in files.items()},
        },
    )


def _rounded(x: Tensor) -> Tensor:
    """Rounded to float16, as it is stored."""
    half = x.contiguous().to(torch.float16)
    if not bool(half.isfinite().all()):
        raise DataError("the weights of the encoder do not fit into float16")
    return half.float()


def save(pack: Pack, path: Path) -> None:
    """Write a pack."""
    words = list(pack.pieces)
    number = {word: i for i, word in enumerate(words)}
    tensors_by_name = {f"{WEIGHTS}{name}": x.to(torch.float16) for name, x in pack.parameters.items()}
    tensors_by_name["pieces"] = _numbers([piece for each in pack.pieces.values() for piece in each])
    tensors_by_name["piece_counts"] = _numbers([len(each) for each in pack.pieces.values()])
    tags = {name: tags_of(corpus) for name, corpus in pack.corpora.items()}
    for name, corpus in pack.corpora.items():
        label = {tag: i for i, tag in enumerate(tags[name])}
        for part, sentences in corpus.items():
            tensors_by_name[f"{name}.{part}.words"] = _numbers([number[word] for x in sentences for word in x.words])
            tensors_by_name[f"{name}.{part}.tags"] = _numbers([label[tag] for x in sentences for tag in x.tags])
            tensors_by_name[f"{name}.{part}.lengths"] = _numbers([len(x) for x in sentences])
    text = {
        "format": FORMAT,
        "config": asdict(pack.config),
        "first": pack.first,
        "last": pack.last,
        "words": words,
        "tags": tags,
        "origin": pack.origin,
    }
    tensors.save(path, tensors_by_name, json.dumps(text))


def load(path: Path) -> Pack:
    """Read a pack."""
    tensors_by_name, text = tensors.load(path)
    try:
        header = json.loads(text)
        if header["format"] != FORMAT:
            again = "pack the checkpoint again with `equipoise-lab data encoder`"
            raise DataError(f"{path} is a {header['format']!r}, not a {FORMAT!r}: {again}")
        words, corpora = header["words"], {}
        for name, tags in header["tags"].items():
            corpora[name] = {part: _sentences(tensors_by_name, f"{name}.{part}", words, tags) for part in PARTS[name]}
        parts = _divided(tensors_by_name["pieces"].tolist(), tensors_by_name["piece_counts"].tolist())
        return Pack(
            Config(**header["config"]),
            {name.removeprefix(WEIGHTS): x.float() for name, x in tensors_by_name.items() if name.startswith(WEIGHTS)},
            header["first"],
            header["last"],
            dict(zip(words, map(tuple, parts), strict=True)),
            corpora,
            header["origin"],
        )
    except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
        raise DataError(f"{path} is damaged: {error}") from error


def _sentences(tensors_by_name: dict[str, Tensor], part: str, words: list[str], tags: list[str]) -> list[Sentence]:
    sizes = tensors_by_name[f"{part}.lengths"].tolist()
    spelled = _divided([words[i] for i in tensors_by_name[f"{part}.words"].tolist()], sizes)
    tagged = _divided([tags[i] for i in tensors_by_name[f"{part}.tags"].tolist()], sizes)
    return [Sentence(tuple(w), tuple(t)) for w, t in zip(spelled, tagged, strict=True)]


def _numbers(values: Sequence[int]) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


def _divided(values: list[Any], sizes: list[int]) -> list[list[Any]]:
    """Consecutive parts of these sizes."""
    if sum(sizes) != len(values):
        raise ValueError(f"expected {sum(sizes)} numbers, got {len(values)}")
    parts, start = [], 0
    for size in sizes:
        parts.append(values[start : start + size])
        start += size
    return parts
