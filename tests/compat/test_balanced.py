"""The drop-in with `balanced=True`: it equals ChainCRF with `scaling.Learned`. The default is what it was."""

import copy
import pickle
from collections.abc import Callable

import pytest
import torch
import torchcrf
from scaling.test_any_rate import LABELS, draw, transitions
from seeded import seeded
from torch import Tensor

from equipoise import ChainCRF, chain, constraints, objectives
from equipoise.compat.torchcrf import CRF, to_chain_crf
from equipoise.scaling import Fixed, Learned, Offline

pytestmark = pytest.mark.filterwarnings("ignore:where received a uint8 condition tensor")  # from pytorch-crf


def example(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Emissions (B, L, M), tags and a mask with holes."""
    generator = seeded(seed)
    mask = torch.rand(4, 6, generator=generator) < 0.7
    mask[:, 0] = True
    return 5 * torch.randn(4, 6, 3, generator=generator), torch.randint(3, (4, 6), generator=generator), mask


def pair(batch_first: bool = True) -> tuple[CRF, ChainCRF]:
    """A balanced layer, and ChainCRF with the same parameters."""
    ours, layer = CRF(3, batch_first, balanced=True), ChainCRF(3, Learned(), boundaries=True)
    with torch.no_grad():
        layer.pairwise.copy_(ours.transitions)
        layer.start.copy_(ours.start_transitions)
        layer.end.copy_(ours.end_transitions)
    return ours, layer


def trained() -> CRF:
    crf = CRF(3, batch_first=True, balanced=True)
    optimizer = torch.optim.Adam(crf.parameters(), 0.1)
    for seed in range(5):
        optimizer.zero_grad()
        (-crf(example(seed)[0].requires_grad_(), *example(seed)[1:])).backward()
        optimizer.step()
    return crf


def test_the_default_has_no_scaling() -> None:
    """Values and gradients of the formula without scaling."""
    crf, (emissions, tags, _) = CRF(3, batch_first=True), example()
    mask = torch.arange(6) < torch.tensor([6, 1, 4, 3])[:, None]
    lengths, place = mask.sum(-1), torch.arange(6)[:, None]
    emissions.requires_grad_()
    start = torch.where(place == 0, crf.start_transitions, 0)
    end = torch.where(place == lengths[:, None, None] - 1, crf.end_transitions, 0)
    want = -objectives.likelihood(emissions + start + end, crf.transitions, tags, lengths)
    got = crf(emissions, tags, mask, reduction="none")
    assert torch.equal(got, want)
    leaves = [emissions, *crf.parameters()]
    for x, y in zip(*(torch.autograd.grad(value.sum(), leaves) for value in (got, want)), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-6, atol=1e-6)  # sums over sequences may be in another order
    assert list(crf.state_dict()) == list(torchcrf.CRF(3).state_dict())
    assert crf.scaling is None


@pytest.mark.parametrize("batch_first", [True, False])
def test_training_equals_that_of_the_layer(batch_first: bool) -> None:
    ours, layer = pair(batch_first)
    optimizers = [torch.optim.AdamW(crf.parameters(), 0.01) for crf in (ours, layer)]
    for seed in range(5):
        emissions, tags, mask = example(seed)
        given = [x if batch_first else x.transpose(0, 1) for x in (emissions, tags, mask)]
        values = ours(*given, reduction="mean"), layer.loss(emissions, tags, mask)
        torch.testing.assert_close(-values[0], values[1])
        for loss, optimizer in zip((-values[0], values[1]), optimizers, strict=True):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        torch.testing.assert_close(ours.transitions, layer.pairwise, rtol=1e-4, atol=1e-6)
    for got, want in zip(ours.scaling.state(), layer.scaling.state(), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-6)
    before = [x.clone() for x in ours.scaling.state()]
    paths = ours.decode(given[0], given[2])
    assert paths == [[y for y in row if y >= 0] for row in layer.decode(emissions, mask).tolist()]
    assert all(torch.equal(old, new) for old, new in zip(before, ours.scaling.state(), strict=True))


def test_it_starts_small_and_has_its_state_in_buffers() -> None:
    crf = CRF(30, balanced=True)
    assert float(crf.transitions.detach().std()) == pytest.approx(1e-4, rel=0.2)
    assert {name for name, _ in crf.named_parameters()} == {"start_transitions", "end_transitions", "transitions"}
    assert {name for name, _ in crf.named_buffers()} == {f"scaling.{name}" for name in Learned().state_dict()}
    crf.scaling.log_scales.fill_(7.0)
    crf.reset_parameters()
    assert torch.equal(crf.scaling.log_scales, Learned().log_scales)
    with pytest.raises(TypeError):
        CRF(3, True, True)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda crf: pickle.loads(pickle.dumps(crf))], ids=["copy", "pickle"])
def test_copies_and_checkpoints(copied: Callable[[CRF], CRF]) -> None:
    crf, (emissions, tags, mask) = trained().eval(), example(9)
    again = CRF(3, batch_first=True, balanced=True).eval()
    again.load_state_dict(crf.state_dict())
    for other in (copied(crf), again):
        assert torch.equal(other(emissions, tags, mask), crf(emissions, tags, mask))


@pytest.mark.parametrize("source", [torchcrf.CRF, CRF])
def test_a_checkpoint_without_scaling_keeps_its_predictions(source: type) -> None:
    plain, crf = source(3, batch_first=True), CRF(3, batch_first=True, balanced=True)
    for parameter in plain.parameters():
        torch.nn.init.normal_(parameter)
    torch.nn.ModuleList([crf]).load_state_dict(torch.nn.ModuleList([plain]).state_dict())
    emissions, tags, _ = example(9)
    torch.testing.assert_close(crf.eval()(emissions, tags, reduction="none"), plain(emissions, tags, reduction="none"))
    with pytest.raises(RuntimeError, match=r'Unexpected key.*"scaling.log_scales"'):
        CRF(3).load_state_dict(crf.state_dict())


@pytest.mark.parametrize("whole", [False, True], ids=["layer", "model"])
def test_a_converted_layer_has_the_same_scores_and_state(whole: bool) -> None:
    crf, (emissions, tags, mask) = trained(), example(9)
    found = to_chain_crf(torch.nn.ModuleDict({"tagger": crf}).state_dict() if whole else crf)
    torch.testing.assert_close(found.scaling.state_dict(), crf.scaling.state_dict(), rtol=0, atol=0)
    want = -crf.eval()(emissions, tags, mask, reduction="none")
    torch.testing.assert_close(found.eval().loss(emissions, tags, mask, reduction="none"), want)
    found.scaling.log_scales.zero_()
    assert bool(crf.scaling.log_scales.all())  # the state was copied


@pytest.mark.parametrize("method", [Learned, None])
def test_a_converted_layer_without_scaling_has_the_same_scores(method: type[Learned] | None) -> None:
    crf, (emissions, tags, mask) = CRF(3, batch_first=True), example(9)
    found = to_chain_crf(crf, **({} if method is None else {"scaling": method()})).eval()
    assert isinstance(found.scaling, method or Fixed)
    want = -crf(emissions, tags, mask, reduction="none")
    torch.testing.assert_close(found.loss(emissions, tags, mask, reduction="none"), want)


def test_a_converted_layer_keeps_the_scaling_of_the_options() -> None:
    rules = constraints.from_labels(["O", "B", "I"], "BIO")
    for method in (Offline(4.0), Fixed(0.5)):
        found = to_chain_crf(CRF(3), scaling=method, constraints=rules)
        assert found.scaling is method
        assert float(found.scaling.alpha) in (4.0, 0.5)


def test_what_the_mask_removes_is_not_read_and_forbidden_transitions_stay_forbidden() -> None:
    crf, (emissions, tags, mask) = CRF(3, batch_first=True, balanced=True), example()
    crf.transitions.data[0, 1] = -torch.inf
    clean = crf.eval()(emissions, tags, mask, reduction="none")
    crf.train()
    emissions[~mask], tags[~mask] = torch.nan, -100
    emissions.requires_grad_()
    log_p = crf(emissions, tags, mask, reduction="none")
    log_p[log_p > -torch.inf].sum().backward()
    assert bool(emissions.grad.isfinite().all())
    assert all(bool(x.grad.isfinite().all()) for x in crf.parameters())
    assert all(bool(x.isfinite().all()) for x in crf.scaling.state())
    torch.testing.assert_close(log_p == -torch.inf, clean == -torch.inf)
    assert float(crf.transitions.grad[0, 1]) == 0


@pytest.mark.parametrize(("balanced", "least", "most"), [(True, 0.9, 1.1), (False, -1.0, 0.5)])
def test_it_learns_at_a_learning_rate_of_1e_5(balanced: bool, least: float, most: float) -> None:
    """The share of the gain of the true transitions that 300 steps of AdamW find, with fixed emissions."""
    torch.manual_seed(0)
    crf, generator = CRF(LABELS, batch_first=True, balanced=balanced), seeded()
    optimizer = torch.optim.AdamW(crf.parameters(), 1e-5)
    for _ in range(300):
        optimizer.zero_grad()
        (-crf(*draw(16, generator), reduction="mean")).backward()
        optimizer.step()
    emissions, tags = draw(1500, seeded(99))
    found = torch.tensor(crf.eval().decode(emissions))
    best, _ = chain.decode(emissions, transitions().log())
    alone, got, want = (float((x == tags).float().mean()) for x in (emissions.argmax(-1), found, best))
    assert least < (got - alone) / (want - alone) < most
