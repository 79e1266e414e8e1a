"""A trained tagger as one program, from tokens or scores to labels, for any batch size and length.

    inputs, mask -> encoder -> unary scores -> ChainCRF.decode -> labels

`export` returns what `torch.export.export` or `torch.onnx.export` returns, so saving and running are theirs. ONNX needs
the extra `onnx`.
"""

import contextlib
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, overload

import torch
from torch import Tensor, nn

from ..crf import ChainCRF
from ..native.values import self_contained

Output = Tensor | tuple[Tensor, Tensor]
AXES = ("batch", "length")
"""The names of the dynamic dimensions, the first two of each input and output."""


@overload
def export(
    model: nn.Module,
    example: Mapping[str, Tensor],
    format: Literal["torch"] = "torch",
    *,
    method: str = "forward",
    rule: str | None = None,
    log_marginals: bool = False,
    dynamic: Sequence[str] = AXES,
) -> torch.export.ExportedProgram: ...
@overload
def export(
    model: nn.Module,
    example: Mapping[str, Tensor],
    format: Literal["onnx"],
    *,
    method: str = "forward",
    rule: str | None = None,
    log_marginals: bool = False,
    dynamic: Sequence[str] = AXES,
) -> torch.onnx.ONNXProgram: ...
def export(
    model: nn.Module,
    example: Mapping[str, Tensor],
    format: Literal["torch", "onnx"] = "torch",
    *,
    method: str = "forward",
    rule: str | None = None,
    log_marginals: bool = False,
    dynamic: Sequence[str] = AXES,
) -> torch.export.ExportedProgram | torch.onnx.ONNXProgram:
    """A program that returns labels (B, L), -100 where masked, and on request log-marginals (B, L, M).

    Args:
        model: in evaluation mode. Either a module that contains one `ChainCRF` and returns unary scores (B, L, M); or a
            `ChainCRF`, whose input is then "unary"; or a model whose output has decoded `labels`, and log-marginals as
            `logits`, as that of `integrations.transformers`.
        example: inputs by name, each (B, L, ...), with dynamic sizes at least 2. They are arguments of the model.
            "mask", (B, L), selects the positions that have a label; the model also gets it if it has such an argument.
            Without it all positions have one.
        format: "torch" for an `ExportedProgram`, "onnx" for an `ONNXProgram`. Save them by `torch.export.save(program,
            path)` and `program.save(path)`.
        method: the method of the model that computes the unary scores.
        rule: how to decode, see `ChainCRF.decode`. "mean_field" needs a fixed length, so it cannot be exported.
        log_marginals: whether to return log-marginals too.
        dynamic: the dimensions that may differ from the example: "batch", "length", both or none.

    >>> crf = ChainCRF(num_labels=3).eval()
    >>> program = export(crf, {"unary": torch.randn(2, 4, 3), "mask": torch.ones(2, 4, dtype=torch.bool)})
    >>> unary, mask = torch.randn(5, 9, 3), torch.rand(5, 9) < 0.8  # another batch size and length
    >>> bool((program.module()(unary=unary, mask=mask) == crf.decode(unary, mask)).all())
    True
    """
    if format not in ("torch", "onnx"):
        raise ValueError(f"format must be 'torch' or 'onnx', got {format!r}")
    if any(module.training for module in model.modules()):
        raise ValueError("model must be in evaluation mode: call model.eval() first")
    if unknown := set(dynamic) - set(AXES):
        raise ValueError(f"dynamic must contain only {AXES}, got {sorted(unknown)}")
    axes = {i: name for i, name in enumerate(AXES) if name in dynamic}
    _check_example(example, axes)
    tagger = _Tagger(model, list(example), method, rule, log_marginals).eval()
    names = dict.fromkeys(example, axes)
    shapes = {name: dict.fromkeys(axes, torch.export.Dim.DYNAMIC) for name in example}
    with torch.no_grad(), self_contained(), _dynamic_recurrence():
        program = torch.export.export(tagger, (), dict(example), dynamic_shapes=shapes)
        if format == "torch":
            return program
        outputs = ["labels", "log_marginals"] if log_marginals else ["labels"]
        options: dict[str, Any] = {"input_names": list(example), "output_names": outputs, "verbose": False}
        found = torch.onnx.export(program, dynamo=True, dynamic_shapes=names, **options)
    assert found is not None  # it is None only in the exporter without dynamo
    return found


class _Tagger(nn.Module):
    """From inputs by name to labels, or to labels and log-marginals."""

    def __init__(self, model: nn.Module, names: list[str], method: str, rule: str | None, log_marginals: bool) -> None:
        super().__init__()
        self.model, self.method, self.rule, self.log_marginals = model, method, rule, log_marginals
        layers = [module for module in model.modules() if isinstance(module, ChainCRF)]
        if len(layers) != 1:
            raise ValueError(f"model must contain one ChainCRF, got {len(layers)} in {type(model).__name__}")
        self.crf = layers[0]
        if (rule or self.crf._objective(None).rule) == "mean_field":
            raise ValueError(
                "rule 'mean_field' needs a fixed length, so it cannot be exported; use rule='unary' or 'map'"
            )

        # torch.export finds the names of the inputs in the signature; it does not accept **inputs with dynamic shapes.
        parameters = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names]
        self.forward = lambda **inputs: self._predict(inputs)
        self.forward.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]

    def _predict(self, inputs: dict[str, Tensor]) -> Output:
        found = self._run(inputs)
        if isinstance(found, Tensor):
            mask = inputs.get("mask")
            labels = self.crf.decode(found, mask, self.rule)
            return (labels, self.crf.log_marginals(found, mask)) if self.log_marginals else labels
        if not isinstance(getattr(found, "labels", None), Tensor):
            raise TypeError(f"model must return unary scores or an output with labels, got {type(found).__name__}")
        return (found.labels, found.logits) if self.log_marginals else found.labels

    def _run(self, inputs: dict[str, Tensor]) -> Any:
        if self.model is self.crf:
            return inputs["unary"]
        function = getattr(self.model, self.method)
        wants_mask = "mask" in inspect.signature(function).parameters
        return function(**{name: x for name, x in inputs.items() if name != "mask" or wants_mask})


def _check_example(example: Mapping[str, Tensor], axes: Mapping[int, str]) -> None:
    shapes = {name: tuple(x.shape) for name, x in example.items()}
    if not shapes or any(len(shape) < 2 or any(shape[i] < 2 for i in axes) for shape in shapes.values()):
        raise ValueError(f"example must have inputs (B, L, ...), with dynamic sizes at least 2, got {shapes}")
    if len({shape[:2] for shape in shapes.values()}) > 1:
        raise ValueError(f"all inputs of example must have the same batch size and length, got {shapes}")


@contextlib.contextmanager
def _dynamic_recurrence() -> Iterator[None]:
    """Keep LSTM and GRU as operators, for any length. torch.export would unroll them at the length of the example.

    torch has the contexts for this and uses them in a part of the ONNX export. They take effect only if no kernel is
    cached, and kernels traced inside must not be used outside.
    """
    from torch.export import _patches

    operators = (torch.ops.aten.lstm.input, torch.ops.aten.gru.input)
    contexts = (_patches.register_lstm_while_loop_decomposition, _patches.register_gru_while_loop_decomposition)
    with contextlib.ExitStack() as stack:
        for operator, context in zip(operators, contexts, strict=True):
            operator._dispatch_cache.clear()
            stack.callback(operator._dispatch_cache.clear)
            stack.enter_context(context())
        yield
