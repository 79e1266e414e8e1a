"""The view of the CRF alone: its chains follow their table, and its stack trains as layers with torch.optim do."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn

from equipoise import ChainCRF, scaling
from equipoise_lab.demo import crf_alone
from equipoise_lab.demo.crf_alone import LABELS, METHODS, Case

ROOT = Path(__file__).parents[3]


def test_labels_follow_the_table_of_transitions() -> None:
    case = Case(keep=0.3)
    _, labels = crf_alone.draw(4000, case, torch.Generator().manual_seed(0))
    pairs = torch.zeros(LABELS, LABELS)
    pairs.index_put_((labels[:, :-1].flatten(), labels[:, 1:].flatten()), torch.ones(4000 * 23), accumulate=True)
    torch.testing.assert_close(pairs / pairs.sum(1, keepdim=True), crf_alone.transitions(0.3), atol=0.02, rtol=0)


OPTIMIZERS = {
    "adam": lambda parameters, rate: torch.optim.AdamW(parameters, rate, weight_decay=0.01),
    "sgd": lambda parameters, rate: torch.optim.SGD(parameters, rate, momentum=0.9),
    "rmsprop": torch.optim.RMSprop,
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize(("name", "method"), [("plain, CRF rate x100", scaling.Fixed), ("Learned()", scaling.Learned)])
def test_replicas_train_as_layers_do(name: str, method: type[scaling.Scaling], optimizer: str) -> None:
    """Two seeds and two rates in one stack, against four layers with torch.optim, one after the other."""
    case, rates = Case(batch=4, steps=25, optimizer=optimizer, factor=3.0), (1e-4, 1e-3)
    stack = crf_alone.train(METHODS[name], case, rates, seeds=2)
    for number in range(4):
        generator = torch.Generator().manual_seed(number // 2)
        crf = ChainCRF(LABELS, method())
        start = torch.randn(2, LABELS, LABELS, generator=generator)[0]
        crf.pairwise.data = crf.scaling.pairwise_std * start
        unary, labels = crf_alone.draw(case.steps * case.batch, case, generator)
        rule = OPTIMIZERS[optimizer](crf.parameters(), METHODS[name].rate * rates[number % 2])
        factor = [k / 3 if k < 3 else (25 - k) / 22 for k in range(26)]
        decay = torch.optim.lr_scheduler.LambdaLR(rule, lambda k, factor=factor: factor[k])
        for scores, gold in zip(unary.split(case.batch), labels.split(case.batch), strict=True):
            rule.zero_grad()
            crf.loss(3 * scores, gold).backward()
            nn.utils.clip_grad_norm_(crf.parameters(), 1.0)
            rule.step()
            decay.step()
        found = stack.parameters["pairwise.matrix"][number, 0]
        torch.testing.assert_close(found, crf.pairwise, atol=1e-6, rtol=1e-3)
        for held, own in crf.scaling.named_buffers():
            torch.testing.assert_close(getattr(stack.scaling, held)[number], own, atol=1e-5, rtol=1e-3)


def test_learned_scaling_finds_the_transitions_at_a_rate_where_a_plain_crf_does_not() -> None:
    case = Case(steps=200)
    plain, learned = (float(crf_alone.shares(METHODS[name], case, [1e-5])) for name in ("plain", "Learned()"))
    assert plain < 0.1
    assert learned > 0.9


def study() -> ModuleType:
    spec = importlib.util.spec_from_file_location("crf_alone_study", ROOT / "studies" / "crf_alone.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


def test_the_figure_of_the_docs_is_that_of_the_committed_results() -> None:
    rows = json.loads((ROOT / "studies" / "crf_alone.json").read_text())
    assert study().FIGURE.read_text() == study().figure(rows)


def test_ablations_differ_from_learned_scaling_as_they_say() -> None:
    """Each gives other scores or other gradients than `Learned` in the third training step of a small problem."""
    made = {"Learned": scaling.Learned, **{name: method.scaling for name, (method, _) in study().ABLATIONS.items()}}
    seen = {}
    for name, make in made.items():
        torch.manual_seed(0)
        balance = make(torch.ones(1))
        pairwise = 1e-3 * torch.randn(1, 1, 3, 3)
        for _ in range(3):
            unary = torch.randn(1, 4, 5, 3).mul_(torch.tensor([0.1, 1.0, 2.0, 5.0])[:, None, None]).requires_grad_()
            pairwise = pairwise.detach().requires_grad_()
            u, w = balance(unary, pairwise)
            u_gradient, w_gradient = torch.autograd.grad((u**2).sum() + (w**3).sum(), (unary, pairwise))
        seen[name] = torch.cat([x.detach().flatten() for x in (u, w, u_gradient, w_gradient)])
    for name, numbers in seen.items():
        same = torch.allclose(numbers, seen["Learned"])
        assert same == (name in ("Learned", "W starts at 0.1")), name
