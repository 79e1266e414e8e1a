"""ChainCRF with `scaling.Learned`: when its state changes, what counts in the sizes, and unusual input."""

from collections.abc import Callable

import pytest
import torch
from seeded import seeded
from torch import Tensor

from equipoise import ChainCRF, GaussianCRF, constraints, objectives
from equipoise.scaling import Learned
from equipoise.scaling.learned import PAIRWISE_START

BIO = constraints.from_labels(["O", "B-X", "I-X"], "BIO")


def example(seed: int = 0, b: int = 4, length: int = 6, m: int = 3, size: float = 5.0) -> tuple[Tensor, Tensor, Tensor]:
    """Unary scores that require a gradient, labels that obey BIO, and a mask that keeps a prefix."""
    generator = seeded(seed)
    unary = size * torch.randn(b, length, m, generator=generator)
    mask = torch.arange(length) < torch.randint(1, length + 1, (b, 1), generator=generator)
    return unary.requires_grad_(), torch.zeros(b, length, dtype=torch.int64), mask


def state(crf: ChainCRF) -> dict[str, Tensor]:
    return {name: x.clone() for name, x in crf.scaling.state_dict().items()}


def changed(crf: ChainCRF, before: dict[str, Tensor]) -> set[str]:
    return {name for name, x in state(crf).items() if not torch.equal(x, before[name])}


def trained(**options: object) -> ChainCRF:
    """A layer after three steps."""
    crf = ChainCRF(3, Learned(), generator=seeded(), **options)
    optimizer = torch.optim.AdamW(crf.parameters(), 0.01)
    for seed in range(3):
        optimizer.zero_grad()
        crf.loss(*example(seed)).backward()
        optimizer.step()
    return crf


DIFFERENTIABLE: dict[str, Callable[[ChainCRF, Tensor, Tensor, Tensor], Tensor]] = {
    "loss": lambda crf, u, y, on: crf.loss(u, y, on),
    "log_marginals": lambda crf, u, y, on: crf.log_marginals(u, on)[..., 0].sum(),
    "score": lambda crf, u, y, on: crf.score(u, y, on).sum(),
    "entropy": lambda crf, u, y, on: crf.entropy(u, on).sum(),
    "potentials": lambda crf, u, y, on: sum(x.square().sum() for x in crf.potentials(u, on)[:2]),
}
ANSWERS: dict[str, Callable[[ChainCRF, Tensor, Tensor, Tensor], object]] = {
    "decode": lambda crf, u, y, on: crf.decode(u, on),
    "marginal decode": lambda crf, u, y, on: crf.decode(u, on, rule="marginal"),
    "top_k": lambda crf, u, y, on: crf.top_k(u, on, k=2),
    "sample": lambda crf, u, y, on: crf.sample(u, on, n=2),
    "balance": lambda crf, u, y, on: crf.balance(u, on),
}


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_the_state_changes_in_the_backward_pass_of_training_only(name: str) -> None:
    call, crf, batch = DIFFERENTIABLE[name], trained(), example(9)
    before = state(crf)
    crf.eval()
    call(crf, *batch).backward()
    crf.train()
    with torch.no_grad():
        call(crf, *batch)
    found = call(crf, *batch)
    assert not changed(crf, before)
    found.backward()
    assert changed(crf, before) == {"size", "examples", "log_scales", "squares", "steps"}


@pytest.mark.parametrize("name", ANSWERS)
def test_predictions_never_change_the_state(name: str) -> None:
    crf = trained()
    before = state(crf)
    ANSWERS[name](crf, *example(9))
    assert not changed(crf, before)


def test_a_prediction_does_not_depend_on_the_rest_of_the_batch() -> None:
    crf, (unary, _, mask) = trained().eval(), example(9)
    unary = unary * torch.tensor([0.01, 1.0, 10.0, 100.0])[:, None, None]
    together = crf.log_marginals(unary, mask)
    for i in range(4):
        torch.testing.assert_close(crf.log_marginals(unary[i : i + 1], mask[i : i + 1])[0], together[i])


