"""Training ChainCRF with `scaling.Learned`: optimizers, reductions, precisions, copies and processes."""

import copy
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from scaling import learned_ranks
from seeded import seeded
from torch import Tensor, nn

from equipoise import ChainCRF
from equipoise.scaling import Fixed, Learned

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": lambda x: torch.optim.Adam(x, 0.01),
    "adamw": lambda x: torch.optim.AdamW(x, 0.1, weight_decay=0.1),
    "sgd": lambda x: torch.optim.SGD(x, 0.1, momentum=0.9),
    "rmsprop": lambda x: torch.optim.RMSprop(x, 1e-4),
}


def batch(seed: int, b: int = 4) -> tuple[Tensor, Tensor]:
    generator = seeded(seed)
    unary = 3 * torch.randn(b, 6, 3, generator=generator)
    return unary.requires_grad_(), torch.randint(3, (b, 6), generator=generator)


def layer(**options: object) -> ChainCRF:
    return ChainCRF(3, Learned(), generator=seeded(), **options)


def buffers(module: nn.Module) -> dict[str, Tensor]:
    return {name: x.clone() for name, x in module.named_buffers()}


def assert_same(got: nn.Module, want: nn.Module, tolerance: float = 0.0) -> None:
    """Parameters and buffers."""
    torch.testing.assert_close(got.state_dict(), want.state_dict(), rtol=tolerance, atol=tolerance)


def test_only_pairwise_scores_and_boundaries_are_parameters() -> None:
    assert dict(layer().named_parameters()).keys() == {"pairwise"}
    assert dict(layer(boundaries=True).named_parameters()).keys() == {"pairwise", "start", "end"}


def test_the_scales_do_not_depend_on_the_optimizer() -> None:
    """For the same gradients: the pairwise scores are set back after each step."""
    found = []
    for make in OPTIMIZERS.values():
        crf = layer()
        before = crf.pairwise.detach().clone()
        optimizer = make(crf.parameters())
        for seed in range(6):
            optimizer.zero_grad()
            crf.loss(*batch(seed)).backward()
            optimizer.step()
            assert not torch.equal(crf.pairwise, before)
            crf.pairwise.data.copy_(before)
        found.append(buffers(crf))
    for other in found[1:]:
        assert all(torch.equal(x, other[name]) for name, x in found[0].items())
    assert float(found[0]["scaling.steps"]) == 6


def test_clipping_does_not_see_the_scales() -> None:
    crf, free = layer(), layer()
    for seed in range(3):
        for one in (crf, free):
            one.zero_grad()
            one.loss(*batch(seed)).backward()
        norm = nn.utils.clip_grad_norm_(crf.parameters(), 1e-3)
        torch.testing.assert_close(norm, free.pairwise.grad.norm())
    assert_same(crf, free)


def test_the_first_gradient_of_the_pairwise_scores_is_about_as_large_as_without_scaling() -> None:
    """They start 1,000 times smaller, and the exact derivative would be about 10,000 times larger."""
    norms = []
    for method in (Learned(), Fixed()):
        crf = ChainCRF(3, method, generator=seeded())
        unary, labels = batch(0, b=32)
        crf.loss(unary.detach() / 3, labels).backward()
        norms.append(float(crf.pairwise.grad.norm()))
    assert float(layer().pairwise.abs().mean().detach()) < 1e-3
    assert 0.1 < norms[0] / norms[1] < 10


@pytest.mark.parametrize("reduction", ["sum", "none", "token_mean"])
def test_the_reduction_does_not_matter(reduction: str) -> None:
    crf, mean = layer(), layer()
    for seed in range(8):
        mean.loss(*batch(seed)).backward()
        crf.loss(*batch(seed), reduction=reduction).sum().backward()
    torch.testing.assert_close(buffers(crf)["scaling.log_scales"], buffers(mean)["scaling.log_scales"])
    assert torch.equal(crf.scaling.size, mean.scaling.size)


