#!/bin/bash
# gpu-test.sh - builds for the GPU of this machine and runs the tests that need one; a table comes last.
set -u
cd "$(dirname "$0")/.." || exit 1

usage() {
    cat <<'T'
Usage: scripts/gpu-test.sh --part correct|litmus|bars|proxy|sanitize [--filter SUITE]

On a machine with an NVIDIA GPU and nvcc; needs meson, ninja, gcc and python3, and neither network nor PMIx.

  correct    device, litmus, heap and host tests and the main job with 2, 4 and 8 PEs that share the GPU under an MPS daemon
             of its own; tests that kill PEs come last, each with its own daemon. Under eight minutes.
  litmus     more than a million rounds of each litmus test, with 1, 2, 4 and 8 PEs that play in several blocks of four warps
  bars       tern-bench against the floors measured in the same run (bench/bars.py)
  proxy      tern-bench over the proxy's null and loopback transports (bench/proxy.py)
  sanitize   compute-sanitizer (memcheck, racecheck, synccheck) on device and litmus tests with 1 and 2 PEs
             (test/sanitize/gpu.py)
  --filter   only this suite of the part; litmus: this number of PEs; sanitize: runs whose name contains it

The table and the closing line `N passed, N failed, N skipped` come last; exit status 1 when something failed. Logs are in
$OUT, else in build-cuda/gpu-logs. Variables: MESON (command; default meson, else python3 -m mesonbuild.mesonmain), JOBS.
T
}

part="" filter=""
while [ $# -gt 0 ]; do
    case $1 in
    --part) part=${2:-}; shift ;;
    --filter) filter=${2:-}; shift ;;
    --help | -h) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
    esac
    shift
done
case $part in
correct | litmus | bars | proxy | sanitize) ;;
*) usage >&2; exit 2 ;;
esac

if [ -z "${MESON:-}" ] && ! command -v meson >/dev/null; then MESON="python3 -m mesonbuild.mesonmain"; fi
export MESON=${MESON:-meson}
read -ra meson <<<"$MESON"
logs=${OUT:-build-cuda/gpu-logs}
begin=$SECONDS
extra=() reports=()

capability=$(timeout 30 nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d .)
if [ -z "$capability" ]; then
    echo "gpu-test.sh: no GPU: nvidia-smi finds none" >&2
    exit 1
fi
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
echo "== build for sm_$capability"
scripts/build.sh cuda -Dgpu_archs="$capability" -Dgpu_test_archs="$capability" || exit 1
mkdir -p "$logs"
echo "built after $((SECONDS - begin)) s"

# tests SUITE LAUNCH...: one suite of the build, under the launch command
tests() {
    local suite=$1 log=build-cuda/meson-logs/log-$1.json
    shift
    echo "== $suite"
    rm -f "$log"
    "$@" "${meson[@]}" test -C build-cuda --no-rebuild --logbase "log-$suite" --print-errorlogs --suite "tern:$suite" 2>&1 |
        tee -a "$logs/tests.txt" | grep '^ *[0-9]*/[0-9]* \|CHECK\|tern:'
    reports+=("cuda/$suite=$log")
}

# job NAME COMMAND...: a run that is no test of the build
job() {
    local name=$1 start=$SECONDS result=passed
    shift
    "$@" >"$logs/job.txt" 2>&1 || result=failed
    [ $result = failed ] && tail -n 30 "$logs/job.txt"
    printf '%-44s %-8s %4d s\n' "$name" "$result" $((SECONDS - start))
    cat "$logs/job.txt" >>"$logs/jobs.txt"
    extra+=(--extra "$result:$name")
}

