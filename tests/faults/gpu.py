"""The same properties on the GPU: small random chains, layers and Gaussian CRFs by kernels, against the truth.

    python tests/faults/gpu.py --rounds 8 --seconds 60      needs torch with CUDA and Triton

`benchmarks/sanitize_gpu.sh` runs it alone and under compute-sanitizer.
"""

import argparse
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "src")]

import torch  # noqa: E402
from faults.chains import VIEWS, Answers, answers, compare, draw, truth  # noqa: E402

from equipoise import ChainCRF, chain, gaussian  # noqa: E402
from equipoise.chain import backends  # noqa: E402
from equipoise.compat import torchcrf  # noqa: E402
from equipoise.scaling import Learned  # noqa: E402

BATCH, UNITS = 8, 64
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
"""On a CPU, this only tests the program itself."""


def chains(seed: int) -> Counter[str]:
    """One batch: values and gradients, NaNs of all bits, lazy views, ragged lengths."""
    p = draw(seed, BATCH, (torch.float32, torch.float16))
    on_gpu = replace(p, **{name: getattr(p, name).to(DEVICE) for name in ("unary", "pairwise", "lengths", "labels")})
    if p.unary.is_neg():  # copying applies the sign: make a view on the device
        on_gpu.unary = VIEWS["negative"](on_gpu.unary.resolve_neg())
    found: Answers = {name: x.cpu() for name, x in answers(on_gpu).items()}
    return Counter(problems=BATCH, answers=compare(p, found, truth(p), "gpu", UNITS))


def chunks(seed: int) -> Counter[str]:
    """The same for the kernels of long chains, which process a chain in chunks."""
    from equipoise.chain.gpu import scan
    from equipoise.native.triton_replay import replays

    def two(unary: torch.Tensor, pairwise: torch.Tensor) -> int:
        return 2 if unary.shape[-2] > 2 else 0

    with patch.multiple(scan, chunk_for_sums=two, chunk_for_decode=two), patch.dict(replays, clear=True):
        return chains(seed)


def many_labels(seed: int) -> Counter[str]:
    """The same for the kernels of many labels."""
    from equipoise.chain.gpu import wide
    from equipoise.native.triton_replay import replays

    with patch.object(wide, "MIN_LABELS", 1), patch.dict(replays, clear=True):
        return chains(seed)


def views(seed: int) -> Counter[str]:
    """A contiguous negative view gives the same bits as a plain tensor."""
    torch.manual_seed(seed)
    unary, pairwise = torch.randn(4, 9, 5, device=DEVICE), torch.randn(5, 5, device=DEVICE)
    lengths = torch.tensor([9, 1, 4, 8], device=DEVICE)
    for function in (chain.log_partition, chain.log_marginals, lambda *x: chain.decode(*x)[1], chain.mean_field):
        want = function(unary, pairwise, lengths)
        got = function(*(torch._neg_view(-x) for x in (unary, pairwise)), lengths)
        assert torch.equal(got, want), f"a negative view changes the result, seed {seed}"
    return Counter(problems=4, answers=16)


def gaussians(seed: int) -> Counter[str]:
    """Scores and gradients of the kernels are those of float64 on the CPU."""
    generator = torch.Generator().manual_seed(seed)
    length, d, m = (int(torch.randint(1, most, (), generator=generator)) for most in (300, 17, 5))
    m += 1
    u, a = (torch.randn(2, length, k, generator=generator) for k in (m, d))
    ridge = torch.full((2,), 4.0 * float(torch.linalg.matrix_norm(a, 2).max()) ** 2)
    results = []
    for to in (lambda x: x.double(), lambda x: x.to(DEVICE)):
        inputs = [to(x).requires_grad_() for x in (u, a, ridge)]
        s = gaussian.solve(*inputs)
        results.append([s.detach(), *torch.autograd.grad(s.square().sum(), inputs)])
    for want, got in zip(*results, strict=True):
        error = (got.cpu().double() - want).norm() / want.norm()
        assert float(error) < 1e-4, f"Gaussian CRF is off by {float(error)}, seed {seed}"
    return Counter(problems=2, answers=8)


