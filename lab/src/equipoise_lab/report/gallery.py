"""A page of pictures: image, truth, unary alone, joint, balanced, and where the last two differ.

The pictures are chosen by a rule: the best, the median and the worst of the test fold, by the difference between the
intersection over union of the balanced and of the joint model.
"""

import base64
import io
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from equipoise.files import write_whole

from ..data.folder import present, require
from ..data.pictures import Bytes, decode, library, resize
from ..tasks.horses import Horses, iou
from ..tasks.horses.predict import Mask, edge
from ..tasks.horses.segmenting import at_size, margins
from ..training import Model

MODELS = ("unary", "joint", "balanced")
RIGHT, EXTRA, MISSED = (0, 158, 115), (213, 94, 0), (0, 114, 178)
STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1b; --paper: #fff; --soft: #6b6b6b; --line: #ddd; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e8e8; --paper: #16181b; --soft: #a0a0a0; --line: #3a3d42; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 0 auto;
  max-width: 84rem; padding: 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2rem; }
.row { display: grid; grid-template-columns: repeat(auto-fit, minmax(10rem, 1fr)); gap: .5rem; margin: .8rem 0 1.6rem; }
figure { margin: 0; } img { width: 100%; height: auto; display: block; } figcaption, .note { color: var(--soft); }
figcaption { font-size: .85rem; } .key { display: inline-block; width: .8em; height: .8em; margin: 0 .3em 0 .8em; }
"""


@dataclass(frozen=True)
class Shown:
    """One picture, and the mask and score of each model."""

    number: int
    truth: Mask
    masks: dict[str, Mask]
    score: dict[str, float]

    @property
    def gain(self) -> float:
        return self.score["balanced"] - self.score["joint"]


def gallery(files: Mapping[str, Path], out: Path, *, count: int = 3, device: str = "cpu") -> None:
    """Write the page as one self-contained HTML file.

    `files` are the models, by the names unary, joint and balanced. They must have been trained on the same fold.
    """
    if set(files) != set(MODELS):
        raise ValueError(f"the page needs the models {', '.join(MODELS)}, got {', '.join(files)}")
    models = {scheme: Model.load(files[scheme], device, task="horses") for scheme in MODELS}
    folds = {(model.recipe.seed, model.recipe.fold) for model in models.values()}
    if len(folds) > 1:
        raise ValueError("the models must have the same seed and fold, and so the same test examples")
    ((seed, fold),) = folds
    task = models["unary"].task
    assert isinstance(task, Horses)
    every = [look(models, task, int(i)) for i in task.split(fold, seed).test]
    write_whole(out, page(models, task, every, count))


def look(models: Mapping[str, Model], task: Horses, number: int) -> Shown:
    truth = task.data.truth(number)
    masks: dict[str, Tensor] = {}
    for scheme, model in models.items():
        example = torch.tensor([[number]], device=task.device)
        assert isinstance(model.task, Horses)
        masks[scheme] = at_size(margins(model, model.task.batch(example, 0))[0].cpu(), *truth.shape)
    score = {scheme: float(iou(mask, truth)) for scheme, mask in masks.items()}
    return Shown(number, truth.numpy(), {scheme: mask.numpy() for scheme, mask in masks.items()}, score)


def choose(every: list[Shown], count: int) -> dict[str, list[Shown]]:
    """The best, the median and the worst pictures by gain, `count` of each, none twice."""
    order = sorted(every, key=lambda one: (-one.gain, one.number))
    count = min(count, len(order) // 3)
    middle = (len(order) - count) // 2
    return {"best": order[:count], "median": order[middle : middle + count], "worst": order[len(order) - count :]}


def page(models: Mapping[str, Model], task: Horses, every: list[Shown], count: int) -> str:
    means = {scheme: float(np.mean([one.score[scheme] for one in every])) for scheme in MODELS}
    better, worse = (sum(sign * one.gain > 0 for one in every) for sign in (1, -1))
    schemes = {name: escape(models[name].recipe.scheme) for name in MODELS}
    listed = "; ".join(f"{name}: {100 * means[name]:.1f} ({scheme})" for name, scheme in schemes.items())
    parts = [
        f"<h2>{name.capitalize()}</h2>{''.join(_row(task, one) for one in shown)}"
        for name, shown in choose(every, count).items()
    ]
    recipe = models["unary"].recipe
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>equipoise: horses</title><style>{STYLE}</style></head><body>
<h1>Test pictures</h1>
<p>Test fold {recipe.fold}, seed {recipe.seed}, net {escape(recipe.net)}: {len(every)} pictures. Mean intersection over
union in %, at the resolution of the masks: {listed}. The balanced model is better than the joint one on {better} and
worse on {worse}.</p>
<p>Shown are, by the difference of the two, the pictures with the largest, those around the median and those with the
smallest. Of what a model found:{_key(RIGHT)}right{_key(EXTRA)}not a horse{_key(MISSED)}missed. In the last column,
where the two differ:{_key(RIGHT)}the balanced model is right{_key(EXTRA)}the joint one is.</p>
{"".join(parts)}
<p class="note">Pictures and masks: E. Borenstein and S. Ullman, Weizmann Institute.</p>
</body></html>
"""


def _row(task: Horses, one: Shown) -> str:
    picture, name = _picture(task, one), task.data.names[one.number]
    cells = [(name, picture), ("truth", _painted(picture, {RIGHT: one.truth}))]
    for scheme in MODELS:
        mask = one.masks[scheme]
        parts = {RIGHT: mask & one.truth, EXTRA: mask & ~one.truth, MISSED: ~mask & one.truth}
        cells.append((f"{scheme} {100 * one.score[scheme]:.1f}", _painted(picture, parts)))
    differ, right = one.masks["joint"] != one.masks["balanced"], one.masks["balanced"] == one.truth
    parts = {RIGHT: differ & right, EXTRA: differ & ~right}
    cells.append((f"balanced - joint {100 * one.gain:+.1f}", _painted(picture // 2 + 127, parts, 1.0)))
    figures = (
        f'<figure><img alt="{escape(text)}" src="{_inline(pixels)}"><figcaption>{escape(text)}</figcaption></figure>'
        for text, pixels in cells
    )
    return f'<div class="row">{"".join(figures)}</div>'


def _picture(task: Horses, one: Shown) -> Bytes:
    """The publisher's picture at the size of its mask if available in colour; otherwise the input of the net."""
    height, width = one.truth.shape
    name = task.data.names[one.number]
    if present("horses", task.data_dir).complete and name not in task.data.replaced:
        return resize(decode(require("horses", task.data_dir)[f"rgb/{name}.jpg"]), height, width)
    return resize(_bytes(task.data.images[one.number].permute(1, 2, 0)), height, width)


def _bytes(x: Tensor) -> Bytes:
    return np.ascontiguousarray(x.numpy())


def _painted(picture: Bytes, parts: Mapping[tuple[int, int, int], Mask], strength: float = 0.5) -> Bytes:
    out = picture.astype(float)
    for colour, mask in parts.items():
        out[mask] = (1 - strength) * out[mask] + strength * np.array(colour)
        out[edge(mask)] = colour
    return out.astype(np.uint8)


def _inline(pixels: Bytes) -> str:
    """As a JPEG inside the page: photographs as PNG would be ten times as large."""
    held = io.BytesIO()
    library().fromarray(pixels).save(held, "JPEG", quality=85)
    return f"data:image/jpeg;base64,{base64.b64encode(held.getvalue()).decode()}"


def _key(colour: tuple[int, int, int]) -> str:
    return f'<span class="key" style="background:rgb{colour}"></span>'
