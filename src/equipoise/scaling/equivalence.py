"""A factor on the last layer equals another initial scale and another learning rate (Appendix C).

    alpha V phi(X) trained with learning rate eta   =   V' phi(X) with V' = alpha V at the start and rate alpha^2 eta

under SGD, with or without momentum. So a separate learning rate for the layer below a CRF sets alpha by hand, and alpha
can be set by the optimiser alone where the model cannot be changed. The product of learning rate and weight decay must
stay the same, so the decay of the layer is divided by alpha^2. Adam divides by the size of the gradient, so under Adam
the rate is alpha * eta and the equality holds up to Adam's epsilon.
"""

from typing import Any

import torch
from torch import nn


@torch.no_grad()
def absorb(
    model: nn.Module, layer: nn.Module, alpha: float, *, lr: float, weight_decay: float = 0.0, adam: bool = False
) -> list[dict[str, Any]]:
    """Multiply `layer` by alpha in place, and return parameter groups that train like a factor alpha on it.

    Args:
        model: everything that is trained, including the layer.
        layer: the last layer, linear in its parameters (weight and bias).
        alpha: the factor to replace.
        lr: the learning rate of everything else.
        weight_decay: the weight decay of everything else.
        adam: whether the groups are for Adam or AdamW. The decay is then that of AdamW. The decay of Adam is part of
            the gradient and must be divided by alpha once more.

    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> groups = absorb(net, net[2], alpha=4.0, lr=0.01)
    >>> [(len(group["params"]), group["lr"]) for group in groups]
    [(2, 0.01), (2, 0.16)]
    """
    if not alpha > 0:
        raise ValueError(f"alpha must be positive, got {alpha}")
    own = {id(parameter) for parameter in layer.parameters()}
    everything = {id(parameter) for parameter in model.parameters()}
    if not own or not own <= everything:
        raise ValueError("layer must be part of model and have parameters")
    for parameter in layer.parameters():
        parameter.mul_(alpha)
    rest = [parameter for parameter in model.parameters() if id(parameter) not in own]
    faster = alpha if adam else alpha**2
    return [
        {"params": rest, "lr": lr, "weight_decay": weight_decay},
        {"params": list(layer.parameters()), "lr": lr * faster, "weight_decay": weight_decay / faster},
    ]
