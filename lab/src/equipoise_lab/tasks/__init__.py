"""The tasks of §6.1, and tagging with a pretrained encoder: data, splits, nets, metric and settings of each."""

import difflib
from typing import Any

import torch

from .chunking import Chunking
from .horses import Horses
from .ocr import OCR
from .tagging import TaggingBC5CDR, TaggingCoNLL2000, TaggingWNUT17
from .task import Batch, Parameters, Split, Task

TASKS: dict[str, Any] = {"ocr": OCR, "chunking": Chunking, "horses": Horses}
TASKS |= {task.name: task for task in (TaggingCoNLL2000, TaggingWNUT17, TaggingBC5CDR)}
"""The classes of the tasks by name. Most read their data when they are created, `horses` when the data is used."""


def task_by_name(name: str) -> Any:
    """The class of the task of this name.

    >>> task_by_name("ocr").title
    'Handwritten words'
    >>> task_by_name("ocrs")
    Traceback (most recent call last):
    ...
    ValueError: there is no task 'ocrs'; did you mean ocr?
    """
    if name not in TASKS:
        near = difflib.get_close_matches(name, TASKS, 1)
        hint = f"did you mean {near[0]}?" if near else f"the tasks are {', '.join(TASKS)}"
        raise ValueError(f"there is no task {name!r}; {hint}")
    return TASKS[name]


def load(name: str, net: str = "default", device: torch.device | str = "cpu") -> Task:
    """The task of this name, with one of its nets.

    >>> load("ocr").metric
    'accuracy'
    """
    task: Task = task_by_name(name)(net, torch.device(device))
    return task


__all__ = ["TASKS", "Batch", "Parameters", "Split", "Task", "load", "task_by_name"]
