"""jobs.py - what test scripts that start programs share: running one on N PEs, counting what was not as expected."""
import json
import os
import subprocess
import sys

RUN_PES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "run-pes.py")
failures = 0

if os.environ.get("TEST_DEVICE") == "cuda" and not os.path.exists("/dev/nvidiactl"):
    print("skipped: no GPU")
    sys.exit(77)


def expect(condition, text):
    """Counts and prints a failure."""
    global failures
    if not condition:
        failures += 1
        print(f"FAILED: {text}", flush=True)
    return condition


def run(pes, program, args, limit=60, env=None):
    """Runs the program on `pes` PEs (0: without a launcher) and returns its completed process; prints the command."""
    command = [sys.executable, RUN_PES, "-n", str(pes), "-t", str(limit)]
    for name, value in (env or {}).items():
        command += ["-e", f"{name}={value}"]
    command += ["--", program, *[str(arg) for arg in args]]
    print(f"+ {pes} PEs:", os.path.basename(program), *args, flush=True)
    return subprocess.run(command, capture_output=True, text=True, check=False)


def show(done):
    """Prints what a process wrote, for the log of a failed test."""
    print(f"  status {done.returncode}\n  stdout: {done.stdout}\n  stderr: {done.stderr}", flush=True)


def json_lines(done):
    """The JSON objects that a successful process printed, one a line; none, with a failure counted, otherwise."""
    try:
        objects = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    except ValueError as error:
        expect(False, f"output is not JSON: {error}")
        show(done)
        return []
    if not expect(done.returncode == 0 and objects, "the run failed or printed nothing"):
        show(done)
        return []
    return objects


def end(name):
    print(f"{name}: {'FAILED' if failures else 'ok'}")
    sys.exit(1 if failures else 0)
