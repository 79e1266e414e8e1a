#!/usr/bin/env bash
# Run the plan of equipoise_lab.plan.protocol with several processes on one GPU, and copy the new records to a folder.
#
#     studies/protocol.sh OUT [options of protocol.py]
#     WORKERS=2 studies/protocol.sh OUT --device cpu --seeds 1 --folds 1 --portions 2 --tiny
#
# Needs torch and numpy. The first worker takes the runs with 32 words per step first. WORK holds the store and the
# checkpoints: the same command continues what was stopped. OUT/protocol.jsonl has all records of WORK.
set -u
out=${1:?the folder for the results is missing}
shift
work=${WORK:-/tmp/protocol}
workers=${WORKERS:-9}
mkdir -p "$out" "$work"
export PYTHONPATH=src:lab/src${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1

. "$(dirname "$0")/mps.sh"
use_mps "$work" "$*"
# Without MPS processes take turns on the GPU, so few processes train many runs each.
few=()
case "$mps $*" in
no*" cpu"*) ;;
no*) workers=2 few=(--together 6) ;;
esac
echo "MPS: $mps; workers: $workers"

processes=()
for worker in $(seq "$workers"); do
    first=()
    [ "$worker" -gt 1 ] || first=(--short-first 15)
    python3 studies/protocol.py --store "$work/runs.jsonl" --recorded results/runs.jsonl "${first[@]}" "${few[@]}" "$@" \
        >"$work/worker-$worker.log" 2>&1 &
    processes+=($!)
done
(
    while sleep 30 >/dev/null 2>&1; do
        cp "$work/runs.jsonl" "$out/protocol.jsonl" 2>/dev/null
        echo "$(date +%T) $(cat "$work/runs.jsonl" 2>/dev/null | wc -l) records"
        tail -qn 1 "$work"/worker-*.log
        nvidia-smi --query-gpu=memory.used,utilization.gpu --format=csv,noheader 2>/dev/null
    done
) &
reporter=$!
wait "${processes[@]}"
kill "$reporter"
cp "$work/runs.jsonl" "$out/protocol.jsonl"
tail -n +1 "$work"/worker-*.log >"$out/protocol.log"
tail -qn 1 "$work"/worker-*.log
echo "$(wc -l <"$out/protocol.jsonl") records in $out/protocol.jsonl"
