"""A short version of the campaign (`make soak`, `make sanitize`), and checks that it notices faults."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from faults import chains, gpu, page, sanitize, soak, texts

from equipoise import chain
from equipoise.files import escaping, text
from equipoise.tagger.words import Text

QUICK = {
    "chains": 8,
    "gaussians": 8,
    "layers": 100,
    "archives": 2,
    "headers": 1,
    "models": 2,
    "stores": 1,
    "pictures": 1,
    "bilstm_folders": 2,
    "encoder_folders": 2,
    "texts": 2,
    "downloads": 1,
}
linux = pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc, and needs file locks")


@pytest.mark.parametrize("part", QUICK)
def test_rounds(part: str) -> None:
    if part == "pictures":
        pytest.importorskip("PIL")
    if part == "encoder_folders":
        pytest.importorskip("transformers")
    for seed in range(QUICK[part]):
        assert soak.one_round(part, 10_000 + seed).total() > 0


@linux
@pytest.mark.slow
@pytest.mark.parametrize("part", ["training", "tag_training", "sweeps", "overwrites"])
def test_kills(part: str) -> None:
    if part == "overwrites":
        pytest.importorskip("transformers")
    assert soak.one_round(part, 10_000)["kills"] > 1


def test_the_campaign_on_the_gpu() -> None:
    """Without a GPU, its questions and its truth agree on the CPU."""
    for part in (gpu.chains, gpu.views, gpu.gaussians, gpu.scaling):
        assert part(0)["problems"] > 0
    gpu.invalid_values()


def test_questions_are_asked_on_the_device_of_the_scores() -> None:
    """A tensor that is made without a device is on the default device, which is another one here: that is an error."""
    for seed in range(8):
        problem = chains.draw(seed, 8)
        with torch.device("meta"):
            assert {x.device.type for x in chains.answers(problem).values()} == {"cpu"}


def test_every_part_exists() -> None:
    for part, module in soak.PARTS.items():
        assert callable(getattr(__import__(f"faults.{module}", fromlist=[part]), part))


@pytest.mark.parametrize("fault", ["value", "NaN", "label", "rank"])
def test_a_wrong_answer_is_noticed(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one sequence of a batch, a value is off by 1e-3, a NaN becomes a number, or a label or a rank changes."""
    log_partition, decode, top_k = chain.log_partition, chain.decode, chain.top_k

    def wrong(*args: torch.Tensor) -> torch.Tensor:
        value = log_partition(*args)
        if fault == "NaN":
            return value.nan_to_num(0.0)
        return value + 1e-3 * (torch.arange(len(value)) == 7)

    def wrong_label(*args: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        labels, best = decode(*args)
        return torch.where((labels == 1) & (torch.arange(len(labels)) % 9 == 0)[:, None], 0, labels), best

    def wrong_rank(*args: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
        labels, scores = top_k(*args, k=k)
        last = torch.where(torch.arange(len(scores)) == 7, scores[:, -2], scores[:, -1])
        return labels, torch.cat([scores[:, :-1], last[:, None]], -1)

    if fault == "label":
        monkeypatch.setattr(chain, "decode", wrong_label)
    elif fault == "rank":
        monkeypatch.setattr(chain, "top_k", wrong_rank)
    else:
        monkeypatch.setattr(chain, "log_partition", wrong)
    noticed = 0
    for seed in range(12):
        try:
            chains.chains(seed, Path())
        except AssertionError:
            noticed += 1
    assert noticed >= 4


@pytest.mark.parametrize("fault", ["control characters", "characters", "marks"])
def test_a_wrong_text_is_noticed(fault: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Control characters are printed, places are off by one, or byte order marks stay in words."""
    if fault == "control characters":
        monkeypatch.setattr(escaping, "HIDDEN", re.compile("(?!)"))
    elif fault == "marks":
        monkeypatch.setattr(text, "MARK", "(")
    else:
        places = Text.places
        monkeypatch.setattr(Text, "places", lambda own: [(a + 1, b + 1) for a, b in places(own)])
    with pytest.raises(AssertionError):  # noqa: PT012
        for seed in range(4):
            (tmp_path / f"{seed}").mkdir()
            texts.texts(seed, tmp_path / f"{seed}")


def test_a_failure_is_counted_with_its_seed_and_counts_add_up(tmp_path: Path) -> None:
    path = tmp_path / "soak.json"
    command = [sys.executable, soak.__file__, "--parts", "headers", "--rounds", "1", "--out", str(path)]
    for _ in range(2):
        subprocess.run(command, check=True, capture_output=True)
    known = json.loads(path.read_text())
    assert known["parts"]["headers"]["next_seed"] == known["parts"]["headers"]["rounds"] == 2
    assert known["totals"]["files"] == 400
    assert known["failures"] == []
    results = soak.Results(path)
    results.add("headers", 17, None, "Traceback\nAssertionError: wrong")
    assert results.failures == [{"part": "headers", "seed": 17, "error": "AssertionError: wrong"}]
    assert results.next_seed("headers") == 18


@linux
@pytest.mark.slow
@pytest.mark.skipif(sanitize.runtime() is None, reason="needs gcc with the address sanitizer")
def test_sanitizers() -> None:
    """Some calls without a report; then the process writes beyond an array, to show that the sanitizer is active."""
    done = sanitize.start(20, 0, "--overflow", optimization="-O0")
    assert "chain calls, " in done.stdout, done.stderr[-3000:]
    assert "0 reports" in done.stdout
    assert done.returncode != 0
    assert "heap-buffer-overflow" in done.stderr


def test_the_page_has_the_counts_of_the_last_campaign() -> None:
    known = json.loads(page.RESULTS.read_text())
    assert page.updated(page.PAGE.read_text(), known) == page.PAGE.read_text(), "run python tests/faults/page.py"
    assert known["failures"] == []
    assert known["totals"] == soak.totals(known["parts"])
