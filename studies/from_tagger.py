"""A CRF on a fine-tuned softmax tagger: F1 by argmax, by the CRF without training, and after one more epoch of both.

python studies/from_tagger.py ENCODER DATA studies/from_tagger.json [--train 500] [--epochs 1] [--more 1]

DATA is the folder with conll2000, bc5cdr and wnut17. F1 is of exact spans, in percent; labels that break the scheme are
read as conlleval reads them. Counts are those of the training labels. "more" is one more epoch of training; `--more 0`
leaves it out.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForTokenClassification, AutoTokenizer, Trainer, TrainingArguments, set_seed

from equipoise.files import lines
from equipoise.integrations.transformers import (
    CRFForTokenClassification,
    DataCollatorForWords,
    compute_metrics,
    tokenize_words,
)

FILES = {
    "conll2000": ("conll2000/train.txt.gz", "conll2000/test.txt.gz"),
    "bc5cdr": ("bc5cdr/train.conll.gz", "bc5cdr/test.conll.gz"),
    "wnut17": ("wnut17/train.conll.gz", "wnut17/test.conll.gz"),
}
RATE = 1e-4


def sentences(path: Path, count: int) -> list[list[tuple[str, str]]]:
    """The first sentences, as pairs of word and tag, which are the first and the last column."""
    rows: list[list[tuple[str, str]]] = [[]]
    for _, line in lines(path):
        fields = line.split("\t" if "\t" in line else None) if line.strip() else []
        if fields:
            rows[-1].append((fields[0], fields[-1].strip()))
        elif rows[-1]:
            rows.append([])
        if len(rows) > count:
            break
    return [row for row in rows[:count] if row]


def trainer(model: Any, data: dict[str, Any], seed: int, epochs: int = 1) -> Trainer:
    """The Trainer of a softmax tagger and that of a CRF have the same settings."""
    arguments = TrainingArguments(
        tempfile.mkdtemp(),
        num_train_epochs=epochs,
        per_device_train_batch_size=8,
        per_device_eval_batch_size=64,
        learning_rate=RATE,
        warmup_steps=12,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=not torch.cuda.is_available(),
        seed=seed,
    )
    return Trainer(
        model,
        arguments,
        train_dataset=data["train"],
        eval_dataset=data["test"],
        data_collator=DataCollatorForWords(data["tokenizer"]),
        compute_metrics=compute_metrics(model.config if hasattr(model, "crf") else model.config.id2label),
    )


def f1(run: Trainer) -> float:
    return round(100 * float(run.evaluate()["eval_f1"]), 2)


def more(model: Any, data: dict[str, Any], seed: int) -> float:
    set_seed(seed + 1000)
    run = trainer(model, data, seed + 1000)
    run.train()
    return f1(run)


def one(encoder: str, data: dict[str, Any], names: list[str], seed: int, folder: str, args: Any) -> dict[str, float]:
    set_seed(seed)
    labels = {"id2label": dict(enumerate(names)), "label2id": {name: i for i, name in enumerate(names)}}
    run = trainer(AutoModelForTokenClassification.from_pretrained(encoder, **labels), data, seed, args.epochs)
    run.train()
    run.model.save_pretrained(folder)
    data["tokenizer"].save_pretrained(folder)
    gold = [torch.tensor([y for y in x["labels"] if y != -100]) for x in data["train"]]

    def crf(scaling: str | None, counts: bool) -> CRFForTokenClassification:
        made = CRFForTokenClassification.from_tagger(folder, "BIO", scaling=scaling, metric_labels="decoded")
        if counts:
            made.crf.start_from_labels(gold)
        return made

    row = {
        "argmax": f1(run),
        "CRF": f1(trainer(crf(None, False), data, seed)),
        "CRF, counts": f1(trainer(crf(None, True), data, seed)),
    }
    if not args.more:
        return row
    row["softmax, more"] = more(AutoModelForTokenClassification.from_pretrained(folder), data, seed)
    for scaling in ("Learned", "Fixed"):
        for counts in (False, True):
            row[f"CRF, {'counts, ' * counts}{scaling}, more"] = more(crf(scaling, counts), data, seed)
    return row


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("encoder")
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--train", type=int, default=500)
    parser.add_argument("--test", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--more", type=int, default=1)
    parser.add_argument("--corpora", nargs="+", default=list(FILES))
    args = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(args.encoder)
    records: list[dict[str, Any]] = []
    for corpus in args.corpora:
        train, test = (
            sentences(args.data / file, n) for file, n in zip(FILES[corpus], (args.train, args.test), strict=True)
        )
        names = sorted({tag for sentence in train + test for _, tag in sentence})
        index = {name: i for i, name in enumerate(names)}
        data: dict[str, Any] = {"tokenizer": tokenizer}
        for part, given in (("train", train), ("test", test)):
            data[part] = [
                tokenize_words(tokenizer, [w for w, _ in x], [index[tag] for _, tag in x], truncation=True)
                for x in given
            ]
        for seed in range(args.seeds):
            with tempfile.TemporaryDirectory() as folder:
                row = one(args.encoder, data, names, seed, folder, args)
            size = {"corpus": corpus, "train": len(train), "test": len(test), "epochs": args.epochs}
            records.append({**size, "seed": seed, "f1": row})
            print(json.dumps(records[-1]), flush=True)
            args.out.write_text(json.dumps(records, indent=1) + "\n")


if __name__ == "__main__":
    main()
