"""The drop-in CRF against pytorch-crf, the oracle, and against enumeration for masks with holes."""

import copy
import itertools

import pytest
import torch
import torchcrf
from enumeration import chains
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from equipoise.compat.torchcrf import CRF, to_chain_crf

pytestmark = pytest.mark.filterwarnings("ignore:where received a uint8 condition tensor")  # from pytorch-crf

REDUCTIONS = ["none", "sum", "mean", "token_mean"]
Modules = tuple[CRF, torchcrf.CRF]
Batch = tuple[Tensor, Tensor, Tensor | None]


def pair(num_tags: int, batch_first: bool = False, scale: float = 1.0) -> Modules:
    """Both modules in float64 with the same random parameters."""
    oracle = torchcrf.CRF(num_tags, batch_first).double()
    for parameter in oracle.parameters():
        torch.nn.init.normal_(parameter, std=scale)
    ours = CRF(num_tags, batch_first).double()
    ours.load_state_dict(oracle.state_dict())
    return ours, oracle


@st.composite
def cases(draw: st.DrawFn) -> tuple[Modules, Batch]:
    """Both modules, emissions, tags, and a mask that keeps a prefix of each sequence, or no mask."""
    torch.manual_seed(draw(st.integers(0, 2**32)))
    batch, length, num_tags = draw(st.integers(1, 4)), draw(st.integers(1, 7)), draw(st.integers(1, 5))
    scale = draw(st.sampled_from([0.1, 1.0, 10.0]))
    batch_first = draw(st.booleans())
    emissions = scale * torch.randn(batch, length, num_tags, dtype=torch.float64)
    tags = torch.randint(num_tags, (batch, length))
    mask = torch.arange(length) < torch.randint(1, length + 1, (batch, 1))
    kind = draw(st.sampled_from([torch.bool, torch.uint8, None]))
    if not batch_first:
        emissions, tags, mask = (x.transpose(0, 1) for x in (emissions, tags, mask))
    return pair(num_tags, batch_first, scale), (emissions, tags, None if kind is None else mask.to(kind))


def value_and_gradients(crf: torch.nn.Module, batch: Batch, reduction: str) -> dict[str, Tensor]:
    emissions = batch[0].detach().requires_grad_()
    value = crf(emissions, *batch[1:], reduction=reduction)
    wanted = {"emissions": emissions, **dict(crf.named_parameters())}
    # Different weights distinguish the sequences for reduction "none".
    weight = torch.linspace(1, 2, value.numel(), dtype=value.dtype).reshape(value.shape)
    gradients = torch.autograd.grad(value, [*wanted.values()], weight, materialize_grads=True)
    return {"value": value.detach(), **dict(zip(wanted, gradients, strict=True))}


@pytest.mark.parametrize("reduction", REDUCTIONS)
@given(case=cases())
def test_log_likelihood_and_gradients_equal_those_of_the_oracle(reduction: str, case: tuple[Modules, Batch]) -> None:
    (ours, oracle), batch = case
    actual, expected = (value_and_gradients(crf, batch, reduction) for crf in (ours, oracle))
    for name, x in expected.items():
        torch.testing.assert_close(actual[name], x, rtol=1e-9, atol=1e-9, msg=lambda m, name=name: f"{name}: {m}")


def path_score(crf: CRF, emissions: Tensor, path: list[int]) -> float:
    """The score of a path over the first positions of one sequence (L, M), by definition."""
    terms = [crf.start_transitions[path[0]], crf.end_transitions[path[-1]]]
    terms += [emissions[t, y] for t, y in enumerate(path)]
    terms += [crf.transitions[i, j] for i, j in itertools.pairwise(path)]
    return sum(float(x.detach()) for x in terms)


@given(cases())
def test_decoded_paths_score_as_high_as_those_of_the_oracle(case: tuple[Modules, Batch]) -> None:
    (ours, oracle), (emissions, _, mask) = case
    rows = emissions if ours.batch_first else emissions.transpose(0, 1)
    actual, expected = ours.decode(emissions, mask), oracle.decode(emissions, mask)
    assert [len(path) for path in actual] == [len(path) for path in expected]
    for row, a, b in zip(rows, actual, expected, strict=True):
        assert path_score(ours, row, a) == pytest.approx(path_score(ours, row, b), rel=1e-12, abs=1e-12)
    assert all(type(y) is int for path in actual for y in path)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_an_empty_batch(reduction: str) -> None:
    ours, oracle = pair(3)
    emissions, tags = torch.zeros(4, 0, 3, dtype=torch.float64), torch.zeros(4, 0, dtype=torch.int64)
    expected = oracle(emissions, tags, reduction=reduction)
    torch.testing.assert_close(ours(emissions, tags, reduction=reduction), expected, equal_nan=True)
    assert ours.decode(emissions) == oracle.decode(emissions) == []


