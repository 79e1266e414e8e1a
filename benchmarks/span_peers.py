"""How long do other ways take from the scores of a classifier to labels or spans? CPU time of one thread.

    python benchmarks/span_peers.py OUT.json [--allennlp FOLDER]

    equipoise, labels     SpanDecoder.decode
    equipoise, spans      SpanDecoder: spans, their exact probabilities and runners-up
    AllenNLP              ConditionalRandomField.viterbi_tags with its constraints, of the unpacked wheel in FOLDER
    plain Python          Viterbi over lists and the allowed predecessors, as code for openai/privacy-filter does it
    torbi                 from_probabilities in the log domain
    pipeline, ...         the aggregation strategies of the pipeline of transformers, which do not decode

At 33 labels the scheme is BIOES with 8 types. With 1,440 labels there are scores of transitions and no scheme. A way
that takes sequences one by one, and too long, is measured on some of them. "equal" is the share of labels that are
those of equipoise.
"""

import argparse
import json
import statistics
import sys
import time
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from equipoise import SpanDecoder, chain

SIZES = ((128, 128, 33), (1, 131072, 33), (16, 500, 1440))
OUTSIDE = 6.0
"""Added to the score of O, so that a span begins at one of ten tokens."""
SECONDS, MANY = 3.0, 30
ONE_BY_ONE = {"plain Python": 32, "AllenNLP": 32, "AllenNLP, 1440": 1, "pipeline": 32}
"""How many sequences of a batch are measured."""


class Problem(NamedTuple):
    logits: Tensor  # (B, L, M)
    decoder: SpanDecoder | None
    transitions: Tensor  # (M, M), -inf where forbidden
    start: Tensor  # (M,)
    end: Tensor  # (M,)


Way = Callable[[Problem], Callable[[int], Any]]
"""From a problem to a call for its first sequences. It returns labels, or None if they cannot be compared."""


