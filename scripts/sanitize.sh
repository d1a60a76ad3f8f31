#!/bin/bash
# sanitize.sh - builds with the sanitizers and runs the suites under them; closes with `N passed, N failed, N skipped`.
set -u
cd "$(dirname "$0")/.." || exit 1

usage() {
    cat <<'T'
Usage: scripts/sanitize.sh [--no-install] [asan] [tsan]

asan   AddressSanitizer and UndefinedBehaviorSanitizer (gcc, build-asan): all suites on 1, 2 and 4 PEs
tsan   ThreadSanitizer (clang, build-tsan): litmus tests whose parties are blocks of one PE, control plane, allocator
Without a name: both. In each build planted bugs must be reported, else the run fails. The last line is
`N passed, N failed, N skipped`; exit status 1 when something failed.

Variables: JOBS, TEST_SEED, TEST_TIME_SCALE (multiplies time limits; default 3 here).
T
}

which=() deps_args=()
for arg; do
    case $arg in
    asan | tsan) which+=("$arg") ;;
    --no-install) deps_args+=(--no-install) ;;
    --help | -h) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
    esac
done
[ ${#which[@]} = 0 ] && which=(asan tsan)
read -ra meson <<<"${MESON:-meson}"
export TEST_TIME_SCALE=${TEST_TIME_SCALE:-3}
root=$PWD
# Leaks of launcher libraries are not ours; test/sanitize/lsan.supp names them.
export ASAN_OPTIONS="detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=0:allocator_may_return_null=1"
export LSAN_OPTIONS="suppressions=$root/test/sanitize/lsan.supp:print_suppressions=0"
export UBSAN_OPTIONS="print_stacktrace=1"
export TSAN_OPTIONS="halt_on_error=1:second_deadlock_stack=1:suppressions=$root/test/sanitize/tsan.supp"
logs=() extra=() times=()
begin=$SECONDS

scripts/deps.sh test sanitize ${deps_args[@]+"${deps_args[@]}"} || { echo "0 passed, 1 failed, 0 skipped"; exit 1; }
for build in "${which[@]}"; do
    start=$SECONDS
    echo "== build $build"
    if scripts/build.sh "$build"; then
        extra+=(--extra "passed:build $build")
    else
        extra+=(--extra "failed:build $build")
    fi
    times+=("$(printf '%5d s  build %s' $((SECONDS - start)) "$build")")
    for suite in $("${meson[@]}" introspect "build-$build" --tests | python3 -c '
import json, sys
print(*dict.fromkeys(t["suite"][0].split(":")[-1] for t in json.load(sys.stdin)))'); do
        start=$SECONDS
        echo "== $build $suite"
        log=build-$build/meson-logs/log-$suite.json
        rm -f "$log"
        "${meson[@]}" test -C "build-$build" --no-rebuild --num-processes "${JOBS:-$(nproc)}" --timeout-multiplier \
            "$TEST_TIME_SCALE" --logbase "log-$suite" --print-errorlogs --suite "tern:$suite" 2>&1 |
            grep '^ *[0-9]*/[0-9]* \|^\[\|ERROR\|WARNING\|SUMMARY\|runtime error\|^ *#[0-9]\|CHECK'
        [ -e "$log" ] && logs+=("$build/$suite=$log")
        times+=("$(printf '%5d s  %s %s' $((SECONDS - start)) "$build" "$suite")")
    done
done

echo
echo "time of each part:"
printf '%s\n' "${times[@]}"
printf '%5d s  all\n\n' $((SECONDS - begin))
exec test/report.py "${extra[@]}" ${logs[@]+"${logs[@]}"}
