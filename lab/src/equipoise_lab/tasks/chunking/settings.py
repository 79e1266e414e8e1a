"""Defaults, grids and variants of text chunking. Grids are small, around the values that mattered for handwriting."""

from dataclasses import replace

from ...recipe import Recipe
from ..settings import RATES, Grid, Rounds, Settings

EXACT = ("marginal", "margin", "likelihood")

GRID = Grid(
    rates=RATES | {"adam": (1e-3, 3e-3, 1e-2, 3e-2), "sgd": (3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)},
    stages={
        "adam": ((3e-3, 1e-2), (1e-2, 1e-1), (1e-3, 3e-3, 1e-2)),
        "sgd": ((3e-2, 1e-1, 3e-1), (1.0, 10.0), (1e-2, 3e-2, 1e-1)),
        "rmsprop": ((1e-3,), (1e-2, 3e-2), (3e-4, 1e-3)),
    },
    alphas={"offline": (1.0, 2.0, 4.0), "offline_reg": (1.0, 4.0), "temperature": (0.5, 4.0)},
    weights=(0.001, 0.01),
)

WINDOW = replace(
    GRID,
    rates=dict(GRID.rates) | {"adam": (3e-3, 1e-2)},
    stages=dict(GRID.stages) | {"adam": ((3e-3,), (1e-2, 1e-1), (3e-3, 1e-2))},
    alphas={"offline": (1.0, 4.0), "offline_reg": (1.0, 4.0)},
    weights=(0.001,),
)
"""The grid of the nets that see a little context. It is extended where a choice is at an edge, like every grid."""
WINDOWS = ("speech-1", "window-1", "window-2")

SETTINGS = Settings(
    base=Recipe("chunking", plateau=1, stop=3, batch_size=32, subset=3000),
    rates={"adam": 1e-2, "sgd": 1e-1, "rmsprop": 1e-3},
    stages={"adam": (3e-3, 1e-1, 1e-2), "sgd": (3e-1, 10.0, 1e-1), "rmsprop": (1e-3, 3e-2, 3e-4)},
    factors={
        "offline": {"alpha": 2.0},
        "offline_reg": {"alpha": 4.0, "weight": 0.001},
        "temperature": {"alpha": 4.0},
    },
    grid=GRID,
    rounds=Rounds({"seeds": (0,), "folds": (0,)}, {"seeds": (0, 1, 2), "folds": (0,)}, 2),
    grids={
        "bilstm": replace(
            GRID,
            rates=RATES | {"adam": (1e-3, 3e-3)},
            stages=dict(GRID.stages) | {"adam": ((3e-3, 1e-3), (1e-2,), (3e-4, 1e-3))},
        ),
        **dict.fromkeys(WINDOWS, WINDOW),
    },
    families=(WINDOWS,),
    family_schemes=("unary", "stage", "joint", "online", "offline", "offline_reg", "learned"),
    also_tuned={"bilstm": EXACT},
    updated={"patience": "torch"},
    experiments=("variants", "bilstm"),
)
