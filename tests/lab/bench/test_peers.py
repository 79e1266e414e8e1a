"""What a peer needs: memory, before the system kills the process, and a GPU."""

import pytest
import torch

from equipoise_lab.bench import chain, peers


def test_a_gradient_through_a_gradient_needs_more_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torchcrf", reason="needs pytorch-crf")
    size = 2 * 3 * 4**2 * 4  # bytes of one (B, M, M) array per position
    for arrays, fit in ((8, {"likelihood", "marginals", "marginal"}), (4, {"likelihood", "marginals"}), (2, set())):
        free = {"SC_AVPHYS_PAGES": arrays * size, "SC_PAGE_SIZE": 1}
        monkeypatch.setattr(peers.os, "sysconf", free.get)
        calls = peers.pytorch_crf(chain.scores(chain.Size(2, 3, 4, False), "cpu"))
        for name in ("likelihood", "marginals", "marginal"):
            if name in fit:
                calls[name]()
            else:
                with pytest.raises(MemoryError, match="needs about"):
                    calls[name]()
        calls["decode"]()


def test_the_backward_pass_in_one_thread_is_for_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = chain.scores(chain.Size(2, 3, 4, False), "cpu")
    assert peers.equipoise_one_thread(scores) == {}
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda x: True))
    seen = []
    monkeypatch.setattr(peers, "equipoise", lambda s: {q: lambda: seen.append(enabled()) for q in peers.QUESTIONS})
    enabled = torch.autograd.is_multithreading_enabled
    calls = peers.equipoise_one_thread(scores)
    assert set(calls) == {"likelihood", "marginal"}
    calls["marginal"]()
    assert (seen, enabled()) == ([False], True)