def scaling(seed: int) -> Counter[str]:
    """Steps of training with learned scaling: losses, gradients and state are those of float64 on the CPU."""
    generator = torch.Generator().manual_seed(seed)
    batch, length, m = (int(torch.randint(1, most, (), generator=generator)) for most in (9, 40, 9))
    m += 1
    scores = [scale * torch.randn(batch, length, m, generator=generator) for scale in (1.0, 0.1, 10.0)]
    labels = torch.randint(m, (batch, length), generator=generator)
    mask = torch.arange(length) < torch.randint(1, length + 1, (batch, 1), generator=generator)
    results: list[Answers] = []
    for device, dtype in (("cpu", torch.float64), (DEVICE, torch.float32)):
        crf = ChainCRF(m, Learned(), generator=torch.Generator().manual_seed(seed)).to(device, dtype)
        found: Answers = {}
        for step, unary in enumerate(scores):
            u = unary.to(device, dtype).requires_grad_()
            inputs = {"unary": u, **dict(crf.named_parameters())}
            loss = crf.loss(u, labels.to(device), mask.to(device))
            gradients = torch.autograd.grad(loss, list(inputs.values()))
            found |= {
                f"loss {step}": loss.detach(),
                **dict(zip((f"{x} {step}" for x in inputs), gradients, strict=True)),
            }
            for parameter, gradient in zip(crf.parameters(), gradients[1:], strict=True):
                parameter.data -= 0.01 * gradient
        results.append(found | {name: buffer.clone() for name, buffer in crf.named_buffers()})
    for name, want in results[0].items():
        error = (results[1][name].cpu().double() - want.double()).norm() / want.double().norm().clamp_min(1e-3)
        assert float(error) < 1e-3, f"{name} of learned scaling is off by {float(error)}, seed {seed}"
    return Counter(problems=len(scores) * batch, answers=len(results[0]))


def layers(seed: int) -> Counter[str]:
    """A random layer: losses and gradients by kernels, when launches are recorded and when they are repeated."""
    from faults import layers as random

    from equipoise.crf.gpu import prepare

    p = random.draw(seed)
    want, count = random.truth(p), 0
    for _ in range(3):
        found = random.answers(p, torch.float32, prepare, DEVICE)
        count += random.compare(found, want, torch.float32, f"seed {seed}")
    return Counter(problems=1, answers=count)


def drop_in(seed: int) -> Counter[str]:
    """Tags of the drop-in layer, in lists, are the labels of a `ChainCRF` with the same scores, in place."""
    generator = torch.Generator().manual_seed(seed)
    batch, length, m = (int(torch.randint(1, most, (), generator=generator)) for most in (40, 60, 9))
    crf = torchcrf.CRF(m, batch_first=True).to(DEVICE)
    layer = torchcrf.to_chain_crf(crf)
    mask = torch.rand(batch, length, generator=generator) < 0.7
    mask[:, 0] = True
    late = mask.clone()
    late[int(torch.randint(batch, (), generator=generator)), 0] = False
    for step in range(3):  # the first is recorded
        unary = torch.randn(batch, length, m, generator=generator).to(DEVICE)
        want = [row[row >= 0].tolist() for row in layer.decode(unary, mask.to(DEVICE)).cpu()]
        assert crf.decode(unary, mask.to(DEVICE)) == want, f"tags of the drop-in layer are wrong, seed {seed}, {step}"
        _raises(lambda unary=unary: crf.decode(unary, late.to(DEVICE)))
    return Counter(problems=3 * batch, answers=6)


def invalid_values() -> Counter[str]:
    """With validate=True, lengths, labels and scores out of range raise on the GPU too."""
    crf = ChainCRF(3, validate=True).to(DEVICE)
    unary = torch.randn(2, 4, 3, device=DEVICE)
    labels = torch.zeros(2, 4, dtype=torch.long, device=DEVICE)
    for value in (3, -2, 2**40, -(2**40)):
        wrong = labels.clone()
        wrong[1, 2] = value
        _raises(lambda wrong=wrong: crf.loss(unary, wrong))
    for value in (0, -1, 5, 2**40):
        lengths = torch.tensor([4, value], device=DEVICE)
        _raises(lambda lengths=lengths: chain.check(unary, crf.pairwise, lengths=lengths))
    for value in (torch.nan, torch.inf):
        wrong = unary.clone()
        wrong[0, 3, 1] = value
        for function in (lambda wrong=wrong: crf.loss(wrong, labels), lambda wrong=wrong: crf.decode(wrong)):
            _raises(function)
    return Counter(answers=12)


def _raises(function) -> None:  # type: ignore[no-untyped-def]
    try:
        function()
    except ValueError as error:
        if str(error).isprintable():
            return
    raise AssertionError("an invalid value was accepted")


PARTS = {part.__name__: part for part in (chains, chunks, many_labels, views, gaussians, scaling, layers, drop_in)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=8, help="number of rounds")
    parser.add_argument("--seconds", type=float, default=600.0, help="time after which no part is started")
    parser.add_argument("--seed", type=int, default=0, help="first seed")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="what to run")
    options = parser.parse_args()
    if "gpu" not in backends.BACKENDS:
        sys.exit("needs CUDA and Triton")
    end = time.monotonic() + options.seconds
    counts, failures = invalid_values(), 0
    for seed in range(options.seed, options.seed + options.rounds):
        for part in map(PARTS.__getitem__, options.parts):
            if time.monotonic() > end:
                continue
            try:
                counts[part.__name__] += 1
                counts += part(seed)
            except AssertionError as error:
                failures += 1
                print(f"FAILED {part.__name__}, seed {seed}: {error}", flush=True)
    torch.cuda.synchronize()
    print(f"{torch.cuda.get_device_name()}: {dict(counts)}, failures: {failures}")
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
