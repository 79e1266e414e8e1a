"""What a saved model has beside its weights, so that others can load it: a file that imports equipoise, and a card.

    config.json -> auto_map -> modeling_equipoise.py -> equipoise.integrations.transformers

transformers runs modeling_equipoise.py only for a caller who passes `trust_remote_code=True` and has not imported
`equipoise.integrations.transformers`. The file defines nothing: the classes are those of the installed package.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...repository import install

FORMAT = 1
"""The version of the fields of config.json and of the names of the weights."""
OLDEST = "0.1.0"
"""The oldest equipoise that reads this format."""
MODULE = "modeling_equipoise"
AUTO_MAP = {
    "AutoConfig": f"{MODULE}.CRFConfig",
    "AutoModelForTokenClassification": f"{MODULE}.CRFForTokenClassification",
}
CODE = '''"""The classes of this model are those of the package equipoise, version {oldest} or newer.

{install}
"""

try:
    from equipoise.integrations.transformers import CRFConfig, CRFForTokenClassification
except ModuleNotFoundError as error:
    if (error.name or "").split(".")[0] != "equipoise":
        raise
    raise ImportError(
        "this model needs the package equipoise, version {oldest} or newer: {install}"
    ) from None

__all__ = ["CRFConfig", "CRFForTokenClassification"]
'''


def check_format(fields: Mapping[str, Any]) -> None:
    """Raise if config.json has a newer format.

    >>> check_format({"format_version": 2, "oldest_equipoise": "0.3.0"})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: config.json has format_version 2, this equipoise reads up to 1: install 0.3.0 or newer, pip install ...
    """
    version, oldest = fields.get("format_version", FORMAT), str(fields.get("oldest_equipoise"))
    if not isinstance(version, int) or version < 1:
        raise ValueError(f"format_version of config.json must be a positive integer, got {version!r}")
    if version > FORMAT:
        newer = f"{oldest} or newer" if re.fullmatch(r"[0-9.]{1,20}", oldest) else "a newer version"
        what = f"config.json has format_version {version}, this equipoise reads up to {FORMAT}"
        raise ValueError(f"{what}: install {newer}, {install('transformers')}")


def write_code(folder: Path) -> None:
    """Write modeling_equipoise.py."""
    text = CODE.format(oldest=OLDEST, install=install("transformers"))
    (folder / f"{MODULE}.py").write_text(text, encoding="utf-8")


def as_config(folder: Path) -> None:
    """Give weights the mode of config.json. safetensors makes files that only their owner can read."""
    with suppress(OSError):  # of adapters there is no config.json, and a file system may have no modes
        mode = (folder / "config.json").stat().st_mode & 0o777
        for path in folder.glob("model*.safetensors"):
            path.chmod(mode)
