"""The tagger equals a plain one that reads each word and each sentence by itself: what fills up a batch has no say."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import functional_call

from equipoise.nets import bilstm
from equipoise.nets.bilstm import BiLSTM
from equipoise.nets.tagger import CHARACTERS, Tagger, Words

WAYS = {"packed": bilstm.packed, "gated": bilstm.gated}


def one_by_one(net: BiLSTM, x: Tensor, lengths: Tensor) -> list[Tensor]:
    """PyTorch's own two-layer net on each sequence alone."""
    state, inputs = net.layers[0].hidden_size, net.layers[0].input_size
    plain = nn.LSTM(inputs, state, len(net.layers), batch_first=True, bidirectional=True).to(x.dtype)
    named = {f"{n[:-1]}{i}" if n[-1] == "0" else n.replace("l0_", f"l{i}_"): p for i, layer in enumerate(net.layers)
             for n, p in layer.named_parameters()}  # fmt: skip
    return [functional_call(plain, named, (row[None, :n],))[0][0] for row, n in zip(x, lengths.tolist(), strict=True)]


@pytest.mark.parametrize("way", WAYS)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=5), st.integers(0, 2), st.integers(0, 99))
def test_each_sequence_is_read_as_if_alone(way: str, lengths: list[int], more: int, seed: int) -> None:
    """Values, and the gradients of inputs and of all weights; what is beyond the end is large, and gets no gradient."""
    torch.manual_seed(seed)
    net, sizes = BiLSTM(3, 4).double(), torch.tensor(lengths)
    beyond = torch.arange(max(lengths) + more) >= sizes[:, None]
    x = torch.randn(*beyond.shape, 3, dtype=torch.float64).masked_fill(beyond[..., None], 50.0).requires_grad_()
    got = WAYS[way](net.layers, x, sizes)
    want = one_by_one(net, x, sizes)
    weights = [torch.randn_like(states) for states in want]
    for row, states in zip(got, want, strict=True):
        torch.testing.assert_close(row[: len(states)], states)
    asked = [x, *net.parameters()]
    losses = [
        sum((row[: len(w)] * w).sum() for row, w in zip(rows, weights, strict=True)) for rows in (list(got), want)
    ]
    a, b = (torch.autograd.grad(loss, asked) for loss in losses)
    for mine, theirs in zip(a, b, strict=True):
        torch.testing.assert_close(mine, theirs)
    assert not bool(a[0][beyond].any())


def test_gated_in_single_precision_is_exact_about_the_filling() -> None:
    """Bit for bit: the filling adds nothing that rounds away, it adds nothing."""
    torch.manual_seed(0)
    net, x, lengths = BiLSTM(3, 4), torch.randn(2, 6, 3), torch.tensor([2, 4])
    changed = x.masked_fill((torch.arange(6) >= lengths[:, None])[..., None], -30.0)
    for a, b, n in zip(
        bilstm.gated(net.layers, x, lengths), bilstm.gated(net.layers, changed, lengths), [2, 4], strict=True
    ):
        assert torch.equal(a[:n], b[:n])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_as_on_the_cpu() -> None:
    torch.manual_seed(0)
    net, x, lengths = BiLSTM(3, 4), torch.randn(3, 6, 3), torch.tensor([2, 6, 1])
    want = net(x, lengths)
    with torch.backends.cudnn.flags(allow_tf32=False):
        got = net.cuda()(x.cuda(), lengths.cuda()).cpu()
    for a, b, n in zip(got, want, lengths.tolist(), strict=True):
        torch.testing.assert_close(a[:n], b[:n])


def test_ends_are_the_last_states_of_both_directions() -> None:
    torch.manual_seed(0)
    layer, x, lengths = BiLSTM(3, 4, layers=1), torch.randn(3, 5, 3), torch.tensor([5, 1, 3])
    got = bilstm.ends(layer(x, lengths), lengths)
    for i, n in enumerate(lengths.tolist()):
        _, (last, _) = layer.layers[0](x[i : i + 1, :n])
        torch.testing.assert_close(got[i], last[:, 0].flatten())


def made(head: str) -> tuple[Tagger, dict[str, Tensor]]:
    with torch.device("meta"):
        net = Tagger(5, 4, head, hidden=7)
    return net, {name: x.double() for name, x in net.init(torch.Generator().manual_seed(1)).items()}


