#!/usr/bin/env bash
# Fine-tune encoders on a GPU for some minutes: the runs of studies/finetuning.py, by several processes.
#
#     studies/encoders.sh OUT PLAN MINUTES PROCESSES      PLAN is development or frozen
#
# Reads data/encoders/minilm.safetensors or its gzipped form. OUT/PLAN.jsonl gets the records, OUT/PLAN.log the progress.
# Runs with a record in results/runs.jsonl or in OUT/PLAN.jsonl are left out, so the same command continues.
set -u
out=${1:?the folder for the results is missing} plan=${2:-development} minutes=${3:-8.5} processes=${4:-8}
device=${DEVICE:-cuda}
work=$(mktemp -d)
mkdir -p "$out"
export PYTHONPATH=src:lab/src${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1 OMP_NUM_THREADS=${OMP_NUM_THREADS:-2}
if [ -z "${EQUIPOISE_ENCODERS:-}" ]; then
    export EQUIPOISE_ENCODERS=$work
    if [ -f data/encoders/minilm.safetensors ]; then
        EQUIPOISE_ENCODERS=data/encoders
    else
        gunzip -c data/encoders/minilm.safetensors.gz > "$work/minilm.safetensors"
    fi
fi
# Processes share the GPU well only with MPS, which does not work on every machine; without it there are three.
mps=no # our own daemon; one that the caller has started is used too
if [ "$device" = cuda ] && [ -z "${CUDA_MPS_PIPE_DIRECTORY:-}" ]; then
    export CUDA_MPS_PIPE_DIRECTORY=$work/mps CUDA_MPS_LOG_DIRECTORY=$work/mps
    mkdir -p "$work/mps"
    stop_mps() { echo quit | nvidia-cuda-mps-control > /dev/null 2>&1; }
    if nvidia-cuda-mps-control -d > /dev/null 2>&1 &&
        timeout 60 python3 -c 'import torch; torch.zeros(1, device="cuda") + 1'; then
        mps=yes
        echo "$processes processes with MPS"
    else
        stop_mps
        unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
        processes=3
        echo "3 processes without MPS"
    fi
fi
store=$work/$plan.jsonl
[ ! -f "$out/$plan.jsonl" ] || cp "$out/$plan.jsonl" "$store"
pids=()
for process in $(seq "$processes"); do
    python3 studies/finetuning.py run "$plan" --store "$store" --done results/runs.jsonl --device "$device" \
        --precision "${PRECISION:-bfloat16}" --minutes "$minutes" --elapsed "$SECONDS" \
        --begin "$(awk "BEGIN { print $minutes - ${LAST:-0.5} }")" > "$work/$process.log" 2>&1 &
    pids+=($!)
done
while sleep 5; do
    [ ! -f "$store" ] || { cp "$store" "$out/part" && mv "$out/part" "$out/$plan.jsonl"; }
    sort -n "$work"/*.log > "$out/$plan.log"
    running=0
    for pid in "${pids[@]}"; do ! kill -0 "$pid" 2> /dev/null || running=$((running + 1)); done
    [ "$running" -gt 0 ] || break
    nvidia-smi --query-gpu=memory.used,utilization.gpu --format=csv,noheader >> "$out/gpu.log" 2> /dev/null
    if awk "BEGIN { exit !($SECONDS > 60 * $minutes + 20) }"; then kill "${pids[@]}" 2> /dev/null; fi
done
[ "$mps" = no ] || stop_mps
[ ! -f "$store" ] || cp "$store" "$out/$plan.jsonl"
grep -h -A30 Traceback "$work"/*.log | head -60
tail -n 2 "$out/gpu.log" 2> /dev/null
tail -n 3 "$out/$plan.log"
wc -l "$out"/*.jsonl
rm -r "$work"
