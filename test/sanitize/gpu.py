#!/usr/bin/env python3
"""Runs tests under compute-sanitizer and judges what it reports: `gpu.py --list` names the runs, `gpu.py NAME` makes one.

A run is right when the programs end well, the tool's summary is there once for each PE, and nothing is reported but what is
known of the run (docs/design.md, section Tests, says why it is no fault):
  bulk    two writes of tern_copy_bulk: loads of two calls into one slot
  lanes   besides, as warnings, a write and a read of tern_copy_bulk, where several lanes of a warp use stages at once
Known hazards are counted, and a run that should have some and has none is wrong, too: then the note is out of date. Runs
named `planted` must be reported.
"""
import argparse
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CLEAN, BULK, LANES, REPORTED = "clean", "known hazards of bulk loads", "known hazards of bulk loads and lanes", "reported"
LITMUS, RMA, STAGE = "test-litmus-litmus", "test-device-rma", "test-device-stage"
PLANTED = "sanitize/test-sanitize-planted"
# name: tool, PEs (0: no launcher), program, arguments, what is expected
RUNS = {
    "planted-heap": ("memcheck", 0, PLANTED, ["heap"], REPORTED),
    "planted-race-threads": ("racecheck", 0, PLANTED, ["race-threads"], REPORTED),
    "planted-race-bulk": ("racecheck", 0, PLANTED, ["race-bulk"], REPORTED),
    "planted-none-memcheck": ("memcheck", 0, PLANTED, ["none"], CLEAN),
    "planted-none-racecheck": ("racecheck", 0, PLANTED, ["none"], CLEAN),
    "memcheck-rma": ("memcheck", 0, RMA, ["1"], CLEAN),
    "memcheck-stage": ("memcheck", 0, STAGE, ["few"], CLEAN),
    "memcheck-atomic": ("memcheck", 0, "test-device-atomic", [], CLEAN),
    "memcheck-wait": ("memcheck", 0, "test-device-wait", [], CLEAN),
    "memcheck-stream": ("memcheck", 0, "test-device-stream", [], CLEAN),
    "memcheck-graph": ("memcheck", 0, "test-device-graph", ["40"], CLEAN),
    "memcheck-litmus": ("memcheck", 0, LITMUS, ["--iterations", "100"], CLEAN),
    "memcheck-rma-2": ("memcheck", 2, RMA, ["1"], CLEAN),
    "memcheck-stage-2": ("memcheck", 2, STAGE, ["few"], CLEAN),
    "memcheck-graph-2": ("memcheck", 2, "test-device-graph", ["20"], CLEAN),
    "memcheck-litmus-2": ("memcheck", 2, LITMUS, ["--iterations", "60"], CLEAN),
    "racecheck-stage": ("racecheck", 0, STAGE, ["few"], BULK),
    "racecheck-rma": ("racecheck", 0, RMA, ["1"], LANES),
    "racecheck-litmus-stage": ("racecheck", 0, LITMUS, ["--test", "put_signal_stage", "--iterations", "40"], BULK),
    "racecheck-litmus-block": ("racecheck", 0, LITMUS, ["--test", "put_signal_block", "--iterations", "40"], CLEAN),
    "synccheck-rma": ("synccheck", 0, RMA, ["1"], CLEAN),
    "synccheck-stage": ("synccheck", 0, STAGE, ["few"], CLEAN),
    "synccheck-litmus": ("synccheck", 0, LITMUS, ["--iterations", "40"], CLEAN),
}
TIME_LIMIT = 150
# `Error: Race reported between Write access at A`, then one `and Write access at B [N hazards]` for each partner
PAIR = re.compile(r"(?:Race reported between|and) (\w+) access at (.*?)(?: \[(\d+) hazards?\])?$", re.M)


def blocks(text):
    """Reports of the tool, each with its lines."""
    return re.findall(r"^=========\s+(?:Error|Warning|Invalid|Program hit|Barrier error|Fatal|Internal).*\n(?:=========\s{2,}.*\n)*",
                      text, re.M)


def known(report, expected):
    """Hazards of a report that is all about what is known of the run, else 0."""
    if "Race reported" not in report or expected not in (BULK, LANES):
        return 0
    pairs = PAIR.findall(report)
    kinds = {("Write", "Write")} | ({("Write", "Read")} if expected == LANES and "Warning" in report else set())
    right = all("tern_copy_bulk(" in at for _, at, _ in pairs) and all((pairs[0][0], access) in kinds for access, _, _ in pairs[1:])
    return sum(int(count or 0) for _, _, count in pairs) if right else 0


def judge(text, status, pes, expected):
    """None, or what is wrong; and the number of known hazards."""
    reports = blocks(text)
    found = sum(known(report, expected) for report in reports)
    others = [report for report in reports if not known(report, expected)]
    counts = [int(n) for n in re.findall(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)", text)]
    if len(counts) != max(pes, 1):
        return f"{len(counts)} summaries of the tool for {max(pes, 1)} PEs", found
    shown = re.search(r"RACECHECK SUMMARY: (\d+) hazards? displayed \((\d+) errors?, (\d+) warnings?\)", text)
    if shown and int(shown[1]) < int(shown[2]) + int(shown[3]):
        return "the tool did not show all of its reports", found
    if expected == REPORTED:
        return (None if sum(counts) else "the planted bug was not reported"), found
    if others or (expected == CLEAN and sum(counts)):
        return "".join(others[:5]) or f"{sum(counts)} errors", found
    if status:
        return f"exit status {status}", found
    if expected in (BULK, LANES) and not found:
        return "the known hazards were not reported: take them out of this file and of docs/design.md", found
    return None, found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build-cuda", help="build directory (default %(default)s)")
    parser.add_argument("--list", action="store_true", help="name the runs")
    parser.add_argument("name", nargs="?")
    args = parser.parse_args()
    if args.list:
        print(*RUNS)
        return 0
    tool, pes, program, options, expected = RUNS[args.name]
    build = os.path.abspath(args.build)
    sanitizer = ["compute-sanitizer", "--tool", tool, "--print-limit", "1000", "--show-backtrace", "no"]
    if tool == "memcheck": # tests make calls that fail on purpose
        sanitizer += ["--report-api-errors", "no"]
    command = [os.path.join(ROOT, "test/run-pes.py"), "-n", str(pes), "-t", str(TIME_LIMIT), "-e", "TERN_LOG=none", "--",
               *sanitizer, os.path.join(build, "test", program), *options]
    if pes:
        command = [os.path.join(ROOT, "scripts/with-mps.sh"), *command]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False,
                          env={**os.environ, "TEST_BUILD_ROOT": build, "TEST_LAUNCHER": "fork"})
    wrong, found = judge(done.stdout, done.returncode, pes, expected)
    if wrong:
        print(done.stdout[-4000:])
        print(f"{args.name}: {wrong}")
        return 1
    print(f"{args.name}: {expected}{f': {found}' if found else ''}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
