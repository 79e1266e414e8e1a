"""Independent implementations agree: pytorch-crf (likelihood, decoding) and torch-struct (marginals, entropy)."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from equipoise import chain

torchcrf = pytest.importorskip("torchcrf", reason="needs the dev extra: pytorch-crf")
torch_struct = pytest.importorskip("torch_struct", reason="needs the dev extra: torch-struct")


@given(seed=st.integers(0, 2**31), b=st.integers(1, 4), length=st.integers(1, 7), m=st.integers(1, 6))
def test_pytorch_crf(seed: int, b: int, length: int, m: int) -> None:
    torch.manual_seed(seed)
    peer = torchcrf.CRF(m, batch_first=True).double()
    torch.nn.init.zeros_(peer.start_transitions)
    torch.nn.init.zeros_(peer.end_transitions)
    unary, labels = torch.randn(b, length, m, dtype=torch.float64), torch.randint(m, (b, length))
    lengths = torch.randint(1, length + 1, (b,))
    mask = torch.arange(length) < lengths[:, None]
    pairwise = peer.transitions.detach()
    ours = chain.score(unary, pairwise, labels, lengths) - chain.log_partition(unary, pairwise, lengths)
    torch.testing.assert_close(ours, peer(unary, labels, mask, reduction="none").detach())
    best, _ = chain.decode(unary, pairwise, lengths)
    assert [row[row >= 0].tolist() for row in best] == peer.decode(unary, mask)


@given(seed=st.integers(0, 2**31), b=st.integers(1, 4), length=st.integers(2, 7), m=st.integers(2, 6))
def test_torch_struct(seed: int, b: int, length: int, m: int) -> None:
    torch.manual_seed(seed)
    unary = torch.randn(b, length, m, dtype=torch.float64)
    pairwise = torch.randn(b, length - 1, m, m, dtype=torch.float64)
    # Its potentials are (batch, edge, label after, label before), with the unary scores folded in.
    potentials = (pairwise + unary[:, 1:, None, :]).mT.contiguous()
    potentials[:, 0] += unary[:, 0, None, :]
    peer = torch_struct.LinearChainCRF(potentials)
    torch.testing.assert_close(chain.log_partition(unary, pairwise), peer.partition)
    torch.testing.assert_close(chain.edge_marginals(unary, pairwise), peer.marginals.mT)
    torch.testing.assert_close(chain.entropy(unary, pairwise), peer.entropy)
    torch.testing.assert_close(chain.decode(unary, pairwise)[1], (peer.argmax * potentials).sum((1, 2, 3)))
