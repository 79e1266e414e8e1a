"""The net with a pretrained encoder of transformers: the scores of a word are those of its first token.

In training a sentence is cut after the tokens that the encoder reads at a time. The words beyond are not in the chain,
nor are words without a token: they count neither in the loss nor for their neighbours. In prediction a long sentence is
read in windows, and a word without a token has scores of 0.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .model import Tagger
from .tagset import TagSet


class Encoder(nn.Module):
    """Unary scores (B, L, M) of B sentences of words, and the mask (B, L) of their words, in training of those read."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        super().__init__()
        from ...integrations.transformers.documents import window

        self.model, self.tokenizer, self.window = model, tokenizer, window(model, tokenizer)

    def forward(self, sentences: Sequence[Sequence[str]]) -> tuple[Tensor, Tensor]:
        from ...integrations.transformers.documents import document_scores

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
        from ...integrations.transformers import tokenize_words

        return tokenize_words(self.tokenizer, sentences, truncation=True, max_length=self.window)


def make(tags: TagSet, name: str) -> Tagger:
    """A tagger on a pretrained encoder: a folder, or a name on the Hugging Face hub."""
    integration, load_tokenizer = _imported()
    offline = not Path(name).is_dir() and _unreachable(name)
    try:
        tokenizer = load_tokenizer(name, local_files_only=offline)
        model = integration.CRFForTokenClassification.from_encoder(
            name,
            tags.labels,
            None if tags.scheme == "none" else tags.scheme,
            on_invalid="repair",
            tokenizer=tokenizer,
            local_files_only=offline,
        )
    except (OSError, ValueError) as error:
        reason = "the hub cannot be reached, and its cache on this machine does not have it"
        raise _not_loaded(name, reason if offline else str(error).strip().split("\n")[0]) from None
    return Tagger(tags, Encoder(model, tokenizer), model.crf)


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
    """Write the model and the tokenizer as transformers does."""
    assert isinstance(net, Encoder)
    net.model.save_pretrained(folder)
    net.tokenizer.save_pretrained(folder)


def load(tags: TagSet, folder: Path) -> Tagger:
    integration, load_tokenizer = _imported()
    model = integration.CRFForTokenClassification.from_pretrained(folder)
    return Tagger(tags, Encoder(model, load_tokenizer(str(folder))), model.crf)


def _imported() -> tuple[Any, Any]:
    try:
        from transformers.utils import logging

        from ...integrations import transformers as integration
        from ...integrations.transformers.loading import load_tokenizer
    except ImportError:
        raise ValueError("a pretrained encoder needs equipoise[transformers]") from None
    logging.disable_progress_bar()
    return integration, load_tokenizer
