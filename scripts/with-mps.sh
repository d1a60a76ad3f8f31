#!/bin/bash
# with-mps.sh - runs a command under a CUDA MPS daemon of its own, so that several PEs may share a GPU.
set -u

usage() {
    cat <<'T'
Usage: scripts/with-mps.sh COMMAND...

Starts nvidia-cuda-mps-control with private CUDA_MPS_PIPE_DIRECTORY and CUDA_MPS_LOG_DIRECTORY, runs COMMAND with them,
ends the daemon, and exits with COMMAND's status. Other MPS daemons of the machine are not touched.
T
}

case ${1:-} in
--help | -h) usage; exit 0 ;;
"") usage >&2; exit 2 ;;
esac
command -v nvidia-cuda-mps-control >/dev/null || { echo "with-mps.sh: there is no nvidia-cuda-mps-control here; it comes with NVIDIA's driver" >&2; exit 1; }

dir=$(mktemp -d /tmp/tern-mps.XXXXXX) || exit 1
mkdir "$dir/pipe" "$dir/log"
export CUDA_MPS_PIPE_DIRECTORY=$dir/pipe CUDA_MPS_LOG_DIRECTORY=$dir/log

stop() {
    echo quit | timeout 20 nvidia-cuda-mps-control >/dev/null 2>&1
    # the control daemon answers before its server has gone
    for _ in $(seq 50); do
        [ -e "$dir/pipe/nvidia-cuda-mps-control.pid" ] || break
        sleep 0.1
    done
    rm -rf "$dir"
}

nvidia-cuda-mps-control -d || { echo "with-mps.sh: the MPS daemon did not start, see $dir/log" >&2; exit 1; }
trap stop EXIT
trap 'exit 143' TERM INT HUP
"$@"
