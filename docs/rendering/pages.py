"""Pages are written for GitHub. Two things differ on the site.

[text](../studies/README.md)    a file outside docs/ is not part of it: shown as "text (`studies/README.md`)"
<details>                       Markdown inside it is rendered only if the tag says so
"""

import posixpath
import re
from typing import Any

LINK = re.compile(r"\[([^\]]*)\]\(([^)\s:#]+)(?:#[^)\s]*)?\)")


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
