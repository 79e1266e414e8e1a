"""Which CRF finds the transitions, at which learning rate, if the net's scores are fixed and only the CRF learns?

The problem and the training are in `equipoise_lab.demo.crf_alone`; `equipoise-lab demo` shows a part of it. This study
has more cases, three seeds, and ablations: `scaling.Learned` with one of its choices replaced.

    each example by its own size      U is divided by ||U|| of each example instead of a running average
    W starts at 0.1                   instead of 0.0001
    exact gradients                   not those of parts of size 1
    scales moved by the optimizer     not by their own steps; without clipping and weight decay
    no derivative of s                the gradient may make all scores larger; matters only if the net learns

    python studies/crf_alone.py      # about two minutes on one core; writes crf_alone.json and the figure of the docs
"""

import json
from pathlib import Path

import torch
from torch import Tensor, nn

from equipoise import scaling
from equipoise.scaling.broadcasting import divide
from equipoise_lab.demo import svg
from equipoise_lab.demo.crf_alone import METHODS, RATES, Case, Method, shares

SEEDS = 3
SGD_RATES = (1e-4, 1e-3, 1e-2, 1e-1)
FIGURE = Path(__file__).parent.parent / "docs" / "explanations" / "learned.svg"


class OwnSize(scaling.Learned):
    @staticmethod
    def factors(state: scaling.State, norms: scaling.Norms) -> tuple[Tensor, Tensor]:
        u, w = state.log_scales.exp().unbind(-1)
        return divide(u, norms()[0]), divide(w, norms()[1])


class ExactGradients(scaling.Learned):
    gradient_factors = staticmethod(scaling.Scaling.gradient_factors)


class MovedByOptimizer(scaling.Learned):
    def __init__(self, start: float | Tensor = 1.0) -> None:
        super().__init__(start)
        first = self.log_scales
        del self.log_scales
        self.log_scales = nn.Parameter(first)

    def learn(self, norms: scaling.Norms, weights: Tensor | None = None) -> scaling.State:
        u, w = norms()
        found = super().learn(lambda: (u.detach(), w.detach()), weights)  # stores nothing: no part has a gradient
        with torch.no_grad():
            self.size.copy_(found.size)
            self.examples.copy_(found.examples)
        return found._replace(log_scales=self.log_scales)


class NoDerivative(scaling.Learned):
    def learn(self, norms: scaling.Norms, weights: Tensor | None = None) -> scaling.State:
        u, w = norms()
        return super().learn(lambda: (u.detach(), w), weights)


CASES = {
    "scores as they are": Case(),
    "scores 10 times too large": Case(factor=10.0),
    "scores 10 times too small": Case(factor=0.1),
    "sentences of different clarity": Case(varied=True),
    "weak transitions": Case(keep=0.25),
    "weak transitions, clear scores": Case(keep=0.25, clear=3.0),
    "batches of one": Case(batch=1),
    "300 steps": Case(steps=300),
    "RMSprop, no clipping": Case(optimizer="rmsprop", clip=0.0),
    "SGD": Case(optimizer="sgd"),
    "SGD, no clipping": Case(optimizer="sgd", clip=0.0),
    "the net learns too": Case(net=True),
}
ABLATIONS = {
    "each example by its own size": (Method(OwnSize), ("scores as they are", "sentences of different clarity")),
    "W starts at 0.1": (Method(scaling.Learned, std=0.1), ("scores as they are",)),
    "exact gradients": (Method(ExactGradients), ("scores as they are", "SGD, no clipping")),
    "scales moved by the optimizer": (
        Method(MovedByOptimizer),
        ("scores as they are", "weak transitions", "weak transitions, clear scores", "SGD, no clipping"),
    ),
    "no derivative of s": (Method(NoDerivative), ("the net learns too",)),
}


def figure(rows: list[dict]) -> str:
    """The share of the gain by learning rate, of the three methods of the demo, for scores of two sizes."""
    cases = {"": "scores as they are", ", scores x10": "scores 10 times too large"}
    found = {(row["case"], row["method"]): row["shares"] for row in rows}
    series = {
        method + suffix: [100 * share for share in found[case, method]]
        for method in METHODS
        for suffix, case in cases.items()
    }
    ticks = [f"{rate:g}" for rate in RATES]
    return svg.file(svg.curves(series, x="learning rate", y="share of the gain in %", logarithmic=False, ticks=ticks))


def main() -> None:
    torch.set_num_threads(1)
    rows = []
    for name, case in CASES.items():
        rates = SGD_RATES if case.optimizer == "sgd" else RATES
        methods = METHODS | {ablation: method for ablation, (method, where) in ABLATIONS.items() if name in where}
        for method, made in methods.items():
            found = shares(made, case, rates, SEEDS)
            mean, deviation = ([round(x, 3) for x in y.tolist()] for y in (found.mean(0), found.std(0)))
            rows.append({"case": name, "method": method, "rates": rates, "shares": mean, "deviations": deviation})
            print(f"{name:32}{method:32}", *(f"{100 * share:6.0f}" for share in mean), flush=True)
    Path(__file__).with_suffix(".json").write_text(json.dumps(rows, indent=1) + "\n")
    FIGURE.write_text(figure(rows))


if __name__ == "__main__":
    main()
