"""Pages show exact probabilities, other types and the best labellings, and nothing of a text becomes markup."""

import xml.etree.ElementTree as ET
from pathlib import Path

import browser
import pytest
import torch
from tagger.pages import parsed
from tagger.small import sentences

from equipoise import chain
from equipoise.tagger import charts, report
from equipoise.tagger.evaluation import word_confusion
from equipoise.tagger.features import Vocabulary
from equipoise.tagger.html import POLICY, page
from equipoise.tagger.model import TaggingModel
from equipoise.tagger.net import BiLSTM, Sizes
from equipoise.tagger.sentence import Sentence
from equipoise.tagger.tagset import TagSet, infer
from equipoise.tagger.training import Settings, fit
from equipoise.tagger.training_state import Epoch
from equipoise.tagger.words import from_words

MARKUP = ("<script>alert(1)</script>", "</p></section>", '"><img', "&lt;", "<!--", "\x1b[2J\u202e")
HOSTILE = "<b>'\"&"


def model(tags: TagSet, train: list[Sentence], steps: int = 3) -> TaggingModel:
    torch.manual_seed(0)
    sizes = Sizes(word=8, character=4, filters=8, shape=4, hidden=8, dropout=0.0)
    own = TaggingModel(tags, BiLSTM(Vocabulary.of([x.words for x in train]), len(tags.labels), sizes))
    fit(own, train, train, Settings(steps, 0.02, 8))
    return own


@pytest.fixture(scope="module")
def hostile() -> tuple[TaggingModel, list[Sentence]]:
    """A model whose types have markup, and sentences whose words have."""
    train = [x._replace(tags=tuple(tag.replace("PER", HOSTILE) for tag in x.tags)) for x in sentences(40)]
    own = model(infer(train, None, "train"), train)
    extra = [Sentence((*MARKUP, "in", "Rome"), ("O",) * len(MARKUP) + ("O", f"B-{HOSTILE}"))]
    return own, [*train[:20], *extra]


def test_a_click_on_a_span_leads_to_its_exact_probability(hostile: tuple[TaggingModel, list[Sentence]]) -> None:
    own, given = hostile
    tagged = list(own.tag([x.words for x in given], best=5))
    body = parsed(page([(one, from_words(one.words)) for one in tagged], "title", own.tags, own.transitions()))
    blocks = body.by_class("section", "sentence")
    assert len(blocks) == len(given)
    for one, block in zip(tagged, blocks, strict=True):
        links = block.by_class("a", "span")
        rows = {
            x.attributes["id"]: [cell.text for cell in x.all("td")] for x in block.all("tr") if "id" in x.attributes
        }
        assert [x.attributes["href"] for x in links] == [f"#{name}" for name in rows]
        for span, kinds, row in zip(one.spans, one.kinds, rows.values(), strict=True):
            second = max((kind for kind in kinds if kind != span.kind), key=lambda kind: kinds[kind])
            words = " ".join(one.words[span.start : span.stop])
            assert row == [words, span.kind, f"{kinds[span.kind]:.6f}", second, f"{kinds[second]:.6f}"]
        shown = [float(x.all("td")[1].text) for x in block.all("table")[-1].all("tr")[1:]]
        assert shown == pytest.approx([p for _, p in one.best], abs=1e-6)
    assert sum(len(one.spans) for one in tagged) > 10


def test_the_best_labellings_are_those_of_the_chain(hostile: tuple[TaggingModel, list[Sentence]]) -> None:
    own, given = hostile
    words = [x.words for x in given]
    tagged = list(own.tag([*words, ()], best=4))
    assert tagged[-1].best == []
    for one, each in zip(tagged, words, strict=False):
        unary, pairwise, lengths = own.crf.potentials(*own.net([each]))
        parts = unary.double(), pairwise.double(), lengths
        assert one.best[0][0] == one.tags
        for tags, p in one.best:
            labels = torch.tensor([[own.number[tag] for tag in tags]])
            score = chain.score(*parts[:2], labels, lengths) - chain.log_partition(*parts)
            assert p == pytest.approx(score.exp().item(), rel=1e-5)
        assert sorted((p for _, p in one.best), reverse=True) == [p for _, p in one.best]
        assert len({tags for tags, _ in one.best}) == 4


def test_the_matrix_shows_the_scores_of_prediction(hostile: tuple[TaggingModel, list[Sentence]]) -> None:
    own, _ = hostile
    body = parsed(page([], "title", own.tags, own.transitions()))
    rows = [[cell.text for cell in row.all("td")] for row in body.all("table")[-1].all("tr")[1:]]
    wanted = own.crf.potentials(torch.ones(1, 2, len(own.tags.labels))).pairwise
    assert rows == [["" if x == -torch.inf else f"{x:.2f}" for x in row] for row in wanted.tolist()]
    assert any("" in row for row in rows)


