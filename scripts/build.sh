#!/bin/bash
# build.sh - configures and builds one of the usual build directories.
set -u
cd "$(dirname "$0")/.." || exit 1

usage() {
    cat <<'T'
Usage: scripts/build.sh cpu|cuda|weak|asan|tsan [--only TARGET] [meson options]

Configures (the first time, or when options are given) and builds:

  cpu    build-cpu/    the CPU device: kernels run on CPU threads, no GPU needed
  cuda   build-cuda/   the CUDA device; needs nvcc to build and an NVIDIA GPU to run
  weak   build-weak/   CPU device with weak memory and mutants, for litmus tests
  asan   build-asan/   CPU device under AddressSanitizer and UndefinedBehaviorSanitizer (gcc)
  tsan   build-tsan/   CPU device under ThreadSanitizer (clang)

--only TARGET builds one program (examples/moe_layer) and what it needs.
Options go to meson: scripts/build.sh cuda -Dgpu_archs=90 ; all of them: meson configure build-cpu
Programs are in BUILD/examples and BUILD/src/tools, the library is BUILD/src/libtern.so.
Variables: MESON (command, default "meson"), CC (compiler), JOBS (default: number of cores).
T
}

case ${1:-} in
cpu) options=(-Ddevice=cpu) ;;
cuda) options=(-Ddevice=cuda -Dbuildtype=release) ;;
weak) options=(-Ddevice=cpu -Dweak=true -Dmutants=true) ;;
asan) options=(-Ddevice=cpu -Doptimization=1 "-Db_sanitize=address,undefined") ;;
tsan) options=(-Ddevice=cpu -Doptimization=1 -Db_sanitize=thread -Dmutants=true) ;;
--help | -h) usage; exit 0 ;;
*) usage >&2; echo "build.sh: the first argument is a build, not '${1:-}'" >&2; exit 2 ;;
esac
dir=build-$1
# gcc reports addresses best, clang has the better ThreadSanitizer runtime: each is the default of its build
[ "$1" = tsan ] && export CC="${CC:-clang}"
shift
targets=()
if [ "${1:-}" = --only ]; then
    [ $# -gt 1 ] || { echo "build.sh: --only takes a target, such as examples/moe_layer" >&2; exit 2; }
    targets=("$2")
    shift 2
fi
read -ra meson <<<"${MESON:-meson}"

if [ ! -e "$dir/build.ninja" ]; then
    rm -rf "$dir"
    echo "configuring $dir"
    log=$("${meson[@]}" setup "$dir" "${options[@]}" "$@" 2>&1) || { echo "$log" >&2; exit 1; }
    sed -n '/^tern [0-9]/,/User defined\|^Found ninja/p' <<<"$log" | sed '/User defined\|^Found ninja/d'
elif [ $# -gt 0 ]; then
    "${meson[@]}" configure "$dir" "$@" || exit 1
fi
# quiet where a changed meson.build makes it configure again
log=$(ninja -C "$dir" --quiet build.ninja 2>&1) || { echo "$log" >&2; exit 1; }
exec ninja -C "$dir" -j "${JOBS:-$(nproc)}" --quiet ${targets[@]+"${targets[@]}"}
