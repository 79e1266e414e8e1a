"""What a CRF needs from a pretrained encoder: hidden states, its dropout, and which tokens are special."""

import inspect
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

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
