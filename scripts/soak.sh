#!/bin/bash
# soak.sh - long runs: every test program again and again with new seeds and more PEs, for a bounded time.
set -u
cd "$(dirname "$0")/.." || exit 1

usage() {
    cat <<'T'
Usage: scripts/soak.sh [-m MINUTES] [-n "PES..."] [BUILD] [PATTERN]

Runs the test programs of BUILD (cpu; or weak, asan, tsan) whose names match PATTERN in turn, each round with a new seed,
on every PE count of "PES" (1 2 3 4 8), for MINUTES (60). Stops at the first failure, prints how to repeat it, and ends with
status 1. Prints a line a minute. Sets TEST_SOAK=1, by which the model checker takes random programs.

  scripts/soak.sh -m 10 weak litmus
T
}

minutes=60 counts="1 2 3 4 8" build=cpu pattern=""
while [ $# -gt 0 ]; do
    case $1 in
    --help | -h) usage; exit 0 ;;
    -m) minutes=$2; shift ;;
    -n) counts=$2; shift ;;
    -*) usage >&2; exit 2 ;;
    cpu | weak | asan | tsan | cuda) build=$1 ;;
    *) pattern=$1 ;;
    esac
    shift
done
[[ $minutes =~ ^[0-9]+$ ]] || { echo "soak.sh: -m takes minutes, not '$minutes'" >&2; exit 2; }
scripts/build.sh "$build" || exit 1

# name, PE counts of each multi-PE test program, as the build knows them
mapfile -t programs < <(python3 - "build-$build" "$pattern" <<'P'
import json, os, re, subprocess, sys
build, pattern = sys.argv[1:]
seen = {}
for test in json.loads(subprocess.run(["meson", "introspect", build, "--tests"], capture_output=True, text=True, check=True).stdout):
    command = test["cmd"]
    if "--" in command and re.search(pattern, "/".join(test["suite"]) + "/" + test["name"]):
        rest = command[command.index("--") + 1:]
        options = command[1:command.index("--")]
        many = not test["is_parallel"]
        key = (tuple(rest), tuple(options[4:]))
        seen[key] = seen.get(key, False) or many
for (rest, options), many in seen.items():
    print("many" if many else "one", *options, "--", *rest)
P
)
[ ${#programs[@]} -gt 0 ] || { echo "soak.sh: no test program of build-$build matches '$pattern'" >&2; exit 2; }
echo "${#programs[@]} test programs of build-$build for $minutes minutes"

export TEST_BUILD_ROOT=$PWD/build-$build TEST_SOURCE_ROOT=$PWD TEST_DEVICE=cpu TEST_TIME_SCALE=${TEST_TIME_SCALE:-3}
export TEST_SOAK=1 # model/protocol: one case, big ones too, and 300 random programs a round
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
end=$((SECONDS + minutes * 60)) told=$SECONDS runs=0 round=0
while [ $SECONDS -lt $end ]; do
    round=$((round + 1))
    for program in "${programs[@]}"; do
        read -ra words <<<"$program"
        pes_list=$counts
        [ "${words[0]}" = one ] && pes_list=0
        for pes in $pes_list; do
            [ $SECONDS -lt $end ] || break
            export TEST_SEED=$((RANDOM * 32768 + RANDOM))
            (cd "build-$build" && ../test/run-pes.py -n "$pes" -t 300 "${words[@]:1}") >"$log" 2>&1
            status=$?
            runs=$((runs + 1))
            if [ $status != 0 ] && [ $status != 77 ]; then
                tail -n 40 "$log"
                echo "soak.sh: failed with status $status after $runs runs; repeat:"
                echo "  cd build-$build && TEST_SOAK=1 TEST_SEED=$TEST_SEED ../test/run-pes.py -n $pes ${words[*]:1}"
                exit 1
            fi
            if [ $((SECONDS - told)) -ge 60 ]; then
                told=$SECONDS
                echo "$((SECONDS / 60)) min: round $round, $runs runs, none failed"
            fi
        done
    done
done
echo "$runs runs in $round rounds, none failed"
