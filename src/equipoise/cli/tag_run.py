"""The commands `equipoise tag run` and `equipoise tag score`: what a trained tagger does with files."""

from collections.abc import Iterable, Iterator
from itertools import chain, islice, tee
from pathlib import Path
from typing import Annotated, Any

import tyro

from ..files.escaping import to_json
from ..files.text import name_of
from ..files.writing import write_whole
from ..tagger import columns, report
from ..tagger.evaluation import confusion_lines, table
from ..tagger.header import Column
from ..tagger.html import BEST, MOST_SENTENCES, page
from ..tagger.model import Tagged, TaggingModel, load
from ..tagger.words import Text
from . import tag_output
from .output import flush, printing
from .running import Device, check_device
from .tag_arguments import Flag, Json, Model, Source
from .tag_checks import check_tags
from .tag_input import Kind, arriving
from .tag_input import sentences as sentences_of


def tag_run(
    model: Model,
    source: Source,
    /,
    *,
    kind: Annotated[Kind, tyro.conf.arg(name="input")] = "auto",
    word_column: Column = None,
    separator: str | None = None,
    as_json: Json = False,
    conll: Flag = False,
    html: Path | None = None,
    device: Device = "cpu",
) -> None:
    """Tag a text, and print each sentence with its spans and their probabilities.

    Args:
        model: Folder written by `equipoise tag train`.
        source: Text file, plain or gzipped; - reads standard input.
        kind: Form of the text. columns: one word per line, blank lines between sentences. csv: the same with commas and
            quotes, or one sentence per line in a column that the header names text. jsonl: one object per line, with
            words or a text. words: one sentence per line, words separated by spaces. lines: one sentence per line, to
            be split into words. text: running text, to be split into sentences and words. auto: by the name of the
            file and its first lines columns, csv, jsonl or lines.
        word_column: Column of the word: a number from 1, or a name in the header.
        separator: Text between columns; by default a tab if the first line has one, otherwise spaces.
        as_json: Print one JSON object per sentence: words, tags, and spans with their characters and probabilities.
        conll: Print one word and its tag per line, separated by a tab.
        html: Write a page with coloured spans to this file instead.
        device: Device.
    """
    check_device(device)
    if as_json + conll + (html is not None) > 1:
        raise ValueError("--json, --conll and --html exclude each other: choose one")
    tagger = load(model, device)
    texts = sentences_of(source, kind, word_column, separator, tagger.rule)
    if html is not None:
        first = _tagged(tagger, islice(texts, MOST_SENTENCES), best=BEST)
        tagged = chain(first, _tagged(tagger, texts))
        write_whole(html, page(tagged, f"{name_of(source.name)}, tagged by {model}", tagger.tags, tagger.transitions()))
        return
    written = tag_output.as_json if as_json else tag_output.as_columns if conll else tag_output.in_brackets
    with printing("it is incomplete"):
        for some in arriving(texts) if str(source) == "-" else [texts]:
            for one, text in _tagged(tagger, some, probabilities=not conll):
                print(written(one, text))
            flush()


def _tagged(tagger: TaggingModel, texts: Iterable[Text], **options: Any) -> Iterator[tuple[Tagged, Text]]:
    """Each sentence with its tags."""
    first, again = tee(texts)
    return zip(tagger.tag((x.words for x in again), **options), first, strict=True)


def tag_score(
    model: Model,
    source: Source,
    /,
    *,
    word_column: Column = None,
    tag_column: Column = None,
    separator: str | None = None,
    device: Device = "cpu",
    as_json: Json = False,
    html: Path | None = None,
) -> None:
    """Compare a model's tags with those of a file: precision, recall and F1 by type, and the most frequent errors.

    Args:
        model: Folder written by `equipoise tag train`.
        source: File with one word and its tag per line, plain or gzipped.
        word_column: Column of the word: a number from 1, -1 for the last one, or a name in the header. By default the
            one that the header names word, token or form, or the first.
        tag_column: Column of the tag, likewise. By default the one that the header names tag, ner or label, or the
            last.
        separator: Text between columns; by default a tab if the first line has one, otherwise spaces.
        device: Device.
        as_json: Print the result as JSON.
        html: Also write a page with the scores and the errors in context to this file.
    """
    check_device(device)
    tagger = load(model, device)
    sentences = columns.read(source, word_column, tag_column, separator)
    check_tags(tagger.tags, sentences, source, "the model")
    scores = report.scored(tagger, sentences)
    if html is not None:
        write_whole(html, report.page(f"{name_of(source.name)}, tagged by {model}", tagger, scores, sentences))
    found = scores.evaluation
    with printing("it is incomplete"):
        shown = [to_json(tag_output.fields(found), 1)] if as_json else [*table(found), *confusion_lines(found)]
        print("\n".join(shown))
