"""The code on the pages about scaling runs as it stands, block after block."""

import re
from pathlib import Path

import pytest
import torch

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("page", ["scaling.md", "crf-learning-rates.md"])
def test_the_code_runs(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    assert len(blocks) >= 3
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, page, "exec"), names)
    for said in re.findall(r"This prints `(.*?)`", (DOCS / page).read_text()):
        assert said in capsys.readouterr().out
