"""The model in the Trainer of transformers: training, resuming, accumulation, adapters, several processes."""

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("transformers")
pytest.importorskip("accelerate")
pytest.importorskip("tokenizers")

import tiny_encoder
import tiny_trainer
from tiny_trainer import arguments, examples, trainer
from transformers import AutoModelForTokenClassification, set_seed

from equipoise import scaling
from equipoise.integrations.transformers import BalanceCallback, CRFForTokenClassification


def model(tmp_path: Path, **kwargs: Any) -> CRFForTokenClassification:
    folder = tmp_path / "encoder"
    return CRFForTokenClassification.from_encoder(
        tiny_encoder.save(folder) if not folder.exists() else str(folder),
        tiny_encoder.LABELS,
        **{"metric_labels": "decoded", **kwargs},
    )


def weights(made: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in made.state_dict().items()}


def without_dropout(made: CRFForTokenClassification) -> CRFForTokenClassification:
    for module in made.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return made


def test_training_evaluation_and_prediction(tmp_path: Path) -> None:
    """The labels are a function of the words, so a few epochs suffice. seqeval confirms the scores."""
    made = model(tmp_path)
    run = trainer(made, arguments(tmp_path, num_train_epochs=12, learning_rate=1e-2))
    before = run.evaluate()
    run.train()
    after = run.evaluate()
    assert after["eval_loss"] < before["eval_loss"]
    assert after["eval_f1"] > max(before["eval_f1"], 0.8)
    found = run.predict(examples(24, seed=1))
    on = found.label_ids != -100
    assert found.predictions.shape == found.label_ids.shape
    assert bool((found.predictions[on] >= 0).all())
    seqeval = pytest.importorskip("seqeval.metrics")
    name = np.vectorize(made.config.labels.get)
    rows = [[name(x[on[i]]).tolist() for i, x in enumerate(part)] for part in (found.label_ids, found.predictions)]
    assert found.metrics["test_f1"] == pytest.approx(seqeval.f1_score(*rows))
    assert found.metrics["test_precision"] == pytest.approx(seqeval.precision_score(*rows))
    assert found.metrics["test_recall"] == pytest.approx(seqeval.recall_score(*rows))


def test_metric_labels_decide_what_predict_returns_and_metrics_read(tmp_path: Path) -> None:
    made = model(tmp_path, objective="marginal", constraints=False)  # so that both rules give the same labels
    decoded = trainer(made, arguments(tmp_path))
    labels, metrics = decoded.predict(examples(8)).predictions, decoded.evaluate()
    made.config.metric_labels = "argmax"
    with pytest.raises(ValueError, match=r'decoded labels, integers .* for metric_labels="decoded", got float32'):
        decoded.evaluate()  # its metrics were made for decoded labels
    scores = trainer(made, arguments(tmp_path))
    log_p, on = scores.predict(examples(8)).predictions, labels != -100
    assert log_p.shape == (*labels.shape, 5)
    assert np.array_equal(log_p.argmax(-1)[on], labels[on])
    assert scores.evaluate()["eval_f1"] == metrics["eval_f1"]
    with pytest.raises(ValueError, match="metric_labels must be one of argmax, decoded, got 'best'"):
        model(tmp_path, metric_labels="best")


def test_prediction_without_labels_uses_the_word_mask(tmp_path: Path) -> None:
    run = trainer(model(tmp_path), arguments(tmp_path))
    unlabelled = [{name: value for name, value in x.items() if name != "labels"} for x in examples(8)]
    expected = run.predict(examples(8)).predictions
    assert np.array_equal(run.predict(unlabelled).predictions, expected)


def test_a_resumed_run_ends_with_the_same_bits(tmp_path: Path) -> None:
    set_seed(0)
    whole = trainer(model(tmp_path), arguments(tmp_path / "run", max_steps=6, save_steps=3))
    whole.train()
    resumed = trainer(model(tmp_path), arguments(tmp_path / "run", max_steps=6, save_steps=3))
    resumed.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-3"))
    ours, others = weights(whole.model), weights(resumed.model)
    assert ours.keys() == others.keys()
    assert float(ours["crf.scaling.steps"]) == 6
    for name, value in ours.items():
        assert torch.equal(value, others[name]), name


