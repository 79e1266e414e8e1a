"""Load encoders and tokenizers whose files strangers may have written: numbers and JSON, no code and no pickle.

transformers would ask on standard input whether code beside a model may run, read pickled weights, follow an adapter
to another model, and download the kernels that a configuration names. Here each of these is an error.
"""

import json
import logging
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from transformers import AutoModel, AutoTokenizer, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils.hub import cached_file

SAFE = {"trust_remote_code": False, "use_safetensors": True}
"""Arguments of `from_pretrained`, unless the caller gives others."""
HUB = ("cache_dir", "force_download", "local_files_only", "proxies", "revision", "subfolder", "token")
ATTENTION = (None, "eager", "sdpa", "flex_attention")
"""What a configuration may choose. Others can be a repository with code."""


def load(name: str, kind: Any = AutoModel, **kwargs: Any) -> tuple[PreTrainedModel, Collection[str]]:
    """`kind.from_pretrained` without code beside the weights, and the names of weights that its files do not have."""
    with one_line(name), without_report():
        check(name, kwargs)
        model, info = kind.from_pretrained(name, **SAFE | kwargs, output_loading_info=True)
    return model, info["missing_keys"]


def load_tokenizer(name: str, **kwargs: Any) -> PreTrainedTokenizerBase:
    """`AutoTokenizer.from_pretrained`, without code of the tokenizer."""
    kwargs.setdefault("trust_remote_code", False)
    with one_line(name):
        return AutoTokenizer.from_pretrained(name, **kwargs)


def from_hub(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Those of these arguments that say where files are."""
    return {key: value for key, value in kwargs.items() if key in HUB}


def check(name: str, kwargs: Mapping[str, Any]) -> str | None:
    """Raise if the files of a model lead to other weights or to code. Returns the model_type of config.json."""
    hub = from_hub(kwargs)
    if path_of(name, "adapter_config.json", hub) is not None:
        raise ValueError(f"{name} has adapter_config.json, which can name another model: merge the adapter first")
    fields = _object(name, "config.json", hub)
    own = str(fields.get("transformers_weights") or "model.safetensors")
    indices = {"model.safetensors.index.json", own.removesuffix(".index.json") + ".index.json"}
    shards = [_object(name, Path(file).name, hub).get("weight_map") or {} for file in sorted(indices)]
    listed = [file for one in shards for file in (one.values() if isinstance(one, dict) else [one])]
    for file in [own.removesuffix(".index.json"), *listed]:
        if not isinstance(file, str) or not file.endswith(".safetensors") or Path(file).name != file:
            raise ValueError(f"{name} names weights that are not safetensors in its folder: {file!r}")
    check_fields(fields, f"{name}: config.json", "attn_implementation" in kwargs)
    return None if fields == {} else str(fields.get("model_type"))


def path_of(name: str, file: str, hub: Mapping[str, Any]) -> str | None:
    """Where a file of a model is, None if it has none."""
    missing = {"_raise_exceptions_for_missing_entries": False, "_raise_exceptions_for_connection_errors": False}
    return cached_file(name, file, **missing, **hub)


def _object(name: str, file: str, hub: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a JSON file of a model, none if it has no such file."""
    path = path_of(name, file, hub)
    try:
        fields = {} if path is None else json.loads(Path(path).read_bytes())
        if not isinstance(fields, dict):
            raise ValueError("it is a list or a single value")
    except (RecursionError, ValueError) as error:
        raise ValueError(f"{name}: {file} is not an object with fields: {error}") from None
    return fields


def check_fields(fields: Mapping[str, Any], where: str, attention_given: bool = False) -> None:
    """Raise if a configuration, or one inside it, names an implementation that could be downloaded."""
    for key, value in fields.items():
        if isinstance(value, Mapping) and "implementation" not in key:
            check_fields(value, where, attention_given)
        elif "implementation" in key and value not in ATTENTION and not attention_given:
            raise ValueError(f"{where} has {key} {value!r}: pass attn_implementation yourself if you trust it")


@contextmanager
def one_line(name: str) -> Iterator[None]:
    """The error of transformers about code as one line."""
    try:
        yield
    except ValueError as error:
        if "trust_remote_code" not in str(error):
            raise
        raise ValueError(f"{name} needs Python code of its own, and no code of a model is run") from None


@contextmanager
def without_report() -> Iterator[None]:
    """Without the table of transformers about weights that do not fit: the caller raises an error about them."""
    logger = logging.getLogger("transformers.modeling_utils")

    def other(record: logging.LogRecord) -> bool:
        return "LOAD REPORT" not in record.getMessage()

    logger.addFilter(other)
    try:
        yield
    finally:
        logger.removeFilter(other)


def from_weights(kind: type[PreTrainedModel], config: PreTrainedConfig, weights: Mapping[str, Tensor]) -> Any:
    """A model of exactly these weights."""
    with without_report():
        options: dict[str, Any] = {"output_loading_info": True, "ignore_mismatched_sizes": True}
        loaded: Any = kind.from_pretrained(None, config=config, state_dict=weights, **options)
    check_weights("they do not fit config.json", loaded[1])
    return loaded[0]


def check_weights(name: object, info: Mapping[str, Any], mismatched: bool = False) -> None:
    """Raise unless the weights are those of the model. With `mismatched`, some may have other shapes."""
    faults = {"lack": info["missing_keys"], "have unknown": info["unexpected_keys"]}
    shapes = {key: f"{key} {list(got)} instead of {list(want)}" for key, got, want in info["mismatched_keys"]}
    if mismatched:
        faults["lack"] = faults["lack"] - shapes.keys()
    else:
        faults["have other shapes than config.json:"] = shapes.values()
    for what, keys in faults.items():
        if keys:
            raise ValueError(f"{name}: the weights (model.safetensors) {what} {_listed(keys)}")


def check_encoder(name: str, encoder: nn.Module, missing: Collection[str], used: nn.Module) -> None:
    """Raise if weights are missing in the part of the encoder that is used. Without them it would be partly random."""
    own = {id(x) for x in (*used.parameters(), *used.buffers())}
    named = dict(encoder.named_parameters()) | dict(encoder.named_buffers())
    lost = [key for key in missing if key in named and id(named[key]) in own]
    if lost:
        hint = "" if used is not encoder else ": no fine-tuned tagger, so use from_encoder"
        raise ValueError(f"{name}: the weights of the encoder (model.safetensors) lack {_listed(lost)}{hint}")


def _listed(keys: Collection[str]) -> str:
    first = ", ".join(key if key.isprintable() else repr(key) for key in sorted(keys)[:3])
    return first + f" and {len(keys) - 3} more" * (len(keys) > 3)
