#!/usr/bin/env bash
# Run studies/partial.py with several processes on one GPU: OUT/partial.jsonl has the records, OUT/partial.log the progress.
#
#     studies/partial.sh OUT [options of partial.py]
#     studies/partial.sh OUT --processes 1 --device cpu --precision float32 --sentences 40 --epochs 1 --seeds 1
#
# Reads data/encoders/minilm.safetensors or its gzipped form; needs torch and numpy. Runs with a record in
# results/partial.jsonl or in OUT/partial.jsonl are left out, so the same command continues.
set -u
out=${1:?the folder for the results is missing}
shift
work=$(mktemp -d)
mkdir -p "$out"
export PYTHONPATH=src:lab/src${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1 OMP_NUM_THREADS=${OMP_NUM_THREADS:-2}
if [ -z "${EQUIPOISE_ENCODERS:-}" ] && [ ! -f data/encoders/minilm.safetensors ]; then
    gunzip -c data/encoders/minilm.safetensors.gz >"$work/minilm.safetensors"
    export EQUIPOISE_ENCODERS=$work
fi
. "$(dirname "$0")/mps.sh"
use_mps "$work" "$*"
# Without MPS processes take turns on the GPU, so few processes must do.
few=()
case "$mps $*" in
no*" cpu"*) ;;
no*) few=(--processes 3) ;;
esac
echo "MPS: $mps"
python3 studies/partial.py run "$out" "$@" "${few[@]}"
grep -h -A20 Traceback "$out/partial.log" | head -60
tail -n 8 "$out/partial.log"
nvidia-smi --query-gpu=memory.used,utilization.gpu --format=csv,noheader 2>/dev/null
rm -r "$work"
