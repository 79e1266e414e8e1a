"""torch.export of decoding, with a mask, for any batch size and length."""

import importlib.util
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, export

from equipoise import ChainCRF, chain, constraints, scaling
from equipoise.crf import scanning

BIO = constraints.from_labels(["O", "B-X", "I-X", "B-Y", "I-Y"], "BIO")


def learned() -> ChainCRF:
    """After one step of training."""
    crf = ChainCRF(5, scaling.Learned(), BIO, boundaries=True)
    crf.loss(7 * torch.randn(4, 6, 5), torch.zeros(4, 6, dtype=torch.int64)).backward()
    return crf.eval()


LAYERS: dict[str, Callable[[], ChainCRF]] = {
    "map": lambda: ChainCRF(5, boundaries=True),
    "constrained": lambda: ChainCRF(5, constraints=BIO),
    "offline": lambda: ChainCRF(5, scaling.Offline(2.0), BIO),
    "learned": learned,
    "marginal": lambda: ChainCRF(5, objective="marginal"),
    "unary": lambda: ChainCRF(5, objective="unary"),
}
SHAPES = [(3, 7), (2, 4), (8, 40), (1, 5), (4, 1), (1, 1)]


class Tagger(nn.Module):
    def __init__(self, crf: ChainCRF, answer: str = "decode") -> None:
        super().__init__()
        self.crf, self.answer = crf, answer

    def forward(self, unary: Tensor, mask: Tensor | None = None) -> Tensor:
        return getattr(self.crf, self.answer)(unary, mask)


def example(b: int, length: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Scores, and masks with holes, some without any position."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(b, length, 5, generator=generator), torch.rand(b, length, generator=generator) < 0.6


def dynamic(count: int) -> tuple[dict[int, Dim], ...]:
    return ({0: Dim("batch"), 1: Dim("length")},) * count


@pytest.mark.parametrize("name", LAYERS)
def test_labels_equal_those_of_eager_mode_for_any_shape(name: str) -> None:
    torch.manual_seed(0)
    tagger = Tagger(LAYERS[name]())
    program = export(tagger, example(3, 7), dynamic_shapes=dynamic(2)).module()
    for b, length in SHAPES:
        unary, mask = example(b, length, seed=1)
        got = program(unary, mask)
        assert torch.equal(got, tagger(unary, mask))
        assert bool((got[~mask] == -100).all())


class Scorer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pairwise = nn.Parameter(torch.randn(5, 5))

    def forward(self, unary: Tensor, labels: Tensor) -> Tensor:
        return chain.score(unary, self.pairwise, labels)


def test_scores_of_any_length() -> None:
    """Also with more positions than labels, where the gradient of a score is computed in another way in eager mode."""
    scorer, shapes = Scorer(), ({0: Dim("batch"), 1: Dim("length", min=3)},) * 2
    labels = torch.randint(5, (3, 4))
    program = export(scorer, (example(3, 4)[0], labels), dynamic_shapes=shapes).module()
    for b, length in ((2, 3), (8, 40)):
        unary, labels = example(b, length)[0], torch.randint(5, (b, length))
        torch.testing.assert_close(program(unary, labels), scorer(unary, labels))


def test_without_a_mask() -> None:
    tagger = Tagger(LAYERS["map"]())
    program = export(tagger, example(3, 7)[:1], dynamic_shapes=dynamic(1)).module()
    for b, length in SHAPES:
        unary, _ = example(b, length, seed=1)
        assert torch.equal(program(unary), tagger(unary))


@pytest.mark.parametrize("name", ["constrained", "learned"])
def test_log_marginals(name: str) -> None:
    tagger = Tagger(LAYERS[name](), "log_marginals")
    program = export(tagger, example(3, 7), dynamic_shapes=dynamic(2)).module()
    for b, length in SHAPES:
        unary, mask = example(b, length, seed=1)
        torch.testing.assert_close(program(unary, mask), tagger(unary, mask))


def test_no_sort_in_the_graph() -> None:
    """ONNX has no stable sort."""
    program = export(Tagger(LAYERS["map"]()), example(3, 7))
    operators = {str(node.target) for node in program.graph.nodes}
    assert not [name for name in operators if "sort" in name]


@pytest.mark.parametrize("shared", [True, False])
def test_the_scans_equal_the_functions_of_chain(shared: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    unary = torch.randn(4, 6, 3, generator=generator)
    pairwise = torch.randn(3, 3, generator=generator) if shared else torch.randn(4, 3, 3, generator=generator)
    pairwise[..., 0, 1] = -torch.inf
    unary[3, 1] = -torch.inf  # no labelling is allowed
    lengths = torch.tensor([6, 3, 1, 5])
    assert torch.equal(scanning.decode(unary, pairwise, lengths), chain.decode(unary, pairwise, lengths)[0])
    torch.testing.assert_close(
        scanning.log_marginals(unary, pairwise, lengths), chain.log_marginals(unary, pairwise, lengths)
    )


@pytest.mark.slow
@pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("onnx", "onnxscript", "onnxruntime"))), reason="needs onnxruntime"
)
def test_onnx(tmp_path) -> None:
    import onnxruntime

    tagger, path = Tagger(LAYERS["constrained"]()).eval(), str(tmp_path / "tagger.onnx")
    torch.onnx.export(tagger, example(3, 7), path, dynamo=True, dynamic_shapes=dynamic(2))
    session = onnxruntime.InferenceSession(path)
    for b, length in SHAPES:
        unary, mask = example(b, length, seed=1)
        names = [x.name for x in session.get_inputs()]
        (got,) = session.run(None, dict(zip(names, (unary.numpy(), mask.numpy()), strict=True)))
        assert torch.equal(torch.from_numpy(got), tagger(unary, mask))
