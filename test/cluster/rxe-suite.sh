#!/bin/bash
# rxe-suite.sh - in the guest of rxe.sh: the tests of a path over verbs with one PE a node, and so one rail, then some with two
# PEs a node, which have a device (a rail) each.
set -u
status=0
"$TEST_SOURCE_ROOT/test/path/path.sh" rxe 2 || status=1
"$TEST_SOURCE_ROOT/test/path/path.sh" rxe-rails 4 || status=1
mkdir -p /run/outside # where the counters are seen
nsenter --target 1 --net mount -t sysfs outside /run/outside
for i in 0 1 2 3; do
    packets=$(cat "/run/outside/class/infiniband/rxe$i/ports/1/hw_counters/sent_pkts") || packets=0
    echo "rxe$i sent $packets packets"
    [ "$packets" -gt 100 ] || { echo "FAILED: rxe$i was not used"; status=1; }
done
exit $status
