#!/bin/bash
# mutants.sh - turns each named ordering operation of the device API off, one at a time, and says which test notices.
set -u
cd "$(dirname "$0")/.." || exit 1

usage() {
    cat <<'T'
Usage: scripts/mutants.sh [--quick] [WEAK [TSAN]]

WEAK  build of the CPU device with -Dweak=true -Dmutants=true (default: build-weak)
TSAN  build with -Db_sanitize=thread -Dmutants=true; without it, what only ThreadSanitizer shows is not run

For every operation of include/tern/detail/order.h (listed by the litmus program's --orders) the tests run with
TERN_CPU_MUTANT=NAME until one fails: the litmus tests between blocks of one PE, then between PEs, for some the device tests
of reports or abort, for those of the way through the proxy the ring test; in TSAN the litmus tests between blocks, or the ring
test. Survivors must be in the table of docs/design.md, section Mutants, with the reason;
an operation listed there as shown by nothing that a test does notice is a failure too. First, all tests must pass with no
mutant.

--quick  one seed, and listed survivors are not run: under a minute
T
}

quick=0 dirs=()
for arg; do
    case $arg in
    --quick) quick=1 ;;
    --help | -h) usage; exit 0 ;;
    -*) usage >&2; exit 2 ;;
    *) dirs+=("$arg") ;;
    esac
done
weak=${dirs[0]:-build-weak} tsan=${dirs[1]:-}
litmus=$weak/test/test-litmus-litmus fail=$weak/test/test-device-fail ring=$weak/test/test-proxy-ring
if [ ! -x "$litmus" ] || [ ! -x "$fail" ] || [ ! -x "$ring" ]; then
    echo "mutants.sh: $litmus, $fail or $ring is missing; scripts/build.sh weak makes them" >&2
    exit 2
fi
seeds=(1 2 3)
[ $quick = 1 ] && seeds=(1)
export TEST_SEED=${TEST_SEED:-20}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# run PES SECONDS NAME=VALUE... -- COMMAND...: a test program, within its time; its status
run() {
    local pes=$1 limit=$2 variables=()
    shift 2
    while [ "$1" != -- ]; do
        variables+=(-e "$1")
        shift
    done
    shift
    TEST_BUILD_ROOT=$weak test/run-pes.py -n "$pes" -t "$limit" ${variables[@]+"${variables[@]}"} -- "$@" >"$log" 2>&1
}

# Which test of the log failed.
noticed() {
    grep -o 'litmus [a-z_0-9]*, PE\|report of several threads\|report: reason\|ThreadSanitizer: [a-z ]*' "$log" | head -n 1 |
        sed 's/, PE//; s/report.*/report/; s/ *$//'
}

# proxied NAME: does it stand on the way through the proxy only?
proxied() {
    [[ $1 = @(source_*|ring_*|slot_*|reply_*|fence_taken|fence_exit|strided_join|amo_near|meet_quiet) ]]
}

# stages_proxied NAME: the same as stages for those, and for none
stages_proxied() {
    local mutant=$1 seed
    if [ "$mutant" != meet_quiet ]; then
        for seed in "${seeds[@]}"; do
            run 0 12 "TERN_CPU_WEAK=$seed" "TERN_CPU_MUTANT=$mutant" -- "$ring" || { echo "ring test (weak memory)"; return 0; }
        done
    fi
    case $mutant in
    amo_near | "") # signals that add go through the proxy behind a copy by load/store
        for seed in "${seeds[@]}"; do
            run 2 60 "TERN_CPU_WEAK=$seed" "TERN_CPU_MUTANT=$mutant" TERN_ATOMICS=proxy -- "$litmus" --test put_signal_add \
                --iterations 60 --deadline 5000 || { echo "$(noticed) (weak memory, proxied atomics, PEs)"; return 0; }
        done ;;&
    meet_quiet | "")
        run 2 60 TERN_CPU_WEAK=1 "TERN_CPU_MUTANT=$mutant" TERN_DISABLE_P2P=1 TERN_TRANSPORT=loopback \
            TERN_LOOPBACK_FAULTS=delay=0-300us,reorder=0.5,seed=1 -- "$litmus" --test barrier_puts --iterations 100 \
            --deadline 5000 || { echo "$(noticed) (loopback with faults, PEs)"; return 0; } ;;
    esac
    return 1
}