part_correct() {
    local suites pes dtype path
    export TEST_LAUNCHER=${TEST_LAUNCHER:-fork}
    suites=$("${meson[@]}" introspect build-cuda --tests | python3 -c '
import json, sys
names = dict.fromkeys(t["suite"][0].split(":")[-1] for t in json.load(sys.stdin))
print(*[n for n in names if n not in ("repo", "install", "nvcc", "cluster", "fault")])')
    for suite in $suites; do
        [ -z "$filter" ] || [ "$filter" = "$suite" ] || continue
        tests "$suite" scripts/with-mps.sh
    done
    if [ -z "$filter" ] || [ "$filter" = jobs ]; then
        echo "== main job"
        for dtype in fp32 bf16; do
            for pes in 2 4 8; do
                job "moe_layer $dtype, $pes PEs" env TEST_BUILD_ROOT="$PWD/build-cuda" scripts/with-mps.sh test/run-pes.py \
                    -n $pes -t 120 -- build-cuda/examples/moe_layer --text "$PWD/README.md" --dtype $dtype
            done
        done
    fi
    [ -n "$filter" ] || job "ordering instructions of each call (SASS)" scripts/fences.py --sass
    # a killed PE can take the MPS server with it
    if [ -z "$filter" ] || [ "$filter" = fault ]; then fault_tests; fi
    # last of all: what hangs here is killed, which can take the MPS server with it
    if [ -z "$filter" ] || [ "$filter" = paths ]; then
        mkdir -p "$logs/tmp"
        for path in "loopback 2" "loopback 4" "loopback-threads 2" "loopback-faults 2"; do
            # shellcheck disable=SC2086 # two words
            job "path ${path/ /, } PEs" env TEST_BUILD_ROOT="$PWD/build-cuda" TEST_SOURCE_ROOT="$PWD" TEST_DEVICE=cuda \
                TMPDIR="$logs/tmp" scripts/with-mps.sh test/path/path.sh $path
        done
    fi
}

fault_tests() {
    local name seed
    for name in $("${meson[@]}" introspect build-cuda --tests | python3 -c '
import json, sys
print(*[t["name"] for t in json.load(sys.stdin) if t["suite"][0].endswith(":fault")])'); do
        for seed in 0 1 2 3 4 5 6 7 8; do
            job "fault/$name, seed $seed" env TEST_SEED=$seed scripts/with-mps.sh "${meson[@]}" test -C build-cuda --no-rebuild \
                --print-errorlogs --logbase fault "$name"
        done
    done
}

# Groups of parties side by side: a million rounds take a second or two, except where all PEs meet.
part_litmus() {
    local pes groups
    for pes in 1 2 4 8; do
        [ -z "$filter" ] || [ "$filter" = $pes ] || continue
        groups=$((pes == 8 ? 8 : 16))
        job "litmus, 350000 rounds, $pes PEs" env TEST_BUILD_ROOT="$PWD/build-cuda" TEST_LAUNCHER=fork scripts/with-mps.sh \
            test/run-pes.py -n $pes -t 180 -- build-cuda/test/test-litmus-litmus --iterations 350000 --groups $groups --threads 128
        cat "$logs/job.txt"
    done
}

part_sanitize() {
    local name
    command -v compute-sanitizer >/dev/null || { echo "gpu-test.sh: there is no compute-sanitizer here" >&2; exit 1; }
    for name in $(test/sanitize/gpu.py --list); do
        [ -z "$filter" ] || [[ $name == *$filter* ]] || continue
        job "$name" test/sanitize/gpu.py --build build-cuda "$name"
    done
    cat "$logs/jobs.txt"
}

part_bars() {
    job "bars" scripts/with-mps.sh env TEST_BUILD_ROOT="$PWD/build-cuda" bench/bars.py --build build-cuda --logs "$logs"
    cat "$logs/jobs.txt"
}

part_proxy() {
    job "proxy" scripts/with-mps.sh env TEST_BUILD_ROOT="$PWD/build-cuda" bench/proxy.py --build build-cuda --logs "$logs" \
        --filter "$filter"
    cat "$logs/jobs.txt"
}

"part_$part"
echo
printf '%d s in all\n' $((SECONDS - begin))
python3 test/report.py --table "${extra[@]}" ${reports[@]+"${reports[@]}"}
