"""An independent reference for the engine: a training loop for one model, with torch.optim and ChainCRF.

It shares only the random generators with the engine.
"""

import copy
from dataclasses import dataclass, field

import torch
from lab.training.tiny import FEATURES, HIDDEN, LABELS, LONGEST, Tiny
from torch import Tensor, nn

from equipoise import ChainCRF, scaling
from equipoise_lab.recipe import Recipe
from equipoise_lab.scales import Scales, ScalesOnce
from equipoise_lab.training.replica import Replica

CRF_FACTORS = {
    "joint_x10": 10.0,
    "joint_x100": 100.0,
    "joint_x1000": 1000.0,
    "unary_scaled": 0.0,
    "scales_once_x100": 100.0,
}
RULES = {"likelihood": "map", "margin": "map", "marginal": "marginal", "mean_field": "mean_field"}


def method(recipe: Recipe) -> scaling.Scaling:
    return {
        "online": lambda: scaling.Online(subset=recipe.subset, alpha=recipe.alpha),
        "offline": lambda: scaling.Offline(recipe.alpha),
        "offline_reg": lambda: scaling.Regularized(recipe.alpha, recipe.weight),
        "temperature": lambda: scaling.Temperature(recipe.alpha, recipe.normalize),
        "learned": lambda: scaling.Learned(recipe.start),
        "unary_scaled": lambda: scaling.Learned(recipe.start),
        "scales": lambda: Scales(recipe.start),
        **dict.fromkeys(("scales_once", "scales_once_x100"), lambda: ScalesOnce(recipe.start)),
    }.get(recipe.scheme, lambda: scaling.Fixed(recipe.alpha))()


