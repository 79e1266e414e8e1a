#!/usr/bin/env bash
# Run the GPU tests and the benchmarks, and write the results to a folder.
#
#     benchmarks/h200.sh OUT [tests] [device] [chain] [step] [gaussian] [training]      default: all parts
#
# Needs torch with CUDA, numpy, Triton and pytest. Peers that are not installed are omitted. All of `chain` takes about
# ten minutes. What OUT/chain.json already has is not measured again.
set -u
out=${1:?the folder for the results is missing}
shift
mkdir -p "$out"
[ $# -gt 0 ] || set -- tests device chain step gaussian training
export PYTHONPATH=src:lab/src${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1

measure_device() {
    python3 - "$out" <<'PYTHON'
import json
import sys
from dataclasses import asdict
from pathlib import Path

from equipoise_lab.bench import device

rows = device.run()
for r in rows:
    print(f"{r.name:28} {r.question:24} {r.microseconds:9.1f} us   floors {r.byte_floor:8.2f} {r.step_floor:8.1f}")
(Path(sys.argv[1]) / "device.json").write_text(json.dumps([asdict(r) for r in rows], indent=1) + "\n")
PYTHON
}

# A process per size: libraries keep the memory of earlier sizes, and the last size needs most of it.
measure_chain() {
    for size in $(seq 0 "$(python3 -c 'from equipoise_lab.bench import chain; print(len(chain.SIZES) - 1)')"); do
        measure_chain_size "$size"
    done
}

measure_chain_size() {
    python3 - "$out" "$1" <<'PYTHON'
import json
import sys
from pathlib import Path

from equipoise_lab.bench import chain

path = Path(sys.argv[1]) / "chain.json"
rows = [chain.Row(**row) for row in json.loads(path.read_text())["rows"]] if path.exists() else []
sizes = (chain.SIZES[int(sys.argv[2])],)
for report in chain.run("cuda", seconds=0.05, sizes=sizes, measured=rows):
    path.write_text(json.dumps(report.to_json(), indent=1) + "\n")
    rows = report.rows
for r in (r for r in rows if r.size == str(sizes[0])):
    found = r.milliseconds, r.overall, r.slowed, r.times_slower, r.error, r.pairwise_error
    figures = (f"{x:10.3g}" for x in found if x is not None)
    print(f"{r.size:16} {r.question:11} {r.peer:13}", *figures, r.note[:60])
PYTHON
}

measure_step() {
    python3 - "$out" <<'PYTHON'
import json
import sys
from pathlib import Path

from equipoise_lab.bench import step

for report in step.run("cuda", seconds=2.0):
    (Path(sys.argv[1]) / "step.json").write_text(json.dumps(report.to_json(), indent=1) + "\n")
for r in report.rows:
    print(f"{r.step:10} {r.peer:20} {r.milliseconds} ms   {r.times_base} times softmax   {r.note[:60]}")
PYTHON
}

measure_training() {
    python3 - "$out" <<'PYTHON'
import json
import sys
from pathlib import Path

from equipoise_lab.bench import training

(Path(sys.argv[1]) / "training.json").write_text(json.dumps(training.report("cuda").to_json(), indent=1) + "\n")
PYTHON
}

# Most of the time is compilation, so the tests are divided among as many processes as there are cores.
run_tests() {
    logs=$(mktemp -d)
    python3 -m pytest -q --collect-only -m gpu -p no:cacheprovider $(grep -rlE 'mark.gpu|on_device|layer_kernels' tests --include='test_*.py') |
        grep '::' >"$logs/all"
    split -n "r/$(nproc)" "$logs/all" "$logs/part-"
    for tests in "$logs"/part-*; do
        xargs -r -d '\n' python3 -m pytest -q -p no:cacheprovider --durations=3 <"$tests" >"$tests.log" 2>&1 &
    done
    wait
    {
        printf '%s tests in %s\n' "$(wc -l <"$logs/all")" "$(cut -d: -f1 "$logs/all" | sort -u | tr '\n' ' ')"
        tail -q -n 25 "$logs"/part-*.log
    } | tee "$out/gpu-tests.txt"
}

for part in "$@"; do
    case $part in
    tests) run_tests ;;
    device) measure_device ;;
    chain) measure_chain ;;
    gaussian) python3 -m equipoise_lab.bench.gaussian --device cuda --json "$out/gaussian.json" ;;
    step) measure_step ;;
    training) measure_training ;;
    *) echo "unknown part: $part" >&2; exit 2 ;;
    esac
done
