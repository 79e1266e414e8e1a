"""What does not hold, which stands first on a page."""

from collections.abc import Mapping, Sequence

from ..judge.effects import NO, UNDECIDED, YES
from ..judge.evidence import Evidence
from ..judge.verdicts import Verdict
from ..plan.finetuning import corpus
from .blocks import Block, Heading, Items, Text

TITLE = "What does not hold"


def failures(
    every: Sequence[Evidence],
    verdicts: Mapping[str, Sequence[Verdict]],
    about: Sequence[str] = (),
    title: str = TITLE,
) -> list[Block]:
    """The claims that do not hold everywhere, with the comparisons that say so; those with a no first.

    Args:
        every: one entry per task with records.
        verdicts: by task.
        about: names of claims; all if there are none.
        title: of the section.
    """
    items: list[tuple[bool, str]] = []
    tested = 0
    for one in every:
        for verdict in verdicts[one.task]:
            if about and verdict.claim.name not in about:
                continue
            tested += bool(verdict.tested)
            against = [check for check in verdict.tested if check.outcome != YES]
            if against:
                shown = "; ".join(
                    f"{check.name}: {'**no**' if check.outcome == NO else UNDECIDED}, {check.effect or check.numbers}"
                    for check in against
                )
                refuted = any(check.outcome == NO for check in against)
                items.append((not refuted, f"{corpus(one.task)}: {verdict.claim.text} {shown}."))
    if items:
        items.sort(key=lambda item: item[0])  # those with a no first; the order of tasks and claims stays
        return [Heading(2, title), Items(tuple(text for _, text in items))]
    return [Text("Every claim that was tested holds.")] if tested else []