def make(size: tuple[int, int, int]) -> Problem:
    b, length, m = size
    chance = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(b, length, m, generator=chance)
    if m % 4 != 1:
        zero = torch.zeros(m)
        return Problem(logits, None, torch.randn(m, m, generator=chance), zero, zero)
    names = ["O", *(f"{prefix}-T{kind}" for kind in range(m // 4) for prefix in "BIES")]
    logits[..., 0] += OUTSIDE
    decoder = SpanDecoder(names)
    return Problem(logits, decoder, *decoder.rules.potentials(torch.zeros(8)))


def ours(p: Problem) -> Callable[[int], Any]:
    if p.decoder is not None:
        return lambda n: p.decoder.decode(p.logits[:n])
    return lambda n: chain.decode(p.logits[:n], p.transitions)[0]


def spans(p: Problem) -> Callable[[int], Any]:
    def call(n: int) -> None:
        p.decoder(p.logits[:n])

    return call


def allennlp(p: Problem) -> Callable[[int], Any]:
    from allennlp.modules.conditional_random_field import ConditionalRandomField
    from allennlp.modules.conditional_random_field.conditional_random_field import allowed_transitions

    m = p.logits.shape[-1]
    names = (
        None
        if p.decoder is None
        else {i: name.replace("E-", "L-").replace("S-", "U-") for i, name in enumerate(p.decoder.labels)}
    )
    allowed = None if names is None else allowed_transitions("BIOUL", names)
    crf = ConditionalRandomField(m, allowed, include_start_end_transitions=False)
    crf.transitions.data.copy_(torch.zeros(m, m) if p.decoder else p.transitions)

    @torch.no_grad()
    def call(n: int) -> Tensor:
        return torch.tensor([labels for labels, _ in crf.viterbi_tags(p.logits[:n])])

    return call


def plain(p: Problem) -> Callable[[int], Any]:
    m = p.logits.shape[-1]
    before = [[i for i in range(m) if p.transitions[i, j] > -torch.inf] for j in range(m)]
    start, end = p.start.tolist(), p.end.tolist()

    def decode(rows: list[list[float]]) -> list[int]:
        best, pointers = [a + b for a, b in zip(start, rows[0], strict=True)], []
        for row in rows[1:]:
            froms = [max(ways, key=best.__getitem__) for ways in before]
            best = [best[i] + score for i, score in zip(froms, row, strict=True)]
            pointers.append(froms)
        best = [a + b for a, b in zip(best, end, strict=True)]
        path = [best.index(max(best))]
        for froms in reversed(pointers):
            path.append(froms[path[-1]])
        return path[::-1]

    return lambda n: torch.tensor([decode(rows) for rows in p.logits[:n].log_softmax(-1).tolist()])


def torbi(p: Problem) -> Callable[[int], Any]:
    import torbi

    transition = p.transitions.mT.clamp(min=-1e9).contiguous()  # from the second dimension to the first
    initial = p.start.clamp(min=-1e9)

    def call(n: int) -> Tensor:
        scores = p.logits[:n].log_softmax(-1)
        scores[:, -1] += p.end.clamp(min=-1e9)
        return torbi.from_probabilities(scores, transition=transition, initial=initial, log_probs=True, num_threads=1)

    return call


def pipeline(strategy: str) -> Way:
    def way(p: Problem) -> Callable[[int], Any]:
        from tokenizers import Tokenizer, models, pre_tokenizers
        from transformers import (
            BertConfig,
            BertForTokenClassification,
            PreTrainedTokenizerFast,
            TokenClassificationPipeline,
        )
        from transformers.pipelines.token_classification import AggregationStrategy

        length = p.logits.shape[1]
        pieces = Tokenizer(models.WordPiece({"[UNK]": 0, "word": 1}, unk_token="[UNK]"))
        pieces.pre_tokenizer = pre_tokenizers.Whitespace()
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=pieces, unk_token="[UNK]", pad_token="[UNK]")
        small = {"vocab_size": 2, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
        config = BertConfig(**small, id2label=dict(enumerate(p.decoder.labels)))
        pipe = TokenClassificationPipeline(model=BertForTokenClassification(config).eval(), tokenizer=tokenizer)
        places = torch.arange(length)
        shared = {
            "sentence": "word " * length,
            "input_ids": torch.ones(1, length, dtype=torch.int64),
            "offset_mapping": torch.stack([5 * places, 5 * places + 4], -1)[None],
            "special_tokens_mask": torch.zeros(1, length, dtype=torch.int64),
        }

        def call(n: int) -> None:
            for row in p.logits[:n]:
                pipe.postprocess([shared | {"logits": row[None]}], AggregationStrategy(strategy))

        return call

    return way


WAYS: dict[str, Way] = {
    "equipoise, labels": ours,
    "equipoise, spans": spans,
    "AllenNLP": allennlp,
    "plain Python": plain,
    "torbi": torbi,
    **{f"pipeline, {strategy}": pipeline(strategy) for strategy in ("simple", "first", "average", "max")},
}
ALSO_WITHOUT_A_SCHEME = ("equipoise, labels", "AllenNLP", "torbi")


def unpacked_allennlp(folder: Path) -> None:
    """Import AllenNLP's CRF without the packages that the rest of AllenNLP needs: packages without their __init__."""
    for name in ("allennlp", "allennlp.common", "allennlp.nn", "allennlp.modules"):
        package = types.ModuleType(name)
        package.__path__ = [str(folder / name.replace(".", "/"))]
        sys.modules[name] = package
    distributed = types.ModuleType("allennlp.common.util")
    distributed.int_to_device = distributed.is_distributed = distributed.is_global_primary = lambda *_: None
    sys.modules["allennlp.common.util"] = distributed


def milliseconds(call: Callable[[], object]) -> float:
    """The median of some calls, without the first one if it is short."""
    taken: list[float] = []
    while not taken or (sum(taken) < SECONDS and len(taken) < MANY):
        begin = time.process_time()
        call()
        taken.append(time.process_time() - begin)
    return 1e3 * statistics.median(taken[1:] or taken)


def measure(size: tuple[int, int, int], names: list[str]) -> list[dict[str, Any]]:
    p, rows = make(size), []
    b = size[0]
    wanted = ours(p)(b)
    for name in names:
        few = ONE_BY_ONE.get(f"{name}, {size[2]}", ONE_BY_ONE.get(name.split(",")[0], b))
        n = min(b, few)
        try:
            call = WAYS[name](p)
            found = call(n)
        except Exception as failure:  # a peer that is not installed, or fails at a size, is a result
            rows.append({"size": list(size), "way": name, "note": f"{type(failure).__name__}: {failure}"[:200]})
            print(*rows[-1].values(), flush=True)
            continue
        equal = None if found is None else round(float((found == wanted[:n]).double().mean()), 6)
        taken = milliseconds(lambda call=call, n=n: call(n)) * b / n
        rows.append({"size": list(size), "way": name, "milliseconds": round(taken, 4), "measured": n, "equal": equal})
        print(*rows[-1].values(), flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--allennlp", type=Path, help="the folder of an unpacked wheel of AllenNLP")
    parser.add_argument("--shrink", type=int, default=1, help="divide batch sizes and lengths by this, as a test")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if options.allennlp:
        unpacked_allennlp(options.allennlp)
    rows = []
    for b, length, m in SIZES:
        size = max(1, b // options.shrink), length // options.shrink, m
        rows += measure(size, list(WAYS) if m % 4 == 1 else list(ALSO_WITHOUT_A_SCHEME))
    options.out.write_text(json.dumps({"torch": torch.__version__, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
