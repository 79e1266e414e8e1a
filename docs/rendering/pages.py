"""Pages are written for GitHub. Two things differ on the site, which also has the repository and the version.

[text](../studies/README.md)    a file outside docs/ is not part of it: shown as "text (`studies/README.md`)"
<details>                       Markdown inside it is rendered only if the tag says so
"""

import posixpath
import re
import runpy
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parents[2] / "src" / "equipoise"

LINK = re.compile(r"\[([^\]]*)\]\(([^)\s:#]+)(?:#[^)\s]*)?\)")


def on_config(config: Any) -> None:
    """Called by MkDocs once: the link to the repository, with the version beside it."""
    version = re.findall(r'^__version__ = "(.*)"', (SOURCE / "__init__.py").read_text(), re.MULTILINE)[0]
    config.repo_url = runpy.run_path(str(SOURCE / "repository.py"))["URL"]
    config.repo_name = f"equipoise {version}"
    config.copyright = f"equipoise {version}, Apache-2.0"


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Called by MkDocs for each page."""
    return without_outside_links(markdown, page.file.src_uri).replace("<details>", '<details markdown="1">')


def without_outside_links(markdown: str, path: str) -> str:
    """The text of the page at `path`, relative to docs/.

    >>> without_outside_links("[Studies](../studies/README.md) and [balance](balance.md)", "index.md")
    'Studies (`studies/README.md`) and [balance](balance.md)'
    >>> without_outside_links("[examples/ocr.py](../../examples/ocr.py)", "guides/scaling.md")
    '`examples/ocr.py`'
    """

    def shown(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join("docs", posixpath.dirname(path), link[2]))
        if target.startswith("docs/"):
            return link[0]
        return f"`{target}`" if link[1].strip("`") == target else f"{link[1]} (`{target}`)"

    return LINK.sub(shown, markdown)
