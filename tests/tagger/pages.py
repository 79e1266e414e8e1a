"""A page as a reader of HTML sees it: its elements in order, each with its attributes and all the text inside."""

from dataclasses import dataclass, field
from html.parser import HTMLParser

EMPTY = {"meta", "hr", "br", "rect", "path", "polyline"}


@dataclass
class Element:
    tag: str
    attributes: dict[str, str | None]
    text: str = ""
    inside: list["Element"] = field(default_factory=list)

    def all(self, tag: str) -> list["Element"]:
        """The elements of this kind inside, in order."""
        return [x for child in self.inside for x in [child] * (child.tag == tag) + child.all(tag)]

    def by_class(self, tag: str, name: str) -> list["Element"]:
        return [x for x in self.all(tag) if name in (x.attributes.get("class") or "").split()]


class Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open = [Element("page", {})]

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        one = Element(tag, dict(attributes))
        self.open[-1].inside.append(one)
        if tag not in EMPTY:
            self.open.append(one)

    def handle_endtag(self, tag: str) -> None:
        if tag not in EMPTY:
            assert self.open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        for one in self.open:
            one.text += data


def parsed(html: str) -> Element:
    reader = Reader()
    reader.feed(html)
    reader.close()
    (page,) = reader.open
    return page