HOLES = torch.tensor([[1, 0, 1, 1, 0], [1, 1, 0, 0, 1], [1, 0, 0, 0, 0], [1, 1, 1, 1, 1]], dtype=torch.bool)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8])
def test_a_mask_with_holes_gives_the_chain_of_kept_positions(batch_first: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    ours, oracle = pair(3, batch_first)
    emissions = torch.randn(4, 5, 3, dtype=torch.float64, requires_grad=True)
    tags = torch.randint(3, (4, 5))

    def layout(x: Tensor) -> Tensor:
        return x if batch_first else x.transpose(0, 1)

    rows = [(emissions[b][kept][None], tags[b][kept][None]) for b, kept in enumerate(HOLES)]
    by_hand = torch.stack([oracle(layout(e), layout(y)) for e, y in rows])
    log_p = ours(layout(emissions), layout(tags), layout(HOLES.to(dtype)), reduction="none")
    torch.testing.assert_close(log_p, by_hand)
    expected, actual = (torch.autograd.grad(x.sum(), emissions)[0] for x in (by_hand, log_p))
    torch.testing.assert_close(actual, expected)
    token_mean = ours(layout(emissions), layout(tags), layout(HOLES.to(dtype)), reduction="token_mean")
    torch.testing.assert_close(token_mean, by_hand.sum() / 12)
    paths = ours.decode(layout(emissions), layout(HOLES.to(dtype)))
    assert paths == [oracle.decode(layout(e))[0] for e, _ in rows]


def test_a_mask_with_holes_against_enumeration() -> None:
    torch.manual_seed(1)
    ours, oracle = pair(2, batch_first=True)
    emissions, mask = torch.randn(1, 4, 2, dtype=torch.float64), torch.tensor([[True, False, True, True]])
    unary = emissions[:, [0, 2, 3]].clone()
    unary[:, 0] += ours.start_transitions.detach()
    unary[:, -1] += ours.end_transitions.detach()
    ((_, truth),) = chains(unary, ours.transitions.detach()[None])

    a, b, c = truth.labels.unbind(-1)
    tags = torch.stack([a, torch.full_like(a, -100), b, c], -1)  # tags in a hole are not read
    every = (emissions.expand(8, 4, 2), tags, mask.expand(8, 4))
    torch.testing.assert_close(ours(*every, reduction="none"), truth.log_probabilities())
    assert ours.decode(emissions, mask) == [truth.labels[truth.scores.argmax()].tolist()]
    oracles = oracle(every[0], tags.clamp(min=0), every[2], reduction="none")
    assert abs(oracles.exp().sum() - 1) > 1e-3  # the reason for the difference: these are no probabilities


def test_scores_and_tags_where_the_mask_is_off_are_not_read() -> None:
    ours, oracle = pair(3, batch_first=True)
    emissions, tags = torch.randn(2, 4, 3, dtype=torch.float64), torch.randint(3, (2, 4))
    mask = torch.tensor([[True, True, False, False], [True, True, True, True]])
    expected = oracle(emissions, tags, mask)
    emissions[~mask], tags[~mask] = torch.nan, -100
    actual = value_and_gradients(ours, (emissions, tags, mask), "sum")
    torch.testing.assert_close(actual["value"], expected.detach())
    assert all(x.isfinite().all() for x in actual.values())
    assert not actual["emissions"][~mask].any()


def test_float32_precision_of_long_likely_chains() -> None:
    torch.manual_seed(2)
    single = CRF(3)
    tags = torch.randint(3, (2000, 1))
    emissions = 100 + 12 * torch.nn.functional.one_hot(tags, 3) + torch.randn(2000, 1, 3)
    exact = copy.deepcopy(single).double()(emissions.double(), tags)
    assert abs(exact) < 1  # the score is above 200,000, where float32 has steps of 1/64
    torch.testing.assert_close(single(emissions, tags).double(), exact, rtol=1e-3, atol=0)


def test_forbidden_paths() -> None:
    ours, oracle = pair(2)
    for crf in (ours, oracle):
        crf.transitions.data[0, 1] = -torch.inf
    emissions = torch.randn(3, 3, 2, dtype=torch.float64)
    tags = torch.tensor([[1, 0, 0], [1, 0, 1], [1, 1, 1]]).T  # the second goes from 0 to 1
    emissions[2, 2, 1] = -torch.inf  # the third ends in a forbidden tag
    found = value_and_gradients(ours, (emissions, tags, None), "none")
    torch.testing.assert_close(found["value"], oracle(emissions, tags, reduction="none").detach())
    assert (found["value"] == -torch.inf).tolist() == [False, True, True]
    assert all(found[name].isfinite().all() for name in found if name != "value")

    forbidden = torch.full_like(emissions, -torch.inf)
    assert (ours(forbidden, tags, reduction="none") == -torch.inf).all()
    assert ours.decode(forbidden) == oracle.decode(forbidden)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype) -> None:
    crf = CRF(3).to(dtype)
    emissions, tags = torch.randn(6, 2, 3, dtype=dtype), torch.randint(3, (6, 2), dtype=torch.int32)
    log_p = crf(emissions, tags)
    gradient = torch.autograd.grad(log_p, crf.transitions)[0]
    exact = copy.deepcopy(crf).double()
    torch.testing.assert_close(log_p, exact(emissions.double(), tags).float())
    assert gradient.dtype == dtype
    assert crf.decode(emissions) == exact.decode(emissions.double())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("masked", [False, True])