def batch() -> Words:
    """Sentences of 3 and 1 words out of 3, of which the second is unknown; the fourth is filling."""
    generator = torch.Generator().manual_seed(2)
    sizes = torch.tensor([4, 2, 1, 1])
    characters = torch.randint(1, CHARACTERS, (4, 5), generator=generator)
    characters = characters.masked_fill(torch.arange(5) >= sizes[:, None], 0)
    vectors = torch.randn(4, 50, generator=generator, dtype=torch.float64)
    known = torch.tensor([True, False, True, True])
    words, speech = torch.tensor([[1, 0, 1], [2, 3, 3]]), torch.tensor([[1, 2, 3], [0, 0, 0]])
    return Words(characters, sizes, vectors, known, words, speech, torch.tensor([3, 1]))


def plain(parameters: dict[str, Tensor], head: str, words: Words) -> list[Tensor]:
    """§6.1 as it is written, for one sentence after the other and one word after the other."""

    def lstm(prefix: str, x: Tensor) -> Tensor:
        states = int(parameters[f"{prefix}.layers.0.weight_hh_l0"].shape[1])
        net = BiLSTM(x.shape[-1], states).double()
        own = {n.removeprefix(prefix + "."): p for n, p in parameters.items() if n.startswith(prefix)}
        for name, p in net.named_parameters():
            p.data.copy_(own[name])
        return one_by_one(net, x[None], torch.tensor([len(x)]))[0]

    scores = []
    for row, speech, length in zip(words.words, words.speech, words.lengths.tolist(), strict=True):
        features = []
        for word, pos in zip(row[:length].tolist(), speech.tolist(), strict=False):
            spelled = lstm("spelling", parameters["characters.weight"][words.characters[word, : words.sizes[word]]])
            vector = words.vectors[word] if words.known[word] else parameters["unknown"]
            read = [spelled[-1, :50], spelled[0, 50:], vector, parameters["speech.weight"][pos]]
            features.append(torch.cat(read))
        x = torch.stack(features)
        assert x.shape == (length, 160)
        if head == "bilstm":
            x = lstm("context", x)
        else:
            x = torch.relu(x @ parameters["hidden.weight"].T + parameters["hidden.bias"])
        scores.append(x @ parameters["output.weight"].T + parameters["output.bias"])
    return scores


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("head", ["linear", "bilstm"])
def test_the_whole_net_word_by_word(head: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bilstm, "packed", WAYS[way])  # what the CPU runs
    net, parameters = made(head)
    got = functional_call(net, parameters, (batch(),))
    assert got.shape == (2, 3, 5)
    for mine, want in zip(got, plain(parameters, head, batch()), strict=True):
        torch.testing.assert_close(mine[: len(want)], want)


def test_the_sizes_of_the_paper() -> None:
    """Characters 10, BiLSTMs of 2 layers with states of 50 and 300, words 50, parts of speech 10."""
    for head in ("linear", "bilstm"):
        shapes = {name: tuple(x.shape) for name, x in made(head)[0].named_parameters()}
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


def test_initial_values_are_those_of_torchs_own_layers() -> None:
    net, _ = made("bilstm")
    drawn = net.init(torch.Generator().manual_seed(0))
    real = Tagger(5, 4, "bilstm")
    assert {name: x.shape for name, x in drawn.items()} == {n: x.shape for n, x in real.named_parameters()}
    for name, x in real.named_parameters():
        if x.numel() > 100:
            assert float(drawn[name].std()) == pytest.approx(float(x.detach().std()), rel=0.25), name
        if "layers" in name or "output" in name:
            bound = 1 / math.sqrt(600 if "output" in name else 300 if "context" in name else 50)
            assert (0.9 if x.numel() > 100 else 0) * bound < float(drawn[name].abs().max()) <= bound


def test_initial_values_come_from_the_generator_alone() -> None:
    net, _ = made("linear")
    a, b, c = (net.init(torch.Generator().manual_seed(seed)) for seed in (5, 5, 6))
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert not any(torch.equal(a[name], c[name]) for name in a)


def test_unknown_words_share_the_vector_that_is_learned() -> None:
    net, parameters = made("linear")
    leaves = {name: x.requires_grad_() for name, x in parameters.items()}
    scores = functional_call(net, leaves, (batch(),))
    known = torch.autograd.grad(scores[1, 0].sum(), leaves["unknown"], retain_graph=True)[0]
    unknown = torch.autograd.grad(scores[0, 0].sum(), leaves["unknown"])[0]
    assert not bool(known.any())
    assert bool(unknown.any())


def test_no_such_head() -> None:
    with pytest.raises(ValueError, match="head must be one of linear, bilstm, got 'gru'"):
        Tagger(5, 4, "gru")
    with pytest.raises(ValueError, match="hidden must be at least 1, got 0"):
        Tagger(5, 4, hidden=0)
