"""A new task needs its class and one entry in `tasks.TASKS`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from lab.training.tiny import Tiny

from equipoise_lab import tasks
from equipoise_lab.recipe import Recipe
from equipoise_lab.tasks.predicting import Predictor, Request, examples_of_test_fold
from equipoise_lab.tasks.settings import Grid, Rounds, Settings

Call = Callable[..., int]
OPTIMIZERS = ("adam", "sgd", "rmsprop")


class Toy(Tiny):
    name = "toy"
    title = "Toy chains"
    unit = "% of labels right"
    objectives = ("marginal", "margin")
    nets: ClassVar[dict[str, str]] = {"default": "one hidden layer"}
    settings = Settings(
        base=Recipe("toy", batch_size=16, subset=40, max_epochs=2),
        rates=dict.fromkeys(OPTIMIZERS, 0.03),
        stages=dict.fromkeys(OPTIMIZERS, (0.03, 0.05, 0.01)),
        factors={},
        grid=Grid(
            rates=dict.fromkeys(OPTIMIZERS, (0.01, 0.03)),
            stages=dict.fromkeys(OPTIMIZERS, ((0.03,), (0.05,), (0.01,))),
            alphas={"offline": (1.0, 2.0)},
            weights=(0.1,),
        ),
        rounds=Rounds({"seeds": (0,), "folds": (0,)}, {"seeds": (0, 1), "folds": (0,)}, 1),
    )
    ratio_is_telling = True

    def predict(self, model: Predictor, request: Request) -> Any:
        request.only("a model of toy", "--fold")
        fold, examples = examples_of_test_fold(model, request)
        score = model.evaluate(examples)
        request.say(f"accuracy on test fold {fold}: {100 * score:.2f} %")
        return {"fold": fold, "accuracy": score}

    def details(self, model: Predictor) -> tuple[list[str], dict[str, Any]]:
        return ["a toy"], {"toy": True}


@pytest.fixture
def call(command: Call, monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.setitem(tasks.TASKS, "toy", Toy)
    return command


def test_train_and_predict(call: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.safetensors"
    assert call("train", "toy", "--fold", 1, "--out", path, "--json") == 0
    trained = json.loads(capsys.readouterr().out)
    assert trained["toy"]
    assert trained["epochs"] == 2
    assert call("predict", path, "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"fold": 1, "accuracy": pytest.approx(trained["test"])}
    assert call("predict", path, "--fold", 2) == 0
    assert "accuracy on test fold 2: " in capsys.readouterr().out
    assert call("predict", path, "--marginals") == 1
    assert "a model of toy takes no --marginals" in capsys.readouterr().err


def test_reproduce_and_report(call: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "runs.jsonl"
    assert call("reproduce", "main", "--task", "toy", "--store", store, "--plan") == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["wanted"] == plan["missing"] == 2 * 6 * 8 * 3  # objectives, schemes, seeds, folds
    few = ("--seeds", 1, "--folds", 1)
    assert call("reproduce", "main", "--task", "toy", "--store", store, *few) == 0
    assert "12 runs added" in capsys.readouterr().out
    assert call("report", "--store", store, "--docs", tmp_path / "docs", *few) == 0
    assert "Toy chains" in (tmp_path / "docs" / "results" / "toy.md").read_text()
