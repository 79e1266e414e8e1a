"""The three tasks of §6.1: data, net, metric and splits, nothing else."""

import difflib

import torch

from .chunking import Chunking
from .horses import Horses
from .ocr import OCR
from .task import Batch, Make, Parameters, Split, Task

TASKS: dict[str, Make] = {"ocr": OCR, "chunking": Chunking, "horses": Horses}
"""Making `chunking` reads its data, which it wants in a data folder; `horses` looks there when it is first asked."""


def load(name: str, net: str = "default", device: torch.device | str = "cpu") -> Task:
    """The task of that name, with one of its nets.

    >>> load("ocr").metric
    'accuracy'
    """
    if name not in TASKS:
        near = difflib.get_close_matches(name, TASKS, 1)
        raise ValueError(f"there is no task {name!r}; " + (f"did you mean {near[0]}?" if near else f"have {[*TASKS]}"))
    return TASKS[name](net, torch.device(device))


__all__ = ["TASKS", "Batch", "Parameters", "Split", "Task", "load"]
