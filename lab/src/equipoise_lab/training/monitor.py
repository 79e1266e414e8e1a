"""A callback that reports when a run in training loses its balance."""

from collections.abc import Callable, Sequence

from equipoise.scaling import Verdict, verdict

from .replica import Replica


class BalanceMonitor:
    """Pass it to `train` as `watch`. It reports each change of state once, through `say`.

    >>> from equipoise_lab.recipe import Recipe
    >>> from equipoise_lab.training.replica import Epoch
    >>> replica = Replica(Recipe("ocr"))
    >>> replica.history += [Epoch(0, 1.0, 0.5, ratio, 1.0, 1e-3, 1.0) for ratio in (20.0, 60.0, 240.0)]
    >>> BalanceMonitor(lambda text: print(text[:90]))([replica])
    ocr joint, seed 0, fold 0: pairwise part has almost no influence: ratio 240 and rising; tr
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self.verdicts: dict[str, Verdict] = {}
        """The latest verdict on each run, by the key of its recipe."""

    def __call__(self, replicas: Sequence[Replica]) -> None:
        for replica in replicas:
            ratios = [epoch.ratio for epoch in replica.history if epoch.phase == replica.depth and epoch.measured]
            broken = replica.failed or not all(ratio >= 0 for ratio in ratios)
            if not ratios or broken or replica.phase.objective == "unary":
                continue
            now, recipe = verdict(ratios), replica.recipe
            before = self.verdicts.get(recipe.key)
            self.verdicts[recipe.key] = now
            if now.state != "balanced" and (before is None or before.state != now.state):
                self.say(f"{recipe.task} {recipe.scheme}, seed {recipe.seed}, fold {recipe.fold}: {now}")
