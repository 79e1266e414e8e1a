"""Other libraries give the same scores, and the benchmark reports all measured columns."""

import json

import pytest
import torch

from equipoise import gaussian
from equipoise.gaussian import dense
from equipoise_lab.bench import gaussian as bench
from equipoise_lab.bench.gaussian_peers import PEERS, Size, answer, importable, low_rank, question


@pytest.mark.parametrize("m", [2, 5])
def test_linear_operator_agrees(m: int) -> None:
    pytest.importorskip("linear_operator")
    generator = torch.Generator().manual_seed(0)
    unary = torch.randn(2, 40, m, dtype=torch.float64, generator=generator, requires_grad=True)
    embeddings = torch.randn(2, 40, 3, dtype=torch.float64, generator=generator, requires_grad=True)
    ridge = 3 * float(gaussian.sigma_max(embeddings.detach()).max())
    weight = torch.randn(2, 40, m, dtype=torch.float64, generator=generator)
    ours, theirs = gaussian.solve(unary, embeddings, ridge), low_rank(unary, embeddings, ridge)
    torch.testing.assert_close(theirs, ours)
    want = torch.autograd.grad(ours, (unary, embeddings), weight)
    torch.testing.assert_close(torch.autograd.grad(theirs, (unary, embeddings), weight), want)


@pytest.mark.parametrize("name", importable())
def test_every_peer_gives_the_same_solution(name: str) -> None:
    asked = question(Size(2, 6, 3, 2), "cpu")
    matrix = dense.matrix(asked.embeddings.double(), 2, torch.full((2,), asked.ridge, dtype=torch.float64))
    solved = torch.cholesky_solve(asked.unary.double().flatten(1)[..., None], torch.linalg.cholesky(matrix))
    want = solved.reshape(asked.unary.shape)
    torch.testing.assert_close(PEERS[name][1](asked).double(), want, rtol=1e-4, atol=1e-5)
    gradients = torch.autograd.grad(want, (asked.unary, asked.embeddings), asked.weight.double())
    torch.testing.assert_close(answer(name, asked), gradients, rtol=1e-3, atol=1e-4)


def test_the_report_has_a_row_per_peer_and_a_column_per_measurement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bench, "SIZES", (Size(1, 6, 3, 2), Size(1, 6, 3, 2, share=0.9)))
    monkeypatch.setattr(bench, "SIDES", (4,))
    monkeypatch.setattr(bench, "rates", lambda *_: (1e9, 1e9))
    *_, report = bench.run("cpu", seconds=0.0)
    assert len(report.rows) == 2 * len(importable()) + 2
    headings, *lines = report.table()
    assert "x slower" in headings
    assert "device ms" not in headings
    assert len(lines) == len(report.rows)
    assert all(len(line) == len(headings) for line in lines)
    rows = json.loads(json.dumps(report.to_json()))["rows"]
    assert all(row["residual"] < 1e-5 and row["gradient_error"] < 1e-3 for row in rows if "norm" not in row["system"])
    assert rows[0]["peer"] == "equipoise"
    assert rows[0]["times_slower"] == 1
    assert rows[0]["byte_floor"] == pytest.approx(1e3 * 36 * 4 * (3 * 3 + 2 * 2 + 3 * 2) / 1e9)
    assert rows[0]["operation_floor"] == pytest.approx(1e3 * 2 * 36 * (9 + 6 * 6) / 1e9)
