"""Fine-tuning a pretrained encoder on text chunking: the CRF is better than softmax, and its files give its labels."""

from pathlib import Path
from typing import Any

import pretrained
import pytest
import torch

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from transformers import AutoModelForTokenClassification, AutoTokenizer, Trainer, TrainingArguments, set_seed

from equipoise.integrations.export import export
from equipoise.integrations.transformers import (
    CRFForTokenClassification,
    DataCollatorForWords,
    compute_metrics,
    tokenize_words,
)
from equipoise_lab.data import conll

pytestmark = [pytest.mark.encoder, pytest.mark.slow]
INPUTS = ("input_ids", "attention_mask", "word_mask")


def trained(
    model: Any, tokenizer: Any, data: dict[str, list[conll.Sentence]], learning_rate: float, folder: Path
) -> Trainer:
    """A Trainer after one epoch. The function is the same for both models."""
    indices = model.config.label2id
    encoded = {
        name: [tokenize_words(tokenizer, s.words, [indices[tag] for tag in s.tags], truncation=True) for s in part]
        for name, part in data.items()
    }
    arguments = TrainingArguments(
        str(folder),
        num_train_epochs=1,
        per_device_train_batch_size=8,
        per_device_eval_batch_size=64,
        learning_rate=learning_rate,
        warmup_steps=12,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        seed=0,
    )
    trainer = Trainer(
        model,
        arguments,
        train_dataset=encoded["train"],
        eval_dataset=encoded["test"],
        data_collator=DataCollatorForWords(tokenizer),
        compute_metrics=compute_metrics(model.config if hasattr(model, "crf") else model.config.id2label),
        processing_class=tokenizer,
    )
    trainer.train()
    return trainer


@pytest.mark.parametrize(
    ("sentences", "learning_rate", "margin"),
    [pytest.param(80, 3e-4, 0.2, id="few"), pytest.param(1000, 1e-4, 0.02, id="1000", marks=pretrained.LONG)],
)
def test_a_crf_is_better_than_softmax_and_survives_saving_and_onnx(
    sentences: int, learning_rate: float, margin: float, tmp_path: Path
) -> None:
    """Measured after one epoch on 1,000 sentences: see docs/guides/transformers.md. On 80: 60 % and 20 %."""
    folder = pretrained.minilm()
    data = {
        "train": pretrained.chunked("train", sentences),
        "test": pretrained.chunked("test", sentences // 2),
    }
    names = sorted({tag for sentence in pretrained.chunked("train", 10000) for tag in sentence.tags})
    id2label = dict(enumerate(names))
    label2id = {name: index for index, name in id2label.items()}
    tokenizer = AutoTokenizer.from_pretrained(folder)
    set_seed(0)
    crf = trained(
        CRFForTokenClassification.from_encoder(folder, id2label, metric_labels="decoded"),
        tokenizer,
        data,
        learning_rate,
        tmp_path,
    )
    set_seed(0)
    plain = AutoModelForTokenClassification.from_pretrained(folder, id2label=id2label, label2id=label2id)
    softmax = trained(plain, tokenizer, data, learning_rate, tmp_path)
    with_crf, with_softmax = (float(x.evaluate()["eval_f1"]) for x in (crf, softmax))
    print(f"F1 with CRF {with_crf:.4f}, with softmax {with_softmax:.4f}")
    assert with_crf > with_softmax + margin

    crf.save_model(str(tmp_path / "saved"))
    again = AutoModelForTokenClassification.from_pretrained(tmp_path / "saved").eval()
    session = in_onnxruntime(again, tokenizer, data["test"], tmp_path / "tagger.onnx")
    model = crf.model.eval()
    for start in range(0, len(data["test"]), 16):
        words = [list(x.words) for x in data["test"][start : start + 16]]
        batch = tokenize_words(tokenizer, words, padding=True, return_tensors="pt")
        with torch.no_grad():
            wanted = model(**batch).labels
            assert torch.equal(again(**batch).labels, wanted)
        (labels,) = session.run(None, {name: batch[name].numpy() for name in INPUTS})
        assert (labels == wanted.numpy()).all()


def in_onnxruntime(model: Any, tokenizer: Any, sentences: list[conll.Sentence], path: Path) -> Any:
    onnxruntime = pytest.importorskip("onnxruntime")
    words = [list(x.words) for x in sentences[:2]]
    batch = tokenize_words(tokenizer, words, padding=True, return_tensors="pt")
    export(model, {name: batch[name] for name in INPUTS}, "onnx").save(path)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options)
