"""Defaults of tagging: the usual fine-tuning of an encoder, and the paper's schedule for the net from scratch."""

from dataclasses import replace

from ...recipe import Recipe
from ..settings import RATES, Grid, Rounds, Settings

FACTORS = {"offline_reg": {"weight": 0.001}}
ROUNDS = Rounds({"seeds": (0,), "folds": (0,)}, {"seeds": (0, 1, 2), "folds": (0,)}, 2)
ALPHAS = {"offline": (1.0, 4.0), "offline_reg": (1.0, 4.0), "temperature": (0.5, 4.0)}
TUNED = (3e-5, 1e-4, 3e-4, 1e-3)
"""The learning rates of Adam to try for an encoder."""


def _settings(
    task: str, epochs: int, subset: int, experiments: tuple[str, ...] = ("rates", "little", "scratch")
) -> Settings:
    base = Recipe(
        task, objective="likelihood", batch_size=32, weight_decay=0.01, schedule="linear", clip=1.0, max_epochs=epochs
    )
    base = replace(base, subset=subset)
    scratch = Recipe(task, objective="likelihood", batch_size=32, plateau=1, stop=3, max_epochs=15, subset=subset)
    stages = {"sgd": ((1e-1,), (1.0,), (1e-2,)), "rmsprop": ((1e-4,), (1e-2,), (1e-4,))}
    bilstm = Settings(
        base=scratch,
        rates={"adam": 3e-3, "sgd": 1e-1, "rmsprop": 1e-3},
        stages={"adam": (3e-3, 1e-2, 1e-3), "sgd": (1e-1, 1.0, 1e-2), "rmsprop": (1e-3, 1e-2, 1e-3)},
        factors=FACTORS,
        grid=Grid(
            RATES | {"adam": (1e-4, 1e-3, 3e-3, 1e-2)},
            {"adam": ((3e-3,), (1e-2,), (1e-3,)), **stages},
            ALPHAS,
            (0.001,),
        ),
        rounds=ROUNDS,
    )
    return Settings(
        base=base,
        rates={"adam": 1e-4, "sgd": 1e-2, "rmsprop": 1e-4},
        stages={"adam": (1e-4, 1e-2, 1e-4), "sgd": (1e-2, 1.0, 1e-2), "rmsprop": (1e-4, 1e-2, 1e-4)},
        factors=FACTORS,
        grid=Grid(RATES | {"adam": TUNED}, {"adam": (TUNED, (1e-2,), TUNED), **stages}, ALPHAS, (0.001,)),
        rounds=ROUNDS,
        nets={"bilstm": bilstm},
        experiments=experiments,
        tuned=False,
    )


CONLL2000 = _settings("tagging-conll2000", epochs=3, subset=3000)
WNUT17 = _settings("tagging-wnut17", epochs=5, subset=3000)
BC5CDR = _settings("tagging-bc5cdr", epochs=3, subset=3000, experiments=())