def test_the_mean_size_of_the_sequences_of_a_batch_is_measured() -> None:
    """Over the positions that are on, of the sequences that have any."""
    crf = ChainCRF(3, Learned())
    unary, labels, mask = example(0)
    mask[2] = False
    crf.loss(unary, labels, mask).backward()
    want = torch.stack([unary[i][mask[i]].abs().mean() for i in (0, 1, 3)]).mean()
    torch.testing.assert_close(crf.scaling.size, want.detach())
    assert float(crf.scaling.examples) == 3


def test_potentials_with_boundaries_and_constraints() -> None:
    """W, start and end are one part: the same factor, and one size, in which forbidden entries do not count."""
    crf = trained(constraints=BIO, boundaries=True).eval()
    assert crf.start is not None
    assert crf.end is not None
    u, w = crf.scaling.log_scales.exp()
    allowed = torch.cat([crf.pairwise[BIO.transitions], crf.start[BIO.start], crf.end[BIO.end]])
    factor = w / allowed.abs().mean()
    unary, _, mask = example(9)
    found = crf.potentials(unary, mask)
    pairwise = (factor * crf.pairwise).masked_fill(~BIO.transitions, -torch.inf)
    torch.testing.assert_close(found.pairwise, pairwise)
    for i, n in enumerate(mask.sum(-1).tolist()):
        want = u * unary[i, :n] / crf.scaling.size
        want[0] += (factor * crf.start).masked_fill(~BIO.start, -torch.inf)
        want[-1] += (factor * crf.end).masked_fill(~BIO.end, -torch.inf)
        torch.testing.assert_close(found.unary[i, :n], want)


def test_forbidden_parameters_do_not_matter() -> None:
    crf, other = (trained(constraints=BIO, boundaries=True) for _ in range(2))
    with torch.no_grad():
        other.pairwise[~BIO.transitions] = 100.0
        other.start[~BIO.start] = -7.0
    batch = example(9)
    torch.testing.assert_close(other.potentials(batch[0])[:2], crf.potentials(batch[0])[:2])
    for one in (crf, other):
        one.zero_grad()
        one.loss(*batch).backward()
        assert not one.pairwise.grad[~BIO.transitions].any()
        assert not one.start.grad[~BIO.start].any()
    torch.testing.assert_close(other.pairwise.grad, crf.pairwise.grad)
    for got, want in zip(state(other).values(), state(crf).values(), strict=True):
        torch.testing.assert_close(got, want)


def test_loss_and_gradients_of_the_first_step() -> None:
    """Against autograd through U / mean ||U|| and PAIRWISE_START W / ||W||, with a mask and boundaries."""
    crf = ChainCRF(3, Learned(), boundaries=True, generator=seeded()).double()
    unary, labels, mask = example(3)
    unary = unary.detach().double().requires_grad_()
    lengths = mask.sum(-1)
    size = torch.stack([unary[i, :n].abs().mean() for i, n in enumerate(lengths.tolist())]).mean()
    norm = torch.cat([crf.pairwise.flatten(), crf.start, crf.end]).abs().mean()
    scale = float(crf.scaling.log_scales[1].exp())  # PAIRWISE_START in float32
    assert scale == pytest.approx(PAIRWISE_START)
    pairwise, start, end = (scale * x / norm for x in (crf.pairwise, crf.start, crf.end))
    place = torch.arange(6)[:, None]
    u = unary / size + (place == 0) * start + (place == lengths[:, None, None] - 1) * end
    want = objectives.likelihood(u, pairwise, labels, lengths).mean()
    own = torch.autograd.grad(want, [unary, *crf.parameters()])
    got = crf.loss(unary, labels, mask)
    torch.testing.assert_close(got, want)
    factors = [size.detach().clamp(max=1), *[norm.detach()] * 3]
    for x, y, factor in zip(torch.autograd.grad(got, [unary, *crf.parameters()]), own, factors, strict=True):
        torch.testing.assert_close(x, factor * y, rtol=1e-8, atol=1e-12)


def zero(x: Tensor) -> Tensor:
    return torch.zeros_like(x, requires_grad=True)


ONE = constraints.Constraints(*(torch.zeros(shape, dtype=torch.bool) for shape in ((3, 3), (3,), (3,))), BIO.labels)
ONE.transitions[0, 0] = ONE.start[0] = ONE.end[0] = True


