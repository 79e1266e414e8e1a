"""Defaults, grids and variants of horse segmentation.

The pairwise part is a net too, so the second stage has the rates of a net. Where the bound is active, the factor of
offline is the temperature of the softmax; small factors leave a model that cannot be confident.
"""

from dataclasses import replace

from ...recipe import Recipe
from ..settings import RATES, Grid, Rounds, Settings

GRID = Grid(
    rates=RATES | {"adam": (3e-3, 1e-2, 3e-2, 1e-1), "sgd": (3e-2, 1e-1, 3e-1, 1.0)},
    stages={
        "adam": ((3e-3, 1e-2, 3e-2), (3e-3, 1e-2, 3e-2), (3e-4, 1e-3, 3e-3)),
        "sgd": ((1e-1, 3e-1), (1e-1, 3e-1), (1e-2, 1e-1)),
        "rmsprop": ((1e-3,), (1e-3, 3e-3), (3e-4, 1e-3)),
    },
    alphas={"offline": (1.0, 2.0, 4.0, 8.0), "offline_reg": (1.0, 4.0), "temperature": (0.5, 4.0)},
    weights=(0.001, 0.01, 0.1),
)

FORMS = replace(
    GRID,
    rates=dict(GRID.rates) | {"adam": (3e-3, 1e-2, 3e-2)},
    stages=dict(GRID.stages) | {"adam": ((1e-2,), (3e-4, 1e-3, 3e-3), (3e-4, 3e-3))},
    alphas={"offline": (1.0, 4.0), "offline_reg": (1.0, 4.0)},
    weights=(0.001,),
)
"""The grid of the variants is smaller. It is extended where a choice is at an edge, like every grid."""
SAME = ("w8-64+unmirrored",)
"""The full name of the default: the same net and CRF, tuned like the variants."""
SIGNED = ("default+norelu", "default+linear")
RAW = ("default+raw+ridge100", "default+raw+ridge1000", "default+raw+ridge10000")

SETTINGS = Settings(
    base=Recipe("horses", plateau=5, stop=13, batch_size=16, subset=100),
    rates={"adam": 1e-2, "sgd": 3e-1, "rmsprop": 1e-3},
    stages={"adam": (1e-2, 3e-2, 3e-3), "sgd": (3e-1, 3e-1, 1e-2), "rmsprop": (1e-3, 3e-3, 3e-4)},
    factors={"offline_reg": {"weight": 0.001}, "temperature": {"alpha": 0.5}},
    grid=GRID,
    rounds=Rounds({"seeds": (0,), "folds": (0,)}, {"seeds": (0, 1, 2), "folds": (0,)}, 2),
    grids=dict.fromkeys((*SAME, *SIGNED, *RAW), FORMS),
    families=(SAME, SIGNED, RAW),
    family_schemes=("stage", "joint", "online", "offline", "offline_reg", "learned"),  # the net alone is the same
    best_net="w16-128",
    updated={"patience": "torch"},
    experiments=("variants", "best"),
)
