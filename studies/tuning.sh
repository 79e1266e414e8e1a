#!/usr/bin/env bash
# Extend the grids of stage training, tune the variants of horses and chunking, and run the tables that follow from the
# choices, with several processes on one GPU.
#
#     studies/tuning.sh OUT [options of reproduce.py]
#     TOTAL=200 TUNING=100 studies/tuning.sh OUT --device cpu --precision float32 --tiny
#     TASKS=chunking studies/tuning.sh OUT
#
# PART=rest extends the other grids, after the records of the first part were added to results/runs.jsonl, or on the same
# machine. Needs torch and numpy. TOTAL and TUNING are seconds. OUT/tuning.jsonl has the new records.
set -u
out=${1:?the folder for the results is missing}
shift
options=("$@")
work=${WORK:-/tmp/tuning} part=${PART:-first}
total=${TOTAL:-520} tuning=${TUNING:-280}
mkdir -p "$out" "$work"
export PYTHONPATH=src:lab/src${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1
. "$(dirname "$0")/mps.sh"
use_mps "$work" "$*"
echo "MPS: $mps"
for task in ocr chunking horses; do # reading is faster if a store has only what its processes need
    [ -e "$work/$task.jsonl" ] && continue
    grep -F "{\"task\": \"$task\"" results/runs.jsonl | grep -F '"optimizer": "adam"' >"$work/$task.jsonl"
    wc -l <"$work/$task.jsonl" >"$work/$task.recorded"
done

# runs LABEL TASK NAME... [options]: a process until TOTAL, whose tuning ends at TUNING
runs() {
    local label=$1 task=$2
    shift 2
    [[ " ${TASKS:-ocr chunking horses} " == *" $task "* ]] || return 0
    python3 studies/reproduce.py "$@" --task "$task" --store "$work/$task.jsonl" \
        --minutes "$(minutes "$total")" --tuning-minutes "$(minutes "$tuning")" "${options[@]}" >"$work/$label.log" 2>&1 &
}
collect() {
    for task in ocr chunking horses; do
        tail -n +$(($(cat "$work/$task.recorded") + 1)) "$work/$task.jsonl"
    done >"$out/tuning.jsonl"
    tail -n +1 "$work"/*.log >"$out/tuning.log"
}
minutes() {
    local left=$(($1 > SECONDS ? $1 - SECONDS : 0))
    printf '%d.%02d' $((left / 60)) $((left % 60 * 100 / 60))
}

both=(tuning-adam finals-adam)
pids=()
case $part in
first)
    runs ocr-stage ocr "${both[@]}" main table1 --schemes stage --nets default
    runs ocr-nets ocr "${both[@]}" table1 --nets sigmoid layernorm
    runs chunking chunking "${both[@]}" main unary temperature --nets default
    runs horses-stage horses "${both[@]}" main --schemes stage --nets default
    for net in speech-1 window-1 window-2; do
        runs "$net" chunking "${both[@]}" --nets "$net"
        pids+=($!)
    done
    for net in w8-64+unmirrored default+norelu default+linear default+raw+ridge{100,1000,10000}; do
        runs "$net" horses "${both[@]}" --nets "$net"
        pids+=($!)
    done
    ;;
rest)
    for task in ocr chunking horses; do runs "$task-rates" "$task" rates --schemes stage --seeds 1; done
    runs ocr-all ocr "${both[@]}" main unary temperature --nets default
    runs horses-all horses "${both[@]}" main unary temperature --nets default
    runs chunking-bilstm chunking "${both[@]}" bilstm --nets bilstm
    ;;
esac
(
    while sleep 30 >/dev/null 2>&1; do
        collect
        echo "$(date +%T) $(wc -l <"$out/tuning.jsonl") new records"
        tail -qn 1 "$work"/*.log
        nvidia-smi --query-gpu=memory.used,utilization.gpu --format=csv,noheader 2>/dev/null
    done
) &
reporter=$!
[ "${#pids[@]}" = 0 ] || wait "${pids[@]}"
if [ "$part" = first ]; then
    runs chunking-variants chunking variants
    for number in 1 2 3; do runs "horses-variants-$number" horses variants --seeds "${SEEDS:-3}" --stack 90; done
fi
for job in $(jobs -p); do [ "$job" = "$reporter" ] || wait "$job"; done
kill "$reporter"
collect
echo "$(wc -l <"$out/tuning.jsonl") new records in $out/tuning.jsonl"