# stages NAME: runs the stages until one fails; prints how it was noticed; status 1 when nothing noticed it
stages() {
    local mutant=$1 seed
    if proxied "$mutant"; then
        stages_proxied "$mutant"
        return
    fi
    [ -n "$mutant" ] || ! stages_proxied "" || return 0
    for seed in "${seeds[@]}"; do
        # only PEs meet
        [[ $mutant = @(meet|epoch|sync|barrier)_* ]] ||
            run 1 60 "TERN_CPU_WEAK=$seed" "TERN_CPU_MUTANT=$mutant" -- "$litmus" --iterations 60 --deadline 2000 ||
            { echo "$(noticed) (weak memory, blocks)"; return 0; }
        run 2 60 "TERN_CPU_WEAK=$seed" "TERN_CPU_MUTANT=$mutant" -- "$litmus" --iterations 40 --deadline 2000 ||
            { echo "$(noticed) (weak memory, PEs)"; return 0; }
    done
    # some show in a window of microseconds only
    [ -z "$mutant" ] || run 1 60 TERN_CPU_WEAK=4 "TERN_CPU_MUTANT=$mutant" -- "$litmus" --iterations 1000 --deadline 2000 ||
        { echo "$(noticed) (weak memory, blocks)"; return 0; }
    case $mutant in
    report_* | "") run 1 60 TERN_CPU_WEAK=1 "TERN_CPU_MUTANT=$mutant" -- "$fail" report || { noticed; return 0; } ;;
    esac
    case $mutant in
    abort_* | "") run 1 6 "TERN_CPU_MUTANT=$mutant" -- "$fail" abort || { echo "abort ends waits"; return 0; } ;;
    esac
    return 1
}

stage_tsan() {
    local test=("$tsan/test/test-litmus-litmus" --iterations 40 --blocks 3 --threads 32)
    [[ $1 = report_* ]] && test=("$tsan/test/test-device-fail" report)
    proxied "$1" && test=("$tsan/test/test-proxy-ring")
    TSAN_OPTIONS="halt_on_error=1:suppressions=$PWD/test/sanitize/tsan.supp" run 1 60 "TERN_CPU_MUTANT=$1" -- "${test[@]}" &&
        return 1
    noticed
}

# listed NAME: how docs/design.md says that this operation's absence shows: tsan, nothing, or not listed
listed() {
    sed -n '/^## Mutants/,/^## [^M]/p' docs/design.md | sed -n "s/^| \`$1\` | \([a-z]*\) |.*/\1/p"
}

start=$SECONDS
echo "without a mutant"
if how=$(stages ""); then
    echo "mutants.sh: a test fails without a mutant: $how" >&2
    tail -n 20 "$log" >&2
    exit 1
fi
if [ -n "$tsan" ] && how=$(stage_tsan ""); then
    echo "mutants.sh: ThreadSanitizer reports without a mutant: $how" >&2
    tail -n 40 "$log" >&2
    exit 1
fi
if run 1 30 TERN_CPU_MUTANT=no_such_operation -- "$litmus" --list; then
    echo "mutants.sh: an unknown mutant is not refused" >&2
    exit 1
fi

killed=0 survived=0 wrong=0
while read -r name _; do
    claim=$(listed "$name")
    if [ $quick = 1 ] && [ -n "$claim" ]; then
        printf '%-24s not run: docs/design.md lists it (%s)\n' "$name" "$claim"
        survived=$((survived + 1))
    elif how=$(stages "$name"); then
        printf '%-24s %s\n' "$name" "$how"
        killed=$((killed + 1))
        if [ -n "$claim" ]; then
            echo "  docs/design.md lists it as a survivor: take it out"
            wrong=$((wrong + 1))
        fi
    elif [ -n "$tsan" ] && how=$(stage_tsan "$name"); then
        printf '%-24s %s\n' "$name" "$how"
        killed=$((killed + 1))
        if [ "$claim" != tsan ]; then
            echo "  docs/design.md must list it as shown by tsan"
            wrong=$((wrong + 1))
        fi
    else
        printf '%-24s survives (docs/design.md: %s)\n' "$name" "${claim:-not listed}"
        survived=$((survived + 1))
        if [ -z "$claim" ] || { [ -n "$tsan" ] && [ "$claim" = tsan ]; }; then
            wrong=$((wrong + 1))
        fi
    fi
done < <("$litmus" --orders)
echo "$killed noticed, $survived survive, $wrong wrong, $((SECONDS - start)) s"
[ $wrong = 0 ]
