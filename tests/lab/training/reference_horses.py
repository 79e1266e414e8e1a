"""An independent reference for horses in the engine: a training loop for one model, over modules."""

import copy
from dataclasses import dataclass, field

import torch
from lab.nets.plain_unet import PlainUNet
from torch import Tensor, nn

from equipoise import GaussianCRF, scaling
from equipoise_lab.recipe import Recipe
from equipoise_lab.tasks.horses import Horses, iou
from equipoise_lab.tasks.task import Parameters, Split
from equipoise_lab.training.replica import Replica

NET = "w2-16-d2"


class FewHorses(Horses):
    """Training sets of 22, 26 and 30 pictures, so that replicas have different numbers of batches."""

    def split(self, fold: int, seed: int) -> Split:
        train, valid, test = super().split(fold, seed)
        return Split(torch.cat([train[:11], train[-11 - 4 * fold :]]), valid[:7], test[:9])


def recipe(**changes) -> Recipe:
    rates = (0.01, 0.02, 0.005) if changes.get("scheme") == "stage" else (0.01,)
    usual = {"net": NET, "batch_size": 8, "subset": 10, "max_epochs": 2, "learning_rates": rates}
    return Recipe("horses", **(usual | changes))


@dataclass
class Reference:
    """A training loop for one model: two modules, a `GaussianCRF`, `torch.optim`, and batches filled by hand."""

    recipe: Recipe
    history: list[tuple[float, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        recipe = self.recipe
        self.task = FewHorses(recipe.net)
        wanted = self.task.wanted
        start = self.task.init(Replica(recipe).generator("init"))
        self.nets = nn.ModuleDict()
        for part, labels in (("unary", 2), ("pairwise", 0)):
            own = {name.removeprefix(f"{part}."): x for name, x in start.items() if name.startswith(f"{part}.")}
            self.nets[part] = PlainUNet(wanted.width, wanted.depth, labels).take(own)
        method: scaling.Scaling = {
            "online": lambda: scaling.Online(subset=recipe.subset),
            "offline": lambda: scaling.Offline(recipe.alpha),
            "offline_reg": lambda: scaling.Regularized(recipe.alpha, recipe.weight),
            "learned": lambda: scaling.Learned(recipe.start),
        }.get(recipe.scheme, lambda: scaling.Fixed(recipe.alpha))()
        self.crf = GaussianCRF(
            2, wanted.ridge, method, definite=wanted.definite, share=wanted.share, learn_share=wanted.learned
        )
        self.modules = nn.ModuleDict({"nets": self.nets, "crf": self.crf})
        self.train, self.valid, self.test = self.task.split(recipe.fold, recipe.seed)

    def run(self) -> "Reference":
        rates = self.recipe.learning_rates
        if self.recipe.scheme == "unary":
            self.phase(0, True, ["unary"], rates[0])
        elif self.recipe.scheme == "stage":
            self.phase(0, True, ["unary"], rates[0])
            self.phase(1, False, ["pairwise", "crf"], rates[1])
            self.phase(2, False, ["unary", "pairwise", "crf"], rates[2])
        else:
            self.phase(0, False, ["unary", "pairwise", "crf"], rates[0])
        return self

    def phase(self, number: int, alone: bool, trained: list[str], rate: float) -> None:
        parts = [self.crf if name == "crf" else self.nets[name] for name in trained]
        optimizer = torch.optim.Adam([x for part in parts for x in part.parameters()], lr=rate)
        best, kept = -1.0, None
        for epoch in range(self.recipe.max_epochs):
            generator = Replica(self.recipe).generator(f"order/{number}/{epoch}")
            losses = []
            for batch in self.train[torch.randperm(len(self.train), generator=generator)].split(8):
                for name, net in self.nets.items():
                    net.train(name in trained)
                optimizer.zero_grad()
                loss = self.loss(batch, alone)
                loss.backward()
                optimizer.step()
                losses.append(float(loss.detach()))
            self.nets.eval()
            if self.recipe.scheme == "online":
                generator = Replica(self.recipe).generator(f"subset/{number}/{epoch}")
                subset = self.train[torch.randperm(len(self.train), generator=generator)[: self.recipe.subset]]
                with torch.no_grad():
                    self.crf.rebalance([(*self.scores(subset), self.task.masks[subset].long())])
            now, alpha = self.metric(self.valid, alone), float(self.crf.scaling.alpha)
            with torch.no_grad():
                ratio = float(self.crf.balance(*self.scores(self.valid)))
            self.history.append((number, sum(losses) / len(losses), now, ratio, alpha, rate))
            if now > best:
                best, kept = now, copy.deepcopy(self.modules.state_dict())
        assert kept is not None
        self.modules.load_state_dict(kept)
        self.nets.eval()

    def scores(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        images = self.task.images[numbers]
        return self.nets["unary"](images), self.nets["pairwise"](images)

    def loss(self, batch: Tensor, alone: bool) -> Tensor:
        n = len(batch)
        filled = batch[torch.arange(8) % n]  # batch norm uses the repeated examples, the loss does not
        images, labels = self.task.images[filled], self.task.masks[batch].long()
        unary = self.nets["unary"](images)[:n]
        if alone:
            return nn.functional.cross_entropy(unary, labels)
        return self.crf.loss(unary, self.nets["pairwise"](images)[:n], labels)

    @torch.no_grad()
    def metric(self, numbers: Tensor, alone: bool) -> float:
        unary, embeddings = self.scores(numbers)
        labels = unary.argmax(1) if alone else self.crf.decode(unary, embeddings)
        return float(iou(labels > 0, self.task.masks[numbers] > 0).mean())

    def parameters(self) -> Parameters:
        named = {f"{part}.{name}": x for part, net in self.nets.items() for name, x in net.named("data").items()}
        named |= {f"statistics.{p}.{name}": x for p, net in self.nets.items() for name, x in net.statistics().items()}
        if self.task.wanted.learned:
            named["pairwise.share"] = self.crf.share_logit.data
        if isinstance(self.crf.scaling, scaling.Learned):
            named |= {f"scaling.{name}": x for name, x in self.crf.scaling.named_buffers()}
        return named
