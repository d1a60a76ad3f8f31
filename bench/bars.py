#!/usr/bin/env python3
"""Runs tern-bench and compares its ratios (time over the time of a raw loop, in the same run) with the bars set for them.

Prints a table; exit status 1 when a ratio is above its bar or a run failed. Meant for GPUs: on the CPU device ratios say little.
"""
import argparse
import json
import os
import subprocess
import sys

STAGE = ["--stage", "32K"]
# name, PEs, arguments of tern-bench, highest ratio allowed
BARS = [
    ("signal ping-pong", 2, ["signal-pingpong"], 1.15),
    ("put_signal ping-pong, 8 B", 2, ["put-signal-pingpong", "-b", "8", "-e", "8"], 1.15),
    ("put 8 B + quiet, thread", 2, ["put-quiet", "-b", "8", "-e", "8"], 1.10),
    ("put 4 KiB + quiet, thread", 2, ["put-quiet", "-s", "thread", "-b", "4K", "-e", "4K", *STAGE], 1.55),
    ("put 4 KiB + quiet, warp", 2, ["put-quiet", "-s", "warp", "-b", "4K", "-e", "4K", *STAGE], 1.55),
    ("put 4 KiB + quiet, block", 2, ["put-quiet", "-s", "block", "-b", "4K", "-e", "4K", *STAGE], 1.30),
    ("put 32 KiB + quiet, thread", 2, ["put-quiet", "-s", "thread", "-b", "32K", "-e", "32K", *STAGE], 1.45),
    ("put 32 KiB + quiet, warp", 2, ["put-quiet", "-s", "warp", "-b", "32K", "-e", "32K", *STAGE], 1.45),
    ("put 32 KiB + quiet, block", 2, ["put-quiet", "-s", "block", "-b", "32K", "-e", "32K", *STAGE], 1.30),
    ("put, 16 blocks, 16 MiB", 2, ["put", "-s", "block", "-c", "16", "-b", "16M", "-e", "16M"], 1 / 0.97),
    ("put, 64 blocks, 64 MiB", 2, ["put", "-s", "block", "-c", "64", "-b", "64M", "-e", "64M"], 1 / 0.95),
    *[(f"barrier, {n} PEs", n, ["barrier"], 1.15) for n in (2, 4, 8)],
    *[(f"barrier after 512 puts, {n} PEs", n, ["barrier", "-t", "512", "-b", "4K", "-e", "4K"], 1.15) for n in (2, 4, 8)],
    *[(f"sync, released, {n} PEs", n, ["sync", "--released"], 1.15) for n in (2, 4, 8)],
]


def measure(build, pes, args, variables=(), program="src/tools/tern-bench"):
    """The JSON objects that tern-bench (or another program of the build) prints, or the text of its failure."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    variables = [word for variable in variables for word in ("-e", variable)]
    args = [*args, "--json"] if program.endswith("tern-bench") else args
    command = [os.path.join(root, "test/run-pes.py"), "-n", str(pes), "-t", "120", *variables, "--",
               os.path.join(build, program), *args]
    done = subprocess.run(command, capture_output=True, text=True, check=False,
                          env={**os.environ, "TEST_BUILD_ROOT": os.path.abspath(build)})
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return rows if done.returncode == 0 and rows else (done.stdout + done.stderr).strip() or f"status {done.returncode}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build-cuda", help="build directory (default %(default)s)")
    parser.add_argument("--logs", default=".", help="directory for bars.jsonl (default: here)")
    parser.add_argument("--filter", default="", help="only rows whose name contains this")
    args = parser.parse_args()

    missed = 0
    print(f"{'what':36} {'us':>9} {'floor us':>9} {'ratio':>6} {'bar':>6}")
    with open(os.path.join(args.logs, "bars.jsonl"), "w", encoding="utf-8") as log:
        for name, pes, options, bar in BARS:
            if args.filter not in name:
                continue
            rows = measure(args.build, pes, options)
            if isinstance(rows, str):
                print(f"{name:36} failed: {rows.splitlines()[-1]}", flush=True)
                missed += 1
                continue
            for row in rows:
                log.write(json.dumps(row) + "\n")
                ratio = row["ratio"]
                bad = ratio is None or ratio > bar
                missed += bad
                print(f"{name:36} {row['us_median']:9.3f} {row['floor_us'] or 0:9.3f} {ratio or 0:6.3f} {bar:6.3f}"
                      f"{'  MISSED' if bad else ''}", flush=True)
    print(f"{missed} missed" if missed else "all bars are met")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
