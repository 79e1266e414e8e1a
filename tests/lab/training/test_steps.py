"""Steps recorded on a GPU equal steps on the CPU, and are recorded only when needed."""

from typing import Any

import pytest
import torch
from torch import Tensor

from equipoise_lab.recipe import Recipe
from equipoise_lab.tasks import Parameters
from equipoise_lab.tasks.ocr import OCR
from equipoise_lab.training import optimizers
from equipoise_lab.training.groups import scaling_state
from equipoise_lab.training.replica import Replica
from equipoise_lab.training.stack import Stack
from equipoise_lab.training.steps import Stepper

FINE_TUNING = {"schedule": "linear", "clip": 0.1, "max_epochs": 3, "scheme": "joint_x10", "weight_decay": 0.1}


def stack(device: str, **fields: Any) -> Stack:
    replicas = [Replica(Recipe("ocr", seed=seed, batch_size=4, **fields)) for seed in range(2)]
    each: list[Parameters] = []
    for replica in replicas:
        drawn = OCR().init(replica.generator("init"))
        each.append(drawn | scaling_state(replica.recipe))
    parameters = {name: torch.stack([one[name] for one in each]) for name in each[0]}
    task, where = OCR(device=device), torch.device(device)
    return Stack(task, optimizers.make("sgd", 0.9), replicas, parameters, where)


def orders() -> list[list[Tensor]]:
    """Three epochs: short words, long words, which need more room, and short words again."""
    by_length = OCR().lengths.argsort(stable=True)
    return [[some, some.flip(0)] for some in (by_length[:8], by_length[-8:], by_length[8:16])]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("fields", [{}, FINE_TUNING], ids=["plateau", "fine-tuning"])
def test_a_step_is_recorded_again_only_when_it_needs_more_room(fields: dict[str, Any]) -> None:
    here, there = stack("cpu", **fields), stack("cuda", **fields)
    plain, recorded = Stepper(here), Stepper(there)
    graphs = []
    for epoch in orders():
        plain.run(epoch)
        recorded.run(epoch)
        graphs.append(recorded.graph)
        assert recorded.mean_losses() == pytest.approx(plain.mean_losses(), rel=1e-3)
    assert graphs[0] is not graphs[1]
    assert graphs[1] is graphs[2]
    assert there.steps.tolist() == here.steps.tolist() == [6, 6]
    for name, x in here.parameters.items():
        torch.testing.assert_close(there.parameters[name].cpu(), x, rtol=1e-3, atol=1e-4)


def test_on_the_cpu_a_batch_has_no_more_room_than_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = stack("cpu")
    rooms: list[int] = []
    make = pair.task.batch
    monkeypatch.setattr(pair.task, "batch", lambda examples, room: rooms.append(room) or make(examples, room))
    short, long, _ = orders()
    Stepper(pair).run(short)
    Stepper(pair).run(long)
    assert rooms == [
        pair.task.room(torch.stack(epoch)[:, half]) for epoch in (short, long) for half in ([0, 1, 2, 3], [4, 5, 6, 7])
    ]
    assert max(rooms[:2]) < min(rooms[2:])
