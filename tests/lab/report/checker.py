"""Check that an HTML page is well formed and self-contained."""

import re
from html.parser import HTMLParser

VOID = {"meta", "br"}


class Checker(HTMLParser):
    """Collects open elements, ids, and references to other files."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.resources: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in ("src", "href", "xlink:href", "data", "poster") and not (value or "").startswith("#"):
                self.resources.append(f"{tag} {name} {value}")
        if tag in ("script", "link", "iframe", "img", "object", "embed"):
            self.resources.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def check(html: str) -> Checker:
    checker = Checker()
    checker.feed(html)
    checker.close()
    assert checker.open == []
    assert checker.resources == []
    assert len(set(checker.ids)) == len(checker.ids)
    assert "@import" not in html
    assert not re.search(r"url\((?!#)", html)
    return checker
