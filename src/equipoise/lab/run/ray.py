"""Workers on a Ray cluster: an existing one, or a temporary one on this machine."""

from collections.abc import Generator, Iterable
from itertools import islice
from typing import Any

from ..recipe import Recipe
from .runner import cores
from .store import Record


class Cluster:
    """Portions as Ray tasks. Ray restarts a task whose worker or machine dies, up to three times.

    Args:
        address: address of an existing cluster, as for `ray.init`; None starts one on this machine.
        workers: number of workers to divide the recipes among; on a cluster started here, also its number of CPUs.
        gpus: share of a GPU per task, if the device is cuda.
    """

    def __init__(self, address: str | None = None, workers: int = 2, gpus: float = 1.0) -> None:
        self.address, self.workers, self.gpus = address, workers, gpus

    def work(self, portions: Iterable[list[Recipe]], options: dict[str, Any]) -> Generator[list[Record]]:
        ray = _ray()
        ours = not ray.is_initialized()
        if ours:
            own = {} if self.address else {"num_cpus": self.workers, "include_dashboard": False}
            ray.init(self.address, log_to_driver=False, configure_logging=False, **own)
        try:
            share = {"num_gpus": self.gpus} if options["device"] == "cuda" else {}
            task = ray.remote(num_cpus=1, max_retries=3, **share)(_portion)
            options = options | {"store": None}  # a worker on another machine cannot write checkpoints beside the store
            threads = max(1, cores() // self.workers)
            more = (task.remote(portion, options, threads) for portion in portions)
            waiting = list(islice(more, self.workers))
            while waiting:
                finished, waiting = ray.wait(waiting)
                waiting += islice(more, len(finished))
                for one in finished:
                    try:
                        yield ray.get(one)
                    except ray.exceptions.RayError as error:
                        if isinstance(error, ray.exceptions.RayTaskError):
                            raise
        finally:
            if ours:
                ray.shutdown()


def _portion(recipes: list[Recipe], options: dict[str, Any], threads: int) -> list[Record]:
    import torch

    from .runner import work

    torch.set_num_threads(threads)
    found: list[Record] = []
    work(recipes, keep=found.append, **options)
    return found


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise ValueError("the engine ray needs Ray: pip install 'equipoise[ray]'") from None
    return ray
