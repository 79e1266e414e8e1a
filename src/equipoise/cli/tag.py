"""The commands `equipoise tag train | run | score`: a tagger for text files."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import tee
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from ..files.errors import DataError
from ..files.escaping import to_json
from ..files.writing import WritingError, write_whole
from ..spans.tables import broken
from ..tagger import columns
from ..tagger.columns import Sentence
from ..tagger.estimator import Tagger
from ..tagger.evaluation import Evaluation, confusion_lines, evaluate, table
from ..tagger.folder import STATE, WEIGHTS, has_model, locked
from ..tagger.html import page
from ..tagger.model import Tagged, TaggingModel, load
from ..tagger.tagset import TagSet
from ..tagger.training import fit
from ..tagger.words import Text
from . import tag_output
from .output import flush, printing, say
from .running import Device, check_device
from .tag_input import Kind, arriving, read_parts, sentences
from .tag_progress import watching

tag = tyro.extras.SubcommandApp()

Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff]
Json = Annotated[bool, tyro.conf.arg(name="json"), tyro.conf.FlagCreatePairsOff]
Model = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
Source = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FILE")]
Scheme = Literal["auto", "IOB2", "IOB1", "BIOES", "BILOU", "BMES", "none"]


@tag.command(name="train")
def tag_train(
    *,
    train: Path,
    valid: Path | None = None,
    test: Path | None = None,
    encoder: str | None = None,
    net: Literal["bilstm"] = "bilstm",
    out: Path,
    scheme: Scheme = "auto",
    word_column: int | str | None = None,
    tag_column: int | str | None = None,
    separator: str | None = None,
    epochs: int | None = None,
    learning_rate: float | None = None,
    batch: int | None = None,
    seed: int = 0,
    device: Device = "cpu",
    resume: Flag = False,
    overwrite: Flag = False,
    as_json: Json = False,
) -> None:
    """Train a tagger on files with one word and its tag per line and a blank line between sentences.

    Args:
        train: File to learn from, plain or gzipped.
        valid: File that decides which epoch is best; by default a tenth of the sentences of --train.
        test: File to score at the end; by default the validation sentences are scored.
        encoder: Pretrained encoder: a folder or a name on the Hugging Face hub. By default the net is trained.
        net: bilstm: a BiLSTM over words and their characters.
        out: Folder for the model.
        scheme: Tagging scheme. auto: it is detected. none: plain labels, one per word.
        word_column: Column of the word: a number from 1, -1 for the last one, or a name in the header. By default the
            one that the header names word, token or form, or the first.
        tag_column: Column of the tag, likewise. By default the one that the header names tag, ner or label, or the
            last.
        separator: Text between columns; by default a tab if the first line has one, otherwise spaces.
        epochs: Number of epochs; by default about 2,500 steps, between 10 and 100 epochs; with an encoder 5 epochs.
        learning_rate: Highest learning rate; by default 0.002, with an encoder 0.0001.
        batch: Sentences per step; by default 32, fewer for less than 320 sentences.
        seed: Seed of the initial values, the order of sentences, and the default validation part.
        device: Device.
        resume: Continue an interrupted training; the other options must be the same.
        overwrite: Replace a model in the folder.
        as_json: Print the result as JSON.
    """
    check_device(device)
    _check_folder(out, resume, overwrite)
    parts = read_parts((train, valid, test), (word_column, tag_column, separator), seed)
    own = Tagger(net, encoder, scheme, epochs, learning_rate, batch, seed, device)
    tagger, settings = own.start(parts[0], train)
    _warn_about(tagger.tags, parts, (train, valid or train, test))
    if encoder is not None:
        _warn_about_window(tagger.net, parts[0], train)
    if not as_json:
        data = f"{len(parts[0])} sentences to learn from, {len(parts[1])} for validation"
        labels, number = tagger.tags, sum(x.numel() for x in tagger.parameters())
        say(f"{data}, {len(labels.labels)} tags, scheme {labels.scheme}; {number:,} parameters")
    with locked(out):
        _check_folder(out, resume, overwrite)  # another training may have ended meanwhile
        if overwrite:
            (out / STATE).unlink(missing_ok=True)
        try:
            with watching(settings.epochs, quiet=as_json) as watch:
                arguments = (tagger, parts[0], parts[1], settings, out)
                history = fit(*arguments, resume=resume, watch=watch.epoch, step=watch.step)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(_kept(out)) from None
        except WritingError as error:
            raise WritingError(f"{error}; {_kept(out)}") from error
        best = load(out, device)
    scored = parts[2] or parts[1]
    part = "test" if parts[2] else "validation"
    found = _scores(best, scored)
    with printing(f"the model is in {out}"):
        tag_output.report(found, history, out, part, machine_readable=as_json)


@tag.command(name="run")
def tag_run(
    model: Model,
    source: Source,
    /,
    *,
    kind: Annotated[Kind, tyro.conf.arg(name="input")] = "auto",
    word_column: int | str | None = None,
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
    texts = sentences(source, kind, word_column, separator, tagger.rule)
    if html is not None:
        write_whole(html, page(_tagged(tagger, texts), f"{source.name}, tagged by {model}"))
        return
    written = tag_output.as_json if as_json else tag_output.as_columns if conll else tag_output.in_brackets
    with printing("it is incomplete"):
        for some in arriving(texts) if str(source) == "-" else [texts]:
            for one, text in _tagged(tagger, some, probabilities=not conll):
                print(written(one, text))
            flush()


def _tagged(
    tagger: TaggingModel, texts: Iterable[Text], *, probabilities: bool = True
) -> Iterator[tuple[Tagged, Text]]:
    """Each sentence with its tags."""
    first, again = tee(texts)
    return zip(tagger.tag((x.words for x in again), probabilities=probabilities), first, strict=True)


@tag.command(name="score")
def tag_score(
    model: Model,
    source: Source,
    /,
    *,
    word_column: int | str | None = None,
    tag_column: int | str | None = None,
    separator: str | None = None,
    device: Device = "cpu",
    as_json: Json = False,
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
    """
    check_device(device)
    tagger = load(model, device)
    sentences = columns.read(source, word_column, tag_column, separator)
    _check_tags(tagger.tags, sentences, source, "the model")
    found = _scores(tagger, sentences)
    with printing("it is incomplete"):
        shown = [to_json(tag_output.fields(found), 1)] if as_json else [*table(found), *confusion_lines(found)]
        print("\n".join(shown))


