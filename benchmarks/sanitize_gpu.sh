#!/usr/bin/env bash
# Run the Triton kernels at small sizes under compute-sanitizer (memcheck, racecheck), and the properties on the GPU.
#
#     benchmarks/sanitize_gpu.sh OUT            writes OUT/sanitize-gpu.txt
#
# Needs torch with CUDA, numpy and Triton. Parts whose program is not installed (pytest, hypothesis, compute-sanitizer)
# are omitted, and the output says so. Every part has a time limit; all together take at most 5 minutes.
set -u
out=${1:?the folder for the results is missing}
mkdir -p "$out"
cd "$(dirname "$0")/.."
export PYTHONPATH=src:lab/src:tests${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1
failed=0

find_sanitizer() {
    command -v compute-sanitizer && return
    local packages
    packages=$(python3 -c 'import site; print(*site.getsitepackages(), site.getusersitepackages())')
    # shellcheck disable=SC2086
    find /usr/local/cuda*/ /opt/nvidia $packages -name compute-sanitizer -type f -perm -u+x 2>/dev/null | head -n 1
}

part() { # name, seconds, command
    local name=$1 seconds=$2 status
    shift 2
    echo "== $name"
    timeout "$seconds" "$@" 2>&1 | grep -v '^=* *$' | tail -n 40
    status=${PIPESTATUS[0]}
    echo "-- exit status $status"
    [ "$status" -eq 0 ] || failed=1
}

run_all() {
    # Also fills the cache of compiled kernels, so that the sanitizer need not wait for the compiler.
    part "properties: values, gradients, NaN payloads, lazy views, values out of range" 80 \
        python3 tests/faults/gpu.py --rounds 6 --seconds 50
    sanitizer=$(find_sanitizer | head -n 1)
    if [ -z "$sanitizer" ]; then
        echo "== compute-sanitizer is not installed: memcheck and racecheck are omitted"
    else
        "$sanitizer" --version | head -n 2
        # Without torch's cache every array is an allocation of its own, whose limits memcheck knows.
        for tool in memcheck racecheck; do
            part "$tool" 40 env PYTORCH_NO_CUDA_MEMORY_CACHING=1 "$sanitizer" --tool "$tool" --error-exitcode 9 \
                --target-processes application-only python3 tests/faults/gpu.py --rounds 2 --seconds 20
        done
    fi
    if python3 -c 'import pytest, hypothesis' 2>/dev/null; then
        part "tests of invalid scores and views" 60 python3 -m pytest -q -x -p no:cacheprovider -m 'gpu or not slow' \
            tests/chain/test_views.py tests/chain/test_invalid.py -k "gpu and not chunks and not beyond"
        part "tests of layers" 60 python3 -m pytest -q -x -p no:cacheprovider -m gpu \
            tests/crf/test_kernels.py tests/crf/test_layer_calls.py
    else
        echo "== pytest or hypothesis is not installed: their tests are omitted"
    fi
}

run_all >"$out/sanitize-gpu.txt" 2>&1
cat "$out/sanitize-gpu.txt"
exit "$failed"
