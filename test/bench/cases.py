#!/usr/bin/env python3
"""Tests of tern-bench. Usage: cases.py PROGRAM CASE"""
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "common"))
from jobs import end, expect, json_lines, run, show  # noqa: E402

PROGRAM = sys.argv[1]
QUICK = ["-n", 5, "-w", 1, "--samples", 3, "--check", "--json"]
FIELDS = {"test": str, "device": str, "path": str, "pes": int, "scope": str, "ctas": int, "threads": int, "bytes": int,
          "us_min": (int, float), "us_median": (int, float), "us_p99": (int, float), "gbps": (int, float),
          "floor_us": (int, float), "floor": str, "ratio": (int, float), "wrong": int, "version": str, "date": str}


def check_line(o, test, pes):
    for name, kind in FIELDS.items():
        expect(isinstance(o.get(name), kind), f"{name} is {o.get(name)!r}: {o}")
    expect(o["wrong"] == 0, f"wrong data: {o}")
    expect(o["test"] == test and o["pes"] == pes, f"another test: {o}")
    expect(0 < o["us_min"] <= o["us_median"] <= o["us_p99"], f"times are not in order: {o}")
    expect(o["floor_us"] > 0 and abs(o["ratio"] - o["us_median"] / o["floor_us"]) < 0.01 * o["ratio"] + 0.01, f"ratio: {o}")


def bench(pes, test, args, sizes=None, env=None):
    lines = json_lines(run(pes, PROGRAM, [test, *args, *QUICK], env=env))
    for o in lines:
        check_line(o, test, pes)
    if sizes is not None and lines:
        expect([o["bytes"] for o in lines] == sizes, f"sizes {[o['bytes'] for o in lines]}, not {sizes}")
    return lines


def case_copy():
    """put, put-quiet, get: scopes, several blocks, sizes that do not divide."""
    for test in ("put", "put-quiet", "get"):
        bench(2, test, ["-b", 8, "-e", "8K", "-f", 32], [8, 256, 8192])
        bench(2, test, ["-s", "warp", "-t", 64, "-c", 2, "-b", "1001", "-e", "1001"], [1001])
        bench(2, test, ["-s", "block", "-c", 3, "-b", "5K", "-e", "20K", "-f", 2], [5120, 10240, 20480])
        bench(2, test, ["-s", "block", "--stage", "32K", "-b", "64K", "-e", "64K"], [65536])
    bench(1, "put", ["-b", 1, "-e", 3, "-f", 1.5], [1, 2, 3])
    bench(3, "get", ["-b", 64, "-e", 64], [64])


def case_scalar():
    for test in ("p", "g"):
        for kind in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float", "double"):
            bench(2 if kind in ("int8", "double") else 1, test, ["-d", kind, "-t", 33])
        bench(2, test, ["-c", 2, "-t", 64])


def case_pingpong():
    bench(2, "signal-pingpong", [])
    bench(2, "signal-pingpong", ["-c", 2])
    for scope in ("thread", "warp", "block"):
        bench(2, "put-signal-pingpong", ["-s", scope, "-b", 8, "-e", 1000, "-f", 125], [8, 1000])
        bench(2, "put-signal-pingpong", ["-s", scope, "-c", 2, "-b", 24, "-e", 24], [24])
    bench(4, "put-signal-pingpong", ["-b", 64, "-e", 64])


def case_atomic():
    for op in ("fetch_add", "fetch_inc", "fetch_and", "fetch_or", "fetch_xor", "fetch", "swap", "compare_swap", "add", "inc",
               "and", "or", "xor", "set"):
        bench(2 if op.startswith("fetch") else 1, "atomic", ["-o", op, "-t", 8])
    for kind in ("int32", "int64", "uint32", "float", "double"):
        bench(2, "atomic", ["-o", "add", "-d", kind])
        bench(1, "atomic", ["-o", "swap", "-d", kind])
    bench(2, "atomic", ["-o", "compare_swap", "-d", "int32", "-c", 2, "-t", 16])


def case_meet():
    for pes in (1, 2, 3, 4):
        bench(pes, "barrier", ["-b", 0, "-e", 256, "-f", 32], [0, 8, 256])
        bench(pes, "sync", ["-t", 32])
    for scope in ("thread", "warp"):
        bench(2, "barrier", ["-s", scope])
        bench(2, "sync", ["-s", scope])
    bench(3, "sync", ["--released"])


def case_proxy():
    """The way through the proxy, over loopback; a job without one is told what it lacks."""
    env = {"TERN_DISABLE_P2P": "1", "TERN_TRANSPORT": "loopback"}
    for pes in (2, 4):
        bench(pes, "proxy-issue", ["-t", 8, "-c", 2], env=env)
        bench(pes, "proxy-rate", ["-t", 8, "-c", 5], env=env)
    bench(2, "proxy-issue", ["--released"], env=env)
    bench(2, "proxy-nop", ["-t", 3], env=env)
    done = run(2, PROGRAM, ["proxy-nop"])
    expect(done.returncode == 1 and "TERN_DISABLE_P2P=1" in done.stderr, f"no remedy: {done.stderr}")


