#!/bin/bash
# path.sh - runs the semantic tests and the main job over one path of the proxy.
set -u

usage() {
    cat <<'T'
Usage: test/path/path.sh PATH PES

Runs the device and litmus tests, the random program and moe_layer on PES PEs of one node, over the path named PATH:

  loopback          by the mapping of the peers' memory
  loopback-threads  the same with three proxy threads and one channel
  loopback-faults   with delays, reordering and few credits, from a random seed
  ucx-tcp, ucx-shm  by UCX over TCP, over shared memory
  ucx-threads       by UCX over TCP with three proxy threads
  atomics           load/store peers, whose atomics all go to the proxy of their owner
  nodes             on two nodes of the Slurm cluster in which it is started: the first half of the PEs on one
  nodes-cyclic      the same, PEs dealt out in turn
  rxe               by verbs between the two nodes of cluster/rxe.sh, in which it is started, half of the PEs on each
  rxe-rails         the same, sums and the main job only

Fails when one fails. Needs TEST_BUILD_ROOT and TEST_SOURCE_ROOT, as tests have them.
T
}

case ${1:---help} in
--help | -h) usage; exit 0 ;;
esac
[ $# = 2 ] || { usage >&2; exit 2; }
path=$1 pes=$2 seed=${TEST_SEED:-$((RANDOM * 32768 + RANDOM))}
build=$TEST_BUILD_ROOT/test
export TERN_LOG=${TERN_LOG:-error}

case $path in
loopback | loopback-*) export TERN_DISABLE_P2P=1 TERN_TRANSPORT=loopback ;;
ucx-*) export TERN_DISABLE_P2P=1 TERN_TRANSPORT=ucx ;;
atomics) export TERN_ATOMICS=proxy ;;
rxe | rxe-rails)
    export TERN_TRANSPORT=verbs TERN_TEST_SCALE=10 TERN_HEAP_MAX=256M TEST_LAUNCHER=mpirun
    half=$(((pes + 1) / 2))
    TEST_MPIRUN_ARGS="--host node0:$half,node1:$half --mca plm_rsh_agent rxe-on --mca oob_tcp_if_include 10.3.0.0/24"
    export TEST_MPIRUN_ARGS="$TEST_MPIRUN_ARGS --mca btl_tcp_if_include 10.3.0.0/24"
    ;;
nodes | nodes-cyclic) export TEST_LAUNCHER=srun SLURM_NNODES=2 SLURM_NTASKS_PER_NODE=$(((pes + 1) / 2)) ;;
*) usage >&2; exit 2 ;;
esac
case $path in
*-threads) export TERN_PROXY_THREADS=3 TERN_CHANNELS=1 ;;
*-cyclic) export SLURM_DISTRIBUTION=cyclic ;;
*-faults) export TERN_LOOPBACK_FAULTS=delay=0-100us,reorder=0.3,credits=8,seed=$seed ;;
esac
case $path in
ucx-shm) export UCX_TLS=posix,self ;;
ucx-*) export UCX_TLS=tcp,self ;;
esac
echo "path $path, $pes PEs, seed $seed (TEST_SEED)"

# run-pes.py drops the caller's variables
variables=()
# loopback's threads call the driver, and their streams must not queue behind kernels that wait
[ "${TEST_DEVICE:-cpu}" = cuda ] && variables+=(--gpu -e CUDA_MODULE_LOADING=EAGER -e CUDA_DEVICE_MAX_CONNECTIONS=16)
for name in ${!TERN_@}; do variables+=(-e "$name=${!name}"); done

# go NAME ARGUMENT...: a program of the build
failed=0 limit=100 tokens=256
[ "${TEST_DEVICE:-cpu}" = cuda ] && limit=40
go() {
    local begin=${EPOCHREALTIME/./} status out=$TMPDIR/out
    "$TEST_SOURCE_ROOT/test/run-pes.py" -n "$pes" -t "$limit" "${variables[@]}" -- "$@" >"$out" 2>&1
    status=$?
    printf '%-8s %6d ms  %s\n' "$([ $status = 0 ] && echo ok || echo FAILED)" \
        $(((${EPOCHREALTIME/./} - begin) / 1000)) "$(basename "$1") ${*:2}"
    if [ $status != 0 ]; then
        echo "status $status"
        tail -n 60 "$out"
        failed=1
    fi
}

[ "$path" = rxe-rails ] || go "$build/test-device-rma" 1
case $path-${TEST_DEVICE:-cpu} in
rxe-*) # everything is emulated
    [ "$path" = rxe-rails ] || go "$build/test-device-atomic" 1 2
    rounds=5 operations=100 sums=200 tokens=16
    ;;
nodes*) rounds=10 operations=300 sums=100000 ;; # everything shares two cores, and an atomic takes four threads of them
*-cuda) # some 50 us an operation, twice that an atomic, one after the other
    go "$build/test-device-atomic" 1 8
    rounds=10 operations=300 sums=500
    ;;
*)
    go "$build/test-device-atomic" 1
    rounds=40 operations=1000 sums=20000
    ;;
esac
case $path-${TEST_DEVICE:-cpu} in
loopback-cpu | loopback-threads-cpu | atomics-cpu) operations=28000 ;;
esac
if [ "$path" != rxe-rails ]; then
    for name in wait stream; do go "$build/test-device-$name"; done
    go "$build/test-litmus-litmus" --iterations $rounds
    go "$build/test-path-random" $operations 3
fi
go "$build/test-path-sums" $sums
go "$TEST_BUILD_ROOT/examples/moe_layer" --text "$TEST_SOURCE_ROOT/README.md" --tokens $tokens
exit $failed
