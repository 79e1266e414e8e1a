"""The callbacks `watch`, `step` and `done`, and the monitor of the balance."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from lab.training.tiny import recipe

from equipoise import scaling
from equipoise_lab.training import BalanceMonitor, train
from equipoise_lab.training.replica import Replica


def test_watch_is_called_every_epoch_and_the_engine_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    seen: list[list[int]] = []
    recipes = [recipe(max_epochs=2), recipe(max_epochs=3, seed=1)]
    train(recipes, watch=lambda replicas: seen.append([len(replica.history) for replica in replicas]))
    assert seen == [[1, 1], [2, 2], [2, 3]]
    assert capfd.readouterr() == ("", "")


def test_step_is_called_after_every_batch() -> None:
    seen: list[tuple[int, int]] = []
    train([recipe(max_epochs=2, batch_size=32)], step=lambda batch, batches: seen.append((batch, batches)))
    batches = seen[-1][1]
    assert batches > 1
    assert seen == [(batch, batches) for batch in range(1, batches + 1)] * 2


def test_watch_can_follow_the_balance() -> None:
    reported: list[str] = []

    def watch(replicas: Sequence[Replica]) -> None:
        reported.append(scaling.verdict([epoch.ratio for epoch in replicas[0].history]).state)

    train([recipe(scheme="offline", alpha=100.0, max_epochs=2)], watch=watch)
    assert reported == ["unary dominates", "unary dominates"]


def test_the_monitor_reports_each_change_once() -> None:
    """It reports nothing on balanced runs and on nets that train alone."""
    reported: list[str] = []
    monitor = BalanceMonitor(reported.append)
    recipes = [
        recipe(scheme="offline", alpha=100.0, max_epochs=3, seed=4, fold=1),
        recipe(scheme="offline", alpha=1.0, max_epochs=3),
        recipe(scheme="unary", max_epochs=3),
        recipe(scheme="offline", alpha=0.01, max_epochs=3),
    ]
    runs = train(recipes, watch=monitor)
    advice = "ratio 100 and steady; try scaling.Learned() or scaling.Offline()"
    assert len(reported) == 2
    assert f"tiny offline, seed 4, fold 1: pairwise part has almost no influence: {advice}" in reported
    assert any("unary part has almost no influence: ratio 0.01 and steady" in text for text in reported)
    for run in (runs[0], runs[1], runs[3]):
        assert monitor.verdicts[run.recipe.key].ratio == run.history[-1].ratio
    assert runs[2].recipe.key not in monitor.verdicts


def test_the_monitor_accepts_a_diverged_run() -> None:
    """The scores overflow after the only step of the first epoch, while its loss is still finite."""
    diverging = recipe(optimizer="sgd", learning_rates=(3e38,), batch_size=150, objective="likelihood")
    reported: list[str] = []
    runs = train([diverging, replace(diverging, learning_rates=(0.1,))], watch=BalanceMonitor(reported.append))
    assert runs[0].failed is not None
    assert runs[1].failed is None


def test_done_is_called_as_soon_as_a_run_is_finished() -> None:
    order: list[str] = []
    recipes = [recipe(scheme="unary", max_epochs=1), recipe(scheme="stage", max_epochs=2)]
    train(
        recipes,
        done=lambda run, parameters: order.append(run.recipe.scheme),
        watch=lambda replicas: order.append(f"epoch {len(replicas[1].history)}"),
    )
    assert order.index("unary") < order.index("epoch 3")
    assert order[-1] == "stage"
