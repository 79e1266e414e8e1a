"""The page on fine-tuning: the default beside its rivals, what does not hold, the tables, the claims, the settings.

One page has the results of all corpora.
"""

from collections.abc import Mapping, Sequence

from ..judge.evidence import Evidence
from ..judge.final_ratios import by_range, final_ratios
from ..judge.statistics import Summary, signed, summarize
from ..judge.verdicts import Verdict
from ..plan import finetuning, frozen
from ..plan.finetuning import LABELS, corpus
from ..plan.tables import Table
from ..run.catalogue import names
from . import figures as drawing
from . import wording
from .blocks import Block, Command, Fold, Grid, Heading, Items, Picture, Text, paragraphs
from .claim_section import comparison_blocks
from .failures import failures
from .method_tables import development_grid, heads_grid, rates_short, scale_share

NAME = "tagging"
TITLE = "Fine-tuning a pretrained encoder"
SUMMARY = ("unary", "joint", "joint_x100", "joint_x1000", "stage", "learned")
RATES_AND_LITTLE = ("finetuning-rates", "finetuning-little", "finetuning-scratch")
"""The claims that learned scaling is not below the best of other schemes."""
FIRST_COLUMN = {"little": "training data"}
"""What the rows of a table are, if not learning rates."""


def tagging_page(
    every: Sequence[Evidence], verdicts: Mapping[str, Sequence[Verdict]], notes: Mapping[str, str], draw: bool
) -> list[Block]:
    """`every` has one entry per corpus with records; notes have names such as "tagging/rates"."""
    recorded = [one for one in every if names(one.task)]
    blocks: list[Block] = [Heading(1, TITLE), Text(wording.FINETUNING), Items(behind(verdicts)), heads_grid(every)]
    blocks += [Text(wording.HEADS), *failures(every, verdicts), *_development(every)]
    title = "F1 by learning rate"
    pictures = [finetuning.picture(one.table("rates"), one.task) for one in recorded]
    svg = drawing.draw_panels(pictures, f"{NAME}-rates", title, every[0].results) if draw else None
    blocks += [Picture(f"{NAME}-rates", title, svg)] if svg else []
    blocks.append(Text(wording.FINETUNING_TABLES))
    for name in finetuning.TABLES:
        blocks += _section(recorded, name, notes)
    blocks += _ratios(recorded)
    blocks += [Heading(2, "Claims"), Text(wording.FINETUNING_CLAIMS)]
    for one in every:
        blocks += [Heading(3, corpus(one.task)), *comparison_blocks(verdicts[one.task])]
    if recorded:
        blocks += [Heading(2, "Settings"), Text(settings(recorded))]
    return [*blocks, Heading(2, "Missing runs"), _missing(every)]


def behind(verdicts: Mapping[str, Sequence[Verdict]]) -> tuple[str, str]:
    """Where our method is behind its best rival by more than the margin, in mean, whatever the verdict."""
    pair = f"The default ({frozen.DEFAULT}) and its best rival ({frozen.RIVAL}), both frozen on development data"
    return (
        _behind(verdicts, ("frozen-rival",), pair),
        _behind(verdicts, RATES_AND_LITTLE, "Learned scaling and the best of its rivals in that row"),
    )


def _behind(verdicts: Mapping[str, Sequence[Verdict]], claims: Sequence[str], pair: str) -> str:
    checks = [
        (task, check)
        for task, each in verdicts.items()
        for one in each
        if one.claim.name in claims
        for check in one.tested
    ]
    worse = [
        f"{corpus(task)}, {check.name}: {check.effect} with a margin of {check.margin:.2f} ({check.outcome})"
        for task, check in checks
        if check.effect is not None and check.margin is not None and check.effect.value < -check.margin
    ]
    if not checks:
        return f"{pair}: not tested."
    if not worse:
        return f"{pair}: the first is behind by more than the margin in none of {len(checks)} comparisons, in mean."
    return f"{pair}: **the first is behind by more than the margin**, in mean, in {'; '.join(worse)}."


def _development(every: Sequence[Evidence]) -> list[Block]:
    """Methods by learning rate and size of data on development data; nothing without results."""
    grids = [(corpus(one.task), grid) for one in every if (grid := development_grid(one))]
    if not grids:
        return []
    blocks: list[Block] = [Heading(2, "Methods on development data"), rates_short(every)]
    blocks += [Text(text) for text in (scale_share(every), wording.DEVELOPMENT) if text]
    return [*blocks, *(Fold(name, (grid,)) for name, grid in grids)]


def short_table(every: Sequence[Evidence]) -> Grid | None:
    """The main schemes, for the summary: one row per corpus and learning rate. None without results."""
    rows = []
    for one in (one for one in every if names(one.task)):
        table = one.table("rates")
        for rate in finetuning.RATES:
            row = finetuning.rate_row(one.task, rate)
            cells = [summarize(table.cells[row, scheme].recipes, one.results) for scheme in SUMMARY]
            rows.append((f"{corpus(one.task)}, {row[1]}", *map(_cell, cells)))
    if all(cell == "-" for row in rows for cell in row[1:]):
        return None
    return Grid(("", *(LABELS.get(scheme, scheme) for scheme in SUMMARY)), tuple(rows))