def case(name: str) -> tuple[ChainCRF, Tensor, Tensor, Tensor | None]:
    crf = ChainCRF(3, Learned(), generator=seeded())
    unary, labels, mask = example(4)
    if name == "length 1":
        return crf, unary[:, :1].detach().requires_grad_(), labels[:, :1], None
    if name == "empty rows":
        mask[1:] = False
    if name == "only empty rows":
        mask[:] = False
    if name == "no rows":
        return crf, unary[:0].detach().requires_grad_(), labels[:0], mask[:0]
    if name == "unary scores of 0":
        unary = zero(unary)
    if name == "pairwise scores of 0":
        torch.nn.init.zeros_(crf.pairwise)
    if name == "one label":
        return ChainCRF(1, Learned()), unary[..., :1].detach().requires_grad_(), labels, mask
    if name == "one transition":
        crf = ChainCRF(3, Learned(), ONE)
    if name == "forbidden labels":
        unary = unary.detach().index_fill(-1, torch.tensor([2]), -torch.inf).requires_grad_()
    return crf, unary, labels, mask


CASES = ["length 1", "empty rows", "only empty rows", "no rows", "unary scores of 0", "pairwise scores of 0"]


@pytest.mark.parametrize("name", [*CASES, "one label", "one transition", "forbidden labels"])
def test_unusual_input(name: str) -> None:
    crf, unary, labels, mask = case(name)
    for _ in range(3):
        loss = crf.loss(unary, labels, mask)
        loss.backward()
        assert bool(loss.isfinite())
        assert bool(unary.grad.isfinite().all())
        assert bool(crf.pairwise.grad.isfinite().all())
        assert all(bool(x.isfinite().all()) for x in state(crf).values())
    if name in ("only empty rows", "no rows"):
        assert float(crf.scaling.examples) == 0
        assert float(loss.detach()) == 0
    if name.endswith("scores of 0"):  # a part that starts at 0 must be able to learn
        assert bool(unary.grad.any())
        assert bool(crf.pairwise.grad.any())


def test_replicas_in_one_layer() -> None:
    """With shared pairwise scores, that do not move: losses and state equal those of separate layers."""
    starts = torch.tensor([0.5, 1.0, 4.0])
    crf = ChainCRF(3, Learned(start=starts), boundaries=True, generator=seeded())
    alone = [ChainCRF(3, Learned(start=float(x)), boundaries=True, generator=seeded()) for x in starts]
    for seed in range(4):
        unary, labels, mask = example(seed, b=12)
        unary, labels, mask = (x.detach().unflatten(0, (3, 4)) for x in (unary, labels, mask))
        unary = (unary * torch.tensor([0.1, 1.0, 9.0])[:, None, None, None]).requires_grad_()
        losses = crf.loss(unary, labels, mask, reduction="none")
        losses.sum().backward()
        for e, one in enumerate(alone):
            want = one.loss(unary[e].detach().requires_grad_(), labels[e], mask[e], reduction="none")
            want.sum().backward()
            torch.testing.assert_close(losses[e], want)
            for got, wanted in zip(crf.scaling.state(), one.scaling.state(), strict=True):
                torch.testing.assert_close(got[e], wanted)


def test_gaussian_crf() -> None:
    """In the first training step the sizes of both parts do not matter, and no gradient makes all scores larger."""
    generator = seeded()
    unary, embeddings = (torch.randn(2, n, 8, 6, generator=generator, dtype=torch.float64) for n in (3, 4))
    labels = torch.randint(3, (2, 8, 6), generator=generator)
    losses = []
    for u, a in ((unary, embeddings), (50 * unary, 0.1 * embeddings)):
        crf = GaussianCRF(3, 1.0, Learned(), definite="raw", pairs=None).double()
        u, a = (x.clone().requires_grad_() for x in (u, a))
        before = [x.clone() for x in crf.scaling.state()]
        crf.eval().loss(u, a, labels)
        crf.train().decode(u.detach(), a.detach())
        assert all(torch.equal(old, new) for old, new in zip(before, crf.scaling.state(), strict=True))
        losses.append(crf.loss(u, a, labels))
        losses[-1].backward()
        torch.testing.assert_close(crf.scaling.size, u.detach().abs().mean())
        assert float(crf.scaling.steps) == 1
        terms = u.grad * u.detach()
        assert float(terms.sum().abs()) < 1e-10 * float(terms.abs().sum())
    torch.testing.assert_close(losses[0], losses[1])
