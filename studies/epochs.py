"""How long does an epoch take, for one replica and for many? For horses: what share of a step is the CRF?

    python studies/epochs.py chunking default bilstm --replicas 1 32 96 --device cuda --precision bfloat16
    python studies/epochs.py horses w8-64 w16-128 --replicas 1 8 --device cuda --precision bfloat16

Start several processes at once to see whether sharing a GPU raises throughput.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import replace

import torch

from equipoise.energies.gaussian import Embedded
from equipoise_lab.recipe import Recipe
from equipoise_lab.tasks import TASKS, task_by_name
from equipoise_lab.tasks.horses import Horses
from equipoise_lab.training import train

EPOCHS = 3
TIMES = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("nets", nargs="+")
    parser.add_argument("--replicas", type=int, nargs="+", default=[1])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="float32")
    options = parser.parse_args()
    for net in options.nets:
        base = replace(
            task_by_name(options.task).settings.base, net=net, max_epochs=EPOCHS, stop=EPOCHS, plateau=EPOCHS
        )
        for replicas in options.replicas:
            print(measured(replace(base, learning_rates=(3e-3,)), replicas, options.device, options.precision))


def measured(base: Recipe, replicas: int, device: str, precision: str) -> str:
    """Time of the last epoch, validation included. By then everything is compiled."""
    recipes = [replace(base, seed=seed) for seed in range(replicas)]
    runs = train(recipes, device=device, precision=precision, stack_size=replicas)
    seconds = replicas * runs[0].history[-1].seconds
    text = f"{base.task} {base.net:12} {replicas:4} replicas, {precision}: {seconds:6.2f} s per epoch"
    text += f", {1e3 * seconds / replicas:6.1f} ms per replica"
    if device == "cuda":
        text += f", {torch.cuda.max_memory_reserved() / 2**30:5.1f} GiB"
        torch.cuda.empty_cache()
    if base.task == "horses":
        steps = -(-len(Horses(base.net).split(0, 0).train) // base.batch_size)
        crf = energy_seconds(Horses(base.net, device), base.batch_size, replicas)
        text += f"; the CRF takes {1e3 * crf:.2f} ms of a step of at most {1e3 * seconds / steps:.2f} ms"
    return text


def energy_seconds(task: Horses, pictures: int, replicas: int) -> float:
    """Bound, solve and loss of random scores, forward and backward; on a GPU as a CUDA graph, as in training."""
    size, generator = task.size, torch.Generator().manual_seed(0)
    scores = torch.randn(replicas, pictures, size**2, 2, generator=generator).to(task.device).requires_grad_()
    width = task.wanted.width
    embeddings = torch.randn(replicas, pictures, size**2, width, generator=generator).to(task.device).requires_grad_()
    batch = task.batch(torch.arange(pictures, device=task.device).expand(replicas, -1), task.size**2)
    one = torch.ones(replicas, device=task.device)
    share = torch.full_like(batch.weights[:, :1], task.wanted.share)
    pairwise = Embedded(embeddings, torch.ones_like(share), share, (size, size))

    def run() -> None:
        scaled = task.energy.scaled(scores, pairwise, one, one)
        loss = task.energy.losses("marginal", *scaled, batch.labels).sum()
        torch.autograd.grad(loss, (scores, embeddings))

    return timed(run if task.device.type == "cpu" else recorded(run))


def recorded(run: Callable[[], None]) -> Callable[[], None]:
    """`run` as a CUDA graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        run()
        run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def timed(run: Callable[[], None]) -> float:
    wait = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    run()
    wait()
    begin = time.perf_counter()
    for _ in range(TIMES):
        run()
    wait()
    return (time.perf_counter() - begin) / TIMES


if __name__ == "__main__":
    main()
