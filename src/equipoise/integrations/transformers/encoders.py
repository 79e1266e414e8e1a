"""What a CRF needs from a pretrained encoder or tagger: hidden states, dropout, labels, special tokens."""

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ...constraints import sorted_by_index
from ...crf import ChainCRF
from ...spans.tables import recognize
from .card import name_on_hub
from .loading import from_hub, load_tokenizer, path_of


def hidden_states_only(model: PreTrainedModel) -> PreTrainedModel:
    """The part that returns hidden states. A pooler is removed: the loss would not depend on its parameters."""
    if model.config.is_encoder_decoder and hasattr(model, "get_encoder"):
        model = model.get_encoder()
    optional = "add_pooling_layer" in inspect.signature(type(model).__init__).parameters
    if optional and getattr(model, "pooler", None) is not None:
        model.pooler = None  # type: ignore[assignment]
    return model


def dropout_of(config: Any) -> float:
    """The dropout of the token classification models of transformers."""
    names = ("classifier_dropout", "hidden_dropout_prob", "hidden_dropout", "dropout", "dropout_rate")
    found = (getattr(config, name, None) for name in names)
    return float(next((x for x in found if x is not None), 0.1))


def describe_source(
    name: str, config: Any, tokenizer: PreTrainedTokenizerBase | None, kwargs: dict[str, Any]
) -> dict[str, Any]:
    """The fields of `CRFConfig` that say what the CRF is on."""
    tokenizer = tokenizer or tokenizer_beside(name, **kwargs)
    return {
        "special_token_ids": special_token_ids(tokenizer, config),
        "base_model": name_on_hub(str(name)),
        "attn_implementation": config._attn_implementation,
    }


def scheme_of(name: str, id2label: Mapping[int, str]) -> str | None:
    """The scheme of the labels of a tagger. Those of "IO" forbid nothing, so it counts as none."""
    try:
        scheme = recognize(sorted_by_index(id2label))
    except ValueError as error:
        raise ValueError(f"{name}: {error}; scheme=None is for labels without a scheme") from None
    return None if scheme == "IO" else scheme


@torch.no_grad()
def without_effect(crf: ChainCRF) -> None:
    """Transitions of 0, and a scaling method that leaves the scores of the net as they are, if it can."""
    for parameter in (crf.pairwise, crf.start, crf.end):
        if parameter is not None:
            parameter.zero_()
    state = crf.scaling.state_without_effect(torch.zeros((), device=crf.pairwise.device))
    if state:
        crf.scaling.load_state_dict(state)


def tokenizer_beside(encoder: str, **kwargs: Any) -> PreTrainedTokenizerBase | None:
    """The tokenizer beside an encoder, None if there is none. `kwargs` are those of the encoder."""
    hub = from_hub(kwargs)
    files = ("tokenizer_config.json", "tokenizer.json")
    if all(path_of(encoder, name, hub) is None for name in files):
        return None  # AutoTokenizer would make one without a vocabulary
    return load_tokenizer(encoder, trust_remote_code=kwargs.get("trust_remote_code", False), **hub)


def special_token_ids(tokenizer: PreTrainedTokenizerBase | None, config: Any) -> list[int]:
    """The tokens that a tokenizer adds around and between texts. The token of unknown words is not one of them."""
    names = [f"{name}_token_id" for name in ("bos", "eos", "cls", "sep", "pad")]
    found = [getattr(config if tokenizer is None else tokenizer, name, None) for name in names]
    return sorted({x for x in found if isinstance(x, int)})
