"""The net with a pretrained encoder of transformers: the scores of a word are those of its first token.

In training a sentence is cut after the tokens that the encoder reads at a time. The words beyond are not in the chain,
nor are words without a token: they count neither in the loss nor for their neighbours. In prediction a long sentence is
read in windows, and a word without a token has scores of 0.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

from ..files.errors import DataError
from ..repository import install
from .folder import DESCRIPTION, WEIGHTS, Content
from .model import TaggingModel
from .tagset import TagSet

TOKEN = {"content", "single_word", "lstrip", "rstrip", "normalized", "special", "id", "__type"}
"""The fields of a token in the files of a tokenizer."""


class Encoder(nn.Module):
    """Unary scores (B, L, M) of B sentences of words, and the mask (B, L) of their words, in training of those read."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        super().__init__()
        from ..integrations.transformers.windows import window

        self.model, self.tokenizer, self.window = model, tokenizer, window(model, tokenizer)
        _check_tokenizer(self)

    def forward(self, sentences: Sequence[Sequence[str]]) -> tuple[Tensor, Tensor]:
        from ..integrations.transformers.documents import document_scores

        found = self._tokens(sentences)
        long = [i for i, ids in enumerate(found["input_ids"]) if len(ids) == self.window and not self.training]
        lengths = torch.tensor([len(sentence) for sentence in sentences])
        index = torch.full((len(sentences), max(int(lengths.max()), 1)), -1)
        for i, on in enumerate(found["word_mask"]):
            places = torch.tensor(on).nonzero()[:, 0]
            index[i, [found.word_ids(i)[place] for place in places.tolist()]] = places
        names = [name for name in self.tokenizer.model_input_names if name in found]
        inputs = self.tokenizer.pad({name: found[name] for name in names}, padding_side="right", return_tensors="pt")
        unary = self.model.unary(**inputs.to(self.model.device))
        index = index.to(unary.device)
        read = index >= 0
        unary = unary.gather(1, index.clamp(min=0)[..., None].expand(-1, -1, unary.shape[-1]))
        unary = unary.masked_fill(~read[..., None], 0)
        if self.training:
            return unary, read
        for i in long:
            unary[i, : lengths[i]] = document_scores(self.model, self.tokenizer, sentences[i])
        return unary, torch.arange(unary.shape[1], device=unary.device) < lengths[:, None].to(unary.device)

    def unread(self, sentences: Sequence[Sequence[str]]) -> tuple[int, int]:
        """How many words of how many sentences do not count in training."""
        counts = []
        for start in range(0, len(sentences), 1000):
            part = sentences[start : start + 1000]
            read = self._tokens(part)["word_mask"]
            counts += [len(words) - sum(on) for words, on in zip(part, read, strict=True)]
        return sum(counts), sum(count > 0 for count in counts)

    def _tokens(self, sentences: Sequence[Sequence[str]]) -> Any:
        from ..integrations.transformers import tokenize_words

        return tokenize_words(self.tokenizer, sentences, truncation=True, max_length=self.window)


def make(tags: TagSet, name: str) -> TaggingModel:
    """A tagger on a pretrained encoder: a folder, or a name on the Hugging Face hub."""
    integration, load_tokenizer = _imported()
    offline = not Path(name).is_dir() and _unreachable(name)
    try:
        tokenizer = load_tokenizer(name, local_files_only=offline)
        model = integration.CRFForTokenClassification.from_encoder(
            name,
            tags.labels,
            _scheme(tags),
            on_invalid="repair",
            tokenizer=tokenizer,
            local_files_only=offline,
        )
        net = Encoder(model, tokenizer)
    except Exception as error:  # transformers raises errors of every type about fields of files
        reason = "the hub cannot be reached, and its cache on this machine does not have it"
        raise _not_loaded(name, reason if offline else _on_one_line(error)) from error
    return TaggingModel(tags, net, model.crf)


def _check_tokenizer(net: Encoder) -> None:
    """Raise an error if the tokenizer cannot be used for words, or has tokens that the encoder does not have."""
    from ..integrations.transformers import tokenize_words

    tokenizer, tokens = net.tokenizer, net.model.get_input_embeddings().num_embeddings
    if not tokenizer.is_fast:
        raise ValueError("the tokenizer does not say which word a token is from: it needs tokenizer.json")
    if tokenizer.pad_token_id is None:
        raise ValueError("the tokenizer has no pad_token")
    if type(net.window) is not int or net.window <= tokenizer.num_special_tokens_to_add():
        raise ValueError(f"model_max_length of the tokenizer is {tokenizer.model_max_length!r}: no word fits")
    tokenize_words(tokenizer, [("a", "\u2603")], truncation=True, max_length=net.window)
    largest = max(tokenizer.get_vocab().values(), default=0)
    if largest >= tokens:
        raise ValueError(f"the tokenizer has a token of number {largest}, and the encoder has only {tokens} tokens")


