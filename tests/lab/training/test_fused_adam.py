"""The kernel of Adam moves parameters as the torch code does."""

import importlib
import os
from collections.abc import Iterator
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from equipoise_lab.training import fused_adam, optimizers

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
E = 3


@pytest.fixture
def _kernel() -> Iterator[None]:
    with patch.dict(os.environ, {"TRITON_INTERPRET": "1" if DEVICE == "cpu" else "0"}):
        pytest.importorskip("triton", reason="the kernel is written in Triton, which is not installed")
        importlib.import_module("equipoise_lab.training.triton_adam")
        yield


def moved(use: bool, monkeypatch: pytest.MonkeyPatch, clip: Tensor | None) -> dict[str, Tensor]:
    """The parameters and the state after some steps in which replica 1 sometimes does not move."""
    monkeypatch.setattr(fused_adam, "usable", lambda x: use)
    generator = torch.Generator().manual_seed(0)
    shapes = {"unary.a": (E, 70, 20), "unary.b": (E, 5), "pairwise.c": (E, 4, 4)}
    parameters = {name: torch.randn(shape, generator=generator).to(DEVICE) for name, shape in shapes.items()}
    optimizer = optimizers.make("adam", 0.9)
    state, steps = optimizers.fresh(optimizer, parameters), torch.zeros(E, device=DEVICE)
    rate, decay, alone, faster = (
        torch.tensor(x, device=DEVICE) for x in ([1e-3, 1e-2, 0.1], [0.0, 0.1, 0.01], [0.0, 1.0, 0.0], [1.0, 10.0, 1.0])
    )
    for step in range(6):
        gradients = {
            name: 10.0 ** (step - 3) * torch.randn(x.shape, generator=generator).to(DEVICE)
            for name, x in parameters.items()
        }
        moves = torch.tensor([1.0, float(step % 3 > 0), 1.0], device=DEVICE)
        factors = {"pairwise.": faster, "unary.b": 1 / faster}
        optimizers.step(
            optimizer, parameters, gradients, state, steps, rate, moves, decay, alone, factors=factors, clip=clip
        )
    slots = {f"{name}/{slot}": x for name, each in state.items() for slot, x in each.items()}
    return parameters | slots | {"steps": steps}


@pytest.mark.usefixtures("_kernel")
@pytest.mark.parametrize("clipped", [False, True])
def test_the_kernel_equals_the_torch_code(clipped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    clip = torch.tensor([1.0, 0.5, 1e-3], device=DEVICE) if clipped else None
    wanted, got = (moved(use, monkeypatch, clip) for use in (False, True))
    for name, x in wanted.items():
        limit = 1e-6 * float(x.abs().max())  # some sums cancel
        torch.testing.assert_close(got[name], x, rtol=1e-6, atol=limit, msg=name)
