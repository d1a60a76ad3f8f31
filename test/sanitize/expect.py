#!/usr/bin/env python3
"""expect.py REGEX PROGRAM ARGS: the program must fail, and its output must match REGEX (`quiet`: it must end well)."""
import re
import subprocess
import sys

TRIES = 5  # a race is reported in nearly every run, not in every one


def main():
    regex, command = sys.argv[1], sys.argv[2:]
    for _ in range(TRIES):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                              timeout=100, check=False)
        if regex == "quiet":
            print(done.stdout if done.returncode else "ended well, as it should")
            return 1 if done.returncode else 0
        if done.returncode and re.search(regex, done.stdout):
            print(next(line for line in done.stdout.splitlines() if re.search(regex, line)))
            return 0
        if "race" not in regex:
            break
    print(done.stdout)
    print(f"status {done.returncode}; the planted bug was not reported as '{regex}'")
    return 1


if __name__ == "__main__":
    sys.exit(main())
