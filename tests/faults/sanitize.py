"""The C libraries under the address and undefined-behaviour sanitizers, with random shapes.

    python tests/faults/sanitize.py --calls 5000 --seed 0

The libraries are compiled with the sanitizers into a temporary folder, and used by another process, into which the
runtime of the address sanitizer is loaded first. It checks all memory of that process, also that of torch. The first
error ends the process; its report has the line of C.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
FLAGS = "-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -g"
OPTIONS = {"ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0", "UBSAN_OPTIONS": "print_stacktrace=1"}
OPTIONS |= {"OMP_NUM_THREADS": "2"}


def runtime() -> str | None:
    """The runtime of the address sanitizer of gcc, or None."""
    if shutil.which("gcc") is None:
        return None
    found = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=False)
    path = Path(found.stdout.strip())
    return str(path.resolve()) if path.is_absolute() and path.exists() else None


def start(calls: int, seed: int = 0, *more: str, optimization: str = "") -> subprocess.CompletedProcess[str]:
    """Random calls under the sanitizers, in another process. Few calls take longest to compile: "-O0" is faster."""
    asan = runtime()
    if asan is None:
        sys.exit("the sanitizers need gcc with libasan")
    with tempfile.TemporaryDirectory() as cache:
        paths = os.pathsep.join([str(ROOT / "tests"), str(ROOT / "src")])
        compiler = Path(cache, "gcc-with-sanitizers")
        # The compiler itself is not checked, which would make it slow.
        compiler.write_text(f'#!/bin/sh\nexec env -u LD_PRELOAD gcc "$@" {FLAGS} {optimization}\n')
        compiler.chmod(0o700)
        own = {"CC": str(compiler), "LD_PRELOAD": asan, "EQUIPOISE_CACHE": cache, "PYTHONPATH": paths}
        command = [sys.executable, str(Path(__file__)), "--inside", "--calls", str(calls), "--seed", str(seed), *more]
        return subprocess.run(command, env=os.environ | own | OPTIONS, capture_output=True, text=True, check=False)


def call_chain(seed: int) -> Counter[str]:
    """All functions of one random batch of chains, with gradients."""
    import torch

    from equipoise import chain, objectives

    generator = torch.Generator().manual_seed(seed)

    def integer(low: int, high: int) -> int:
        return int(torch.randint(low, high, (), generator=generator))

    torch.set_num_threads(integer(1, 4))
    batch, length, m = (
        (integer(1, 12),),
        integer(1, 70),
        (integer(1, 40), integer(1, 6), integer(60, 140))[integer(0, 3)],
    )
    if seed % 50 == 0:  # the tables of so many labels are shared by larger groups
        batch, length, m = (9,), integer(1, 5), integer(1025, 1040)
    dtype = (torch.float32, torch.float64)[integer(0, 2)]
    shapes = (m, m), (*batch, m, m), (1, m, m), (*batch, length - 1, m, m)
    scale = (0.1, 1.0, 100.0)[integer(0, 3)]  # large scores are computed in the log domain
    scores = [
        scale * torch.randn(s, generator=generator).to(dtype) for s in ((*batch, length, m), shapes[integer(0, 4)])
    ]
    if integer(0, 2):
        scores = [x.masked_fill(torch.rand(x.shape, generator=generator) < 0.1, -torch.inf) for x in scores]
    lengths = torch.randint(1, length + 1, batch, generator=generator)
    labels = torch.randint(m, (*batch, length), generator=generator)
    labels = labels.masked_fill(torch.arange(length) >= lengths[:, None], -100)
    u, w = (x.requires_grad_() for x in scores)
    functions = {
        "log_partition": lambda: chain.log_partition(u, w, lengths),
        "log_marginals": lambda: chain.log_marginals(u, w, lengths),
        "edge_marginals": lambda: chain.edge_marginals(u, w, lengths),
        "entropy": lambda: chain.entropy(u, w, lengths),
        "decode": lambda: chain.decode(u.detach(), w.detach(), lengths)[1],
        "top_k": lambda: chain.top_k(u, w, lengths, k=integer(1, 9))[1],
        "edge_marginals without a gradient": lambda: chain.edge_marginals(u.detach(), w.detach(), lengths),
        "sample": lambda: chain.sample(u, w, lengths, n=integer(1, 4)),
        "likelihood": lambda: objectives.likelihood(u, w, labels, lengths),
        "marginal": lambda: objectives.marginal(u, w, labels, lengths),
        "margin": lambda: objectives.margin(u, w, labels, lengths),
    }
    for function in functions.values():
        value = function()
        if value.requires_grad:
            torch.autograd.grad(value.sum(), (u, w), allow_unused=True)
    return Counter({"chain calls": len(functions)})


def call_layer(seed: int) -> Counter[str]:
    """Training steps and predictions of one random layer."""
    from faults import layers

    layers.layers(seed)
    return Counter({"layer calls": 12})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=5000, help="number of calls of C functions, at least")
    parser.add_argument("--seed", type=int, default=0, help="first seed")
    parser.add_argument("--inside", action="store_true", help="whether this process has the sanitizers")
    parser.add_argument("--overflow", action="store_true", help="at the end, write beyond an array")
    options = parser.parse_args()
    if not options.inside:
        done = start(options.calls, options.seed, *(["--overflow"] if options.overflow else []))
        print(done.stdout.strip())
        print(done.stderr[-6000:], file=sys.stderr)
        return done.returncode
    import torch

    from equipoise.chain.cpu.library import library as chain_library
    from equipoise.crf.cpu.prepare import library as layer_library

    libraries = chain_library, layer_library
    if any(made(dtype) is None for made in libraries for dtype in (torch.float32, torch.float64)):
        print("a library could not be compiled or loaded", file=sys.stderr)
        return 2
    counts, seed = Counter[str](), options.seed
    while sum(counts.values()) < options.calls:
        try:
            counts += call_chain(seed) + call_layer(seed)
        except BaseException:
            print(f"seed {seed}", file=sys.stderr)
            raise
        seed += 1
    print(f"{', '.join(f'{count:,} {name}' for name, count in counts.items())}, 0 reports")
    if options.overflow:
        sys.stdout.flush()
        weight, x, y = torch.full((1,), 0.5), torch.zeros(1000), torch.zeros(10)
        given = x.data_ptr(), x.numel() + 1, y.data_ptr(), y.numel()
        chain_library(torch.float32).scale(weight.data_ptr(), 1, *given)
    return 0


if __name__ == "__main__":
    sys.exit(main())
