"""Warnings and errors of `equipoise tag` about files and folders, before and after a training."""

from collections.abc import Sequence
from pathlib import Path

from ..files.errors import DataError
from ..spans.tables import broken
from ..tagger.columns import Sentence
from ..tagger.encoder import Encoder
from ..tagger.folder import STATE, WEIGHTS, has_model
from ..tagger.net import BiLSTM
from ..tagger.tagset import TagSet
from ..tagger.unsure import is_sure
from .output import say

FEW = 1000
"""A tagger without a pretrained encoder learns little from fewer sentences."""


def warn_about(tags: TagSet, parts: Sequence[Sequence[Sentence]], paths: Sequence[Path | None]) -> None:
    rules = tags.constraints()
    if rules is not None and (count := broken([one.tags for one in parts[0] if is_sure(one.tags)], rules)):
        what = f"{count} of {len(parts[0])} sentences of {paths[0]} break the rules of {tags.scheme}"
        say(f"{what}: their tags are repaired in training")
    for part, path in zip(parts[1:], paths[1:], strict=True):
        if part:
            check_tags(tags, part, path, str(paths[0]))


def warn_about_window(net: Encoder, sentences: Sequence[Sentence], path: Path) -> None:
    words, number = net.unread([x.words for x in sentences])
    if words:
        what = f"{words} words of {number} sentences of {path} have no token among the first {net.window}"
        say(f"{what}, which are read at a time: they do not count in the loss of training; prediction goes by windows")


def check_tags(tags: TagSet, sentences: Sequence[Sentence], path: Path | None, known: str) -> None:
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


def check_folder(out: Path, resume: bool, overwrite: bool) -> None:
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


def kept(out: Path) -> str:
    if (out / STATE).exists():
        return f"the best model so far is in {out}; the same command with --resume continues"
    if has_model(out):
        return f"the model in {out} is complete, and there is no state from which --resume could continue"
    return "nothing was saved: the model is written after each epoch"


def hint(scored: int, sentences: int, net: object) -> str:
    """What may help a tagger that has not a single span right of those that were scored."""
    more = f"more than {sentences} sentences" if sentences < FEW else "tags with fewer types"
    other = {Encoder: "", BiLSTM: ", --net features or --encoder"}.get(type(net), ", --net bilstm or --encoder")
    what = f"the F1 is 0 of {scored} spans: look at the errors in report.html"
    return f"{what}; what may help: more --epochs, {more}{other}, a larger --valid or --test"
