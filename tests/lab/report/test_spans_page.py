"""The page about spans has the means of the records, and its figure their bins."""

import importlib.util
import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]


def module() -> Any:
    spec = importlib.util.spec_from_file_location("spans_page", ROOT / "studies" / "spans_page.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def record(seed: int, method: str, **decoders: float) -> dict[str, Any]:
    bins = [[0, 0.0, 0]] * 8 + [[100, 85.0, 60], [10, 9.5, 10]]
    each = {name: {"f1": f1, "invalid": 0.0, "error": 0.1, "bins": bins} for name, f1 in decoders.items()}
    return {"corpus": "wnut17", "share": 1.0, "method": method, "seed": seed} | each


def test_tables_and_figure_of_records() -> None:
    page = module()
    records = [record(seed, "softmax", argmax=0.4 + seed / 50, constrained=0.5, calibrated=0.6) for seed in (0, 1)]
    records += [record(seed, "CRF", free=0.3, constrained=0.31) for seed in (0, 1)]
    lines = page.tables(records).splitlines()
    assert "| WNUT-17 | argmax | 41.00 ± 1.41 | 0 | 10.0 ± 0.0 |" in lines
    assert "| CRF, constraints in decoding only | 31.00 ± 0.00 |" in lines
    figure = page.figure(records)
    across, up = page.LEFT + page.SIDE * 0.85, page.TOP + page.SIDE * (1 - 0.6)  # 200 spans, 120 of them right
    assert figure.count(f'cx="{across:.1f}" cy="{up:.1f}"') == 3
    assert figure.count("<circle") == 6  # the last bin has 20 spans


def test_the_guide_has_the_tables_of_the_records() -> None:
    page, path = module(), ROOT / "studies" / "spans.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    guide = page.GUIDE.read_text(encoding="utf-8")
    assert page.guide(guide, records) == guide
