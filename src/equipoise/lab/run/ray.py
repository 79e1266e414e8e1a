"""Workers on a Ray cluster: one that runs already, or one that is started here for the while."""

from collections.abc import Iterator, Sequence
from typing import Any

from ..recipe import Recipe
from .runner import cores
from .store import Record


class Cluster:
    """Portions as Ray tasks. A task whose worker or machine dies is started anew by Ray, three times.

    Args:
        address: of a cluster that runs, as `ray.init` takes it ("auto" finds it); None starts one on this machine.
        workers: how many portions to make, and on a cluster of our own how many at once.
        gpus: the share of a GPU that a task takes when the device is cuda.
    """

    def __init__(self, address: str | None = None, workers: int = 2, gpus: float = 1.0) -> None:
        self.address, self.workers, self.gpus = address, workers, gpus

    def work(self, portions: Sequence[list[Recipe]], options: dict[str, Any]) -> Iterator[list[Record]]:
        ray = _ray()
        ours = not ray.is_initialized()
        if ours:
            own = {} if self.address else {"num_cpus": self.workers, "include_dashboard": False}
            ray.init(self.address, log_to_driver=False, configure_logging=False, **own)
        try:
            share = {"num_gpus": self.gpus} if options["device"] == "cuda" else {}
            task = ray.remote(num_cpus=1, max_retries=3, **share)(_portion)
            waiting = [task.remote(portion, options, max(1, cores() // self.workers)) for portion in portions]
            while waiting:
                finished, waiting = ray.wait(waiting)
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
        raise ValueError("the engine ray needs more than the library: pip install 'equipoise[ray]'") from None
    return ray