def test_nothing_of_a_text_becomes_markup(hostile: tuple[TaggingModel, list[Sentence]], tmp_path: Path) -> None:
    own, given = hostile
    scores = report.scored(own, given)
    report.write(tmp_path / HOSTILE.replace("/", ""), own, scores, given, "test")
    tagged = [(one, from_words(one.words)) for one in own.tag([x.words for x in given], best=2)]
    (written,) = tmp_path.iterdir()
    for html in ((written / "report.html").read_text(), page(tagged, HOSTILE, own.tags, own.transitions())):
        body = parsed(html)
        assert not {x.tag for x in body.all("html")[0].inside} - {"head", "body"}
        assert not any(body.all(tag) for tag in ("script", "img", "b"))
        assert POLICY in [x.attributes.get("content") for x in body.all("meta")]
        assert "on" not in {(name or "")[:2] for x in body.all("a") + body.all("mark") for name in x.attributes}
        assert all(word in body.text for word in MARKUP[:5])
        assert HOSTILE in body.text
        assert "\x1b" not in html
        assert "\\x1b[2J\\u202e" in body.text
    for name in ("confusion.svg", "learning-curve.svg"):
        ET.parse(written / name)
    assert HOSTILE in "".join(ET.parse(written / "confusion.svg").getroot().itertext())


def test_a_report_has_the_scores_and_each_sentence_with_an_error(hostile: tuple[TaggingModel, list[Sentence]]) -> None:
    own, given = hostile
    scores = report.scored(own, given)
    wrong = [i for i, x in enumerate(given, 1) if x.tags != scores.tags[i - 1]]
    assert wrong
    body = parsed(report.page("title", own, scores, given))
    assert [x.attributes["id"] for x in body.by_class("section", "sentence")] == [f"s{i}" for i in wrong]
    true = [[mark.text for mark in x.all("mark")] for x in body.by_class("p", "true")]
    spans = [own.tags.spans(given[i - 1].tags) for i in wrong]
    assert true == [
        [" ".join(given[i - 1].words[s.start : s.stop]).replace("\x1b", "\\x1b") + s.kind for s in each]
        for i, each in zip(wrong, spans, strict=True)
    ]
    cells = [[x.text for x in row.all("td")] for row in body.all("table")[0].all("tr")[1:]]
    assert [row[0] for row in cells] == ["all", *scores.evaluation.by_kind]
    assert cells[0][3] == f"{100 * scores.evaluation.overall.f1:.2f}"


def test_charts_are_to_scale() -> None:
    history = [Epoch(4.0, 0.0, 1.0, 1.0), Epoch(2.0, 0.5, 1.0, 1.0), Epoch(1.0, 0.25, 1.0, 1.0)]
    root = ET.fromstring(charts.learning_curve(history, 2))
    lines = [x.attrib["points"].split() for x in root.iter() if x.tag.endswith("polyline")]
    heights = [[float(point.partition(",")[2]) for point in line] for line in lines]
    bottom, top = charts.HEIGHT - charts.BOTTOM, charts.TOP
    assert heights == [[bottom, top, (bottom + top) / 2], [top, (bottom + top) / 2, bottom - (bottom - top) / 4]]
    tags = TagSet(("O", "B-A", "B-B"), "IOB2")
    gold = [Sentence(("x", "y", "z"), ("B-A", "B-A", "O"))]
    counts = word_confusion(tags, gold, [("B-A", "B-B", "O")])
    assert counts == {("A", "A"): 1, ("A", "B"): 1, ("O", "O"): 1}
    shown = [x.text for x in ET.fromstring(charts.confusion(counts, ["A", "B", "O"])).iter() if x.text]
    assert [x for x in shown if x.isdigit()] == ["1", "1", "1"]


@pytest.mark.skipif(browser.program() is None, reason="needs Chromium on the path, or its path in EQUIPOISE_CHROMIUM")
def test_a_browser_shows_the_row_of_a_span_on_a_click(
    hostile: tuple[TaggingModel, list[Sentence]], tmp_path: Path
) -> None:
    own, given = hostile
    tagged = [(one, from_words(one.words)) for one in own.tag([x.words for x in given], best=5)]
    pages = {"run.html": page(tagged, HOSTILE, own.tags, own.transitions())}
    pages["report.html"] = report.page(HOSTILE, own, report.scored(own, given), given)
    with browser.tab(tmp_path / "profile") as tab:
        for name, html in pages.items():
            (tmp_path / name).write_text(html)
            tab.open(tmp_path / name)
            shown = "[...document.querySelectorAll('.more')].filter(x => x.offsetHeight > 0).length"
            assert tab.run(shown) == 0
            wanted = tab.run("document.querySelector('a.span').title")
            tab.run("document.querySelector('a.span').click()")
            tab.until("document.querySelector('tr:target') !== null")
            assert tab.run("document.querySelector('tr:target').cells[2].innerText") == wanted
            assert tab.run(shown) == 1
            assert tab.run("document.querySelectorAll('script, img').length") == 0
            assert all(word in tab.run("document.body.textContent") for word in MARKUP[:5])
            tab.open(tmp_path / name, width=400)
            assert tab.run("document.documentElement.scrollWidth") <= 400
