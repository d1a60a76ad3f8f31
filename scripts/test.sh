#!/bin/bash
# test.sh - installs what is missing, builds, runs all tests; closes with `N passed, N failed, N skipped`.
set -u
cd "$(dirname "$0")/.." || exit 1

usage() {
    cat <<'T'
Usage: scripts/test.sh [--quick | --strict] [--no-install] [--list | --write-counts]

Installs missing packages (scripts/deps.sh test), builds the CPU device, its weak-memory variant and, where nvcc is, the
CUDA device (compiled only: scripts/gpu-test.sh runs it), runs every suite, prints the time of each part and closes with
a line `N passed, N failed, N skipped` alone. Exit status 1 when something failed.

  --quick       leave out the CUDA build, mutants, slow tests and the suites bench, install, cluster
                and nvcc: under three minutes
  --strict      a skip other than "no GPU" is a failure, and so is a suite with fewer tests than test/expected-counts says
  --no-install  install nothing, fail where something is missing
  --list        list suites and tests, run nothing
  --write-counts  write test/expected-counts from this run

Variables: JOBS (default: number of cores), TEST_SEED (repeat random tests), TEST_TIME_SCALE (multiplies time limits).
One test:  meson test -C build-cpu put-2 ; its log is build-cpu/meson-logs/testlog.txt
T
}

quick=0 strict=0 list=0 write_counts=0 deps_args=()
for arg; do
    case $arg in
    --quick) quick=1 ;;
    --strict) strict=1 ;;
    --no-install) deps_args+=(--no-install) ;;
    --list) list=1 ;;
    --write-counts) write_counts=1 ;;
    --help | -h) usage; exit 0 ;;
    *) usage >&2; echo "test.sh: unknown option '$arg'" >&2; exit 2 ;;
    esac
done
jobs=${JOBS:-$(nproc)}
read -ra meson <<<"${MESON:-meson}"
logs=() extra=() times=()
begin=$SECONDS

# part NAME COMMAND...: runs it, notes time and result
part() {
    local name=$1 start=$SECONDS rc
    shift
    echo "== $name"
    "$@"
    rc=$?
    times+=("$(printf '%5d s  %s%s' $((SECONDS - start)) "$name" "$([ $rc = 0 ] || echo "  FAILED")")")
    return $rc
}

# run_suite BUILD SUITE: one suite of build-BUILD, its log kept for the report
run_suite() {
    local build=$1 suite=$2 dir=build-$1 base=log-$2
    local -a select=(--suite "tern:$suite")
    [ "$quick" = 1 ] && select+=(--no-suite slow)
    rm -f "$dir/meson-logs/$base.json"
    "${meson[@]}" test -C "$dir" --no-rebuild --num-processes "$jobs" --logbase "$base" --print-errorlogs \
        "${select[@]}" 2>&1 | grep -v '^ninja: \|^Full log\|^$\|^Ok: \|^Expected Fail\|^Fail: \|^Unexpected\|^Skipped: \|^Timeout: '
    [ -e "$dir/meson-logs/$base.json" ] && logs+=("$build/$suite=$dir/meson-logs/$base.json")
    return "${PIPESTATUS[0]}"
}

suites_of() {
    "${meson[@]}" introspect "build-$1" --tests | python3 -c '
import json, sys
seen = dict.fromkeys(t["suite"][0].split(":")[-1] for t in json.load(sys.stdin))
print(*seen)'
}

if [ "$list" = 1 ]; then
    scripts/build.sh cpu >/dev/null && "${meson[@]}" test -C build-cpu --list
    exit
fi

part "packages" scripts/deps.sh test ${deps_args[@]+"${deps_args[@]}"} || { echo "0 passed, 1 failed, 0 skipped"; exit 1; }

builds=(cpu weak)
if [ "$quick" = 1 ]; then
    echo "the CUDA build is left out (--quick)"
elif command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then
    builds+=(cuda)
else
    echo "the CUDA build is left out: there is no nvcc here"
fi
for build in "${builds[@]}"; do
    if part "build $build" scripts/build.sh "$build"; then
        extra+=(--extra "passed:build $build")
    else
        extra+=(--extra "failed:build $build")
    fi
done

for suite in $(suites_of cpu); do
    [ "$quick" = 1 ] && [[ " bench install cluster nvcc " == *" $suite "* ]] && continue
    part "cpu $suite" run_suite cpu "$suite"
done
part "weak litmus" run_suite weak litmus

if [ "$quick" = 0 ]; then
    if part "mutants" scripts/mutants.sh --quick; then
        extra+=(--extra "passed:mutants")
    else
        extra+=(--extra "failed:mutants")
    fi
fi

echo
echo "time of each part:"
printf '%s\n' "${times[@]}"
printf '%5d s  all\n\n' $((SECONDS - begin))
if [ "$write_counts" = 1 ]; then
    test/report.py --write-expected test/expected-counts ${logs[@]+"${logs[@]}"}
fi
report=()
if [ "$strict" = 1 ]; then
    report=(--strict --expected test/expected-counts)
    [[ " ${builds[*]} " == *" cuda "* ]] || report+=(--not-here cpu/nvcc)
fi
exec test/report.py ${report[@]+"${report[@]}"} ${extra[@]+"${extra[@]}"} ${logs[@]+"${logs[@]}"}
