"""A trained model in a file predicts as it did when training ended; another file is not taken for one."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from lab.training.plain import Plain
from lab.training.tiny import Tiny, recipe

from equipoise import chain
from equipoise.lab import tasks
from equipoise.lab.recipe import Recipe
from equipoise.lab.training import BadFileError, Model, Run, tensors, train
from equipoise.objectives import MEAN_FIELD_ITERATIONS

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


def test_saved_and_loaded_it_is_the_same_model(tmp_path: Path) -> None:
    for i, (run, model) in enumerate(trained(*SOME)):
        path = tmp_path / str(i)
        model.save(path)
        again = Model.load(path, task="tiny")
        split = Tiny().split(run.recipe.fold, run.recipe.seed)
        assert again.recipe == run.recipe
        assert again.evaluate(split.test) == pytest.approx(run.test, abs=1e-6)
        assert again.evaluate(split.valid) == pytest.approx(run.valid, abs=1e-6)
        assert torch.equal(again.predict(split.test), model.predict(split.test))


def as_layer(run: Run, model: Model) -> Plain:
    """The same parameters in a `ChainCRF` and a plain net."""
    plain = Plain(run.recipe)
    plain.net.load_state_dict({k.removeprefix("unary."): x for k, x in model.parameters.items() if "unary." in k})
    plain.crf.load_state_dict({"pairwise": model.parameters["pairwise.matrix"]}, strict=False)
    plain.crf.scaling.alpha.fill_(run.alpha)
    return plain


def test_predictions_are_those_of_the_layer() -> None:
    for run, model in trained(*SOME[:2]):
        plain = as_layer(run, model)
        unary, _, mask = plain.scored(plain.test)
        rule = "marginal" if run.recipe.objective == "marginal" else "map"
        want = plain.crf.decode(unary, mask, rule)
        assert torch.equal(model.predict(plain.test)[mask], want[mask])


def test_marginals_are_those_of_the_layer() -> None:
    """Mean field's are its own, and a net alone has its softmax."""
    kinds = [*SOME[:2], recipe(max_epochs=1, objective="mean_field"), recipe(max_epochs=1, scheme="unary")]
    for run, model in trained(*kinds):
        plain = as_layer(run, model)
        unary, _, mask = plain.scored(plain.test)
        batch = model.task.batch(plain.test[None], model.task.room(plain.test[None]))
        got = model.log_marginals_batch(batch)[0]
        if run.recipe.scheme == "unary":
            want = unary.log_softmax(-1)
        elif run.recipe.objective == "mean_field":
            want = chain.mean_field(unary, plain.crf.pairwise, mask.sum(-1), iterations=MEAN_FIELD_ITERATIONS)
        else:
            want = plain.crf.log_marginals(unary, mask)
        torch.testing.assert_close(got[mask], want[mask], rtol=1e-4, atol=1e-5)


def test_a_model_reads_its_data_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ((_, model),) = trained(SOME[0])
    model.save(tmp_path / "model")
    made: list[Tiny] = []

    def make(*args: object) -> Tiny:
        made.append(Tiny(*args))
        return made[-1]

    monkeypatch.setitem(tasks.TASKS, "tiny", make)
    again = Model.load(tmp_path / "model")
    assert made == [again.task]


def test_examples_by_number_in_any_order() -> None:
    ((_, model),) = trained(SOME[0])
    there = model.predict([7, 3, 3])
    assert torch.equal(there[[1, 0]], model.predict(torch.tensor([3, 7])))
    assert torch.equal(there[1], there[2])


def test_another_file_is_not_taken_for_one(tmp_path: Path) -> None:
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
    for tensors_there, text_there, message in changes:
        tensors.save(path, tensors_there, text_there)
        with pytest.raises(BadFileError, match=message) as caught:
            Model.load(path)
        assert str(path) in str(caught.value)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(BadFileError, match="truncated"):
        Model.load(path)


@pytest.mark.parametrize("name", ["scaling.alpha", "scaling.log_unary"])
def test_a_file_without_its_scaling_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "model"
    ((_, model),) = trained(replace(SOME[2], max_epochs=1))
    model.save(path)
    named, text = tensors.load(path)
    del named[name]
    tensors.save(path, named, text)
    with pytest.raises(BadFileError, match=name):
        Model.load(path)
