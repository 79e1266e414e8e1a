"""The learning rate is cut as by torch's ReduceLROnPlateau, and training stops after `stop` epochs without a gain."""

import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from equipoise_lab.recipe import Recipe
from equipoise_lab.training.replica import Epoch, Plateau, Replica

METRICS = st.lists(
    st.one_of(st.floats(0, 1), st.sampled_from([0.5, 0.5 + 1e-3, 0.5009, 0.502, math.nan])), min_size=1, max_size=40
)


@given(metrics=METRICS, plateau=st.integers(1, 5), stop=st.integers(1, 8), threshold=st.sampled_from([1e-3, 0.1]))
def test_cuts_are_those_of_torch(metrics: list[float], plateau: int, stop: int, threshold: float) -> None:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    peer = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, mode="max", factor=0.1, patience=plateau - 1, threshold=threshold, threshold_mode="abs", eps=0.0
    )
    state, best, since = Plateau(), -math.inf, 0
    for metric in metrics:
        state = state.after(metric, plateau, threshold)
        peer.step(metric)
        assert math.isclose(optimizer.param_groups[0]["lr"], 10.0**-state.cuts, rel_tol=1e-9)
        since = 0 if metric > best + threshold else since + 1
        best = metric if since == 0 else best
        assert state.finished(stop) == (since >= stop)


@given(metrics=METRICS, plateau=st.integers(1, 5), threshold=st.sampled_from([1e-3, 0.1]))
def test_the_patience_of_torch_is_that_of_its_scheduler(metrics: list[float], plateau: int, threshold: float) -> None:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5)
    peer = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, mode="max", factor=0.1, patience=plateau, threshold=threshold, threshold_mode="abs", eps=0.0
    )
    rates = {"learning_rates": (0.5,), "plateau": plateau, "threshold": threshold, "stop": 1000}
    replica = Replica(Recipe("ocr", patience="torch", max_epochs=1000, **rates))
    for metric in metrics:
        assert math.isclose(optimizer.param_groups[0]["lr"], replica.learning_rate, rel_tol=1e-9)
        replica.record(Epoch(0, 0.0, metric, 1.0, 1.0, replica.learning_rate, 0.0))
        peer.step(metric)
    assert math.isclose(optimizer.param_groups[0]["lr"], replica.learning_rate, rel_tol=1e-9)


def test_the_rule_of_the_paper_for_ocr() -> None:
    """Cut after 3 epochs without a gain, stop after 7. Small increases count once their sum exceeds 1e-3."""
    state = Plateau()
    cuts, over = [], []
    for metric in (0.90, 0.95, 0.9502, 0.9505, 0.9508, 0.952, 0.952, 0.952, 0.952, 0.952, 0.952, 0.952, 0.952):
        state = state.after(metric, plateau=3, threshold=1e-3)
        cuts.append(state.cuts)
        over.append(state.finished(7))
    assert cuts == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 3, 3]
    assert over == [False] * 12 + [True]
