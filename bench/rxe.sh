#!/bin/bash
# rxe.sh - Tern over verbs beside perftest on Soft-RoCE: the same devices, in turn, in one virtual machine.
set -u

usage() {
    cat <<'T'
Usage: bench/rxe.sh [--build DIR] [--turns N]

Starts the virtual machine of test/cluster/rxe.sh and measures, N (3) times in turn, between its two nodes:

  latency   ib_write_lat of 8 bytes, and half a put_signal ping-pong of tern-bench
  rate      ib_write_bw of 64 KiB, and tern-bench put
  atomics   ib_atomic_lat, and tern-bench atomic -o fetch_add

Prints the medians and Tern's over perftest's. Everything is emulated: only the ratios mean something. Needs what the test suite
rxe needs, perftest (the package), and a build of the CPU device (build-cpu).
T
}

here=$(cd "$(dirname "$0")/.." && pwd)
build=$here/build-cpu turns=3
while [ $# -gt 0 ]; do
    case $1 in
    --build) build=$(realpath "$2"); shift ;;
    --turns) turns=$2; shift ;;
    --help | -h) usage; exit 0 ;;
    --inside) inside=1 ;;
    *) usage >&2; exit 2 ;;
    esac
    shift
done

if [ -z "${inside:-}" ]; then
    command -v ib_write_lat >/dev/null || { echo "bench/rxe.sh: there is no ib_write_lat; install perftest" >&2; exit 2; }
    exec "$here/test/cluster/rxe.sh" -t 600 "$here/bench/rxe.sh" --build "$build" --turns "$turns" --inside
fi

# perftest PROGRAM COLUMN ARGUMENT...: a server on node1, the client here; one number of the client's last line
perftest() {
    local program=$1 column=$2
    shift 2
    rxe-on node1 "$program" -d rxe1 -x 0 -F "$@" >/dev/null 2>&1 &
    sleep 1.5
    timeout 60 "$program" -d rxe0 -x 0 -F "$@" node1 2>/dev/null | grep '^ *[0-9]' | tail -n 1 | awk -v c="$column" '{print $c}'
    wait $!
}

# tern ARGUMENT...: median of tern-bench, in us
tern() {
    timeout 60 mpirun --allow-run-as-root --quiet --host node0:1,node1:1 --mca plm_rsh_agent rxe-on -n 2 -x TERN_TRANSPORT=verbs \
        -x TERN_TEST_SCALE=10 -x TERN_HEAP_MAX=256M -x "LD_LIBRARY_PATH=$build/src" --mca oob_tcp_if_include 10.3.0.0/24 \
        --mca btl_tcp_if_include 10.3.0.0/24 "$build/src/tools/tern-bench" "$@" --json 2>/dev/null |
        python3 -c 'import json, sys
for line in sys.stdin:
    if line.startswith("{"):
        print(json.loads(line)["us_median"])'
}

median() {
    printf '%s\n' "$@" | sort -g | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'
}

lat_p=() lat_t=() bw_p=() bw_t=() amo_p=() amo_t=()
for ((turn = 0; turn < turns; turn++)); do
    lat_p+=("$(perftest ib_write_lat 5 -s 8 -n 300)")
    lat_t+=("$(tern put-signal-pingpong -b 8 -e 8 -n 100 --samples 3)")
    bw_p+=("$(perftest ib_write_bw 4 -s 65536 -n 300)")
    bw_t+=("$(tern put -b 64K -e 64K -n 100 --samples 3)")
    amo_p+=("$(perftest ib_atomic_lat 5 -A FETCH_AND_ADD -n 300)")
    amo_t+=("$(tern atomic -o fetch_add -d uint64 -n 100 --samples 3)")
    echo "turn $((turn + 1)): ${lat_p[-1]} ${lat_t[-1]} ${bw_p[-1]} ${bw_t[-1]} ${amo_p[-1]} ${amo_t[-1]}"
done
python3 - "$(median "${lat_p[@]}")" "$(median "${lat_t[@]}")" "$(median "${bw_p[@]}")" "$(median "${bw_t[@]}")" \
    "$(median "${amo_p[@]}")" "$(median "${amo_t[@]}")" <<'P'
import sys
lat_p, lat_t, bw_p, bw_t, amo_p, amo_t = map(float, sys.argv[1:])
print(f"{'':28} {'perftest':>10} {'Tern':>10} {'ratio':>6}")
print(f"{'8 B one way, us':28} {lat_p:10.1f} {lat_t / 2:10.1f} {lat_t / 2 / lat_p:6.2f}")
print(f"{'64 KiB writes, MB/s':28} {bw_p:10.1f} {65536 / bw_t:10.1f} {65536 / bw_t / bw_p:6.2f}")
print(f"{'fetch-add, us':28} {amo_p:10.1f} {amo_t:10.1f} {amo_t / amo_p:6.2f}")
P
