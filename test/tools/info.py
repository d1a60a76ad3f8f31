#!/usr/bin/env python3
"""tern-info as a user runs it: info.py PROGRAM. Every option, alone and under a launcher; wrong usage; a bad variable."""
import json
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "common"))
import jobs  # noqa: E402

INFO = sys.argv[1]


def run(*args, pes=0, env=None):
    return jobs.run(pes, INFO, args, env=env)


def has(done, status, *patterns, stream="stdout"):
    """The run ended with `status`, and every pattern is found in its output."""
    text = getattr(done, stream)
    good = jobs.expect(done.returncode == status, f"status {done.returncode}, not {status}")
    for pattern in patterns:
        good = jobs.expect(re.search(pattern, text), f"no '{pattern}' on {stream}") and good
    if not good:
        jobs.show(done)


def check_options():
    has(run("--help"), 0, r"^NAME\n", r"\nSYNOPSIS\n", r"\nEXIT STATUS\n", r"\nENVIRONMENT\n", r"\nEXAMPLES\n")
    has(run("--version"), 0, r"^tern \d+\.\d+\.\d+, (cpu|cuda) device\n$")
    has(run("--bogus"), 2, "unrecognized option", stream="stderr")
    has(run("--env", "extra"), 2, "unknown argument 'extra'", stream="stderr")
    has(run("--markdown"), 2, "goes with --env", stream="stderr")


def check_variables():
    has(run("--env"), 0, r"\nTERN_LOG +enum +warn +warn ")
    has(run("--env", env={"TERN_HEAP_MAX": "1G"}), 0, r"\nTERN_HEAP_MAX +size +0 +\S*(1G|1073741824)")
    table = json.loads(run("--env", "--json").stdout)["variables"]
    names = {row["name"] for row in table}
    with open(os.path.join(os.environ["TEST_SOURCE_ROOT"], "src/host/env.h"), encoding="utf-8") as f:
        wanted = set(re.findall(r"^ +X\((TERN_\w+),", f.read(), flags=re.M))
    jobs.expect(names == wanted and len(wanted) > 10, f"--env --json names {names ^ wanted} differ from the table")
    rows = run("--env", "--markdown").stdout.splitlines()
    jobs.expect(len(rows) == len(wanted) + 2 and all(row.count("|") >= 6 for row in rows), "--env --markdown is no table")


def check_job():
    has(run(), 0, r"(?m)^version +\d", r"(?m)^launch +singleton", r"(?m)^heap ")
    for pes in (1, 3):
        done = run("--json", pes=pes)
        has(done, 0)
        found = json.loads(done.stdout)
        jobs.expect(found["n_pes"] == pes and found["pe"] == 0, f"{pes} PEs: PE 0 alone prints, for all: {done.stdout}")
    has(run(env={"TERN_LOG": "loud"}), 1, r"TERN_LOG=loud .*none\|error\|warn", stream="stderr")
    has(run(env={"TERN_HEAP_MAX": "1Q"}), 1, r"TERN_HEAP_MAX=1Q ", stream="stderr")


def check_paths():
    """Near PEs, hidden ones with what carries operations to them, and where atomics are executed."""
    cases = (
        ({}, "direct", "load/store, native atomics", "", r"(?m)^atomics +in GPU memory, by load/store \(all PEs"),
        ({"TERN_ATOMICS": "proxy"}, "proxy", "load/store, native atomics", "", r"(?m)^atomics +by the proxy .*=proxy\)$"),
        ({"TERN_DISABLE_P2P": "1", "TERN_TRANSPORT": "loopback"}, "proxy", "proxy", "loopback",
         r"(?m)^  PE 1 +proxy \(hidden by TERN_DISABLE_P2P=1\) by loopback \(named by TERN_TRANSPORT\)$"),
        ({"TERN_DISABLE_P2P": "1", "TERN_TRANSPORT": "null", "TERN_ATOMICS": "direct"}, "mixed", "proxy", "null",
         r"(?m)^atomics +load/store peers: in GPU memory; others: .*TERN_ATOMICS=direct\)$"),
    )
    for env, atomics, path, transport, line in cases:
        if env and os.environ["TEST_DEVICE"] != "cpu":
            continue # one GPU cannot show them all
        has(run(pes=2, env=env), 0, line)
        found = json.loads(run("--json", pes=2, env=env).stdout)
        peer = found["peers"][1]
        jobs.expect((found["atomics"], peer["path"], peer["transport"]) == (atomics, path, transport) and peer["why"]
                    and found["atomics_why"] and bool(peer["transport_why"]) == bool(transport), f"{env}: {found}")
    has(run(pes=2, env={"TERN_DISABLE_P2P": "1", "TERN_TRANSPORT": "verbs"}), 1, r"verbs: PE [01]: ", r"TERN_TRANSPORT",
        stream="stderr")
    has(run(env={"TERN_CHANNELS": "3"}), 1, r"TERN_CHANNELS=3 is not allowed; allowed: a power of two from 1 to 256",
        stream="stderr")
    has(run(env={"TERN_TRANSPORT": "tcp"}), 1, r"TERN_TRANSPORT=tcp .*null\|loopback\|ucx\|verbs", stream="stderr")


check_options()
check_variables()
check_job()
check_paths()
jobs.end("info")
