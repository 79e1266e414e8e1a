"""Programs that were written for softmax taggers run with the CRF: only the line that makes the model is changed.

They do what run_ner.py and run_ner_no_trainer.py of transformers do: labels on the first token of each word, the usual
collator, and seqeval on the argmax of the predictions. A second process then loads the folder without our import.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("transformers")
pytest.importorskip("accelerate")
pytest.importorskip("seqeval")

import tiny_encoder
import tiny_trainer
from seqeval import metrics as seqeval
from transformers import (
    AutoTokenizer,
    DataCollatorForTokenClassification,
    Trainer,
    TrainingArguments,
    get_scheduler,
    set_seed,
)

from equipoise.integrations.transformers import CRFForTokenClassification
from equipoise.integrations.transformers.sharing import OLDEST
from equipoise.repository import install

INSTALL = install("transformers")
LABELS = sorted(tiny_encoder.LABELS)  # as the scripts list the labels of a file


def make_model(folder: Path) -> CRFForTokenClassification:
    return CRFForTokenClassification.from_encoder(str(folder), LABELS)  # the changed line


def examples(tokenizer: Any, count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Encodings with labels on first tokens, without `word_mask`."""
    index = [LABELS.index(label) for label in tiny_encoder.LABELS]
    encoded = []
    for row in tiny_trainer.examples(count, seed):
        labels = [-100 if label == -100 else index[label] for label in row["labels"]]
        encoded.append({"input_ids": row["input_ids"], "attention_mask": row["attention_mask"], "labels": labels})
    return encoded


def names_of(predicted: Any, gold: Any) -> tuple[list[list[str]], list[list[str]]]:
    pairs = [[(p, y) for p, y in zip(*rows, strict=True) if y != -100] for rows in zip(predicted, gold, strict=True)]
    both = [[[LABELS[pair[side]] for pair in row] for row in pairs] for side in (0, 1)]
    return both[0], both[1]


def trainer(model: Any, tokenizer: Any, folder: Path, **options: Any) -> Trainer:
    def compute_metrics(p: Any) -> dict[str, float]:
        predictions, labels = p
        predicted, gold = names_of(np.argmax(predictions, axis=2), labels)
        return {"f1": seqeval.f1_score(gold, predicted), "accuracy": seqeval.accuracy_score(gold, predicted)}

    defaults: dict[str, Any] = {"learning_rate": 1e-2, "num_train_epochs": 10, "save_steps": 15, "seed": 0}
    return Trainer(
        model=model,
        args=TrainingArguments(str(folder), report_to="none", disable_tqdm=True, use_cpu=True, **defaults | options),
        train_dataset=examples(tokenizer, 24),
        eval_dataset=examples(tokenizer, 24, seed=1),
        processing_class=tokenizer,
        data_collator=DataCollatorForTokenClassification(tokenizer),
        compute_metrics=compute_metrics,
    )


STRANGER = """
import json, sys
from transformers import AutoModelForTokenClassification, pipeline

class NotInstalled:
    def find_spec(self, name, path, target=None):
        if name.split(".")[0] == "equipoise":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

def fault(**options):
    try:
        AutoModelForTokenClassification.from_pretrained(folder, **options)
    except (ImportError, ValueError) as error:
        return str(error)

folder, text = sys.argv[1], "anna went to new york with bob smith"
untrusted = fault(trust_remote_code=False)
sys.meta_path.insert(0, NotInstalled())
missing = fault(trust_remote_code=True)
del sys.meta_path[0]
assert not any(name.startswith("equipoise") for name in sys.modules)
stock = pipeline("token-classification", folder, aggregation_strategy="first", trust_remote_code=True)(text)
own = pipeline("equipoise-spans", folder, trust_remote_code=True)(text)
model = AutoModelForTokenClassification.from_pretrained(folder, trust_remote_code=True)
model.save_pretrained(folder + "-again")
spans = [[[x["entity_group"], text[x["start"]:x["end"]]] for x in found] for found in (stock, own)]
print(json.dumps({"untrusted": untrusted, "missing": missing, "module": type(model).__module__, "spans": spans}))
"""


