"""Words, characters and windows: one position per word, spans in characters, one chain from many windows."""

import pytest
import torch
from torch import Tensor

from equipoise import SpanDecoder
from equipoise.spans.windows import merge_windows

BIOES = ["O", "B-X", "I-X", "E-X", "S-X"]
WORDS = [None, 0, 0, 0, 1, 1, 2, None]
OFFSETS = [(0, 0), (0, 2), (2, 4), (4, 5), (6, 7), (7, 9), (10, 14), (0, 0)]
TOKENS = ((1, 2, 3), (4, 5), (6,))


def scores_of(rule: str, logits: Tensor) -> Tensor:
    """The rows of words by their definition."""
    p = logits.softmax(-1)
    if rule == "first":
        rows = [p[tokens[0]] for tokens in TOKENS]
    elif rule == "mean":
        rows = [p[list(tokens)].mean(0) for tokens in TOKENS]
    else:
        rows = [max((p[token] for token in tokens), key=lambda row: float(row.max())) for tokens in TOKENS]
    return torch.stack(rows).log()


@pytest.mark.parametrize("rule", ["first", "mean", "max"])
def test_a_word_has_one_position_and_the_scores_of_its_rule(rule: str) -> None:
    decoder, words = SpanDecoder(BIOES, word_scores=rule), 0
    for seed in range(50):
        logits = 3 * torch.randn(8, 5, dtype=torch.double, generator=torch.Generator().manual_seed(seed))
        expected = decoder(scores_of(rule, logits))
        found = decoder(logits, words=WORDS)
        assert [span[:3] for span in found] == [span[:3] for span in expected]
        assert [span.probability for span in found] == pytest.approx([span.probability for span in expected])
        characters = decoder(logits, words=WORDS, offsets=OFFSETS)
        places = [(0, 5), (6, 9), (10, 14)]
        assert [span[:2] for span in characters] == [(places[s.start][0], places[s.end - 1][1]) for s in expected]
        labels = decoder.decode(logits, words=WORDS)
        assert labels[[1, 4, 6]].tolist() == decoder.decode(scores_of(rule, logits)).tolist()
        assert labels[[0, 2, 3, 5, 7]].tolist() == [-100] * 5
        words += len(found)
    assert words > 30


def test_tokens_without_characters_are_left_out() -> None:
    decoder = SpanDecoder(BIOES)
    logits = torch.zeros(8, 5)
    logits[:, 4] = 5.0
    assert [span[:2] for span in decoder(logits, offsets=OFFSETS)] == OFFSETS[1:7]
    batch = decoder(logits.expand(2, 8, 5), offsets=[OFFSETS] * 2, words=[WORDS] * 2, mask=[[1] * 4 + [0] * 4, [0] * 8])
    assert [[span[:2] for span in each] for each in batch] == [[(0, 5)], []]


def test_a_masked_token_does_not_begin_a_second_word() -> None:
    """A word whose first token is off is represented by its next one, and an unlabelled gap does not cut a word."""
    decoder = SpanDecoder(BIOES)
    labels = decoder.decode(torch.zeros(4, 5), mask=[0, 1, 0, 1], words=[0, 0, 0, 0])
    assert (labels >= 0).tolist() == [False, True, False, False]


def test_the_window_with_the_most_context_counts() -> None:
    """Of every token, by the definition, for windows of any size and order."""
    for seed in range(200):
        chance = torch.Generator().manual_seed(seed)
        size = int(torch.randint(1, 9, (), generator=chance))
        step, length = (
            int(torch.randint(1, max(size, 2), (), generator=chance)),
            int(torch.randint(1, 40, (), generator=chance)),
        )
        starts = range(0, max(length - size, 0) + step, step)
        tokens = torch.tensor([[t if t < length else -1 for t in range(a, a + size)] for a in starts])
        tokens = torch.nn.functional.pad(tokens, (1, 1), value=-1)  # [CLS] and [SEP]
        scores = torch.randn(*tokens.shape, 3, generator=chance)
        expected = []
        for t in range(length):
            rows = {}
            for w, row in enumerate(tokens.tolist()):
                inside = [x for x in row if x >= 0]
                if t in inside:
                    left = length if inside[0] == 0 else t - inside[0]
                    right = length if inside[-1] == length - 1 else inside[-1] - t
                    rows[w] = min(left, right)
            w = max(rows, key=rows.__getitem__)
            expected.append(scores[w, tokens[w].tolist().index(t)])
        assert merge_windows(scores, tokens).equal(torch.stack(expected))
        assert merge_windows(scores.numpy(), tokens.tolist()).equal(torch.stack(expected))
    with pytest.raises(TypeError, match=r"tokens must be integers, got torch\.float32"):
        merge_windows(torch.zeros(1, 2, 3), torch.tensor([[0.0, 1.0]]))
    with pytest.raises(ValueError, match="1 is missing"):
        merge_windows(torch.zeros(1, 2, 3), torch.tensor([[0, 2]]))
