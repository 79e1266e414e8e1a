"""The model card: README.md beside the weights, whose head is metadata in YAML.

Text of the model, such as labels, is written as JSON, which is also YAML, so that no label can be markup.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path

from ...repository import URL, install
from .configuration import CRFConfig
from .sharing import MODULE

MARK = "<!-- Written by equipoise. Without this line the file is not written again. -->"
NAME = r"[\w.-]+(/[\w.-]+)?"
"""A name on the hub."""
CARD = """---
{metadata}
---
{mark}

# A tagger with a linear-chain CRF

{encoder} with a CRF, made with [equipoise]({url}). {scheme} The {number} labels:

    {labels}
{measured}
## Use

    {install}

```python
import equipoise.integrations.transformers
from transformers import pipeline

tagger = pipeline("equipoise-spans", "path or name of this model")
print(tagger("..."))  # spans with their exact probabilities
```

Without the import, `AutoModelForTokenClassification.from_pretrained(..., trust_remote_code=True)` loads the model, too.
It runs `{module}.py` in this folder, which only imports equipoise.
"""


def write_card(folder: Path, config: CRFConfig, metrics: Mapping[str, float] | None) -> None:
    """Write README.md, unless there is one that somebody else wrote."""
    path = folder / "README.md"
    if not path.exists() or MARK in path.read_text(encoding="utf-8", errors="replace"):
        path.write_text(card(config, metrics or {}), encoding="utf-8")


def card(config: CRFConfig, metrics: Mapping[str, float]) -> str:
    """The text of README.md.

    >>> print(card(CRFConfig(id2label={0: "O", 1: "B-X", 2: "I-X"}), {"f1": 0.894})[:96])
    ---
    pipeline_tag: "token-classification"
    library_name: "transformers"
    tags: ["equipoise", "crf"]
    """
    metadata = {"pipeline_tag": "token-classification", "library_name": "transformers", "tags": ["equipoise", "crf"]}
    base = config.base_model if re.fullmatch(NAME, config.base_model or "") else None
    if base:
        metadata["base_model"] = base
    if metrics:
        metadata["metrics"] = list(metrics)
    rows = [f"| {cell(name)} | {value:.4g} |" for name, value in metrics.items()]
    return CARD.format(
        metadata="\n".join(f"{key}: {json.dumps(value)}" for key, value in metadata.items()),
        mark=MARK,
        encoder=f"`{base}`" if base else f"An encoder of type {cell(getattr(config.encoder_config, 'model_type', ''))}",
        url=URL,
        scheme=f"The scheme is {cell(config.scheme)}." if config.scheme else "The labels have no scheme.",
        number=len(config.labels),
        labels=json.dumps(list(config.labels.values()), ensure_ascii=False),
        measured="\n".join(["\n| metric | value |", "| --- | ---: |", *rows, ""]) if rows else "",
        install=install("transformers"),
        module=MODULE,
    )


def cell(text: str) -> str:
    """Text without characters that Markdown reads."""
    return re.sub(r"[^\w .-]", " ", str(text))


def name_on_hub(name: str) -> str | None:
    """The name if it can be one of the hub, None for a folder.

    >>> name_on_hub("bert-base-cased"), name_on_hub("/home/me/encoder")
    ('bert-base-cased', None)
    """
    return name if re.fullmatch(NAME, name) and not Path(name).exists() else None
