"""A Trainer on synthetic sentences, also as a program: `tiny_trainer.py encoder folder batch_size scaling...`.

For each scaling method the program trains three steps without dropout, and each process writes its weights.
"""

import os
import sys
from pathlib import Path
from typing import Any

import tiny_encoder
import torch
from transformers import Trainer, TrainingArguments, set_seed

from equipoise.integrations.transformers import (
    CRFForTokenClassification,
    DataCollatorForWords,
    compute_metrics,
    tokenize_words,
)

GOLD = {"anna": "B-X", "bob": "B-X", "smith": "I-X", "new": "B-Y", "york": "I-Y", "city": "I-Y"}


def examples(count: int, seed: int = 0) -> list[Any]:
    """Sentences of words whose label is known from the word; a name may consist of two words."""
    generator = torch.Generator().manual_seed(seed)
    parts = [["anna"], ["bob", "smith"], ["new", "york"], ["new", "york", "city"], ["went"], ["to"], ["with"]]
    index = {label: i for i, label in enumerate(tiny_encoder.LABELS)}
    found = []
    for _ in range(count):
        chosen = torch.randint(len(parts), (5,), generator=generator).tolist()
        words = [word for i in chosen for word in parts[i]]
        labels = [index[GOLD.get(word, "O")] for word in words]
        found.append(tokenize_words(tiny_encoder.tokenizer(), words, labels))
    return found


def arguments(folder: Path, **kwargs: Any) -> TrainingArguments:
    given = {"per_device_train_batch_size": 8, "save_strategy": "steps" if "save_steps" in kwargs else "no", **kwargs}
    return TrainingArguments(str(folder), report_to="none", disable_tqdm=True, use_cpu=True, seed=0, **given)


def trainer(model: Any, args: TrainingArguments, **kwargs: Any) -> Trainer:
    return Trainer(
        model,
        args,
        eval_dataset=examples(24),
        data_collator=DataCollatorForWords(tiny_encoder.tokenizer()),
        compute_metrics=compute_metrics(model.config),
        **{"train_dataset": examples(24), **kwargs},
    )


def main(encoder: str, folder: str, batch_size: str, *methods: str) -> None:
    torch.set_num_threads(1)
    for method in methods:
        set_seed(0)
        model = CRFForTokenClassification.from_encoder(encoder, tiny_encoder.LABELS, scaling=method)
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        options = {"per_device_train_batch_size": int(batch_size), "optim": "sgd", "learning_rate": 0.1, "max_steps": 3}
        out = Path(folder) / method
        trainer(model, arguments(out, **options)).train()
        out.mkdir(parents=True, exist_ok=True)
        torch.save(model.state_dict(), out / f"rank{os.environ.get('RANK', 0)}.pt")
    if torch.distributed.is_initialized():  # gloo's threads may end the process by a signal when they outlive Python
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