def case_table():
    done = run(2, PROGRAM, ["put", "-b", 8, "-e", 64, "-f", 8, "-n", 3, "-w", 0, "--samples", 2])
    lines = done.stdout.splitlines()
    if not expect(done.returncode == 0 and any("ratio" in line for line in lines)
                  and [line.split()[0] for line in lines[-2:]] == ["8", "64"], "the table"):
        show(done)
    done = run(0, PROGRAM, ["--help"])
    expect(done.returncode == 0 and "put-signal-pingpong" in done.stdout, "--help")


def case_options():
    """Wrong usage: status 2 and a message that says what is wrong."""
    for args, words in [
            ([], ["name of a test"]), (["fly"], ["'fly'", "signal-pingpong"]), (["put", "get"], ["one test"]),
            (["put", "-b", "8Q"], ["--min '8Q'"]), (["put", "-b", "-1"], ["--min '-1'"]), (["put", "-e", "999G"], ["--max '999G'"]),
            (["put", "-b", "0"], ["start at 1"]), (["put", "-b", "64", "-e", "8"], ["--min is more"]),
            (["put", "-f", "1"], ["--factor '1'"]), (["put", "-n", "0"], ["--iters '0'"]), (["put", "-t", "1025"], ["--threads"]),
            (["put", "-c", "0"], ["--ctas '0'"]), (["put", "-s", "grid"], ["'grid'", "thread warp block"]),
            (["put", "-s", "warp", "-t", "33"], ["multiples of 32"]), (["put", "-o", "add"], ["no operator"]),
            (["put", "-d", "int8"], ["no type"]), (["p", "-b", "8"], ["no sizes"]), (["p", "-s", "warp"], ["no scope"]),
            (["atomic", "-o", "nand"], ["'nand'", "fetch_add"]), (["atomic", "-d", "int16"], ["int32"]),
            (["atomic", "-d", "float", "-o", "xor"], ["float"]), (["barrier", "-b", "12", "-e", "12"], ["multiples of 8"]),
            (["barrier", "-c", "2"], ["one block"]), (["put", "--released"], ["--released"]), (["p", "--stage", "4K"], ["--stage"]),
            (["put", "--stage", "512"], ["too small"]), (["put", "--bogus"], ["--help"]), (["put", "--plot", "x.doc"], ["x.doc"])]:
        done = run(0, PROGRAM, args)
        if not expect(done.returncode == 2 and all(word in done.stderr for word in words) and not done.stdout,
                      f"{args}: status 2 and {words} expected"):
            show(done)
    done = run(0, PROGRAM, ["signal-pingpong"])
    expect(done.returncode == 1 and "two PEs" in done.stderr, "a ping-pong on one PE")


def case_plot():
    with tempfile.TemporaryDirectory() as folder:
        plot = os.path.join(folder, "put.svg")
        done = run(2, PROGRAM, ["put", "-b", 8, "-e", 512, "-f", 8, "-n", 3, "-w", 0, "--samples", 2, "--plot", plot])
        if not shutil.which("gnuplot"):
            if not expect(done.returncode == 2 and "gnuplot-nox" in done.stderr, "no gnuplot, and no word about it"):
                show(done)
            return
        if expect(done.returncode == 0 and os.path.exists(plot), "no plot was drawn"):
            with open(plot, encoding="utf-8") as f:
                expect("</svg>" in f.read(), "the plot is not complete")
        else:
            show(done)
        done = run(2, PROGRAM, ["put", "--plot", os.path.join(folder, "missing", "put.svg")])
        expect(done.returncode == 2 and "cannot write" in done.stderr, "a plot into a folder that does not exist")


def case_perf_doc():
    """scripts/perf-doc.py makes a page from real output, and refuses what is not tern-bench's."""
    script = os.path.join(os.environ["TEST_SOURCE_ROOT"], "scripts", "perf-doc.py")
    with tempfile.TemporaryDirectory() as folder:
        results, page = os.path.join(folder, "results.jsonl"), os.path.join(folder, "performance.md")
        args = ["put-quiet", "-b", 8, "-e", "4K", "-f", 512, *QUICK]
        with open(results, "w", encoding="utf-8") as f:
            for _ in range(2):
                f.write(run(2, PROGRAM, args).stdout)
        done = subprocess.run([sys.executable, script, "--output", page, results], capture_output=True, text=True, check=False)
        if expect(done.returncode == 0, f"perf-doc.py: {done.stderr}"):
            with open(page, encoding="utf-8") as f:
                text = f.read()
            for word in ("| 8 B |", "| 4 KiB |", "tern-bench put-quiet -b 8 -e 4K", "2 runs"):
                expect(word in text, f"the page lacks '{word}':\n{text}")
        costs = "## What a call costs its kernel\n\n| put | 1 |\n"
        with open(page, "a", encoding="utf-8") as f:
            f.write("\n" + costs)
        done = subprocess.run([sys.executable, script, "--output", page, results], capture_output=True, text=True, check=False)
        with open(page, encoding="utf-8") as f:
            expect(done.returncode == 0 and f.read() == text + "\n" + costs, f"the costs of calls were not kept: {done.stderr}")
        with open(results, "a", encoding="utf-8") as f:
            f.write('{"test": "put"}\n')
        done = subprocess.run([sys.executable, script, results], capture_output=True, text=True, check=False)
        expect(done.returncode != 0 and "results.jsonl:5" in done.stderr, f"a foreign line: {done.stderr}")


if __name__ == "__main__":
    globals()["case_" + sys.argv[2]]()
    end("tern-bench " + sys.argv[2])