def test_on_a_gpu_only_the_mask_check_waits_for_the_device(masked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(3)
    crf = CRF(5)
    emissions, tags = torch.randn(300, 4, 5), torch.randint(5, (300, 4))
    mask = (torch.rand(300, 4) < 0.5).index_fill(0, torch.tensor([0]), True) if masked else None
    expected = value_and_gradients(crf, (emissions, tags, mask), "token_mean")
    on_gpu = copy.deepcopy(crf).cuda()
    batch = (emissions.cuda(), tags.cuda(), mask if mask is None else mask.cuda())
    on_gpu._check(batch[0], batch[2])
    monkeypatch.setattr(on_gpu, "_check", lambda *_: None)
    torch.cuda.set_sync_debug_mode("error")
    try:
        leaf = batch[0].requires_grad_()
        log_p = on_gpu(leaf, *batch[1:], reduction="token_mean")
        gradients = torch.autograd.grad(log_p, [leaf, *on_gpu.parameters()])
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for x, y in zip([log_p, *gradients], expected.values(), strict=True):
        torch.testing.assert_close(x.detach().cpu(), y, rtol=1e-4, atol=1e-6)
    assert on_gpu.decode(*batch[::2]) == crf.decode(emissions, mask)


@given(case=cases())
def test_a_converted_layer_has_the_same_scores(case: tuple[Modules, Batch]) -> None:
    (ours, oracle), (emissions, tags, mask) = case
    unary, labels, on = (x if x is None or ours.batch_first else x.transpose(0, 1) for x in (emissions, tags, mask))
    for source in (oracle, ours, oracle.state_dict(), ours.state_dict()):
        crf = to_chain_crf(source)
        assert crf.pairwise.dtype == torch.float64
        want = -oracle(emissions, tags, mask, reduction="none")
        torch.testing.assert_close(crf.loss(unary, labels, on, reduction="none"), want, rtol=1e-9, atol=1e-9)
        token_mean = -oracle(emissions, tags, mask, reduction="token_mean")
        torch.testing.assert_close(crf.loss(unary, labels, on, reduction="token_mean"), token_mean)
        decoded = [[y for y in row if y >= 0] for row in crf.decode(unary, on).tolist()]
        scores = crf.score(unary, crf.decode(unary, on), on).detach()
        rows = zip(decoded, oracle.decode(emissions, mask), unary.double(), scores, strict=True)
        for got, path, u, score in rows:  # ties may be broken in another way
            assert len(got) == len(path)
            assert path_score(ours, u[: len(path)], path) == pytest.approx(float(score), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("balanced", [False, True])
def test_sets_soft_tags_and_weights(batch_first: bool, balanced: bool) -> None:
    """As `ChainCRF.loss` of the layer with the same scores; a tag of -1 is any tag."""
    torch.manual_seed(0)
    crf = CRF(3, batch_first=True, balanced=balanced).double()
    emissions, tags = torch.randn(2, 5, 3, dtype=torch.float64), torch.randint(3, (2, 5))
    mask = torch.tensor([[True, True, False, True, True], [True, True, True, False, False]])
    tags[0, 1] = -1
    allowed = torch.rand(2, 5, 3) < 0.5
    allowed |= torch.nn.functional.one_hot(tags.clamp(min=0), 3).bool()
    chain_crf, weights = to_chain_crf(crf), torch.tensor([0.5, 2.0], dtype=torch.float64)
    crf.batch_first = batch_first

    def swap(x: Tensor) -> Tensor:
        return x if batch_first else x.transpose(0, 1)

    for given_tags, answer in (
        (tags, {"allowed": allowed}),
        (None, {"allowed": allowed}),
        (None, {"targets": emissions.softmax(-1)}),
        (tags, {"allowed": allowed, "weights": weights}),
    ):
        ours = {name: x if name == "weights" else swap(x) for name, x in answer.items()}
        for reduction in REDUCTIONS:
            got = crf(swap(emissions), None if given_tags is None else swap(tags), swap(mask), reduction, **ours)
            want = chain_crf.loss(emissions, given_tags, mask, reduction=reduction, **answer)
            torch.testing.assert_close(got, -want)
    with pytest.raises(ValueError, match=r"allowed\[1, 0\] is empty"):
        crf(swap(emissions), allowed=swap(allowed & (torch.arange(10).view(2, 5, 1) != 5)))
    with pytest.raises(IndexError, match="is -1, but must be from 0 to 2"):
        crf(swap(emissions), swap(tags), swap(mask))
