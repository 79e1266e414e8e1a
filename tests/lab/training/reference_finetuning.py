"""An independent reference for fine-tuning: one model, torch's AdamW, its gradient clipping, and a linear schedule."""

import math

import torch
from lab.training.reference import CRF_FACTORS, Reference
from torch import nn


class FineTuning(Reference):
    """`history` has one line per phase: (phase, loss of the last epoch, valid, ratio)."""

    def phase(self, number: int, objective: str, trained: list[nn.Module], rate: float) -> None:
        recipe = self.recipe
        net, crf = list(self.net.parameters()), [self.crf.pairwise]
        parts = [(net, rate)] if self.net in trained else []
        parts += [(crf, CRF_FACTORS.get(recipe.scheme, 1.0) * rate)] if self.crf in trained else []
        everything = [x for part, _ in parts for x in part]
        optimizer = torch.optim.AdamW(
            [{"params": part, "lr": own} for part, own in parts], weight_decay=recipe.weight_decay
        )
        total = recipe.max_epochs * math.ceil(len(self.train) / recipe.batch_size)
        warmup = math.ceil(recipe.warmup * total)

        def factor(step: int) -> float:
            return step / warmup if step < warmup else (total - step) / max(total - warmup, 1)

        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
        for epoch in range(recipe.max_epochs):
            order = self.train[torch.randperm(len(self.train), generator=self.random(f"order/{number}/{epoch}"))]
            losses = []
            for batch in order.split(recipe.batch_size):
                self.modules.zero_grad()
                loss = self.loss(batch, objective)
                loss.backward()
                if recipe.clip:
                    nn.utils.clip_grad_norm_(everything, recipe.clip)
                optimizer.step()
                scheduler.step()
                losses.append(float(loss.detach()))
        self.valid = self.metric(self.validation, objective)
        unary, _, mask = self.scored(self.validation)
        self.history.append((number, sum(losses) / len(losses), self.valid, float(self.crf.balance(unary, mask))))
