"""How many labels does the start from label counts need? F1 of a linear net and a CRF on a frozen encoder.

python studies/first_batch.py ENCODER DATA studies/first_batch.json

The transitions start small and random ("none"), from the counts of all training labels ("all"), or from those of the
first 1, 8 or 32 batches: before each of these steps they are set by the counts of all batches so far. 45 sentences are
trained on for 20 epochs and 450 for 5, in batches of 8, with AdamW. DATA is the folder of `from_tagger.py`.
"""

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import torch
from from_tagger import FILES, sentences
from torch import Tensor
from transformers import AutoModel, AutoTokenizer

from equipoise import ChainCRF, constraints, scaling
from equipoise.integrations.transformers import DataCollatorForWords, tokenize_words
from equipoise.labels import to_spans

TRAIN, TEST, SEEDS, BATCH = 450, 400, 4, 8
STARTS = ("none", "all", 1, 8, 32)
Words = list[tuple[Tensor, list[str]]]  # hidden states of words (L, D), and their tags


@torch.no_grad()
def hidden_states(encoder: str, path: Path, count: int) -> Words:
    tokenizer, model = AutoTokenizer.from_pretrained(encoder), AutoModel.from_pretrained(encoder).eval()
    rows, found = sentences(path, count), []
    for i in range(0, len(rows), 16):
        part = rows[i : i + 16]
        encoded = [tokenize_words(tokenizer, [word for word, _ in row], truncation=True) for row in part]
        batch = DataCollatorForWords(tokenizer)(encoded)
        mask = batch.pop("word_mask")
        hidden = model(**batch).last_hidden_state
        for row, states, on in zip(part, hidden, mask, strict=True):
            found.append((states[on], [tag for _, tag in row][: int(on.sum())]))
    return found


def padded(rows: Words, names: list[str]) -> tuple[Tensor, Tensor]:
    labels = [torch.tensor([names.index(tag) for tag in tags]) for _, tags in rows]
    pad = torch.nn.utils.rnn.pad_sequence
    return pad([x for x, _ in rows], True), pad(labels, True, -100)


@torch.no_grad()
def f1(net: torch.nn.Module, crf: ChainCRF, test: Words, names: list[str]) -> float:
    right = total = 0
    for i in range(0, len(test), 64):
        x, y = padded(test[i : i + 64], names)
        for (_, tags), row in zip(test[i : i + 64], crf.decode(net(x), y != -100), strict=True):
            pair = [names[k] for k in row[: len(tags)]], tags
            predicted, gold = (set(to_spans(each, "BIO", on_invalid="repair")) for each in pair)
            right, total = right + len(predicted & gold), total + len(predicted) + len(gold)
    return 200 * right / max(total, 1)


def run(data: dict[str, Any], count: int, epochs: int, rate: float, start: str | int, seed: int) -> float:
    torch.manual_seed(seed)
    names, chosen = data["names"], torch.randperm(len(data["train"]))[:count].tolist()
    train = [data["train"][i] for i in chosen]
    net = torch.nn.Linear(train[0][0].shape[-1], len(names))
    torch.nn.init.normal_(net.weight, std=0.02)
    crf = ChainCRF(len(names), scaling.Learned(), constraints.from_labels(names, "BIO"), boundaries=True)
    if start == "all":
        crf.start_from_labels([padded(train, names)[1]])
    optimizer = torch.optim.AdamW([*net.parameters(), *crf.parameters()], lr=rate)
    total = epochs * -(-count // BATCH)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + 1) / 12) * (1 - step / total))
    seen: list[Tensor] = []
    for _ in range(epochs):
        for part in torch.randperm(count).split(BATCH):
            x, y = padded([train[i] for i in part.tolist()], names)
            if isinstance(start, int) and len(seen) < start:
                seen.append(y)
                crf.start_from_labels(seen)
            optimizer.zero_grad()
            crf.loss(net(x), y, y != -100).backward()
            optimizer.step()
            schedule.step()
    return f1(net, crf.eval(), data["test"], names)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("encoder")
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    records = []
    for corpus, files in FILES.items():
        parts = [hidden_states(args.encoder, args.data / file, n) for file, n in zip(files, (TRAIN, TEST), strict=True)]
        names = sorted({tag for part in parts for _, tags in part for tag in tags})
        data = {"train": parts[0], "test": parts[1], "names": names}
        for count, epochs in ((45, 20), (450, 5)):
            for rate in (1e-3, 1e-2):
                row: dict[str, Any] = {"corpus": corpus, "sentences": count, "rate": rate}
                for start in STARTS:
                    scores = [run(data, count, epochs, rate, start, seed) for seed in range(SEEDS)]
                    row[str(start)] = [round(statistics.mean(scores), 2), round(statistics.stdev(scores), 2)]
                records.append(row)
                print(json.dumps(row), flush=True)
                args.out.write_text(json.dumps(records, indent=1) + "\n")


if __name__ == "__main__":
    main()