def test_gradient_accumulation() -> None:
    """Each micro-batch moves the scales, and dividing its loss does not matter."""
    crf, plain = layer(), layer()
    for seed in range(8):
        (crf.loss(*batch(seed)) / 4).backward()
        plain.loss(*batch(seed)).backward()
    torch.testing.assert_close(crf.scaling.log_scales, plain.scaling.log_scales)
    assert float(crf.scaling.steps) == 8
    torch.testing.assert_close(4 * crf.pairwise.grad, plain.pairwise.grad)


def test_several_losses_and_one_backward_pass() -> None:
    """Each loss moves the scales. Each measures from the state before the pass, so one of the batches is stored."""
    crf = layer()
    first, second = batch(0), batch(1)
    (crf.loss(*first) + crf.loss(*second, objective="marginal")).backward()
    assert float(crf.scaling.steps) == 2
    means = [float(unary.detach().abs().mean()) for unary, _ in (first, second)]
    assert any(float(crf.scaling.size) == pytest.approx(mean) for mean in means)
    assert float(crf.scaling.examples) == 4
    for unary, _ in (first, second):
        terms = unary.grad * unary.detach()
        assert float(terms.sum().abs()) < 1e-5 * float(terms.abs().sum())


def net_and_crf() -> nn.ModuleDict:
    torch.manual_seed(0)
    return nn.ModuleDict({"net": nn.Linear(4, 3), "crf": layer(boundaries=True)})


def features(seed: int) -> tuple[Tensor, Tensor]:
    generator = seeded(seed)
    return torch.randn(4, 6, 4, generator=generator), torch.randint(3, (4, 6), generator=generator)


def steps(model: nn.ModuleDict, seeds: range, optimizer: torch.optim.Optimizer | None = None) -> nn.ModuleDict:
    optimizer = torch.optim.AdamW(model.parameters(), 0.01) if optimizer is None else optimizer
    for seed in seeds:
        x, labels = features(seed)
        optimizer.zero_grad()
        model["crf"].loss(model["net"](x.to(model["net"].weight.dtype)), labels).backward()
        optimizer.step()
    return model


def test_autocast_to_bfloat16() -> None:
    want = steps(net_and_crf(), range(5))
    with torch.autocast("cpu", torch.bfloat16):
        found = steps(net_and_crf(), range(5))
    assert all(x.dtype == torch.float32 for x in found.state_dict().values())
    torch.testing.assert_close(found["crf"].scaling.size, want["crf"].scaling.size, rtol=0.02, atol=0)
    torch.testing.assert_close(found["crf"].scaling.log_scales, want["crf"].scaling.log_scales, rtol=0, atol=0.02)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_state_of_a_half_model_is_float32(dtype: torch.dtype) -> None:
    model = net_and_crf().to(dtype)
    for cast in (model, net_and_crf().bfloat16(), net_and_crf().half()):
        assert all(x.dtype == torch.float32 for x in cast["crf"].scaling.buffers())
        assert cast["crf"].pairwise.dtype in (torch.bfloat16, torch.float16)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    found, want = steps(model, range(5), optimizer), steps(net_and_crf(), range(5))
    assert all(bool(x.isfinite().all()) for x in found.state_dict().values())
    torch.testing.assert_close(found["crf"].scaling.size, want["crf"].scaling.size, rtol=0.1, atol=0)
    assert float(found["crf"].scaling.steps) == 5


def test_double() -> None:
    single, double = steps(net_and_crf(), range(5)), steps(net_and_crf().double(), range(5))
    assert all(x.dtype == torch.float64 for x in double.state_dict().values())
    torch.testing.assert_close(dict(double.float().state_dict()), dict(single.state_dict()), rtol=1e-3, atol=1e-5)


