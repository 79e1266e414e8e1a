"""Curves of the demo's page: lines on top of each other stay visible, and no text is cut off."""

import re
from pathlib import Path

import browser
import pytest

from equipoise_lab.demo import svg

SERIES = {
    "joint": [1.0, 2.0, 4.0, 8.0],
    "online": [1.0, 2.01, 4.0],  # as joint, but shorter
    "offline": [8.0, 4.0, 2.0, 1.0],
    "learned, and a long name for a legend": [1.01, 2.0, 3.99, 8.0],
}


def test_a_line_over_another_is_dashed_and_so_is_its_mark_in_the_legend() -> None:
    picture = svg.curves(SERIES, x="epoch", y="ratio")
    lines = re.findall(r"<polyline ([^>]*)points", picture)
    marks = re.findall(r"<path ([^>]*)d=", picture)
    dashes = [re.findall(r'stroke-dasharray="([^"]*)"', line) for line in lines]
    assert dashes == [[], ["8 8"], [], ["2 6"]]
    assert ["stroke-opacity" in line for line in lines] == [True, True, False, False]  # covered by a later line
    assert [mark in line for line, mark in zip(lines, marks, strict=True)] == [True] * 4


@pytest.mark.skipif(browser.program() is None, reason="needs Chromium on the path, or its path in EQUIPOISE_CHROMIUM")
def test_no_text_of_a_picture_is_cut_off(tmp_path: Path) -> None:
    pictures = (
        svg.curves(SERIES, x="epoch", y="ratio"),
        svg.curves(SERIES, x="learning rate", y="share", logarithmic=False, ticks=["1e-05", "0.0001", "0.001", "0.01"]),
    )
    style = "<style>svg text { font: 12px system-ui, sans-serif; } svg { width: 100%; }</style>"
    (tmp_path / "page.html").write_text("<!doctype html>" + style + "".join(pictures))
    outside = """[...document.querySelectorAll("svg text")].filter(text => {
        const box = text.getBoundingClientRect(), frame = text.ownerSVGElement.getBoundingClientRect();
        return box.left < frame.left || box.right > frame.right || box.top < frame.top || box.bottom > frame.bottom;
    }).map(text => text.textContent)"""
    with browser.tab(tmp_path / "profile") as tab:
        for width in (1280, 400):
            tab.open(tmp_path / "page.html", width)
            assert tab.run(outside) == []
