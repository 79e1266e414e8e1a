"""The linear schedule is that of transformers; training then lasts a fixed time and keeps the last parameters."""

import json
import math
from types import SimpleNamespace

import pytest
import torch
from lab.training.comparison import assert_same, assert_same_tensors, results
from lab.training.tiny import recipe

from equipoise_lab.run.store import Record, record
from equipoise_lab.training import BalanceMonitor, engine, schedules, train
from equipoise_lab.training.replica import Replica

SHARES = [0.0, 0.1, 0.25, 1 / 3, 1.0]
TOTALS = [1, 2, 7, 30, 70, 1000]


@pytest.mark.parametrize("share", SHARES)
def test_the_factor_of_each_step_is_that_of_transformers(share: float) -> None:
    """Also the number of warm-up steps is that of its Trainer."""
    transformers = pytest.importorskip("transformers", "5")
    for total in TOTALS:
        asked = SimpleNamespace(warmup_steps=share)
        warmup = transformers.TrainingArguments.get_warmup_steps(asked, total) if share < 1 else total
        assert schedules.warmup_steps(share, total) == warmup
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
        peer = transformers.get_linear_schedule_with_warmup(optimizer, warmup, total)
        for step in range(total):
            found = schedules.linear(*(torch.tensor([float(x)]) for x in (step, warmup, total)))
            assert float(found) == pytest.approx(peer.get_last_lr()[0], abs=1e-6)
            optimizer.step()
            peer.step()


def test_the_factor_is_zero_after_the_last_step() -> None:
    total = torch.tensor([10.0, 10.0, 0.0])
    assert schedules.linear(torch.tensor([10.0, 11.0, 3.0]), total / 10, total).tolist() == [0, 0, 0]


def test_linear_training_has_no_early_stopping_and_validates_once_per_phase() -> None:
    """At rates this small, the plateau schedule stops after `stop` epochs."""
    tiny = {"max_epochs": 4, "stop": 1, "plateau": 1, "threshold": 1.0}
    for scheme, phases in (("joint", 1), ("stage", 3)):
        rates = (1e-9,) * phases
        run, plateau = train(
            [recipe(scheme=scheme, schedule=name, learning_rates=rates, **tiny) for name in ("linear", "plateau")]
        )
        assert plateau.epochs == 2 * phases
        assert [epoch.phase for epoch in run.history] == [phase for phase in range(phases) for _ in range(4)]
        assert [epoch.measured for epoch in run.history] == [False, False, False, True] * phases
        assert [math.isnan(epoch.ratio) for epoch in run.history] == [True, True, True, False] * phases
        assert {epoch.learning_rate for epoch in run.history} == {1e-9}
        assert run.valid == run.history[-1].valid


@pytest.mark.usefixtures("_double")
def test_a_finished_replica_keeps_its_parameters_and_alpha_in_the_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, where a stack is rebuilt rarely. There is no copy of the parameters of a finished replica."""
    recipes = [recipe(schedule="linear", max_epochs=count, seed=count, scheme="online") for count in (1, 3, 6)]
    want = [results([one]) for one in recipes]
    monkeypatch.setattr(engine._Trainer, "_shrinks", lambda self, stack: all(x.finished for x in stack.replicas))
    got, parameters = results(recipes)
    for run, of_run, ((alone,), (of_alone,)) in zip(got, parameters, want, strict=True):
        assert_same(run, alone, 1e-9)
        assert_same_tensors(of_run, of_alone, 1e-9)


def test_a_shared_first_phase_keeps_its_validation_metric() -> None:
    stage, unary = (recipe(scheme=scheme, schedule="linear", max_epochs=2) for scheme in ("stage", "unary"))
    for order in ([stage, unary], [unary, stage]):
        for run in train(order):
            (alone,) = train([run.recipe])
            assert run.valid == pytest.approx(alone.valid)
            assert run.test == pytest.approx(alone.test)


def test_a_stored_record_has_none_where_validation_was_not_measured() -> None:
    (run,) = train([recipe(schedule="linear")])
    fields = json.loads(json.dumps(record(run, "cpu", "float32").to_json(), allow_nan=False))
    assert fields["history"]["valid"] == [None, None, pytest.approx(run.valid, rel=1e-4)]
    assert Record.from_json(fields).recipe == run.recipe


def test_a_diverged_linear_run_fails() -> None:
    runs = train(
        [recipe(schedule="linear", optimizer="sgd", learning_rates=(rate,), warmup=0.0) for rate in (1e38, 0.1)]
    )
    assert runs[0].failed is not None
    assert math.isnan(runs[0].valid)
    assert runs[1].failed is None


def test_the_monitor_reports_at_the_end_of_a_linear_run() -> None:
    reported: list[tuple[int, str]] = []
    seen: list[Replica] = []
    monitor = BalanceMonitor(lambda text: reported.append((len(seen[0].history), text)))

    def watch(replicas: list[Replica]) -> None:
        seen[:] = replicas
        monitor(replicas)

    train([recipe(scheme="offline", alpha=100.0, schedule="linear")], watch=watch)
    assert [number for number, _ in reported] == [3]
    assert "ratio 100 and steady" in reported[0][1]
