"""Synthetic horses in a data folder: 328 noisy pictures of 16 x 16 pixels, each with a bright disc."""

from pathlib import Path

import numpy as np
import torch

from equipoise_lab.data import horses
from equipoise_lab.recipe import Recipe
from equipoise_lab.tasks.horses import Horses
from equipoise_lab.training import Model
from equipoise_lab.training.groups import scaling_state

COUNT, SIZE = 328, 16
NET = "w2-16-d2"


def write(folder: Path) -> Path:
    """Write the cached tensors, which are the only file that the task reads."""
    draw = np.random.default_rng(0)
    y, x = np.mgrid[:SIZE, :SIZE]
    centre, radius = draw.uniform(3, 13, (COUNT, 2, 1, 1)), draw.uniform(2, 6, (COUNT, 1, 1))
    masks = (y - centre[:, 0]) ** 2 + (x - centre[:, 1]) ** 2 < radius**2
    colour = draw.uniform(0.5, 1, (COUNT, 3, 1, 1))
    images = 60 + 50 * draw.standard_normal((COUNT, 3, SIZE, SIZE)) + 110 * colour * masks[:, None]
    path = horses.cache_file(SIZE, folder)
    path.parent.mkdir(parents=True)
    np.savez(
        path,
        names=np.array([f"horse{i:03}" for i in range(1, COUNT + 1)]),
        replaced=np.array(["horse318"]),
        images=images.clip(0, 255).astype(np.uint8),
        masks=masks.astype(np.uint8),
        bits=np.concatenate([np.packbits(mask.repeat(3, 0).repeat(2, 1)) for mask in masks]),
        sizes=np.tile([3 * SIZE, 2 * SIZE], (COUNT, 1)),
        source=np.array(""),
    )
    return folder


def model(scheme: str, seed: int, **changes) -> Model:
    """An untrained model with a bias such that its masks have both foreground and background."""
    task = Horses(NET)
    start = task.init(torch.Generator().manual_seed(seed))
    scores = task.unary({name: x[None] for name, x in start.items()}, task.batch(torch.arange(50)[None], 0))
    start["unary.scores.bias"] -= scores.mean((0, 1, 2))
    recipe = Recipe("horses", net=NET, scheme=scheme, **changes)
    return Model(recipe, start | scaling_state(recipe))