def stranger(folder: Path, home: Path) -> Any:
    """What a program that knows nothing of equipoise gets from the folder."""
    environment = os.environ | {"HF_HOME": str(home), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", STRANGER, str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_run_ner_trains_evaluates_predicts_resumes_and_its_model_travels(tmp_path: Path) -> None:
    encoder, out = tmp_path / "encoder", tmp_path / "out"
    tiny_encoder.save(encoder)
    set_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    run = trainer(make_model(encoder), tokenizer, out)
    run.train()
    run.save_model()
    assert run.evaluate()["eval_f1"] > 0.8
    predictions, labels, metrics = run.predict(examples(tokenizer, 24, seed=2), metric_key_prefix="predict")
    assert predictions.shape == (*labels.shape, 5)
    assert metrics["predict_f1"] > 0.8
    run.create_model_card(tasks="token-classification", finetuned_from=str(encoder))
    run.save_model()
    assert "generated automatically" in (out / "README.md").read_text()  # the card of the Trainer stays

    again = trainer(make_model(encoder), tokenizer, out)
    again.train(resume_from_checkpoint=str(out / "checkpoint-15"))
    for name, value in run.model.state_dict().items():
        assert torch.equal(value, again.model.state_dict()[name]), name

    found = stranger(out, tmp_path / "home")
    assert "trust_remote_code=True" in found["untrusted"]
    assert found["missing"] == f"this model needs the package equipoise, version {OLDEST} or newer: {INSTALL}"
    assert found["module"] == "equipoise.integrations.transformers.model"
    assert found["spans"] == [[["X", "anna"], ["Y", "new york"], ["X", "bob smith"]]] * 2
    files = [(folder / "modeling_equipoise.py").read_bytes() for folder in (out, tmp_path / "out-again")]
    assert files[0] == files[1]


def test_run_ner_without_a_trainer(tmp_path: Path) -> None:
    """A loop with its own parameter groups, accelerate, and the argmax of padded and gathered logits."""
    from accelerate import Accelerator
    from torch.utils.data import DataLoader

    tiny_encoder.save(tmp_path / "encoder")
    set_seed(0)
    accelerator = Accelerator(cpu=True)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "encoder")
    model = make_model(tmp_path / "encoder")
    assert len(tokenizer) <= model.get_input_embeddings().weight.shape[0]
    assert model.config.label2id == {label: i for i, label in enumerate(LABELS)}
    collate = DataCollatorForTokenClassification(tokenizer)
    train = DataLoader(examples(tokenizer, 24), shuffle=True, collate_fn=collate, batch_size=8)
    test = DataLoader(examples(tokenizer, 24, seed=1), collate_fn=collate, batch_size=8)
    plain = ("bias", "LayerNorm.weight")
    groups = [
        {"params": [p for n, p in model.named_parameters() if not any(x in n for x in plain)], "weight_decay": 0.01},
        {"params": [p for n, p in model.named_parameters() if any(x in n for x in plain)], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=1e-2)
    schedule = get_scheduler("linear", optimizer, num_warmup_steps=0, num_training_steps=10 * len(train))
    model, optimizer, train, test, schedule = accelerator.prepare(model, optimizer, train, test, schedule)
    for _ in range(10):
        model.train()
        for batch in train:
            accelerator.backward(model(**batch).loss)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
    model.eval()
    predicted, gold = [], []
    for batch in test:
        with torch.no_grad():
            outputs = model(**batch)
        best = accelerator.pad_across_processes(outputs.logits.argmax(dim=-1), dim=1, pad_index=-100)
        both = names_of(*(x.numpy() for x in accelerator.gather_for_metrics((best, batch["labels"]))))
        predicted, gold = predicted + both[0], gold + both[1]
    assert seqeval.f1_score(gold, predicted) > 0.8
