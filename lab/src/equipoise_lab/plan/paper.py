"""The numbers the paper prints: Table 1, unary baselines, the main, SGD and temperature tables, the BiLSTM table."""

from typing import NamedTuple

from ..recipe import OBJECTIVES


class Printed(NamedTuple):
    """A cell: the mean over 8 seeds, its standard deviation where given, and minutes of training where given."""

    mean: float
    spread: float | None = None
    minutes: float | None = None


def _rows(task: str, optimizer: str, schemes: str, text: str) -> dict[tuple[str, str, str, str], Printed]:
    """Lines of "mean spread [minutes]" by objective, cells divided by |."""
    cells = {}
    for objective, line in zip(OBJECTIVES, text.strip().splitlines(), strict=False):
        for scheme, cell in zip(schemes.split(), line.split("|"), strict=True):
            cells[task, optimizer, objective, scheme] = Printed(*map(float, cell.split()))
    return cells


UNARY = {"ocr": Printed(91.8, 0.2), "chunking": Printed(86.2, 0.4), "horses": Printed(84.1, 0.2)}

SCHEMES = "stage joint online offline offline_reg"

CELLS = (
    _rows("ocr", "adam", SCHEMES, """
        97.2 0.1 41 | 96.5 0.2 23 | 97.3 0.1 27 | 97.2 0.1 23 | 97.1 0.2 23
        97.0 0.3 43 | 96.4 0.4 23 | 97.0 0.2 27 | 97.0 0.3 23 | 96.9 0.4 23
        97.2 0.1 42 | 96.5 0.3 23 | 97.2 0.1 27 | 97.1 0.1 23 | 97.1 0.2 23
        97.1 0.1 50 | 96.6 0.2 26 | 97.1 0.1 30 | 97.1 0.1 26 | 97.0 0.1 27""")
    | _rows("chunking", "adam", SCHEMES, """
        89.5 0.3 94 | 87.9 0.4 51 | 89.6 0.3 55 | 89.5 0.3 53 | 89.5 0.3 53
        89.2 0.5 97 | 87.6 0.6 54 | 89.3 0.4 57 | 89.2 0.5 56 | 89.1 0.6 56
        89.4 0.3 95 | 87.9 0.4 53 | 89.5 0.3 56 | 89.5 0.3 54 | 89.4 0.4 54
        89.3 0.3 104 | 87.7 0.3 61 | 89.3 0.2 66 | 89.3 0.3 64 | 89.2 0.3 64""")
    | _rows("horses", "adam", SCHEMES, "86.5 0.2 80 | 85.6 0.3 44 | 86.6 0.2 45 | 86.6 0.2 44 | 86.5 0.3 44")
    | _rows("ocr", "sgd", SCHEMES, """
        97.1 0.2 | 96.4 0.3 | 97.2 0.1 | 97.2 0.2 | 97.1 0.2
        96.9 0.3 | 96.2 0.5 | 97.0 0.3 | 96.9 0.3 | 96.9 0.4
        97.1 0.2 | 96.3 0.3 | 97.1 0.2 | 97.1 0.2 | 97.0 0.3
        97.0 0.1 | 96.5 0.2 | 97.1 0.1 | 97.1 0.1 | 97.0 0.2""")
    | _rows("chunking", "sgd", SCHEMES, """
        89.5 0.3 | 87.9 0.4 | 89.5 0.3 | 89.5 0.3 | 89.4 0.4
        89.2 0.5 | 87.5 0.6 | 89.2 0.5 | 89.1 0.6 | 89.1 0.6
        89.4 0.4 | 87.8 0.5 | 89.5 0.3 | 89.4 0.3 | 89.3 0.4
        89.2 0.3 | 87.6 0.3 | 89.3 0.3 | 89.2 0.3 | 89.1 0.3""")
    | _rows("horses", "sgd", SCHEMES, "86.5 0.2 | 85.5 0.4 | 86.5 0.2 | 86.5 0.2 | 86.4 0.3")
    | _rows("ocr", "adam", "temperature", "96.5 0.2\n96.5 0.3\n96.5 0.2\n96.7 0.1")
    | _rows("chunking", "adam", "temperature", "87.9 0.3\n87.7 0.5\n87.9 0.3\n87.8 0.3")
    | _rows("horses", "adam", "temperature", "85.7 0.3")
)  # fmt: skip
"""By task, optimizer, objective and scheme."""

BILSTM = {
    (objective, scheme): Printed(value)
    for objective, pair in (("marginal", (94.7, 94.9)), ("margin", (94.6, 94.8)), ("likelihood", (94.7, 94.8)))
    for scheme, value in zip(("stage", "joint"), pair, strict=True)
}
"""Chunking with the word-level BiLSTM, where joint training works without scaling."""

BEST_ALPHA = 0.25
"""Figure 1a: where joint training on OCR matches stage training."""
