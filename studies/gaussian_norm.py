"""How far the norm of the pairwise part is off if it is measured on a sample of pixels.

    ||W|| = mean |A A^T| over all pairs of pixels                                                    (§5.2)

`GaussianCRF` measures ||W|| from 16,384 random pairs of pixels, the experiments on a grid of 16 x 16 pixels. This study
compares both, and a grid of 32 x 32, with the exact norm. The embeddings A are those of the UNet of the horses task,
before training and after a few epochs of joint training with `Offline(1.0)`, for the 50 pictures of the validation set.

    EQUIPOISE_DATA=... python studies/gaussian_norm.py      # a few minutes on one core; writes gaussian_norm.json
"""

import json
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from equipoise import gaussian
from equipoise.energies import PixelGrid, balance
from equipoise.scaling import Offline
from equipoise_lab.tasks.horses import Horses

NETS = {"w8-64+unmirrored": 8, "w8-128": 3}  # epochs of training; "w8-128" also trains on mirror images
BATCH, RATE, SEED, PAIRS, TIMED = 16, 1e-3, 0, 16384, 10
Parameters = dict[str, Tensor]


def initial(task: Horses) -> Parameters:
    """The parameters of one replica."""
    drawn = {name: x[None] for name, x in task.init(torch.Generator().manual_seed(SEED)).items()}
    return {name: x if name.startswith("statistics.") else x.requires_grad_() for name, x in drawn.items()}


def train(task: Horses, parameters: Parameters, epochs: int) -> list[float]:
    """Joint training with Adam. Returns the mean loss of each epoch."""
    trained = [x for x in parameters.values() if x.requires_grad]
    optimizer, method = torch.optim.Adam(trained, lr=RATE), Offline(1.0)
    generator = torch.Generator().manual_seed(SEED)
    examples = task.split(fold=0, seed=SEED).train
    losses = []
    for _ in range(epochs):
        shuffled = examples[torch.randperm(len(examples), generator=generator)]
        seen = []
        for part in shuffled[: len(shuffled) // BATCH * BATCH].split(BATCH):
            batch = replace(task.batch(part[None], task.room(part)), learning=True)
            parts = task.unary(parameters, batch), task.pairwise(parameters, batch)
            unary, pairwise, _ = balance(task.energy, method, *parts)
            loss = task.energy.losses("marginal", unary, pairwise, batch.labels).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen.append(float(loss.detach()))
        losses.append(statistics.fmean(seen))
    return losses


@torch.no_grad()
def embeddings(task: Horses, parameters: Parameters) -> Tensor:
    """A of the validation pictures, (50, L, D), normalised by the batch as in training."""
    kept = {name: x.clone() if name.startswith("statistics.") else x for name, x in parameters.items()}
    found = []
    for part in task.split(fold=0, seed=SEED).valid.split(10):
        batch = replace(task.batch(part[None], task.room(part)), learning=True)
        found.append(task.pairwise(kept, batch).embeddings[0])
    return torch.cat(found)


def measured(norm: Callable[[Tensor], Tensor], images: Tensor) -> tuple[list[float], float]:
    """The norm of each image, and the median time in milliseconds of a value with its gradient, over some of them."""
    with torch.no_grad():
        values = [float(norm(image[None])) for image in images]
    times = []
    for image in images[:TIMED]:
        leaf = image[None].clone().requires_grad_()
        start = time.perf_counter()
        norm(leaf).sum().backward()
        times.append(1e3 * (time.perf_counter() - start))
    return values, statistics.median(times)


def compare(images: Tensor, side: int) -> list[dict[str, object]]:
    generator = torch.Generator().manual_seed(SEED)
    exact, exact_time = measured(gaussian.mean_abs, images)
    rows: list[dict[str, object]] = [{"sample": "all pairs", "mean_error": 0.0, "max_error": 0.0, "ms": exact_time}]
    samples: dict[str, Callable[[Tensor], Tensor]] = {
        "grid 16 x 16": lambda a: PixelGrid(16)(a, (side, side)),
        "grid 32 x 32": lambda a: PixelGrid(32)(a, (side, side)),
        f"{PAIRS} random pairs": lambda a: gaussian.sampled_mean_abs(a, pairs=PAIRS, generator=generator).value,
    }
    for name, norm in samples.items():
        found, ms = measured(norm, images)
        signed = [a / b - 1 for a, b in zip(found, exact, strict=True)]
        errors = [abs(x) for x in signed]
        rows.append(
            {
                "sample": name,
                "mean_error": statistics.fmean(errors),
                "max_error": max(errors),
                "bias": statistics.fmean(signed),
                "ms": ms,
            }
        )
    return rows


def main() -> None:
    torch.set_num_threads(1)
    start, rows = time.perf_counter(), []
    for name, epochs in NETS.items():
        task = Horses(name)
        parameters = initial(task)
        for trained in (0, epochs):
            losses = train(task, parameters, trained)
            images = embeddings(task, parameters)
            for row in compare(images, task.size):
                rows.append({"net": name, "epochs": trained, "pictures": len(images), **row})
                print(f"{name:18} epochs {trained}  " + "  ".join(_text(row)), flush=True)
            if losses:
                print(f"{name:18} losses " + " ".join(f"{x:.3f}" for x in losses), flush=True)
    report = {
        "rows": rows,
        "seconds": round(time.perf_counter() - start),
        "threads": torch.get_num_threads(),
        "processor": _processor(),
        "torch": torch.__version__,
    }
    Path(__file__).with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")


def _text(row: dict[str, object]) -> list[str]:
    return [f"{key} {value:.4g}" if isinstance(value, float) else str(value) for key, value in row.items()]


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((x.split(":")[1].strip() for x in lines if x.startswith("model name")), platform.processor())


if __name__ == "__main__":
    main()
