"""Exported taggers give the labels of torch: as an ExportedProgram, and in ONNX Runtime."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from equipoise import ChainCRF, SpanDecoder, chain, constraints, scaling
from equipoise.integrations.export import export
from equipoise.spans import Biases

NAMES = ["O", "B-NP", "I-NP", "B-VP", "I-VP"]
BIO = constraints.from_labels(NAMES, "BIO")
SHAPES = [(1, 1), (3, 7), (2, 40), (8, 5), (1, 12)]


def layer(**options: Any) -> ChainCRF:
    """With all options, after one step of training."""
    crf = ChainCRF(5, scaling.Learned(), BIO, boundaries=True, **options)
    crf.loss(7 * torch.randn(4, 6, 5), torch.zeros(4, 6, dtype=torch.int64)).backward()
    nn.init.normal_(crf.pairwise)
    return crf


class Tagger(nn.Module):
    def __init__(self, cell: type[nn.LSTM] | type[nn.GRU] = nn.LSTM) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 8)
        self.cell = cell(8, 6, batch_first=True, bidirectional=True)
        self.head = nn.Linear(12, 5)
        self.crf = layer()

    def forward(self, words: Tensor) -> Tensor:
        return 5 * self.head(self.cell(self.words(words))[0])

    def predict(self, words: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        return self.crf.decode(self(words), mask), self.crf.log_marginals(self(words), mask)


def example(b: int, length: int, seed: int = 0) -> dict[str, Tensor]:
    """Words, and masks with holes, some without any position."""
    generator = torch.Generator().manual_seed(seed)
    words = torch.randint(50, (b, length), generator=generator)
    return {"words": words, "mask": torch.rand(b, length, generator=generator) < 0.6}


Run = Callable[[dict[str, Tensor]], list[Tensor]]


def onnx_session(model: nn.Module, inputs: dict[str, Tensor], folder: Path, **options: Any) -> Run:
    pytest.importorskip("onnxscript")
    onnxruntime = pytest.importorskip("onnxruntime")
    path = str(folder / "tagger.onnx")
    export(model, inputs, "onnx", **options).save(path)
    session = onnxruntime.InferenceSession(path)
    assert {x.name: x.shape[:2] for x in session.get_inputs()} == {name: ["batch", "length"] for name in inputs}

    def run(inputs: dict[str, Tensor]) -> list[Tensor]:
        found = session.run(None, {name: x.numpy() for name, x in inputs.items()})
        return [torch.from_numpy(x) for x in found]

    return run


def exported_program(model: nn.Module, inputs: dict[str, Tensor], folder: Path, **options: Any) -> Run:
    path = str(folder / "tagger.pt2")
    torch.export.save(export(model, inputs, **options), path)
    program = torch.export.load(path).module()
    return lambda inputs: list(program(**inputs))


@pytest.mark.slow
@pytest.mark.parametrize("make", [exported_program, onnx_session])
def test_labels_and_marginals_equal_those_of_torch(make: Callable[..., Run], tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Tagger().eval()
    run = make(model, example(2, 4), tmp_path, log_marginals=True)
    for b, length in SHAPES:
        inputs = example(b, length, seed=1)
        labels, log_marginals = run(inputs)
        wanted = model.predict(**inputs)
        assert torch.equal(labels, wanted[0])
        assert bool((labels[~inputs["mask"]] == -100).all())
        torch.testing.assert_close(log_marginals, wanted[1], rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_scores_as_input_and_another_rule() -> None:
    torch.manual_seed(0)
    crf = layer().eval()
    program = export(crf, {"unary": torch.randn(2, 4, 5)}, rule="marginal").module()
    for b, length in SHAPES:
        unary = torch.randn(b, length, 5)
        assert torch.equal(program(unary=unary), crf.decode(unary, rule="marginal"))


@pytest.mark.slow
@pytest.mark.skipif("EQUIPOISE_DATA" not in os.environ, reason="needs EQUIPOISE_DATA with conll2000")
def test_real_sentences_in_onnx(tmp_path: Path) -> None:
    """With a GRU; the other tests have an LSTM."""
    from equipoise_lab.data import conll

    path = Path(os.environ["EQUIPOISE_DATA"]) / "conll2000" / "test.txt.gz"
    sentences = [sentence.words for sentence, _ in zip(conll.read(path), range(60), strict=False)]
    number = {word: i % 50 for i, word in enumerate(sorted({word for words in sentences for word in words}))}
    torch.manual_seed(0)
    model = Tagger(nn.GRU).eval()
    run = onnx_session(model, example(2, 4), tmp_path)
    for start, size in ((0, 1), (1, 3), (4, 24), (28, 32)):
        rows = [torch.tensor([number[word] for word in words]) for words in sentences[start : start + size]]
        words = nn.utils.rnn.pad_sequence(rows, batch_first=True)
        mask = nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in rows], batch_first=True).bool()
        labels = run({"words": words, "mask": mask})[0]
        assert torch.equal(labels, model.predict(words, mask)[0])
        assert len(labels[mask].unique()) > 1


@pytest.mark.slow
def test_the_model_gets_the_mask_if_it_asks_for_it() -> None:
    class Masked(Tagger):
        def scores(self, words: Tensor, mask: Tensor) -> Tensor:
            return self(words) * mask[..., None] + 1

    model, inputs = Masked().eval(), example(3, 6, seed=2)
    program = export(model, example(2, 4), method="scores").module()
    wanted = model.crf.decode(model.scores(**inputs), inputs["mask"])
    assert torch.equal(program(**inputs), wanted)


@pytest.mark.slow
def test_the_model_for_transformers(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    import tiny_encoder

    from equipoise.integrations.transformers import CRFConfig, CRFForTokenClassification

    torch.manual_seed(0)
    names = dict(enumerate(tiny_encoder.LABELS))
    model = CRFForTokenClassification(CRFConfig(encoder_config=tiny_encoder.config(), id2label=names)).eval()
    nn.init.normal_(model.classifier.weight)

    def inputs(b: int, length: int) -> dict[str, Tensor]:
        attended = (torch.arange(length) < torch.randint(1, length + 1, (b, 1))).long()
        words = (torch.rand(b, length) < 0.7) & (attended == 1)
        words[0] = False  # a row without a word
        return {"input_ids": torch.randint(5, 20, (b, length)), "attention_mask": attended, "word_mask": words}

    run = onnx_session(model, inputs(2, 4), tmp_path, log_marginals=True)
    for b, length in SHAPES:
        batch = inputs(b, length)
        (labels, log_p), want = run(batch), model(**batch)
        assert torch.equal(labels, want.labels)
        torch.testing.assert_close(log_p, want.logits.detach(), rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_an_export_leaves_other_exports_as_they_were() -> None:
    """LSTM is kept as an operator inside `export` only."""
    x = torch.randn(2, 3, 4)
    lstm = nn.LSTM(4, 4, batch_first=True).eval()
    export(Tagger().eval(), example(2, 4))
    assert torch.equal(torch.export.export(lstm, (x,)).module()(x)[0], lstm(x)[0])


@pytest.mark.slow
def test_exports_with_other_dynamic_sizes_do_not_fix_those_of_the_next() -> None:
    """torch keeps what it compiled for `scan` with the batch size of an earlier export."""
    crf = layer().eval()
    for dynamic in (["length"], ["batch", "length"]):
        program = export(crf, {"unary": torch.randn(2, 4, 5)}, dynamic=dynamic).module()
    unary = torch.randn(3, 7, 5)
    assert torch.equal(program(unary=unary), crf.decode(unary))


def test_wrong_arguments() -> None:
    model = Tagger()
    with pytest.raises(ValueError, match=r"evaluation mode: call model.eval\(\) first"):
        export(model, example(2, 4))
    model.eval()
    with pytest.raises(ValueError, match=r"dynamic sizes at least 2, got {'words': \(1, 4\)"):
        export(model, example(1, 4))
    with pytest.raises(ValueError, match="the same batch size and length"):
        export(model, {"words": example(2, 4)["words"], "mask": example(2, 5)["mask"]})
    with pytest.raises(ValueError, match=r"dynamic must contain only .*, got \['words'\]"):
        export(model, example(2, 4), dynamic=("words",))
    with pytest.raises(ValueError, match="format must be 'torch' or 'onnx', got 'tflite'"):
        export(model, example(2, 4), "tflite")
    with pytest.raises(ValueError, match="must contain one ChainCRF, got 0 in Linear"):
        export(nn.Linear(3, 3).eval(), example(2, 4))
    with pytest.raises(ValueError, match="'mean_field' needs a fixed length"):
        export(ChainCRF(5, objective="mean_field").eval(), {"unary": torch.randn(2, 4, 5)})


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
def test_a_program_with_a_fixed_batch_size_compiles_ahead_of_time(tmp_path: Path) -> None:
    torch.manual_seed(0)
    crf = layer().eval()
    inputs = {"unary": torch.randn(1, 4, 5), "mask": torch.rand(1, 4) < 0.8}
    program = export(crf, inputs, dynamic=["length"])
    path = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "tagger.pt2"))
    predict = torch._inductor.aoti_load_package(path)
    for length in (1, 4, 30):
        unary, mask = torch.randn(1, length, 5), torch.rand(1, length) < 0.8
        assert torch.equal(predict(unary=unary, mask=mask), crf.decode(unary, mask))


@pytest.mark.slow
def test_a_program_runs_in_executorch(tmp_path: Path) -> None:
    exir, runtime = (pytest.importorskip(f"executorch.{name}") for name in ("exir", "runtime"))
    torch.manual_seed(0)
    crf = layer().eval().requires_grad_(False)
    with torch.no_grad():
        example = {"unary": torch.randn(1, 16, 5), "mask": torch.ones(1, 16, dtype=torch.bool)}
        program = exir.to_edge(export(crf, example, dynamic=["length"])).to_executorch()
    (tmp_path / "crf.pte").write_bytes(program.buffer)
    method = runtime.Runtime.get().load_program(tmp_path / "crf.pte").load_method("forward")
    for length in (1, 7, 16):
        unary, mask = torch.randn(1, length, 5), torch.rand(1, length) < 0.8
        assert torch.equal(method.execute([unary, mask])[0], crf.decode(unary, mask))


@pytest.mark.slow
def test_a_classifier_with_a_span_decoder(tmp_path: Path) -> None:
    """In ONNX Runtime, its labels are those of the decoder for its logits, with biases and temperature."""
    torch.manual_seed(0)
    names = ["O", "B-X", "I-X", "E-X", "S-X"]
    decoder = SpanDecoder(names, biases=Biases(1.0, -0.5, 0.5, -1.0, 0.25, 2.0, -1.5, 0.75), temperature=1.7)

    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.crf = nn.Embedding(50, 5), decoder.layer()
            nn.init.normal_(self.words.weight, std=3.0)

        def forward(self, words: Tensor) -> Tensor:
            return self.words(words)

    model = Classifier().eval()
    run = onnx_session(model, example(2, 4), tmp_path, log_marginals=True)
    biased = 0
    for b, length in SHAPES:
        inputs = example(b, length, seed=1)
        labels, log_marginals = run(inputs)
        logits, mask = model(inputs["words"]), inputs["mask"]
        assert torch.equal(labels, decoder.decode(logits, mask))
        biased += int((labels != SpanDecoder(names).decode(logits, mask)).sum())
        potentials, kept = decoder.potentials(logits, mask)
        wanted = kept.restore(kept.blank(chain.log_marginals(*potentials), 0.0))[mask]
        torch.testing.assert_close(log_marginals[mask], wanted, rtol=1e-4, atol=1e-4)
    assert biased > 10
