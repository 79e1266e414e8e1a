"""A saved model predicts as it did after training; other files are refused."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from lab.training.reference import Reference
from lab.training.tiny import Tiny, recipe

from equipoise import chain
from equipoise.objectives import MEAN_FIELD_ITERATIONS
from equipoise_lab import tasks
from equipoise_lab.recipe import Recipe
from equipoise_lab.training import BadFileError, Model, Run, tensors, train

SOME = [
    recipe(max_epochs=2),
    recipe(max_epochs=2, scheme="online", objective="likelihood"),
    recipe(max_epochs=2, scheme="learned", objective="margin"),
    recipe(max_epochs=2, scheme="unary", fold=1),
    recipe(max_epochs=1, scheme="stage"),
]


def trained(*recipes: Recipe) -> list[tuple[Run, Model]]:
    found = []
    train(recipes, done=lambda run, parameters: found.append((run, Model(run.recipe, parameters))))
    return found


def test_a_model_has_the_alpha_that_was_searched_at_the_end(tmp_path: Path) -> None:
    """Training does not depend on the search, and a joint run beside it keeps its factor."""
    wanted = recipe(max_epochs=2, alpha=8.0, scheme="online", search="valid", search_time="end")
    (joint, _), (run, model) = trained(replace(wanted, scheme="joint"), wanted)
    assert {epoch.alpha for epoch in (*joint.history, *run.history)} == {joint.alpha} == {8.0}
    assert [epoch.loss for epoch in run.history] == pytest.approx([epoch.loss for epoch in joint.history])
    assert run.alpha != 8.0
    model.save(tmp_path / "model")
    again = Model.load(tmp_path / "model")
    assert float(again.parameters["scaling.alpha"]) == run.alpha
    assert again.evaluate(Tiny().split(0, 0).test) == pytest.approx(run.test, abs=1e-6)


def test_a_saved_model_is_the_same_after_loading(tmp_path: Path) -> None:
    for i, (run, model) in enumerate(trained(*SOME)):
        path = tmp_path / str(i)
        model.save(path)
        again = Model.load(path, task="tiny")
        split = Tiny().split(run.recipe.fold, run.recipe.seed)
        assert again.recipe == run.recipe
        assert again.evaluate(split.test) == pytest.approx(run.test, abs=1e-6)
        assert again.evaluate(split.valid) == pytest.approx(run.valid, abs=1e-6)
        assert torch.equal(again.predict(split.test), model.predict(split.test))


def as_layer(run: Run, model: Model) -> Reference:
    """The same parameters in a `ChainCRF` and a module."""
    reference = Reference(run.recipe)
    reference.net.load_state_dict({k.removeprefix("unary."): x for k, x in model.parameters.items() if "unary." in k})
    reference.crf.load_state_dict({"pairwise": model.parameters["pairwise.matrix"]}, strict=False)
    reference.crf.scaling.alpha.fill_(run.alpha)
    return reference


def test_predictions_are_those_of_the_layer() -> None:
    for run, model in trained(*SOME[:2]):
        reference = as_layer(run, model)
        unary, _, mask = reference.scored(reference.test)
        rule = "marginal" if run.recipe.objective == "marginal" else "map"
        want = reference.crf.decode(unary, mask, rule)
        assert torch.equal(model.predict(reference.test)[mask], want[mask])


def test_marginals_are_those_of_the_layer() -> None:
    """Exact, by mean field if trained with it, and the softmax of a net alone."""
    kinds = [*SOME[:2], recipe(max_epochs=1, objective="mean_field"), recipe(max_epochs=1, scheme="unary")]
    for run, model in trained(*kinds):
        reference = as_layer(run, model)
        unary, _, mask = reference.scored(reference.test)
        batch = model.task.batch(reference.test[None], model.task.room(reference.test[None]))
        got = model.log_marginals_batch(batch)[0]
        if run.recipe.scheme == "unary":
            want = unary.log_softmax(-1)
        elif run.recipe.objective == "mean_field":
            want = chain.mean_field(unary, reference.crf.pairwise, mask.sum(-1), iterations=MEAN_FIELD_ITERATIONS)
        else:
            want = reference.crf.log_marginals(unary, mask)
        torch.testing.assert_close(got[mask], want[mask], rtol=1e-4, atol=1e-5)


def test_loading_a_model_creates_its_task_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ((_, model),) = trained(SOME[0])
    model.save(tmp_path / "model")
    created: list[Tiny] = []

    def make(*args: object) -> Tiny:
        created.append(Tiny(*args))
        return created[-1]

    monkeypatch.setitem(tasks.TASKS, "tiny", make)
    again = Model.load(tmp_path / "model")
    assert created == [again.task]


def test_predict_accepts_examples_in_any_order() -> None:
    ((_, model),) = trained(SOME[0])
    labels = model.predict([7, 3, 3])
    assert torch.equal(labels[[1, 0]], model.predict(torch.tensor([3, 7])))
    assert torch.equal(labels[1], labels[2])


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model"
    ((_, model),) = trained(SOME[0])
    model.save(path)
    named, text = tensors.load(path)
    with pytest.raises(BadFileError, match="is a model of tiny, not of ocr"):
        Model.load(path, task="ocr")
    changes = [
        (named, json.dumps(json.loads(text) | {"format": "equipoise training 1"}), "not a 'equipoise model 1'"),
        (named, json.dumps({"format": "equipoise model 1"}), "is damaged"),
        (named, "no json", "is damaged"),
        (
            {k: x for k, x in named.items() if k != "pairwise.matrix"},
            text,
            "belongs to a different net: pairwise.matrix",
        ),
        (named | {"pairwise.matrix": torch.zeros(2, 2)}, text, "a different net: pairwise.matrix"),
    ]
    for changed, changed_text, message in changes:
        tensors.save(path, changed, changed_text)
        with pytest.raises(BadFileError, match=message) as caught:
            Model.load(path)
        assert str(path) in str(caught.value)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(BadFileError, match="truncated"):
        Model.load(path)


@pytest.mark.parametrize("name", ["scaling.alpha", "scaling.log_scales", "scaling.size"])
def test_a_model_without_the_state_of_scaling_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "model"
    ((_, model),) = trained(replace(SOME[2], max_epochs=1))
    model.save(path)
    named, text = tensors.load(path)
    del named[name]
    tensors.save(path, named, text)
    with pytest.raises(BadFileError, match=name):
        Model.load(path)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda x: x.double(), "is of type torch.float64, not torch.float32"),
        (lambda x: x.index_fill(0, torch.tensor([0]), float("nan")), "has values that are not finite"),
    ],
)
def test_a_model_with_other_types_or_values_is_refused(tmp_path: Path, change, reason: str) -> None:
    path = tmp_path / "model"
    ((_, model),) = trained(replace(SOME[0], max_epochs=1))
    model.save(path)
    named, text = tensors.load(path)
    tensors.save(path, named | {"pairwise.matrix": change(named["pairwise.matrix"])}, text)
    with pytest.raises(BadFileError, match=f"pairwise.matrix {reason}"):
        Model.load(path)


@pytest.mark.parametrize(("name", "value"), [("seed", "x"), ("seed", -1), ("max_epochs", 10**30), ("task", "none")])
def test_a_model_with_another_recipe_is_refused(tmp_path: Path, name: str, value: object) -> None:
    path = tmp_path / "model"
    ((_, model),) = trained(replace(SOME[0], max_epochs=1))
    model.save(path)
    named, text = tensors.load(path)
    fields = json.loads(text)
    fields["recipe"][name] = value
    tensors.save(path, named, json.dumps(fields))
    with pytest.raises(BadFileError, match=f"model is damaged: .*{name}"):
        Model.load(path)
