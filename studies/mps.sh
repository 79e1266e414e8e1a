# Sourced by the scripts that run several processes on one GPU: they share it well only with MPS, which does not work on
# every machine. A daemon that runs already is used.

# use_mps FOLDER OPTIONS: sets mps to yes or no; not on a CPU
use_mps() {
    mps=no
    case "${CUDA_MPS_PIPE_DIRECTORY:-} $2" in
    /*) mps=yes ;;
    *" cpu"*) ;;
    *) start_mps "$1" && mps=yes && trap stop_mps EXIT ;;
    esac
}
start_mps() {
    command -v nvidia-cuda-mps-control >/dev/null || return 1
    export CUDA_MPS_PIPE_DIRECTORY=$1/mps CUDA_MPS_LOG_DIRECTORY=$1/mps-log
    mkdir -p "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"
    nvidia-cuda-mps-control -d >/dev/null 2>&1
    timeout 60 python3 -c 'import torch; torch.zeros(1, device="cuda") + 1' && return
    stop_mps
    unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
    return 1
}
stop_mps() { echo quit | nvidia-cuda-mps-control >/dev/null 2>&1; }
