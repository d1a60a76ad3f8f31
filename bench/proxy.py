#!/usr/bin/env python3
"""Measures the way through the proxy: on the null transport (rings and engine alone) and on loopback.

Prints a table beside the raw loops of the same run and the bars set for some rows; exit status 1 when one is missed or a run
failed. The bars are meant for GPUs: there, PEs share one under an MPS daemon (scripts/with-mps.sh).
"""
import argparse
import json
import os
import sys

from bars import measure

PATH = ["TERN_DISABLE_P2P=1", "CUDA_MODULE_LOADING=EAGER"]
NULL = [*PATH, "TERN_TRANSPORT=null"]
LOOPBACK = [*PATH, "TERN_TRANSPORT=loopback"]
# name, PEs, variables, arguments of tern-bench, highest ratio to the floor or lowest rate in M/s (None: no bar)
ROWS = [
    ("NOP there and back", 2, NULL, ["proxy-nop"], ("ratio", 1.15)),
    ("NOP, warp of 32", 2, NULL, ["proxy-nop", "-t", "32"], None),
    ("put 8 B + quiet", 2, NULL, ["put-quiet", "-b", "8", "-e", "8"], None),
    ("issue, released", 2, NULL, ["proxy-issue", "--released"], ("ratio", 1.15)),
    ("issue, default", 2, NULL, ["proxy-issue"], ("ratio", 1.15)),
    *[(f"issue, {n} blocks x 1", 2, NULL, ["proxy-issue", "--released", "-c", str(n)], None) for n in (8, 32, 132)],
    *[(f"8 B puts, {n} blocks x 1", 2, NULL, ["proxy-rate", "-c", str(n)], None) for n in (1, 8, 32, 132)],
    ("8 B puts, 1 block x 32", 2, NULL, ["proxy-rate", "-t", "32"], None),
    ("8 B puts, 32 blocks x 32", 2, NULL, ["proxy-rate", "-c", "32", "-t", "32"], ("mops", 20)),
    ("8 B puts, 132 blocks x 256", 2, NULL, ["proxy-rate", "-c", "132", "-t", "256", "-n", "100"], None),
    *[(f"8 B puts, {n} threads of the proxy", n + 1, [*NULL, f"TERN_PROXY_THREADS={n}"],
       ["proxy-rate", "-c", "64", "-t", "32"], ("mops", 60) if n == 4 else None) for n in (2, 4, 8)],
    ("8 B puts over loopback", 2, LOOPBACK, ["proxy-rate", "-c", "32", "-t", "32", "-n", "20", "--check"], None),
    ("put 8 B + quiet, loopback", 2, LOOPBACK, ["put-quiet", "-b", "8", "-e", "8", "-n", "50", "--check"], None),
    ("put_signal ping-pong 8 B, loopback", 2, LOOPBACK, ["put-signal-pingpong", "-b", "8", "-e", "8", "-n", "50"], None),
]
# the blocks beside one; what the ratios to each alone may be
SHARE = [(64, {"median_ratio": 3.0, "p99_ratio": 10.0, "rate_ratio": 0.8})]


def put_rows(args, log):
    missed = 0
    print(f"{'what':36} {'us':>9} {'floor us':>9} {'ratio':>6} {'M/s':>8}  bar")
    for name, pes, variables, options, bar in ROWS:
        if args.filter not in name:
            continue
        rows = measure(args.build, pes, options, variables)
        if isinstance(rows, str):
            print(f"{name:36} failed: {rows.splitlines()[-1]}", flush=True)
            missed += 1
            continue
        row = rows[0]
        log.write(json.dumps({"row": name, **row}) + "\n")
        count = row["ctas"] * row["threads"]
        mops = count / row["us_median"] if "rate" in options[0] else 1 / row["us_median"]
        bad = bar and (mops < bar[1] if bar[0] == "mops" else row["ratio"] > bar[1])
        missed += bool(bad)
        text = "" if not bar else f">= {bar[1]} M/s" if bar[0] == "mops" else f"<= {bar[1]} x floor"
        print(f"{name:36} {row['us_median']:9.3f} {row['floor_us'] or 0:9.3f} {row['ratio'] or 0:6.3f} {mops:8.2f}  {text}"
              f"{'  MISSED' if bad else ''}", flush=True)
    return missed


def share_rows(args, log):
    missed = 0
    for blocks, bars in SHARE:
        rows = measure(args.build, 2, [str(blocks)], NULL, "bench/share")
        if isinstance(rows, str):
            print(f"one block beside {blocks}: failed: {rows.splitlines()[-1]}")
            missed += 1
            continue
        row = rows[0]
        log.write(json.dumps({"row": "share", **row}) + "\n")
        print(f"put 8 B + quiet of one block: {row['lone_us']} us alone (p99 {row['lone_p99_us']}), {row['beside_us']} us beside "
              f"{blocks} that do the same (p99 {row['beside_p99_us']}); those: {row['kops_alone']:.0f} k/s alone, "
              f"{row['kops_beside']:.0f} k/s beside it")
        for key, bar in bars.items():
            bad = row[key] < bar if key == "rate_ratio" else row[key] > bar
            missed += bad
            print(f"  {key:14} {row[key]:6.2f}  bar {bar}{'  MISSED' if bad else ''}")
    return missed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build-cuda", help="build directory (default %(default)s)")
    parser.add_argument("--logs", default=".", help="directory for proxy.jsonl (default: here)")
    parser.add_argument("--filter", default="", help="only rows whose name contains this")
    args = parser.parse_args()

    with open(os.path.join(args.logs, "proxy.jsonl"), "w", encoding="utf-8") as log:
        missed = put_rows(args, log)
        if args.filter in "share":
            missed += share_rows(args, log)
    print(f"{missed} missed" if missed else "all bars are met")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