def test_accumulation_in_the_trainer_equals_one_large_batch(tmp_path: Path) -> None:
    """Up to rounding, with a scaling method that does not move in each backward pass."""
    after = []
    for size in (8, 2):
        made = without_dropout(model(tmp_path, scaling=scaling.Fixed()))
        with torch.no_grad():
            made.classifier.weight.zero_()
            made.crf.pairwise.zero_()
            made.crf.start.zero_()
            made.crf.end.zero_()
        steps = {"per_device_train_batch_size": size, "gradient_accumulation_steps": 8 // size}
        trainer(made, arguments(tmp_path, max_steps=3, optim="sgd", learning_rate=0.1, **steps)).train()
        after.append(weights(made))
    for name, value in after[0].items():
        torch.testing.assert_close(value, after[1][name], rtol=1e-4, atol=1e-6, msg=name)


def test_gradient_checkpointing_changes_nothing(tmp_path: Path) -> None:
    after = []
    for on in (False, True):
        made = model(tmp_path)
        set_seed(0)
        with torch.no_grad():
            made.classifier.weight.fill_(0.01)
            made.crf.reset_parameters(torch.Generator().manual_seed(0))
        trainer(made, arguments(tmp_path, max_steps=3, gradient_checkpointing=on)).train()
        after.append(weights(made))
    assert float(after[0]["crf.scaling.steps"]) == float(after[1]["crf.scaling.steps"]) == 3
    for name, value in after[0].items():
        torch.testing.assert_close(value, after[1][name], rtol=1e-4, atol=1e-6, msg=name)


def test_bfloat16_training_leaves_the_crf_in_float32(tmp_path: Path) -> None:
    made = model(tmp_path)
    seen = []
    made.classifier.register_forward_hook(lambda _, __, output: seen.append(output.dtype))
    run = trainer(made, arguments(tmp_path, num_train_epochs=12, learning_rate=1e-2, bf16=True))
    before = run.evaluate()["eval_loss"]
    run.train()
    assert set(seen) == {torch.bfloat16}
    assert run.evaluate()["eval_loss"] < 0.7 * before
    assert made.crf.pairwise.dtype == torch.float32


@pytest.mark.slow
def test_the_trainer_compiles_the_model(tmp_path: Path) -> None:
    made, data = model(tmp_path), examples(100)
    shortest = min(len(x["input_ids"]) for x in data)
    data = [x for x in data if len(x["input_ids"]) == shortest]  # one shape, one compilation
    options = {"max_steps": 2, "per_device_train_batch_size": 1, "torch_compile_backend": "aot_eager"}
    trainer(made, arguments(tmp_path, torch_compile=True, **options), train_dataset=data).train()
    assert float(made.crf.scaling.steps) == 2


@pytest.mark.slow
def test_the_encoder_can_be_compiled_alone(tmp_path: Path) -> None:
    made = without_dropout(model(tmp_path))
    expected = trainer(made, arguments(tmp_path)).evaluate()["eval_loss"]
    made.backbone.compile(backend="aot_eager", dynamic=True)
    run = trainer(made, arguments(tmp_path, max_steps=2))
    assert run.evaluate()["eval_loss"] == pytest.approx(expected, rel=1e-4)
    run.train()
    made.save_pretrained(tmp_path / "model")
    again = CRFForTokenClassification.from_pretrained(tmp_path / "model")
    assert weights(again).keys() == weights(made).keys()


def test_lora_on_the_encoder_trains_and_stores_head_and_crf(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    lora = peft.LoraConfig(r=2, target_modules=["query", "value"], modules_to_save=["classifier", "crf"])
    made = peft.get_peft_model(model(tmp_path), lora)
    frozen = weights(made.base_model.model.backbone)
    run = trainer(made, arguments(tmp_path, num_train_epochs=12, learning_rate=2e-2))
    before = run.evaluate()["eval_loss"]
    run.train()
    after = run.evaluate()
    assert after["eval_loss"] < 0.9 * before
    for name, value in weights(made.base_model.model.backbone).items():
        if "lora" not in name:
            assert torch.equal(value, frozen[name]), name
    made.save_pretrained(tmp_path / "adapter")
    set_seed(1)
    again = peft.PeftModel.from_pretrained(model(tmp_path), str(tmp_path / "adapter"))
    assert again.base_model.model.crf.scaling.steps == made.base_model.model.crf.scaling.steps > 0
    assert trainer(again, arguments(tmp_path)).evaluate()["eval_loss"] == pytest.approx(after["eval_loss"], rel=1e-5)


def test_the_callback_logs_the_balance_and_warns_once(tmp_path: Path) -> None:
    made = model(tmp_path, scaling=scaling.Fixed(1000.0))
    callback = BalanceCallback()
    run = trainer(made, arguments(tmp_path, max_steps=2, eval_strategy="steps", eval_steps=1), callbacks=[callback])
    with pytest.warns(UserWarning, match="pairwise part has almost no influence") as said:
        run.train()
    assert len([x for x in said if "influence" in str(x.message)]) == 1
    assert len(callback.ratios) == 2
    assert [x["eval_crf_balance"] for x in run.state.log_history if "eval_crf_balance" in x] == callback.ratios


def test_the_callback_warns_about_the_end_of_training_but_not_about_learned_scaling(tmp_path: Path) -> None:
    for method in (scaling.Fixed(1000.0), scaling.Learned()):
        made, callback = model(tmp_path, scaling=method), BalanceCallback()
        if isinstance(method, scaling.Learned):
            made.crf.scaling.log_scales[..., 0] += 5
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            options = arguments(tmp_path, max_steps=1, eval_strategy="steps", eval_steps=1)
            trainer(made, options, callbacks=[callback]).train()
        assert callback.ratios[0] > 100
        warned = [x for x in said if "almost no influence" in str(x.message)]
        assert len(warned) == isinstance(method, scaling.Fixed)


def test_the_callback_passes_the_ratio_to_trackers_through_the_trainer(tmp_path: Path) -> None:
    made, logged = model(tmp_path), []
    run = trainer(made, arguments(tmp_path))
    run.log = lambda logs, *_: logged.append(logs)  # type: ignore[method-assign]
    run.add_callback(BalanceCallback(run))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # before training the ratio means nothing
        metrics = run.evaluate()
    batch = next(iter(run.get_eval_dataloader()))
    assert logged[-1] == {"eval_crf_balance": metrics["eval_crf_balance"]}
    assert metrics["eval_crf_balance"] == pytest.approx(float(made.eval().balance(**batch)))


@pytest.mark.slow
def test_two_processes_train_the_same_model_as_one(tmp_path: Path) -> None:
    """Gradients are averaged over processes, and the number of items is that of both."""
    encoder, methods = tiny_encoder.save(tmp_path / "encoder"), ("Fixed", "Learned")
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    script = str(Path(tiny_trainer.__file__))
    subprocess.run([*launch, script, encoder, str(tmp_path / "two"), "4", *methods], check=True, timeout=300)
    for method in methods:
        first, second = (torch.load(tmp_path / "two" / method / f"rank{rank}.pt") for rank in range(2))
        for name, value in first.items():
            if "scaling" not in name:  # the state of scaling is sent to the others in the next forward pass
                assert torch.equal(value, second[name]), name
    tiny_trainer.main(encoder, str(tmp_path / "one"), "8", "Fixed")
    alone, both = (torch.load(tmp_path / x / "Fixed" / "rank0.pt") for x in ("one", "two"))
    for name, value in alone.items():
        torch.testing.assert_close(value, both[name], rtol=1e-4, atol=1e-6, msg=name)


def test_a_checkpoint_of_the_trainer_loads_by_its_folder(tmp_path: Path) -> None:
    run = trainer(model(tmp_path), arguments(tmp_path / "run", max_steps=2, save_steps=2))
    run.train()
    again = AutoModelForTokenClassification.from_pretrained(tmp_path / "run" / "checkpoint-2")
    for name, value in weights(run.model).items():
        assert torch.equal(value, again.state_dict()[name]), name
