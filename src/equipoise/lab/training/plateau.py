"""When to cut the learning rate, and when to stop (Appendix B): by the recent gains on validation.

A gain is a rise of the metric by more than the threshold above the last gain. After `plateau` epochs without one the
learning rate is divided by 10, and again after as many more; after `stop` epochs without one training ends.
"""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Plateau:
    """
    >>> state = Plateau()
    >>> for metric in (0.5, 0.9, 0.9, 0.9):
    ...     state = state.after(metric, plateau=2, threshold=1e-3)
    >>> state.cuts, state.waited, state.finished(stop=3)
    (1, 2, False)
    """

    reference: float = float("-inf")
    """The metric at the last gain."""
    waited: int = 0
    """Epochs since the last gain."""
    since_cut: int = 0
    """Epochs since the last gain or cut."""
    cuts: int = 0
    """How many times the learning rate was divided by 10."""

    def after(self, metric: float, plateau: int, threshold: float) -> "Plateau":
        """The state after one more epoch."""
        if metric > self.reference + threshold:
            return replace(self, reference=metric, waited=0, since_cut=0)
        cut = self.since_cut + 1 >= plateau
        return replace(
            self, waited=self.waited + 1, since_cut=0 if cut else self.since_cut + 1, cuts=self.cuts + int(cut)
        )

    def finished(self, stop: int) -> bool:
        return self.waited >= stop
