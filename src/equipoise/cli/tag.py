"""The commands `equipoise tag train | run | score`: a tagger for text files."""

from pathlib import Path
from typing import Annotated, Literal

import tyro

from ..files.writing import WritingError
from ..tagger import report
from ..tagger.encoder import Encoder
from ..tagger.estimator import Tagger
from ..tagger.folder import STATE, locked
from ..tagger.header import Column
from ..tagger.model import load
from ..tagger.training import best_epoch, fit
from . import tag_output
from .output import printing, say
from .running import Device, check_device
from .tag_arguments import Flag, Json
from .tag_checks import check_folder, hint, kept, warn_about, warn_about_window
from .tag_input import read_parts
from .tag_progress import watching
from .tag_run import tag_run, tag_score

tag = tyro.extras.SubcommandApp()
tag.command(name="run")(tag_run)
tag.command(name="score")(tag_score)

Scheme = Literal["auto", "IOB2", "IOB1", "BIOES", "BILOU", "BMES", "none"]


@tag.command(name="train")
def tag_train(
    *,
    train: Path,
    valid: Path | None = None,
    test: Path | None = None,
    encoder: str | None = None,
    net: Literal["bilstm", "features"] = "bilstm",
    out: Path,
    trained: Annotated[Path | None, tyro.conf.arg(name="continue")] = None,
    scheme: Scheme = "auto",
    word_column: Column = None,
    tag_column: Column = None,
    separator: str | None = None,
    epochs: int | None = None,
    learning_rate: float | None = None,
    batch: int | None = None,
    patience: int | None = None,
    bf16: Flag = False,
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
        net: bilstm: a BiLSTM over words and their characters. features: a linear net of the usual features of a CRF,
            trained in seconds.
        out: Folder for the model.
        trained: Folder of a trained model to continue from, with its net, its words and its tags.
        scheme: Tagging scheme. auto: it is detected. none: plain labels, one per word.
        word_column: Column of the word: a number from 1, -1 for the last one, or a name in the header. By default the
            one that the header names word, token or form, or the first.
        tag_column: Column of the tag, likewise. By default the one that the header names tag, ner or label, or the
            last.
        separator: Text between columns; by default a tab if the first line has one, otherwise spaces.
        epochs: Number of epochs; by default about 2,500 steps, between 10 and 100 epochs; with an encoder 5 epochs;
            with features 300 steps and at least 4 epochs.
        learning_rate: Highest learning rate; by default 0.002, with an encoder 0.0001, with features 0.1.
        batch: Sentences per step; by default 32, fewer for less than 1,024 sentences; with features at most 16.
        patience: Epochs without a better F1 in validation that end the training; by default half of all, at least 10;
            0: every epoch runs.
        bf16: Compute the net in bfloat16 in training, for long sentences on GPUs; the CRF stays in float32.
        seed: Seed of the initial values, the order of sentences, and the default validation part.
        device: Device.
        resume: Continue an interrupted training; the other options must be the same.
        overwrite: Replace a model in the folder.
        as_json: Print the result as JSON.
    """
    check_device(device)
    check_folder(out, resume, overwrite)
    parts = read_parts((train, valid, test), (word_column, tag_column, separator), seed, scheme)
    own = Tagger(net, encoder, scheme, epochs, learning_rate, batch, seed, device, patience=patience, bf16=bf16)
    if trained is not None and encoder is not None:
        raise ValueError("--continue takes the net of its model: leave --encoder out")
    tagger, settings = own.start(parts[0], train, None if trained is None else load(trained, device))
    warn_about(tagger.tags, parts, (train, valid or train, test))
    if isinstance(tagger.net, Encoder):
        warn_about_window(tagger.net, parts[0], train)
    if not as_json:
        data = f"{len(parts[0])} sentences to learn from, {len(parts[1])} for validation"
        labels, number = tagger.tags, sum(x.numel() for x in tagger.parameters())
        say(f"{data}, {len(labels.labels)} tags, scheme {labels.scheme}; {number:,} parameters")
    with locked(out):
        check_folder(out, resume, overwrite)  # another training may have ended meanwhile
        if overwrite:
            (out / STATE).unlink(missing_ok=True)
        try:
            with watching(settings.epochs, quiet=as_json) as watch:
                arguments = (tagger, parts[0], parts[1], settings, out)
                history = fit(*arguments, resume=resume, watch=watch.epoch, step=watch.step)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(kept(out)) from None
        except WritingError as error:
            raise WritingError(f"{error}; {kept(out)}") from error
        if len(history) < settings.epochs:
            ran = f"stopped after epoch {len(history)} of {settings.epochs}"
            say(f"{ran}: the best was epoch {best_epoch(history)} (--patience)")
        best = load(out, device)
        part, scored = ("test", parts[2]) if parts[2] else ("validation", parts[1])
        with printing(f"the model is in {out}"):
            found = report.scored(best, scored)
            report.write(out, best, found, scored, part)
            tag_output.report(found.evaluation, history, out, part, machine_readable=as_json)
    if found.evaluation.overall.f1 == 0:
        say(hint(found.evaluation.overall.true, len(parts[0]), tagger.net))
