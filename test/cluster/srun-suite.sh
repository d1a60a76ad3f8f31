#!/bin/bash
# srun-suite.sh PES PROGRAM... - runs test programs under srun --mpi=pmix with PES PEs each, one after the other, in the
# Slurm cluster that it is started in (slurm.sh). Fails when one fails, or when none ran.
set -u
pes=$1 failed=0 ran=0
shift
export TEST_LAUNCHER=srun
for program; do
    "$TEST_SOURCE_ROOT/test/run-pes.py" -n "$pes" -t 120 -- "$program" >"$TMPDIR/out" 2>&1
    status=$?
    case $status in
    0) ran=$((ran + 1)); echo "ok      $(basename "$program")" ;;
    77) echo "skipped $(basename "$program"): $(tail -n 1 "$TMPDIR/out")" ;;
    *) failed=$((failed + 1)); cat "$TMPDIR/out"; echo "FAILED  $(basename "$program"): status $status" ;;
    esac
done
echo "$ran programs ran under srun with $pes PEs, $failed failed"
[ "$failed" = 0 ] && [ "$ran" -gt 0 ]
