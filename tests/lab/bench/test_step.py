"""The taggers that `equipoise-lab bench step` compares do what their names say."""

import pytest
import torch

from equipoise_lab.bench import step


@pytest.mark.parametrize("name", ["drop-in", "pytorch-crf"])
def test_crfs_with_the_same_parameters_have_the_same_loss_and_labels(name: str) -> None:
    module, make = step.HEADS[name]
    pytest.importorskip(module)
    given = step.inputs("cpu")
    scores = torch.randn(*given.words.shape, step.LABELS, generator=torch.Generator().manual_seed(1))
    ours, other = step.HEADS["ChainCRF, Fixed"][1](), make()
    with torch.no_grad():
        other.module.transitions.copy_(ours.module.pairwise)
        other.module.start_transitions.copy_(ours.module.start)
        other.module.end_transitions.copy_(ours.module.end)
        torch.testing.assert_close(ours.loss(scores, given), other.loss(scores, given))
        labels = [row[row != -100].tolist() for row in ours.labels(scores, given)]
    assert labels == other.labels(scores, given)


def test_lists_of_a_softmax_are_its_labels() -> None:
    given = step.inputs("cpu")
    scores = torch.randn(*given.words.shape, step.LABELS, generator=torch.Generator().manual_seed(1))
    found = step.HEADS["softmax, lists"][1]().labels(scores, given)
    assert found == step.HEADS[step.BASE][1]().labels(scores, given).tolist()


@pytest.mark.parametrize("name", step.HEADS)
def test_a_training_step_moves_the_net_and_the_last_layer(name: str) -> None:
    module, make = step.HEADS[name]
    pytest.importorskip(module)
    heads = []

    def kept() -> step.Head:
        heads.append(make())
        return heads[0]

    calls = step.steps(kept, step.inputs("cpu"), "cpu")
    before = [x.clone() for x in heads[0].module.parameters()]
    calls["training"]()
    after = list(heads[0].module.parameters())
    assert all(not torch.equal(old, new) for old, new in zip(before, after, strict=True))
    assert len(calls["inference"]()) == step.BATCH


def test_the_report_compares_every_peer_with_softmax(monkeypatch: pytest.MonkeyPatch) -> None:
    few = {name: step.HEADS[name] for name in (step.BASE, "ChainCRF, Learned")}
    monkeypatch.setattr(step, "HEADS", few)
    *_, report = step.run("cpu", seconds=0.01)
    assert [(row.step, row.peer) for row in report.rows] == [
        (kind, name) for kind in ("training", "inference") for name in few
    ]
    assert [row.times_base for row in report.rows if row.peer == step.BASE] == [1, 1]
