"""Checkpoints that are damaged, or of other recipes, are refused and not changed."""

import json
from pathlib import Path

import pytest
from lab.training.resumable import interrupted
from lab.training.tiny import recipe

from equipoise_lab.training import BadFileError, Recipe, tensors, train

BROKEN = {
    "empty": lambda data: b"",
    "cut short": lambda data: data[: len(data) // 2],
    "cut by one": lambda data: data[:-1],
    "a text": lambda data: b"these are my notes, please keep them",
    "zeros": lambda data: bytes(len(data)),
    "damaged header": lambda data: data[:20] + b"\xff" + data[21:],
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_refused_and_not_changed(tmp_path: Path, name: str) -> None:
    path = tmp_path / "checkpoint"
    interrupted([recipe()], path, 2)
    data = BROKEN[name](path.read_bytes())
    path.write_bytes(data)
    with pytest.raises(BadFileError, match="checkpoint") as caught:
        train([recipe()], checkpoint=path)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == data
    assert [x.name for x in tmp_path.iterdir()] == ["checkpoint"]


@pytest.mark.parametrize(
    "others",
    [[recipe(seed=1)], [recipe(), recipe(seed=1)], [recipe(max_epochs=9)], []],
    ids=["another", "more", "changed", "none"],
)
def test_a_checkpoint_of_other_recipes_is_refused_and_not_changed(tmp_path: Path, others: list[Recipe]) -> None:
    path = tmp_path / "checkpoint"
    interrupted([recipe()], path, 2)
    data = path.read_bytes()
    with pytest.raises(BadFileError, match="belongs to other recipes: choose another file, or remove it"):
        train(others, checkpoint=path)
    assert path.read_bytes() == data


@pytest.mark.parametrize(
    "change",
    [
        lambda known: known | {"format": "equipoise training 99"},
        lambda known: [known],
        lambda known: {k: v for k, v in known.items() if k != "format"},
        lambda known: {k: v for k, v in known.items() if k != "replicas"},
        lambda known: {k: v for k, v in known.items() if k != "runs"},
        lambda known: {k: v for k, v in known.items() if k != "members"},
        lambda known: known | {"runs": [1]},
        lambda known: known | {"replicas": [1]},
        lambda known: known | {"replicas": [known["replicas"][0] | {"plateau": {"wrong": 1}}]},
        lambda known: known | {"replicas": [known["replicas"][0] | {"history": [{}]}]},
        lambda known: known | {"replicas": [known["replicas"][0] | {"recipe": {"task": "tiny"}}]},
    ],
)
def test_a_checkpoint_with_invalid_content_is_refused_and_not_changed(tmp_path: Path, change) -> None:
    path = tmp_path / "checkpoint"
    interrupted([recipe()], path, 2)
    named, text = tensors.load(path)
    tensors.save(path, named, json.dumps(change(json.loads(text))))
    data = path.read_bytes()
    with pytest.raises(BadFileError, match="checkpoint"):
        train([recipe()], checkpoint=path)
    assert path.read_bytes() == data


def test_a_checkpoint_of_another_net_is_refused_and_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    interrupted([recipe()], path, 2)
    named, text = tensors.load(path)
    for name in list(named):
        if name.endswith("unary.0.bias"):
            named[name] = named[name][:, :3]
    tensors.save(path, named, text)
    data = path.read_bytes()
    with pytest.raises(BadFileError, match="different net"):
        train([recipe()], checkpoint=path)
    assert path.read_bytes() == data


@pytest.mark.parametrize(
    "change",
    [
        lambda text, named: text.update(members=[99]),
        lambda text, named: text.update(members="x"),
        lambda text, named: text.update(members=[]),
        lambda text, named: named.update({"kept/99/x": named["stack/alpha"]}),
        lambda text, named: text["replicas"][0]["recipe"].update(seed=0.5),
    ],
    ids=["member", "type", "no members", "kept", "recipe"],
)
def test_a_checkpoint_that_contradicts_itself_is_refused(tmp_path: Path, change) -> None:
    path, recipes = tmp_path / "checkpoint", [recipe(max_epochs=2)]
    interrupted(recipes, path, 1)
    named, text = tensors.load(path)
    fields = json.loads(text)
    change(fields, named)
    tensors.save(path, named, json.dumps(fields))
    with pytest.raises(BadFileError, match="is damaged"):
        train(recipes, checkpoint=path)