def _unreachable(name: str) -> bool:
    """Whether the hub cannot be reached. transformers would try for a minute."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, HTTPError  # type: ignore[attr-defined]

    if name.startswith((".", "/", "~")):
        raise _not_loaded(name, "there is no such folder")
    try:
        HfApi().model_info(name, timeout=10)
    except HFValidationError:
        raise _not_loaded(name, "there is no such folder, and no such name on the hub") from None
    except HfHubHTTPError:
        return False  # the hub answered: loading says what is wrong
    except (HTTPError, OSError):  # no connection, no answer in time, or HF_HUB_OFFLINE
        return True
    return False


def _not_loaded(name: str, reason: str) -> ValueError:
    wanted = "it must be a folder with config.json, model.safetensors and tokenizer.json, or a name on the hub"
    return ValueError(f"--encoder {name} cannot be loaded: {wanted} ({reason})")


def save(net: nn.Module, folder: Path) -> None:
    """Write the model, in one file, and the tokenizer as transformers does. Raises OSError."""
    assert isinstance(net, Encoder)
    try:
        net.model.save_pretrained(folder, max_shard_size="1000GB")
        net.tokenizer.save_pretrained(folder)
    except OSError:
        raise
    except Exception as error:  # safetensors and tokenizers have errors of their own for a full disk
        raise OSError(_on_one_line(error)) from error


def load(tags: TagSet, content: Content) -> TaggingModel:
    """The tagger of these files. Nothing else is read: transformers sees copies of the files of the tokenizer only."""
    integration, load_tokenizer = _imported()
    from safetensors.torch import load as parse

    with _named(content.path / WEIGHTS):
        weights = parse(content.files[WEIGHTS])
    with _named(content.path / "config.json"):
        config = _config(integration, content, weights)
        if config.labels != dict(enumerate(tags.labels)) or config.scheme != _scheme(tags):
            raise ValueError(f"id2label and scheme are not the labels and the scheme of {DESCRIPTION}")
        with torch.device("meta"):
            size = sum(x.numel() for x in integration.CRFForTokenClassification(config).parameters())
    numbers = sum(x.numel() for x in weights.values())
    if size > 2 * numbers:  # it would take the memory before shapes are compared
        raise DataError(f"{content.path}: config.json wants {size:,} weights, and {WEIGHTS} has {numbers:,}")
    with _named(content.path / WEIGHTS):
        model = integration.loading.from_weights(integration.CRFForTokenClassification, config, weights)
    with TemporaryDirectory(prefix="equipoise-") as copy:
        for name, data in content.files.items():
            if name != WEIGHTS:
                with _named(content.path / name):
                    _check_tokens(name, data)
                Path(copy, name).write_bytes(data)
        with _named(content.path / "tokenizer_config.json"):
            tokenizer = load_tokenizer(copy, local_files_only=True)
            net = Encoder(model, tokenizer)
    tokenizer.name_or_path = model.config.name_or_path = str(content.path)
    with _named(content.path / "config.json"), torch.no_grad():
        net.eval()([("a",)])  # some fields are used only here
    return TaggingModel(tags, net, model.crf)


def _config(integration: Any, content: Content, weights: Mapping[str, Tensor]) -> Any:
    """The configuration of the model. One with more layers than weights would take long to build."""
    fields = json.loads(content.files["config.json"], parse_constant=_no_number)
    integration.loading.check_fields(fields, "it")
    for name, value in {**fields, **fields["encoder_config"]}.items():
        if "layer" in name and isinstance(value, int) and value > len(weights):
            raise ValueError(f"{name} is {value}, and {WEIGHTS} has {len(weights)} tensors")
    if fields.get("model_type") != integration.CRFConfig.model_type:
        raise ValueError(f"model_type is {fields.get('model_type')!r}, expected {integration.CRFConfig.model_type!r}")
    return integration.CRFConfig.from_dict(fields)


def _check_tokens(file: str, data: bytes) -> None:
    """Raise if a token has an unknown field: the tokenizer would print it, with whatever it contains."""

    def known(pairs: list[tuple[str, Any]]) -> None:
        fields = {name for name, _ in pairs}
        if "single_word" in fields and not fields <= TOKEN:
            raise ValueError(f"a token has the unknown field {min(fields - TOKEN)!r}")

    if file.endswith(".json"):
        json.loads(data, object_pairs_hook=known)


def _scheme(tags: TagSet) -> str | None:
    return None if tags.scheme == "none" else tags.scheme


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no number of a configuration")


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Any error as one line that names the file: transformers raises errors of every type about fields of files."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":  # of the library tokenizers
            raise
        what = f"the field {error} is missing" if isinstance(error, KeyError) else _on_one_line(error)
        raise DataError(f"{path} cannot be used: {what}") from error


def _on_one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _imported() -> tuple[Any, Any]:
    try:
        from transformers.utils import logging

        from ..integrations import transformers as integration
        from ..integrations.transformers.loading import load_tokenizer
    except ImportError:
        raise ValueError(f"a pretrained encoder needs more packages: {install('transformers')}") from None
    logging.disable_progress_bar()
    return integration, load_tokenizer
