"""Which code answers a call, and the reason for every other: one test for each reason that a CPU can show."""

from collections.abc import Callable
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

import equipoise
from equipoise import ChainCRF, constraints, scaling
from equipoise.chain import backends
from equipoise.crf.cpu import prepare as cpu
from equipoise.crf.reasons import Reason

needs_c = pytest.mark.skipif(cpu.library(torch.float32) is None, reason="there is no C compiler")
RULES = constraints.from_labels(["O", "B-X", "I-X"], "BIO")
LABELS = torch.tensor([[0, 1, 2, 0]])


def scores(**options: object) -> Tensor:
    return torch.randn(1, 4, 3, generator=torch.Generator().manual_seed(0), **options)


@needs_c
def test_kernels_answer() -> None:
    crf = ChainCRF(3, scaling.Learned())
    before = {name: x.clone() for name, x in crf.state_dict().items()}
    for labels in (LABELS, None):
        answer = equipoise.explain(crf, scores(), labels)
        assert answer.path == answer.chain == "cpu"
        assert answer.reasons == {"gpu": Reason.DEVICE.value, "reference": "kernels answer"}
    assert str(answer).splitlines()[0] == "around the chain: cpu"
    assert all(torch.equal(x, before[name]) for name, x in crf.state_dict().items())


CASES: dict[Reason, Callable[[], tuple[ChainCRF, Tensor, Tensor | None]]] = {
    Reason.VALIDATED: lambda: (ChainCRF(3, validate=True), scores(), None),
    Reason.METHOD: lambda: (ChainCRF(3, scaling.Offline()), scores(), LABELS),
    Reason.UNSUPPORTED: lambda: (ChainCRF(3), scores(dtype=torch.float64), LABELS),
    Reason.EXACT: lambda: (ChainCRF(3, scaling.Learned()).eval(), scores(), LABELS),
    Reason.INVALID_LABEL: lambda: (ChainCRF(3, constraints=RULES), scores(), torch.tensor([[0, 2, 0, 0]])),
    Reason.NOT_FINITE: lambda: (ChainCRF(3), scores().index_fill(1, torch.tensor(1), torch.nan), LABELS),
}


@needs_c
@pytest.mark.parametrize("reason", CASES, ids=lambda reason: reason.name)
def test_the_reason_is_named(reason: Reason) -> None:
    answer = equipoise.explain(*CASES[reason]())
    assert (answer.path, answer.reasons["cpu"]) == ("reference", reason.value)


def test_a_device_without_kernels() -> None:
    answer = ChainCRF(3).to("meta")._by_kernels(scores(device="cpu").to("meta"), None, None)
    assert answer is Reason.DEVICE


def test_a_traced_call() -> None:
    crf, answers = ChainCRF(3), []
    torch.func.vmap(lambda x: answers.append(crf._by_kernels(x, None, None)) or x)(scores())
    assert answers == [Reason.TRACED]


@needs_c
def test_the_reference_can_be_forced() -> None:
    crf, unary = ChainCRF(3, generator=torch.Generator().manual_seed(0)), scores()
    by_kernels = crf.loss(unary, LABELS)
    with patch.object(backends, "FORCED", "reference"):
        assert crf._by_kernels(unary, None, LABELS) is Reason.FORCED
        torch.testing.assert_close(crf.loss(unary, LABELS), by_kernels)
