"""Defaults and grids of handwritten words."""

from ...recipe import Recipe
from ..settings import RATES, Grid, Rounds, Settings

SETTINGS = Settings(
    base=Recipe("ocr", plateau=3, stop=7, batch_size=32, subset=500),
    rates={"adam": 3e-3, "sgd": 3e-2, "rmsprop": 1e-3},
    stages={"adam": (3e-3, 3e-2, 3e-4), "sgd": (1e-1, 10.0, 3e-3), "rmsprop": (1e-3, 3e-2, 3e-4)},
    factors={"offline_reg": {"alpha": 2.0, "weight": 0.001}, "temperature": {"alpha": 4.0}},
    grid=Grid(
        rates=RATES,
        stages={
            "adam": ((1e-3, 3e-3), (1e-2, 3e-2, 1e-1), (3e-4, 1e-3, 3e-3)),
            "sgd": ((3e-2, 1e-1), (1.0, 3.0, 10.0), (1e-3, 3e-3, 1e-2)),
            "rmsprop": ((1e-3,), (1e-2, 3e-2), (3e-4, 1e-3)),
        },
        alphas={
            "offline": (0.5, 1.0, 2.0, 4.0),
            "offline_reg": (1.0, 2.0, 4.0, 8.0),
            "temperature": (0.25, 0.5, 2.0, 4.0),
        },
        weights=(0.001, 0.01, 0.1),
    ),
    rounds=Rounds({"seeds": (0,), "folds": (0, 4)}, {"seeds": (0, 1), "folds": (0, 4, 8)}, 3),
    also_tuned={"sigmoid": ("marginal",), "layernorm": ("marginal",)},
    updated={"subset": 2000, "patience": "torch"},
    experiments=("table1", "figure1a", "figure1b", "figure1c"),
)
