"""The tagger equals a reference that reads each word and each sentence alone, for each replica alone."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from equipoise_lab.nets import bilstm
from equipoise_lab.nets.recurrence import Rows
from equipoise_lab.nets.tagger import CHARACTERS, Tagger, Words

WAYS = {"packed": bilstm.packed, "together": bilstm.together}
REPLICAS = 2


def made(head: str, window: int = 0, around: str = "words") -> tuple[Tagger, dict[str, Tensor]]:
    net = Tagger(5, 4, head, 7, window, around)
    each = [net.init(torch.Generator().manual_seed(seed)) for seed in range(REPLICAS)]
    return net, {name: torch.stack([one[name] for one in each]).double() for name in net.shapes}


def batch() -> Words:
    """Two sentences per replica, of 3 and 1 words, from 3 distinct words; the second is unknown, the fourth padding."""
    generator = torch.Generator().manual_seed(2)
    sizes = torch.tensor([[4, 2, 1, 0], [3, 3, 2, 0]])
    spelling = Rows(torch.where(sizes > 0, sizes.cumsum(-1) - sizes, 0), sizes, longest=6)
    characters = torch.randint(1, CHARACTERS, (REPLICAS, 9), generator=generator)
    vectors = torch.randn(REPLICAS, 4, 50, generator=generator, dtype=torch.float64)
    known = torch.tensor([True, False, True, True]).expand(REPLICAS, -1)
    words, speech = torch.tensor([[1, 0, 1], [2, 3, 3]]), torch.tensor([[1, 2, 3], [0, 0, 0]])
    words = torch.stack([words, torch.tensor([[0, 2, 1], [1, 3, 3]])])
    lengths = torch.tensor([3, 1]).expand(REPLICAS, -1)
    return Words(characters, spelling, vectors, known, words, speech.expand(REPLICAS, -1, -1), lengths)


def plain(
    parameters: dict[str, Tensor], head: str, words: Words, e: int, window: int = 0, around: str = "words"
) -> list[Tensor]:
    """The reference implementation of §6.1, one sentence and one word at a time."""
    mine = {name: x[e] for name, x in parameters.items()}

    def lstm(prefix: str, x: Tensor) -> Tensor:
        state = int(mine[f"{prefix}.layers.0.weight_hh_l0"].shape[1])
        net = nn.LSTM(x.shape[-1], state, 2, batch_first=True, bidirectional=True).double()
        own = {n.split(".")[-1].replace("_l0", f"_l{n.split('.')[2]}"): p for n, p in mine.items() if prefix in n}
        return functional_call(net, own, (x[None],))[0][0]

    weight = torch.cat(
        [mine[name] for name in ("hidden.weight", "around.weight") if name in mine] or [torch.empty(0)], -1
    )
    scores = []
    for row, speech, length in zip(words.words[e], words.speech[e], words.lengths[e].tolist(), strict=True):
        features = []
        for word, pos in zip(row[:length].tolist(), speech.tolist(), strict=False):
            start, size = int(words.spelling.starts[e, word]), int(words.spelling.lengths[e, word])
            spelled = lstm("spelling", mine["characters.weight"][words.characters[e, start : start + size]])
            vector = words.vectors[e, word] if words.has_vector[e, word] else mine["unknown"]
            features.append(torch.cat([spelled[-1, :50], spelled[0, 50:], vector, mine["speech.weight"][pos]]))
        x = torch.stack(features)
        assert x.shape == (length, 160)
        if window:
            seen = x if around == "words" else x[:, 150:]
            none = seen.new_zeros(window, seen.shape[-1])
            rows = torch.cat([none, seen, none])
            offsets = [offset for offset in range(2 * window + 1) if offset != window]
            x = torch.cat([x, *(rows[offset : offset + length] for offset in offsets)], -1)
        x = lstm("context", x) if head == "bilstm" else torch.relu(x @ weight.T + mine["hidden.bias"])
        scores.append(x @ mine["output.weight"].T + mine["output.bias"])
    return scores


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("head", ["linear", "bilstm"])
def test_scores_equal_the_reference(head: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bilstm, "packed", WAYS[way])  # the implementation that the CPU uses
    net, parameters = made(head)
    got = net(parameters, batch())
    assert got.shape == (REPLICAS, 2, 3, 5)
    for e in range(REPLICAS):
        for mine, want in zip(got[e], plain(parameters, head, batch(), e), strict=True):
            torch.testing.assert_close(mine[: len(want)], want)


@pytest.mark.parametrize(("window", "around"), [(1, "words"), (2, "words"), (1, "speech")])
def test_scores_with_a_window_equal_the_reference(window: int, around: str) -> None:
    """Windows also reach beyond both ends of a sentence."""
    net, parameters = made("linear", window, around)
    got = net(parameters, batch())
    for e in range(REPLICAS):
        want_each = plain(parameters, "linear", batch(), e, window, around)
        for mine, want in zip(got[e], want_each, strict=True):
            torch.testing.assert_close(mine[: len(want)], want)


def test_a_window_changes_no_other_initial_value_but_the_bound() -> None:
    """The hidden layer has more inputs."""
    alone, window = (made("linear", window)[0] for window in (0, 1))
    a, b = (net.init(torch.Generator().manual_seed(0)) for net in (alone, window))
    assert window.shapes["around.weight"] == (7, 2 * 160)
    assert torch.equal(a["speech.weight"], b["speech.weight"])
    torch.testing.assert_close(a["hidden.weight"], b["hidden.weight"] * 3**0.5)
    assert float(b["around.weight"].abs().max()) <= 480**-0.5


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("head", ["linear", "bilstm"])
def test_the_gpu_equals_the_cpu(head: str) -> None:
    """Scores and gradients, in float32 on the GPU and float64 on the CPU."""
    net, parameters = made(head)
    weights = torch.randn(2, 3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    inside = (torch.arange(3) < batch().lengths[0][:, None])[..., None]

    def values_and_gradients(device: str, dtype: torch.dtype) -> list[Tensor]:
        leaves = {n: x.to(device, dtype).requires_grad_() for n, x in parameters.items()}
        there = [Rows(*(y.to(device) for y in x[:2]), x[2]) if isinstance(x, Rows) else x.to(device) for x in batch()]
        words = Words(*there)
        words = words._replace(vectors=words.vectors.to(dtype))
        scores = net(leaves, words) * (weights * inside).to(device, dtype)
        return [x.cpu().double() for x in (scores.detach(), *torch.autograd.grad(scores.sum(), list(leaves.values())))]

    found, wanted = values_and_gradients("cuda", torch.float32), values_and_gradients("cpu", torch.float64)
    for got, want in zip(found, wanted, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def test_sizes_equal_those_of_the_paper() -> None:
    """Characters 10, BiLSTMs of 2 layers with states of 50 and 300, words 50, parts of speech 10."""
    for head in ("linear", "bilstm"):
        shapes = made(head)[0].shapes
        assert shapes["characters.weight"] == (129, 10)
        assert shapes["spelling.layers.1.weight_hh_l0_reverse"] == (200, 50)
        assert shapes["unknown"] == (50,)
        assert shapes["speech.weight"] == (4, 10)
        if head == "bilstm":
            assert shapes["context.layers.0.weight_ih_l0"] == (1200, 160)
            assert shapes["context.layers.1.weight_ih_l0"] == (1200, 600)
            assert shapes["output.weight"] == (5, 600)
        else:
            assert (shapes["hidden.weight"], shapes["output.weight"]) == ((7, 160), (5, 7))
        assert any("spelling.layers.1" in name for name in shapes)
        assert not any("layers.2" in name for name in shapes)


def test_initial_values_have_the_distribution_of_torchs_layers() -> None:
    drawn = made("bilstm")[0].init(torch.Generator().manual_seed(0))
    layers = {
        "characters": nn.Embedding(CHARACTERS, 10),
        "speech": nn.Embedding(4, 10),
        "output": nn.Linear(600, 5),
        "spelling.layers.0": nn.LSTM(10, 50, bidirectional=True),
        "context.layers.1": nn.LSTM(600, 300, bidirectional=True),
    }
    for layer, real in layers.items():
        for part, x in real.named_parameters():
            name = f"{layer}.{part}"
            assert drawn[name].shape == x.shape
            if x.numel() > 100:
                assert float(drawn[name].std()) == pytest.approx(float(x.detach().std()), rel=0.25), name
            if not isinstance(real, nn.Embedding):
                bound = 1 / math.sqrt({"output": 600, "spelling.layers.0": 50, "context.layers.1": 300}[layer])
                assert (0.9 if x.numel() > 100 else 0) * bound < float(drawn[name].abs().max()) <= bound


def test_initial_values_depend_only_on_the_generator() -> None:
    net, _ = made("linear")
    a, b, c = (net.init(torch.Generator().manual_seed(seed)) for seed in (5, 5, 6))
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert not any(torch.equal(a[name], c[name]) for name in a)


def test_unknown_words_share_one_learned_vector() -> None:
    net, parameters = made("linear")
    leaves = {name: x.requires_grad_() for name, x in parameters.items()}
    scores = net(leaves, batch())
    known = torch.autograd.grad(scores[0, 1, 0].sum(), leaves["unknown"], retain_graph=True)[0]
    unknown = torch.autograd.grad(scores[0, 0, 0].sum(), leaves["unknown"])[0]
    assert not bool(known.any())
    assert bool(unknown[0].any())
    assert not bool(unknown[1].any())  # another replica's


def test_invalid_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="head must be one of linear, bilstm, got 'gru'"):
        Tagger(5, 4, "gru")
    with pytest.raises(ValueError, match="hidden must be at least 1, got 0"):
        Tagger(5, 4, hidden=0)
    with pytest.raises(
        ValueError, match="expected a window of linear, from 0 on, around one of words, speech, got 1 of b"
    ):
        Tagger(5, 4, "bilstm", window=1)