@dataclass
class Reference:
    """One model in training. `history` has (phase, loss, valid, ratio, alpha, learning rate) for each epoch."""

    recipe: Recipe
    history: list[tuple[float, ...]] = field(default_factory=list)
    valid: float = float("nan")

    def __post_init__(self) -> None:
        self.task = Tiny()
        self.net = nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, LABELS))
        self.crf = ChainCRF(LABELS, method(self.recipe))
        self.modules = nn.ModuleDict({"net": self.net, "crf": self.crf})
        start = self.task.init(self.random("init"))
        self.net.load_state_dict({k.removeprefix("unary."): x for k, x in start.items() if k.startswith("unary.")})
        with torch.no_grad():
            smaller = {"learned": 1e-3, "unary_scaled": 0.0}.get(self.recipe.scheme, 1.0)
            self.crf.pairwise.copy_(smaller * start["pairwise.matrix"])
            self.crf.pairwise *= self.recipe.matrix_std / 0.1
        self.train, self.validation, self.test = self.task.split(self.recipe.fold, self.recipe.seed)
        if self.recipe.share < 1:
            order = torch.randperm(len(self.train), generator=self.random("share"))
            self.train = self.train[order[: round(self.recipe.share * len(self.train))]]
        self.searched = self.train
        if self.recipe.add_searched or (self.recipe.scheme == "online" and self.recipe.search == "valid"):
            order = torch.randperm(len(self.validation), generator=torch.Generator().manual_seed(0))
            first, last = order[: len(order) // 2], order[len(order) // 2 :]
            self.searched, self.validation = self.validation[first.sort()[0]], self.validation[last.sort()[0]]
            if self.recipe.add_searched:
                self.train = torch.cat([self.train, self.searched])

    def random(self, purpose: str) -> torch.Generator:
        return Replica(self.recipe).generator(purpose)

    def run(self) -> "Reference":
        recipe = self.recipe
        rates, objective = recipe.learning_rates, recipe.objective
        if recipe.scheme == "stage":
            self.phase(0, "unary", [self.net], rates[0])
            self.phase(1, objective, [self.crf], rates[1])
            self.phase(2, objective, [self.net, self.crf], rates[2])
        elif recipe.scheme == "unary":
            self.phase(0, "unary", [self.net], rates[0])
        else:
            self.phase(0, objective, [self.net, self.crf], rates[0])
        if recipe.search_time == "end":
            self.search("subset/1/0", objective)
        return self

    def search(self, purpose: str, objective: str) -> None:
        if isinstance(self.crf.scaling, scaling.Online):
            order = torch.randperm(len(self.searched), generator=self.random(purpose))
            examples = self.searched[order[: self.recipe.subset]]
            self.crf.rebalance([self.scored(examples)], objective=objective)

    def phase(self, number: int, objective: str, trained: list[nn.Module], rate: float) -> None:
        recipe = self.recipe
        rule = {
            "adam": lambda x: torch.optim.Adam(x, lr=rate),
            "sgd": lambda x: torch.optim.SGD(x, lr=rate, momentum=recipe.momentum),
            "rmsprop": lambda x: torch.optim.RMSprop(x, lr=rate),
        }[recipe.optimizer]
        named = [pair for part in trained for pair in part.named_parameters()]
        factor = CRF_FACTORS.get(recipe.scheme, 1.0)
        of_crf = [x for name, x in named if name == "pairwise"]
        rest = [x for name, x in named if name != "pairwise"]
        optimizer = rule([{"params": rest}, {"params": of_crf, "lr": factor * rate}])
        patience = recipe.plateau if recipe.patience == "torch" else recipe.plateau - 1
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(
            optimizer, "max", 0.1, patience, recipe.threshold, "abs", eps=0.0
        )
        gain, waited, self.valid, best = float("-inf"), 0, float("-inf"), self.modules.state_dict()
        for epoch in range(recipe.max_epochs):
            used = optimizer.param_groups[0]["lr"]
            order = self.train[torch.randperm(len(self.train), generator=self.random(f"order/{number}/{epoch}"))]
            losses = []
            for batch in order.split(recipe.batch_size):
                self.modules.zero_grad()
                loss = self.loss(batch, objective)
                loss.backward()
                with torch.no_grad():
                    for group in optimizer.param_groups:
                        for x in group["params"]:
                            x *= 1 - group["lr"] * recipe.weight_decay
                optimizer.step()
                losses.append(float(loss.detach()))
            if recipe.search_time == "epoch":
                self.search(f"subset/{number}/{epoch}", objective)
            now = self.metric(self.validation, objective)
            unary, _, mask = self.scored(self.validation)
            ratio, alpha = float(self.crf.balance(unary, mask)), float(self.crf.scaling.alpha)
            self.history.append((number, sum(losses) / len(losses), now, ratio, alpha, used))
            if now > self.valid:
                self.valid, best = now, copy.deepcopy(self.modules.state_dict())
            scheduler.step(now)
            gain, waited = (now, 0) if now > gain + recipe.threshold else (gain, waited + 1)
            if waited >= recipe.stop:
                break
        self.modules.load_state_dict(best)

    def scored(self, examples: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mask = torch.arange(LONGEST) < self.task.lengths[examples][:, None]
        return self.net(self.task.features[examples]).detach(), self.task.labels[examples], mask

    def loss(self, examples: Tensor, objective: str) -> Tensor:
        unary = self.net(self.task.features[examples])
        _, labels, mask = self.scored(examples)
        if objective != "unary":
            return self.crf.loss(unary, labels, mask, objective=objective)
        scores = float(self.crf.scaling.alpha) * unary
        each = nn.functional.cross_entropy(scores.transpose(1, 2), labels, reduction="none") * mask
        return (each.sum(1) / mask.sum(1)).mean()

    def metric(self, examples: Tensor, objective: str) -> float:
        unary, labels, mask = self.scored(examples)
        found = unary.argmax(-1) if objective == "unary" else self.crf.decode(unary, mask, RULES[objective])
        return float((((found == labels) & mask).sum(1) / mask.sum(1)).mean())

    def last_objective(self) -> str:
        return "unary" if self.recipe.scheme == "unary" else self.recipe.objective

    def parameters(self) -> dict[str, Tensor]:
        named = {f"unary.{name}": x for name, x in self.net.state_dict().items()}
        named |= {"pairwise.matrix": self.crf.pairwise.detach()}
        if isinstance(self.crf.scaling, scaling.Learned):
            named |= {f"scaling.{name}": x for name, x in self.crf.scaling.named_buffers()}
        return named
