"""A compiled loss or prediction of a layer is one node of the program, and equals that of eager mode."""

from typing import Any

import pytest
import torch
import torch._dynamo.testing
from torch import Tensor

from equipoise import ChainCRF, constraints, scaling
from equipoise.crf.cpu import prepare as cpu
from equipoise.scaling.kernel_state import FIXED, LEARNED, LEARNING

pytestmark = pytest.mark.skipif(cpu.library(torch.float32) is None, reason="there is no C compiler")
OPERATORS = torch.ops.equipoise
BIO = constraints.from_labels(["O", "B-X", "I-X"], "BIO")
METHODS = {"Fixed": lambda: scaling.Fixed(2.0), "Learned": scaling.Learned}
HOLES = torch.tensor([[True, False, True, True, False], [False] * 5, [True] * 5])
LABELS = torch.tensor([[1, 2, 0, 1, 0], [0] * 5, [1, 2, -100, 0, 1]])


def layer(method: str, **options: Any) -> ChainCRF:
    generator = torch.Generator().manual_seed(0)
    crf = ChainCRF(
        3, METHODS[method](), options.pop("constraints", BIO), boundaries=True, generator=generator, **options
    )
    with torch.no_grad():
        crf.pairwise.add_(0.1)
    return crf


def scores(dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(3, 5, 3, generator=torch.Generator().manual_seed(1)).to(dtype).requires_grad_()


def compiled(function: Any) -> tuple[Any, list[str]]:
    """The function, compiled, and the names of our operators in its programs."""
    called: list[str] = []

    def add(program: torch.fx.GraphModule) -> None:
        targets = [str(x.target) for x in program.graph.nodes if x.op == "call_function"]
        called.extend(target for target in targets if "equipoise" in target)

    def backend(program: torch.fx.GraphModule, inputs: list[Tensor]) -> Any:
        add(program)
        for body in program.children():  # of functions of autograd
            add(body)
        return torch._dynamo.lookup_backend("aot_eager")(program, inputs)

    torch._dynamo.reset()
    return torch.compile(function, fullgraph=True, backend=backend), called


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("objective", ["likelihood", "marginal"])
def test_training(method: str, objective: str) -> None:
    """Losses, gradients and the state of scaling, with holes, an empty sequence, constraints and boundaries."""
    results = []
    for compiles in (False, True):
        crf, unary = layer(method, objective=objective), scores()
        loss, called = compiled(crf.loss) if compiles else (crf.loss, [])
        values = []
        for reduction in ("mean", "sum", "token_mean"):
            for weight in (1.0, -3.0):
                value = loss(unary, LABELS, HOLES, reduction=reduction)
                (weight * value).backward()
                values.append(value.detach())
        results.append([*values, unary.grad, *(x.grad for x in crf.parameters()), *crf.state_dict().values()])
    torch.testing.assert_close(*results)
    assert called == ["equipoise.layer_loss"] * 3


@pytest.mark.parametrize("method", METHODS)
def test_prediction(method: str) -> None:
    crf, unary = layer(method).eval(), scores().detach()
    decode, called = compiled(crf.decode)
    for rule in ("map", "marginal"):
        assert torch.equal(decode(unary, HOLES, rule), crf.decode(unary, HOLES, rule))
    assert called == ["equipoise.layer_decode"] * 2
    loss, called = compiled(crf.loss)
    with torch.no_grad():
        torch.testing.assert_close(loss(unary, LABELS, HOLES), crf.loss(unary, LABELS, HOLES))
    assert called == ["equipoise.layer_loss"]


def test_half_precision() -> None:
    """The gradient is rounded after it is multiplied: a scale of the loss keeps it from underflow."""
    crf, unary = layer("Learned"), scores(torch.float16)
    loss, _ = compiled(crf.loss)
    (loss(unary, LABELS, HOLES) * 2.0**-10 * 2.0**10).backward()
    other, eager = layer("Learned"), scores(torch.float16)
    other.loss(eager, LABELS, HOLES).backward()
    assert unary.grad.dtype == torch.float16
    torch.testing.assert_close(unary.grad, eager.grad)


def test_labels_that_kernels_refuse() -> None:
    """Labels out of range raise when the program runs. Forbidden ones have an infinite loss, as without values."""
    crf = layer("Fixed")
    loss, _ = compiled(crf.loss)
    wrong = LABELS.clone()
    wrong[0, 2] = 3
    with pytest.raises(ValueError, match=r"labels\[0, 2\] is 3, but labels of valid positions must be"):
        loss(scores(), wrong, HOLES)
    wrong[0, 2] = 2
    wrong[0, 0] = 0  # O before I-X
    crf.validate = False
    torch.testing.assert_close(loss(scores(), wrong, HOLES, reduction="sum"), torch.tensor(torch.inf))
    assert crf.loss(scores(), wrong, HOLES, reduction="sum") == torch.inf


def test_what_has_no_operator_is_traced() -> None:
    for options in ({"on_invalid": "repair"}, {"objective": "margin"}):
        loss, called = compiled(layer("Learned", **options).loss)
        want = layer("Learned", **options).loss(scores(), LABELS, HOLES)
        torch.testing.assert_close(loss(scores(), LABELS, HOLES), want)
        assert not any("layer" in name for name in called)


@pytest.mark.parametrize("kind", [FIXED, LEARNED, LEARNING])
def test_operators_pass_the_checks_of_torch(kind: int) -> None:
    crf = layer("Fixed" if kind == FIXED else "Learned")
    own = crf.pairwise, crf.start, crf.end, crf.allowed_transitions, crf.allowed_start, crf.allowed_end
    state = list(crf.scaling.kernel_state().tensors)
    loss = (scores(), *own, HOLES, LABELS, state, 1000, kind, "likelihood", "mean", False)
    checks = ["test_schema", "test_faketensor"]
    torch.library.opcheck(
        OPERATORS.layer_loss.default, [x.detach() if isinstance(x, Tensor) else x for x in loss], test_utils=checks
    )
    for in_place in (True, False):
        given = (scores().detach(), *own, HOLES, state, 1000, kind, "map", in_place)
        torch.library.opcheck(OPERATORS.layer_decode.default, given, test_utils=checks)
