"""The README of the package: links and images of the repository become absolute, at the tag of the version.

[masks](docs/guides/masks.md)    https://.../blob/v0.1.0/docs/guides/masks.md
![F1](docs/figure.svg)           https://.../raw/v0.1.0/docs/figure.svg
"""

import re
import runpy
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)(\[(?:[^\]\[]|\[[^\]]*\])*\])\((?![a-z]+:|#)([^)\s]+)\)")


class ReadmeHook(MetadataHookInterface):
    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        root = Path(self.root)
        address = runpy.run_path(str(root / "src" / "equipoise" / "repository.py"))["URL"]
        init = (root / "src" / "equipoise" / "__init__.py").read_text(encoding="utf-8")
        tag = "v" + re.findall(r'^__version__ = "(.*)"', init, re.MULTILINE)[0]
        text = (root / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": with_absolute_links(text, address, tag)}


def with_absolute_links(text: str, address: str, tag: str) -> str:
    def absolute(link: re.Match[str]) -> str:
        return f"{link[1]}{link[2]}({address}/{'raw' if link[1] else 'blob'}/{tag}/{link[3]})"

    return LINK.sub(absolute, text)