def test_loss_scaling_does_not_matter() -> None:
    plain, scaled = layer(), layer()
    optimizers = [torch.optim.SGD(crf.parameters(), 0.01) for crf in (plain, scaled)]
    scaler = torch.amp.GradScaler("cpu", growth_interval=1000)
    for seed in range(6):
        for crf, optimizer in zip((plain, scaled), optimizers, strict=True):
            optimizer.zero_grad()
            loss = crf.loss(*batch(seed))
            (loss if crf is plain else scaler.scale(loss)).backward()
            scaler.step(optimizer) if crf is scaled else optimizer.step()
        scaler.update()
    torch.testing.assert_close(scaled.scaling.log_scales, plain.scaling.log_scales)
    torch.testing.assert_close(scaled.pairwise, plain.pairwise)


@pytest.mark.parametrize("factor", [torch.inf, 1e30], ids=["infinite", "infinite squares"])
def test_a_step_that_overflows(factor: float) -> None:
    """It leaves the scales as they are, and the next step moves them."""
    crf = layer()
    optimizer, scaler = torch.optim.SGD(crf.parameters(), 0.01), torch.amp.GradScaler("cpu")
    for seed in range(6):
        before = {name: x.clone() for name, x in crf.state_dict().items()}
        optimizer.zero_grad()
        scaler.scale(crf.loss(*batch(seed)) * (factor if seed == 3 else 1)).backward()
        if factor == torch.inf or seed != 3:
            scaler.step(optimizer)
            scaler.update()
        same = {name for name, x in crf.state_dict().items() if torch.equal(x, before[name])}
        assert same - {"pairwise"} == (
            {"scaling.log_scales", "scaling.squares", "scaling.steps"} if seed == 3 else set()
        )
        assert ("pairwise" in same) == (seed == 3)
        assert all(bool(x.isfinite().all()) for x in crf.state_dict().values())
    assert float(scaler.get_scale()) == 65536 / (2 if factor == torch.inf else 1)


def saved(model: nn.ModuleDict, optimizer: torch.optim.Optimizer, folder: Path) -> nn.ModuleDict:
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, folder / "checkpoint")
    state = torch.load(folder / "checkpoint")
    again = nn.ModuleDict({"net": nn.Linear(4, 3), "crf": ChainCRF(3, Learned(), boundaries=True)})
    again.load_state_dict(state["model"])
    return again


@pytest.mark.parametrize("way", ["deepcopy", "pickle", "checkpoint"])
def test_training_continues_bit_for_bit(way: str, tmp_path: Path) -> None:
    whole = net_and_crf()
    steps(whole, range(8), torch.optim.AdamW(whole.parameters(), 0.01))
    half = net_and_crf()
    optimizer = torch.optim.AdamW(half.parameters(), 0.01)
    steps(half, range(4), optimizer)
    if way == "checkpoint":
        again = saved(half, optimizer, tmp_path)
    else:
        again = copy.deepcopy(half) if way == "deepcopy" else pickle.loads(pickle.dumps(half))
    of_again = torch.optim.AdamW(again.parameters(), 0.01)
    of_again.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    steps(half, range(9, 11), optimizer)  # a copy shares nothing
    assert_same(steps(again, range(4, 8), of_again), whole)


@pytest.mark.slow
def test_two_processes_have_the_same_state(tmp_path: Path) -> None:
    """DistributedDataParallel with different data on each rank: all buffers and parameters are equal."""
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, learned_ranks.__file__, str(tmp_path / "meeting"), str(tmp_path)]
    started = [subprocess.Popen([*command, str(rank)], env=environment) for rank in range(2)]
    try:
        assert [one.wait(timeout=120) for one in started] == [0, 0]
    finally:
        for one in started:
            one.kill()
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    assert first.keys() == second.keys()
    for name, x in first.items():
        assert torch.equal(x, second[name]), name
    assert float(first["crf.scaling.steps"]) == learned_ranks.STEPS
    assert 3 < float(first["crf.scaling.size"]) < 8  # of the data of rank 0; that of rank 1 is ten times larger