def _warn_about(tags: TagSet, parts: Sequence[Sequence[Sentence]], paths: Sequence[Path | None]) -> None:
    rules = tags.constraints()
    if rules is not None and (count := broken([sentence.tags for sentence in parts[0]], rules)):
        what = f"{count} of {len(parts[0])} sentences of {paths[0]} break the rules of {tags.scheme}"
        say(f"{what}: their tags are repaired in training")
    for part, path in zip(parts[1:], paths[1:], strict=True):
        if part:
            _check_tags(tags, part, path, str(paths[0]))


def _warn_about_window(net: Any, sentences: Sequence[Sentence], path: Path) -> None:
    words, number = net.unread([x.words for x in sentences])
    if words:
        what = f"{words} words of {number} sentences of {path} have no token among the first {net.window}"
        say(f"{what}, which are read at a time: they do not count in the loss of training; prediction goes by windows")


def _check_tags(tags: TagSet, sentences: Sequence[Sentence], path: Path | None, known: str) -> None:
    """Warn about tags that cannot be predicted. An error if all are such tags, or if one is not in the scheme."""
    for sentence in sentences:
        try:
            tags.spans(sentence.tags)
        except ValueError as error:
            raise DataError(f"{path}: {error}; {known} has tags in {tags.scheme}") from None
    seen = {tag for sentence in sentences for tag in sentence.tags}
    missing = sorted(seen - set(tags.labels))
    if missing:
        listed = ", ".join(missing[:8]) + ", ..." * (len(missing) > 8)
        if not seen & set(tags.labels) - {"O"}:
            raise DataError(f"{path} and {known} have no tags in common but O: {path} has {listed}")
        say(f"{path} has tags that {known} does not have, and that are never predicted: {listed}")


def _check_folder(out: Path, resume: bool, overwrite: bool) -> None:
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out must be a folder, and {out} is a file")
    if resume and overwrite:
        raise ValueError("--resume and --overwrite exclude each other: choose one")
    if has_model(out):
        if not (resume or overwrite):
            raise ValueError(f"{out} has a model: choose another --out, or continue with --resume, or use --overwrite")
    else:
        for name in (WEIGHTS, "config.json"):
            if (out / name).exists():
                raise ValueError(f"{out} has {name} and is not a tagger: choose another --out")


def _kept(out: Path) -> str:
    if (out / STATE).exists():
        return f"the best model so far is in {out}; the same command with --resume continues"
    if has_model(out):
        return f"the model in {out} is complete, and there is no state from which --resume could continue"
    return "nothing was saved: the model is written after each epoch"


def _scores(tagger: TaggingModel, sentences: Sequence[Sentence]) -> Evaluation:
    found = [one.tags for one in tagger.tag([x.words for x in sentences], probabilities=False)]
    return evaluate(tagger.tags, sentences, found)
