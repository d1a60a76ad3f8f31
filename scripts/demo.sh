#!/bin/bash
# demo.sh - from a fresh copy to the main job, examples/moe_layer, on 4 PEs of this machine.
set -u
cd "$(dirname "$0")/.." || exit 1

usage() {
    cat <<'T'
Usage: scripts/demo.sh [--no-install] [--device cpu|cuda] [-n PES] [-- moe_layer options]

Installs what is missing from the distribution's packages (says what), builds, and runs examples/moe_layer: the forward
pass of one Mixture-of-Experts layer over the words of README.md, with the experts spread over PES (4) PEs that send tokens
to each other from inside kernels. Its result is checked against a reference; the last line is OK. Re-running is quick.

  --no-install     install nothing, fail where something is missing
  --device DEVICE  cpu: kernels run on CPU threads; cuda: on GPUs. Default: cuda where nvcc and a usable GPU are, else cpu
  -n PES           number of PEs
  -- OPTIONS       for moe_layer: build-cpu/examples/moe_layer --help
T
}

device="" pes=4 deps_args=()
while [ $# -gt 0 ]; do
    case $1 in
    --no-install) deps_args+=(--no-install) ;;
    --device) device=${2:-nothing}; shift ;;
    -n) pes=${2:-}; shift ;;
    --) shift; break ;;
    --help | -h) usage; exit 0 ;;
    *) usage >&2; echo "demo.sh: unknown option '$1'; those of moe_layer follow --" >&2; exit 2 ;;
    esac
    shift
done
[[ $pes =~ ^[1-9][0-9]*$ ]] || { echo "demo.sh: -n takes a number of PEs from 1, not '$pes'" >&2; exit 2; }

gpus=0
if command -v nvidia-smi >/dev/null; then
    gpus=$(timeout 20 nvidia-smi -L 2>/dev/null | grep -c '^GPU ')
fi
have_nvcc=0
if command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then have_nvcc=1; fi
case $device in
"")
    if [ "$gpus" -gt 0 ] && [ $have_nvcc = 1 ]; then
        device=cuda
        echo "Device: CUDA ($gpus GPU(s) and nvcc are here)."
    else
        device=cpu
        echo "Device: CPU ($([ "$gpus" -gt 0 ] && echo "a GPU is here, but no nvcc" || echo "there is no usable GPU here"))."
    fi
    ;;
cpu | cuda) echo "Device: $device, as asked." ;;
*) echo "demo.sh: --device takes cpu or cuda, not '$device'" >&2; exit 2 ;;
esac

scripts/deps.sh build ${deps_args[@]+"${deps_args[@]}"} || exit 1
scripts/build.sh "$device" --only examples/moe_layer || exit 1

launch=(mpirun --oversubscribe --bind-to none -n "$pes")
[ "$(id -u)" = 0 ] && launch+=(--allow-run-as-root)
if [ "$device" = cuda ] && [ "$pes" -gt "$gpus" ] && [ -z "${CUDA_MPS_PIPE_DIRECTORY:-}" ]; then
    echo "$pes PEs share $gpus GPU(s): under an MPS daemon of their own."
    launch=(scripts/with-mps.sh "${launch[@]}")
fi
exec "${launch[@]}" "build-$device/examples/moe_layer" "$@"
