"""A training step and a prediction in a CUDA graph give what they give outside."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from equipoise import ChainCRF, scaling

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

BATCH, LENGTH, LABELS, FEATURES = 4, 9, 5, 6
METHODS = [None, scaling.Offline, scaling.Learned]


class Tagger(nn.Module):
    def __init__(self, objective: str, method: Callable[..., scaling.Scaling] | None) -> None:
        super().__init__()
        self.net = nn.Linear(FEATURES, LABELS)
        made = None if method is None else method(1.0) if method is scaling.Offline else method()
        self.crf = ChainCRF(LABELS, made, objective=objective)

    def forward(self, x: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        return self.crf.loss(self.net(x), labels, mask)


def tagger(objective: str, method: Callable[..., scaling.Scaling] | None) -> Tagger:
    torch.manual_seed(0)
    return Tagger(objective, method).cuda()


def batch(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(BATCH, LENGTH, generator=generator) < 0.8
    labels = torch.randint(LABELS, (BATCH, LENGTH), generator=generator)
    return torch.randn(BATCH, LENGTH, FEATURES, generator=generator).cuda(), labels.cuda(), mask.cuda()


def eager_steps(model: Tagger, steps: int) -> list[Tensor]:
    optimizer, losses = torch.optim.SGD(model.parameters(), 0.1), []
    for seed in range(steps):
        optimizer.zero_grad()
        loss = model(*batch(seed))
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("objective", ["likelihood", "marginal", "margin"])
def test_training_steps_in_a_graph(objective: str, method: Callable[..., scaling.Scaling] | None) -> None:
    model, captured = tagger(objective, method), tagger(objective, method)
    given = batch(0)
    optimizer = torch.optim.SGD(captured.parameters(), 0.1)
    start = {name: x.clone() for name, x in captured.state_dict().items()}

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=False)
        loss: Tensor = captured(*given)
        loss.backward()
        optimizer.step()
        return loss

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # kernels are compiled before the capture
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    captured.load_state_dict(start)
    losses = []
    for seed in range(3):
        for x, new in zip(given, batch(seed), strict=True):
            x.copy_(new)
        graph.replay()
        losses.append(loss.detach().clone())
    torch.testing.assert_close(losses, eager_steps(model, 3), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(captured.state_dict(), model.state_dict(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("objective", ["likelihood", "marginal"])
def test_training_steps_compiled_with_graphs(objective: str) -> None:
    model, compiled = tagger(objective, None), tagger(objective, None)
    function = torch.compile(compiled, mode="reduce-overhead", fullgraph=True)
    optimizer, losses = torch.optim.SGD(compiled.parameters(), 0.1), []
    for seed in range(4):
        optimizer.zero_grad()
        loss = function(*batch(seed))
        loss.backward()
        optimizer.step()
        losses.append(loss.detach().clone())
    torch.testing.assert_close(losses, eager_steps(model, 4), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rule", ["map", "marginal"])
def test_labels_in_a_graph(rule: str) -> None:
    model = tagger("likelihood", None).eval()
    x, _, mask = batch(0)
    with torch.no_grad():
        model.crf.decode(model.net(x), mask, rule)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            labels = model.crf.decode(model.net(x), mask, rule)
        for seed in range(1, 4):
            new, _, new_mask = batch(seed)
            x.copy_(new), mask.copy_(new_mask)
            graph.replay()
            assert torch.equal(labels, model.crf.decode(model.net(new), new_mask, rule))
