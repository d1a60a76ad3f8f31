#!/usr/bin/env python3
"""Adds up what `meson test` wrote and closes with the line `N passed, N failed, N skipped`.

Each argument BUILD/SUITE=FILE is a testlog.json. Lines of `expected` say how many tests a suite of a build
must at least run, so that tests that silently disappear are found.
"""
import argparse
import collections
import json
import sys

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
OUTCOME = {"OK": PASSED, "EXPECTEDFAIL": PASSED, "SKIP": SKIPPED}
GOOD_SKIP = "no GPU"


def read_log(path):
    with open(path, encoding="utf-8", errors="replace") as f:
        for line in f:
            if line.strip():
                yield json.loads(line)


def read_expected(path):
    expected = {}
    with open(path, encoding="utf-8") as f:
        for line in f:
            words = line.split("#", 1)[0].split()
            if words:
                expected[words[0]] = int(words[1])
    return expected


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("logs", nargs="*", metavar="BUILD/SUITE=FILE")
    parser.add_argument("--strict", action="store_true", help=f'a skip other than "{GOOD_SKIP}" is a failure')
    parser.add_argument("--expected", metavar="FILE", help="least number of tests: lines BUILD/SUITE COUNT")
    parser.add_argument("--not-here", action="append", default=[], metavar="BUILD/SUITE", help="may lack its tests here")
    parser.add_argument("--write-expected", metavar="FILE", help="write that file from these logs, then end")
    parser.add_argument("--extra", action="append", default=[], metavar="RESULT:NAME", help="a result that is in no log")
    parser.add_argument("--table", action="store_true", help="one line for every test")
    args = parser.parse_args()

    total = collections.Counter()
    suites = collections.Counter()
    lines = []
    for item in args.logs:
        label, path = item.split("=", 1)
        try:
            entries = list(read_log(path))
        except OSError as error:
            total[FAILED] += 1
            lines.append(f"FAILED {label}: no test log: {error}")
            continue
        for entry in entries:
            outcome = OUTCOME.get(entry["result"], FAILED)
            name = entry["name"].rsplit(" / ", 1)[-1]
            suites[label] += 1
            if args.table:
                print(f"{label + '/' + name:44} {outcome:8} {entry['duration']:6.1f} s")
            if outcome == SKIPPED:
                text = (entry.get("stdout") or "") + (entry.get("stderr") or "")
                reason = next((s.strip() for s in text.splitlines() if "skip" in s.lower() or GOOD_SKIP in s), "no reason given")
                if args.strict and GOOD_SKIP not in text:
                    outcome = FAILED
                    reason += " (a skip is a failure here)"
                lines.append(f"{outcome} {label}/{name}: {reason}")
            elif outcome == FAILED:
                lines.append(f"FAILED {label}/{name}: {entry['result'].lower()} after {entry['duration']:.1f} s")
            total[outcome] += 1
    if args.write_expected:
        with open(args.write_expected, "w", encoding="utf-8") as f:
            f.write("# build/suite tests: scripts/test.sh --strict fails when a suite runs fewer\n")
            for label, count in sorted(suites.items()):
                f.write(f"{label} {count}\n")
        return 0
    for extra in args.extra:
        result, name = extra.split(":", 1)
        total[result] += 1
        if result != PASSED:
            lines.append(f"{result.upper() if result == FAILED else result} {name}")
    if args.expected:
        for label, count in sorted(read_expected(args.expected).items()):
            if suites[label] < count and label not in args.not_here:
                total[FAILED] += 1
                lines.append(f"FAILED {label}: ran {suites[label]} tests, at least {count} are expected")
    for line in lines:
        print(line)
    print(f"{total[PASSED]} passed, {total[FAILED]} failed, {total[SKIPPED]} skipped")
    return 1 if total[FAILED] or not total[PASSED] else 0


if __name__ == "__main__":
    sys.exit(main())
