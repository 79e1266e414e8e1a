"""The pipeline "equipoise-spans": the spans that a tagger decodes, with their exact probabilities.

text or words -> windows, in batches over all texts -> scores of each token -> `SpanDecoder`, one chain per text

The pipeline "token-classification" of transformers gives the model no words and merges the argmax of single tokens.
Here a chain has one position per word, of any scheme, over the whole text. Any token classifier can be used.
"""

from collections.abc import Iterator
from typing import Any

import torch
from transformers import AutoModelForTokenClassification, TokenClassificationPipeline
from transformers.pipelines import PIPELINE_REGISTRY

from ...spans import SpanDecoder
from .windows import scoring, windows_of

TASK = "equipoise-spans"


class SpanPipeline(TokenClassificationPipeline):
    """`pipeline("equipoise-spans", model)`, or `pipeline("token-classification", model, pipeline_class=SpanPipeline)`.

    It is called with a text, a list of texts, or a list of sentences that are lists of words; with the words of one
    sentence if the call has `is_split_into_words=True`. For each text it returns a list of dictionaries:

        entity_group, score              the label of a span, and the probability that exactly this span is there
        word, start, end                 its text, and where it is: characters of a text, or numbers of words
        runner_up, runner_up_score       the next most probable label for these boundaries, None if there is none

    These arguments are for `pipeline(...)` or for a call:

        scheme           that of the labels, for a model without a CRF; needed if its labels do not decide it
        decoder          a `SpanDecoder`, for example with biases; by default one of the model
        whole_words      False has one position per token instead of one per word
        stride           how many tokens two windows share, a quarter of a window by default
        max_length       the size of a window in tokens, by default what the encoder reads
        batch_size       how many windows the encoder reads at a time
    """

    tokenizer: Any

    def __call__(self, inputs: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        one = kwargs.get("is_split_into_words", False) and not all(isinstance(x, list) for x in inputs)
        results = super().__call__(inputs, **kwargs)
        return results[0] if one else results

    def check_model_type(self, supported_models: Any) -> None:
        """Nothing: any model with scores of tokens is right, and transformers lists only its own."""

    def _sanitize_parameters(  # type: ignore[override]
        self,
        scheme: str | None = None,
        decoder: SpanDecoder | None = None,
        whole_words: bool | None = None,
        stride: int | None = None,
        max_length: int | None = None,
        is_split_into_words: bool = False,
        delimiter: str | None = None,  # __call__ of transformers passes both
        **unknown: Any,
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        if unknown:
            raise TypeError(f"the pipeline {TASK} has no argument {next(iter(unknown))!r}")
        if scheme is not None:
            decoder = SpanDecoder.from_model(self.model, scheme)
        before = {"stride": stride, "max_length": max_length}
        after = {"decoder": decoder, "whole_words": whole_words}
        first, last = ({key: x for key, x in each.items() if x is not None} for each in (before, after))
        return first, {}, last

    def preprocess(  # type: ignore[override]
        self, text: Any, stride: int | None = None, max_length: int | None = None
    ) -> Iterator[Any]:
        windows = windows_of(self.model, self.tokenizer, text or "", stride, max_length)
        names = [name for name in self.tokenizer.model_input_names if name in windows.batch]
        count, size = windows.tokens.shape
        for i in range(count):
            inputs = {name: windows.batch[name][i : i + 1] for name in names}
            yield {
                **(inputs if size else {name: torch.ones(1, 1, dtype=torch.int64) for name in names}),
                "of_text": (windows, text) if i == 0 else None,
                "size": size,
                "is_last": i == count - 1,
            }

    def _forward(self, inputs: dict[str, Any]) -> dict[str, Any]:  # type: ignore[override]
        others = {name: inputs.pop(name) for name in ("of_text", "size", "is_last")}
        return {"scores": scoring(self.model)(**inputs), **others}  # the batch is split by the first tensor

    def postprocess(  # type: ignore[override]
        self, outputs: list[dict[str, Any]], decoder: SpanDecoder | None = None, whole_words: bool = True
    ) -> list[dict[str, Any]]:
        windows, text = outputs[0]["of_text"]
        if not len(windows.words):
            return []
        left = self.tokenizer.padding_side == "left"
        rows = [x["scores"][:, -x["size"] :] if left else x["scores"][:, : x["size"]] for x in outputs]
        is_text = isinstance(text, str)
        spans = (decoder or SpanDecoder.from_model(self.model))(
            windows.merged(torch.cat(rows)),
            offsets=windows.offsets if is_text else None,
            words=windows.words if whole_words or not is_text else None,
        )
        return [
            {
                "entity_group": span.label,
                "score": span.probability,
                "word": text[span.start : span.end] if is_text else " ".join(text[span.start : span.end]),
                "start": span.start,
                "end": span.end,
                "runner_up": span.runner_up,
                "runner_up_score": span.runner_up_probability,
            }
            for span in spans
        ]


PIPELINE_REGISTRY.register_pipeline(TASK, SpanPipeline, pt_model=AutoModelForTokenClassification)
delattr(SpanPipeline, "_registered_impl")  # with it, a pipeline saves a copy of this file, whose imports fail elsewhere