def table_grid(table: Table, evidence: Evidence) -> Grid | None:
    """A table; None without records. A cell that is not part of the experiment is empty."""
    summaries = {place: summarize(cell.recipes, evidence.results) for place, cell in table.cells.items()}
    if not any(summary.runs + summary.failed for summary in summaries.values()):
        return None
    rows = []
    for row in table.rows:
        places = [(row, column) for column in table.columns]
        rows.append((row[1], *(_cell(summaries[place]) if place in summaries else "" for place in places)))
    header = (FIRST_COLUMN.get(table.name, "learning rate"), *(LABELS.get(one, one) for one in table.columns))
    return Grid(header, tuple(rows))


def settings(every: Sequence[Evidence]) -> str:
    """How the encoder and the net from scratch were trained, in one line."""
    recipes = {corpus(one.task): finetuning.recipe(one.task, "joint", finetuning.USUAL_RATE) for one in every}
    epochs = " and ".join(f"{recipe.max_epochs} ({name})" for name, recipe in recipes.items())
    longer = " and ".join(f"{times} times as many with {100 * x:g} %" for x, times in finetuning.SHARES.items())
    one, alone = next(iter(recipes.values())), finetuning.recipe(every[0].task, "joint", 1e-3, net="bilstm")
    return (
        f"Encoder: AdamW, weight decay {one.weight_decay:g}, warm-up over {100 * one.warmup:g} % of the steps, then "
        f"linear decay to 0, gradients clipped at {one.clip:g}, batches of {one.batch_size}, epochs {epochs}, "
        f"{longer} of the sentences, the last parameters; each phase of stage has as many, with the rates (rate, "
        f"{finetuning.PAIRWISE_RATE:g}, rate); offline has alpha 1. BiLSTM: Adam, batches of {alone.batch_size}, at "
        f"most {alone.max_epochs} epochs, the best parameters on validation. Nothing was tuned."
    )


def _section(every: Sequence[Evidence], name: str, notes: Mapping[str, str]) -> list[Block]:
    """A table of all corpora with its note and commands; nothing without records."""
    blocks: list[Block] = []
    for one in every:
        if grid := table_grid(one.table(name), one):
            blocks += [Heading(3, corpus(one.task)), grid]
    if not blocks:
        return []
    note = notes.get(f"{NAME}/{name}", "")
    commands = "\n".join(f"equipoise-lab reproduce {name} --task {one.task}" for one in every)
    title = every[0].table(name).title
    return [Heading(2, f"{title} (`{name}`)"), *blocks, *paragraphs(note), Command(commands)]


def _ratios(every: Sequence[Evidence]) -> list[Block]:
    """Final ratios and gains by scheme and learning rate, then by ranges of the ratio."""
    blocks: list[Block] = []
    ranges = []
    for one in every:
        table = one.table("rates")
        finals = {(final.row, final.scheme): final for final in final_ratios(one, table)}
        ranges += by_range_rows(one)
        if not finals:
            continue
        schemes = [scheme for scheme in table.columns if scheme != "unary"]
        rows = []
        for row in dict.fromkeys(row for row, _ in finals):
            cells = []
            for scheme in schemes:
                final = finals.get((row, scheme))
                gain = "" if final is None else str(final.effect or signed(sum(final.gains) / len(final.gains)))
                cells.append("-" if final is None else f"{final.ratio:.3g}\n{final.state}\n{gain}")
            rows.append((row[1], *cells))
        header = ("learning rate", *(LABELS.get(scheme, scheme) for scheme in schemes))
        blocks += [Heading(3, corpus(one.task)), Grid(header, tuple(rows))]
    if not blocks:
        return []
    header = ("corpus and net", "ratio", "runs", "mean gain over softmax")
    last: list[Block] = [Text(wording.FINETUNING_RANGES), Grid(header, tuple(ranges), left=2)]
    return [Heading(2, "Ratio of the parts"), Text(wording.FINETUNING_RATIOS), *blocks, *last]


def by_range_rows(evidence: Evidence) -> list[tuple[str, str, str, str]]:
    """The mean gain over softmax by ranges of the final ratio: with the encoder, and with the net from scratch."""
    rows = []
    for net, tables in (("encoder", ("rates", "little")), ("BiLSTM", ("scratch",))):
        finals = [final for name in tables for final in final_ratios(evidence, evidence.table(name))]
        for low, high, runs, gain in by_range(finals):
            shown = f"from {low:.3g}" if high == float("inf") else f"{low:.3g} to {high:.3g}"
            rows.append((f"{corpus(evidence.task)}, {net}", shown, f"{runs}", signed(gain)))
    return rows


def _cell(summary: Summary) -> str:
    small = []
    if summary.runs + summary.failed and summary.missing:
        small.append(f"{summary.runs} of {summary.requested} runs")
    small += [f"{summary.failed} failed"] if summary.failed else []
    small += [f"{summary.dead} dead"] if summary.dead else []
    first = "-" if summary.mean is None else str(summary)
    return "\n".join([first, ", ".join(small)] if small else [first])


def _missing(every: Sequence[Evidence]) -> Block:
    lines = []
    for one in every:
        tables = [one.table(name) for name in names(one.task)]
        for table in (*tables, one.frozen):
            requested = set(table.recipes)
            missing = len(requested) - len(one.results.of(requested))
            if missing:
                lines.append(f"{corpus(one.task)}, `{table.name}`: {missing:,} of {len(requested):,} runs")
    return Items(tuple(lines)) if lines else Text("None.")
