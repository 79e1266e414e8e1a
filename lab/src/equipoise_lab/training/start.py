"""The parameters with which a run starts: those of its task, scaled and counted as its recipe says."""

import torch
from torch import Tensor

from equipoise.crf.counts import association, count_all
from equipoise.energies import ChainEnergy
from equipoise.scaling import Scaling, mean_abs

from ..recipe import Recipe
from ..schemes import SCHEMES
from ..tasks import Parameters, Task
from .groups import own_scaling_state, scaling_state
from .phases import method
from .replica import Replica

MATRIX = "pairwise.matrix"
"""The transition matrix of tasks with chains. Its initial size depends on the scaling method."""
INITIAL_STD = 0.1
"""The standard deviation with which tasks create it."""
AT_ONCE = 512
"""The number of examples whose labels are counted at once."""


def start(replica: Replica, task: Task, train: Tensor) -> Parameters:
    """The initial parameters, without the dimension of replicas; `train` are the training examples of the run."""
    recipe = replica.recipe
    parameters, how = task.init(replica.generator("init")), method([recipe])
    if recipe.head_std:
        name = f"{head(task)}weight"
        parameters[name] = parameters[name] * (recipe.head_std / parameters[name].std())
    if recipe.counts:
        matrix = from_counts(task, train)
        size = mean_abs(matrix)
        how.placed_size = recipe.pairwise_size or None
        parameters[MATRIX] = how.place(matrix[None], size[None])[0]
    elif MATRIX in parameters:
        relative = how.pairwise_std / Scaling.pairwise_std if SCHEMES[recipe.scheme].pairwise else 0.0
        parameters[MATRIX] = parameters[MATRIX] * relative * (recipe.matrix_std / INITIAL_STD)
    return parameters | scaling_state(recipe) | own_scaling_state(recipe, how)


def from_counts(task: Task, train: Tensor) -> Tensor:
    """The pairwise scores from the labels of these examples, (M, M), on the CPU."""
    matrix = task.init(torch.Generator())[MATRIX]
    device = getattr(task, "device", "cpu")
    batches = (task.batch(part[None].to(device), task.room(part[None])) for part in train.split(AT_ONCE))
    labelled = []
    for batch in batches:
        assert batch.lengths is not None
        inside = torch.arange(batch.labels.shape[-1], device=batch.labels.device) < batch.lengths[..., None]
        labelled.append((batch.labels, inside))
    return association(count_all(labelled, len(matrix))).pairwise.to(matrix.dtype)


def head(task: Task) -> str:
    """How the names of the parameters of the net's last layer begin."""
    name = getattr(task, "head", None)
    if name is None:
        raise ValueError(f"head_std and head_rate need a task that names its last layer; {task.name} does not")
    return str(name)


def check(recipe: Recipe, task: Task) -> None:
    """Raise if the task has not what the recipe needs."""
    if recipe.counts and not isinstance(task.energy, ChainEnergy):
        raise ValueError(f"counts needs a task with chains of labels; {task.name} has none")
    if recipe.head_std or recipe.head_rate != 1:
        head(task)
