"""Defaults and grids of horse segmentation.

The pairwise part is a net too, so the second stage has the rates of a net. Where the bound is active, the factor of
offline is the temperature of the softmax; small factors leave a model that cannot be confident.
"""

from ...recipe import Recipe
from ..settings import RATES, Grid, Rounds, Settings

SETTINGS = Settings(
    base=Recipe("horses", plateau=5, stop=13, batch_size=16, subset=100),
    rates={"adam": 1e-2, "sgd": 3e-1, "rmsprop": 1e-3},
    stages={"adam": (1e-2, 3e-2, 3e-3), "sgd": (3e-1, 3e-1, 1e-2), "rmsprop": (1e-3, 3e-3, 3e-4)},
    factors={"offline_reg": {"weight": 0.001}, "temperature": {"alpha": 0.5}},
    grid=Grid(
        rates=RATES | {"adam": (3e-3, 1e-2, 3e-2, 1e-1), "sgd": (3e-2, 1e-1, 3e-1, 1.0)},
        stages={
            "adam": ((3e-3, 1e-2, 3e-2), (3e-3, 1e-2, 3e-2), (3e-4, 1e-3, 3e-3)),
            "sgd": ((1e-1, 3e-1), (1e-1, 3e-1), (1e-2, 1e-1)),
            "rmsprop": ((1e-3,), (1e-3, 3e-3), (3e-4, 1e-3)),
        },
        alphas={"offline": (1.0, 2.0, 4.0, 8.0), "offline_reg": (1.0, 4.0), "temperature": (0.5, 4.0)},
        weights=(0.001, 0.01, 0.1),
    ),
    rounds=Rounds({"seeds": (0,), "folds": (0,)}, {"seeds": (0, 1, 2), "folds": (0,)}, 2),
    best_net="w16-128",
    updated={"patience": "torch"},
    experiments=("best",),
)
