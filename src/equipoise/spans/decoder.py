"""Spans from the scores of any token classifier: its softmax, made a chain by hard constraints and biases.

    F(Y | X) = sum_t log softmax(logits_t / T)(y_t) + sum_t b(kind of y_t -> y_{t+1}) + b_start(y_1) + b_end(y_L)

b is -inf where the scheme forbids a transition. The spans are those of the best labelling, argmax_Y F, so they are
always valid. Their probabilities are exact under P(Y | X) = exp F / Z (`probability`).
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .. import chain
from ..chain.problem import IGNORE
from ..constraints import Constraints, names_of
from ..crf import ChainCRF
from ..crf.potentials import Potentials
from ..masking import Unmasked, read_mask
from ..scaling import Fixed
from .biases import Biases, Point, is_number, read, rules
from .layout import WORD_SCORES, Layout, by_word, layout
from .probability import type_probabilities
from .scored import scored
from .tables import recognize, tables

if TYPE_CHECKING:
    from .calibration import Calibration, Measures


class SpanDecoder:
    """Valid spans and their probabilities from scores (L, M) or (B, L, M) of a token classifier.

    Args:
        labels: the names of the M labels, a list or a dictionary by index such as `id2label` of transformers.
        scheme: "BIO" (or "IOB2"), "IOB1", "BIOES", "BILOU", "BMES", "IO", or "none" (each position is a span). By
            default it is recognized from the labels, see `tables.recognize`.
        biases: `Biases`, a dictionary with their names, an operating `Point`, or a file of biases. See `spans.biases`.
        temperature: divides the scores; by default that of the operating point, or 1.
        tags: sentences with these labels, as strings, from which to tell BIO and IOB1 apart.
        word_scores: how tokens become words if `words` are given: "first", "mean" or "max", see `spans.layout`.
        point: the name of the operating point in a file of biases.

    >>> decoder = SpanDecoder(["O", "B-PER", "I-PER"], scheme="BIO")
    >>> logits = torch.tensor([[0.0, 1.0, 2.0], [0.0, 0.0, 3.0], [3.0, 0.0, 0.0]])
    >>> [span] = decoder(logits)  # argmax is I-PER I-PER O, which BIO forbids
    >>> span.start, span.end, span.label, round(span.probability, 3)
    (0, 2, 'PER', 0.843)
    >>> decoder.decode(logits)
    tensor([1, 2, 0])
    """

    def __init__(
        self,
        labels: Sequence[str] | Mapping[int, str],
        scheme: str | None = None,
        biases: Biases | Point | Mapping[str, float] | Path | str | None = None,
        temperature: float | None = None,
        *,
        tags: Iterable[Sequence[str]] | None = None,
        word_scores: str = "first",
        point: str = "default",
        crf: ChainCRF | None = None,
    ) -> None:
        if word_scores not in WORD_SCORES:
            raise ValueError(f"word_scores must be one of {', '.join(WORD_SCORES)}, got {word_scores!r}")
        self.labels = names_of(labels)
        self.scheme = recognize(self.labels, tags) if scheme is None else scheme
        self.tables = tables(self.labels, self.scheme)
        self.rules = rules(self.labels, self.scheme, self.tables)
        given = read(biases, point) if isinstance(biases, Path | str) else biases
        given = given if isinstance(given, Point) else Point(_biases(given))
        if given.biases.finish and not bool((self.rules.kinds == 3).any()):
            raise ValueError(f"biases.finish must be 0: {self.scheme} has no label for the last word of a span")
        self.biases = given.biases
        self.temperature = temperature if temperature is not None else given.temperature or 1.0
        if not (is_number(self.temperature) and self.temperature > 0):
            raise ValueError(f"temperature must be a positive number, got {temperature!r}")
        if crf is not None and word_scores != "first":
            raise ValueError(f"word_scores must be 'first' for a model with a CRF, got {word_scores!r}")
        self.word_scores, self.crf = word_scores, crf

    @classmethod
    def from_model(cls, model: Any, scheme: str | None = None, **kwargs: Any) -> "SpanDecoder":
        """A decoder with the labels of a model of transformers, `model.config.id2label`.

        A `CRFForTokenClassification` gives its own potentials. Its logits are log-marginals, which already contain the
        transitions, so give the scores before the CRF, `model.unary(...)`. `kwargs` are those of `SpanDecoder`.
        """
        crf = getattr(model, "crf", None)
        crf = crf if isinstance(crf, ChainCRF) else None
        own = getattr(model.config, "scheme", None) if crf is not None else None
        return cls(model.config.id2label, scheme or own, crf=crf, **kwargs)

    @property
    def point(self) -> Point:
        """Biases and temperature, which `point.save(path)` writes to a file."""
        return Point(self.biases, self.temperature)

    def at(self, point: Point) -> "SpanDecoder":
        """The same decoder at another operating point."""
        other = object.__new__(SpanDecoder)
        other.__dict__.update(self.__dict__, biases=point.biases, temperature=point.temperature or 1.0)
        return other

    def __call__(self, logits: Any, mask: Any = None, offsets: Any = None, words: Any = None) -> list[Any]:
        """The spans of one sequence, a list of `ScoredSpan`, or of a batch, a list of such lists.

        Args:
            logits: (L, M) or (B, L, M), a tensor or an array of numpy.
            mask: (L,) or (B, L), on at the tokens of the chain. Other tokens are removed, so their neighbours meet.
            offsets: (..., 2), the characters of each token. Spans are then in characters, and tokens without one,
                such as [CLS], are removed.
            words: the word of each token, None or -1 for none. The chain then has one position per word.
        """
        scores, units, one = self.read(logits, mask, offsets, words)
        potentials, unmasked = self.potentials(scores, units.mask)
        labels = self._best(potentials, unmasked).cpu()
        spans = [
            [] if empty else self.tables.spans(row[:length])
            for row, length, empty in zip(labels, potentials.lengths.tolist(), _empty(unmasked, labels), strict=True)
        ]
        probabilities = type_probabilities(potentials, spans, self.tables)
        batch = [
            [scored(span, row, *places) for span, row in zip(each, rows, strict=True)]
            for each, rows, places in zip(spans, probabilities, units.places(), strict=True)
        ]
        return batch[0] if one else batch

    def decode(self, logits: Any, mask: Any = None, words: Any = None) -> Any:
        """The best labelling, (L,) or (B, L), -100 at tokens that are off or do not begin a word.

        Arguments as above. For an array of numpy the result is one, too.
        """
        scores, units, one = self.read(logits, mask, None, words)
        potentials, unmasked = self.potentials(scores, units.mask)
        labels = unmasked.restore(unmasked.blank(self._best(potentials, unmasked), IGNORE))
        labels = labels[0] if one else labels
        return labels if isinstance(logits, Tensor) else labels.numpy()

    def calibrate(
        self, logits: Any, gold: Any, target: Mapping[str, float] | None = None, *, mask: Any = None, words: Any = None
    ) -> "Calibration":
        """Biases and temperature by the likelihood of held-out labels, or, from there, to a recall or a precision.

        Args:
            logits, mask, words: as above, of data on which the classifier was not trained.
            gold: the indices of their labels, (L,) or (B, L); -100 removes a position.
            target: None for the highest likelihood, or the least value of one measure of spans, such as
                {"recall": 0.95}.

        Returns the new decoder, and measures before and after on the same data, see `spans.calibration`.

        >>> decoder, logits = SpanDecoder(["O", "PER"]), torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.5]])
        >>> report = decoder.calibrate(logits, [0, 1, 1], target={"recall": 1.0})
        >>> report.before.recall, report.after.recall, report.decoder(logits)[0].label
        (0.0, 1.0, 'PER')
        """
        from .calibration import calibrate

        return calibrate(self, logits, gold, mask, words, target)

    def measure(self, logits: Any, gold: Any, *, mask: Any = None, words: Any = None) -> "Measures":
        """Loss, precision, recall, F1 and calibration error of spans on labelled data; arguments as in `calibrate`.

        >>> SpanDecoder(["O", "PER"]).measure(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), [0, 1]).f1
        1.0
        """
        from .calibration import measure

        return measure(self, logits, gold, mask, words)

    def layer(self) -> ChainCRF:
        """The decoder as a layer of torch whose unary scores are logits, such as for `integrations.export`.

        >>> decoder = SpanDecoder(["O", "B-PER", "I-PER"], "BIO", {"enter": 1.0}, temperature=2.0)
        >>> logits = torch.randn(1, 9, 3)
        >>> bool((decoder.layer().decode(logits) == decoder.decode(logits)).all())
        True
        """
        if self.crf is not None:
            raise ValueError("the decoder is that of a model with a CRF: export the model")
        names = Constraints(self.rules.allowed, self.rules.start, self.rules.end, self.labels)
        layer = ChainCRF(len(self.labels), Fixed(1 / self.temperature), names, boundaries=True)
        values = self.rules.potentials(torch.tensor(self.biases))
        layer.load_state_dict(
            {name: x.nan_to_num(neginf=0.0) for name, x in zip(("pairwise", "start", "end"), values, strict=True)},
            strict=False,
        )
        return layer.requires_grad_(False).eval()

    def potentials(self, scores: Tensor, mask: Tensor, point: Tensor | None = None) -> tuple[Potentials, Unmasked]:
        """The arguments of every function of `chain` from scores (B, L, M), and the positions that a mask keeps.

        `point`, (9,), are the biases and the log of the temperature; by default those of the decoder.
        """
        if point is None:
            point = scores.new_tensor([*self.biases, 0.0])
            point[-1] = scores.new_tensor(self.temperature).log()
        inverse, device = (-point[-1]).exp(), scores.device
        transitions, start, end = self.rules.to(device).potentials(point[:-1])
        unmasked = read_mask(mask)
        if self.crf is None:
            unary, lengths = unmasked.compact((scores * inverse).log_softmax(-1)), unmasked.lengths
        else:
            unary, pairwise, lengths = (x.to(device) for x in self.crf.potentials(scores, mask))
            unary, transitions = unary * inverse, pairwise * inverse + transitions
        row = torch.arange(len(unary), device=device)
        ends = torch.stack([torch.zeros_like(lengths), lengths - 1])  # first and last position of each sequence
        scores_of_ends = torch.stack([start, end]).to(unary.dtype)[:, None].expand(2, len(row), -1)
        unary = unmasked.blank(unary, 0).index_put((row.expand_as(ends), ends), scores_of_ends, accumulate=True)
        return Potentials(unary, transitions.to(unary.dtype), lengths), unmasked

    def read(self, logits: Any, mask: Any, offsets: Any, words: Any) -> tuple[Tensor, Layout, bool]:
        """Scores, (B, L, M), with those of words at their first tokens; where the units are; whether B was added."""
        scores = torch.as_tensor(logits).detach()
        if not scores.is_floating_point() or scores.ndim not in (2, 3) or scores.shape[-1] != len(self.labels):
            wanted = f"(L, {len(self.labels)}) or (B, L, {len(self.labels)})"
            got = f"{scores.dtype} of {tuple(scores.shape)}"
            raise ValueError(f"logits must have a floating-point dtype and the shape {wanted}, got {got}")
        one = scores.ndim == 2
        if one:
            scores = scores[None]
            mask, offsets, words = (None if x is None else _batched(x) for x in (mask, offsets, words))
        if scores.dtype not in (torch.float32, torch.float64):
            scores = scores.float()
        if scores.shape[1] == 0:
            raise ValueError(f"logits must have at least one position, got shape {tuple(scores.shape)}")
        units = layout(scores.shape[:2], mask, offsets, words, scores.device)
        bad = (scores.isnan() | (scores == torch.inf)).any(-1) & (units.unit < units.mask.numel())
        if bool(bad.any()):
            place = tuple(bad.nonzero()[0].tolist())[one:]
            raise ValueError(f"logits{list(place)} has a score that is NaN or inf: scores must be finite or -inf")
        if self.crf is not None and bool((scores.logsumexp(-1).abs() < 1e-4).all()):
            raise ValueError("logits are log-probabilities, but a model with a CRF needs model.unary(...)")
        if self.crf is None:
            scores = _relative(scores)
        if words is not None and self.word_scores != "first":
            scores = by_word(scores.log_softmax(-1), units, self.word_scores)
        return scores.masked_fill(~units.mask[..., None], 0), units, one

    def _best(self, potentials: Potentials, unmasked: Unmasked) -> Tensor:
        """The best labelling of the compact chain, (B, L), -100 beyond the length."""
        labels = chain.decode(*potentials)[0]
        impossible = unmasked.blank(labels[:, 0] == IGNORE, False)
        if bool(impossible.any()):
            number = int(impossible.nonzero()[0])
            raise ValueError(f"logits of sequence {number} allow no labelling: every one has a score of -inf")
        return labels


def _biases(given: Biases | Mapping[str, float] | None) -> Biases:
    return Biases() if given is None else Biases.of(given._asdict() if isinstance(given, Biases) else given)


def _batched(x: Any) -> Any:
    return x[None] if hasattr(x, "shape") else [x]


def _relative(scores: Tensor) -> Tensor:
    """Scores minus the best one of each position, with a bound below, so that sums of finite scores are finite."""
    floor = torch.finfo(scores.dtype).min / 2**40
    best = scores.amax(-1, keepdim=True)
    best = best.masked_fill(best == -torch.inf, 0)
    return torch.where(scores > -torch.inf, (scores - best).clamp(min=floor), scores)


def _empty(unmasked: Unmasked, labels: Tensor) -> list[bool]:
    return [False] * len(labels) if unmasked.empty is None else unmasked.empty.tolist()
