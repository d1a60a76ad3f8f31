#!/usr/bin/env python3
"""Runs a test program on N PEs, within a hard time limit, in its own temporary directory."""
import argparse
import ctypes
import os
import signal
import shutil
import subprocess
import sys
import tempfile
import time


PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans():
    """Makes whatever the program leaves behind, in whatever session or process group, a child of this process."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants():
    """Living processes below this one."""
    parents = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as f:
                fields = f.read().rsplit(b")", 1)[1].split()
        except OSError:
            continue
        if fields[0] != b"Z":
            parents.setdefault(int(fields[1]), []).append(int(name))
    found, new = [], [os.getpid()]
    while new:
        new = [child for pid in new for child in parents.get(pid, [])]
        found += new
    return found


def kill_descendants():
    """Ends all of them, politely first (mpirun and another run-pes end what they started). True if there was one."""
    found = False
    for sig, wait in ((signal.SIGTERM, 4.0), (signal.SIGKILL, 5.0)):
        pids = descendants()
        if not pids:
            return found
        found = True
        for pid in pids:
            try:
                os.kill(pid, sig)
            except ProcessLookupError:
                pass
        end = time.monotonic() + wait
        while descendants() and time.monotonic() < end:
            time.sleep(0.02)
    return found


def launcher_name():
    """TEST_LAUNCHER, else mpirun, else our own: each PE a child of this process, meeting by a file (launch.c)."""
    name = os.environ.get("TEST_LAUNCHER") or ("mpirun" if shutil.which("mpirun") else "fork")
    if name not in ("mpirun", "srun", "fork"):
        sys.exit(f"run-pes: TEST_LAUNCHER={name} is unknown; known are mpirun, srun and fork")
    return name


def launch_command(args, launcher):
    if args.pes == 0 or args.pes == 1 and not args.launcher and launcher != "srun":
        return args.command
    if launcher == "srun":
        return ["srun", "--mpi=pmix", "--kill-on-bad-exit=1", "--quiet", "-n", str(args.pes), *args.command]
    if launcher == "mpirun":
        return ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--quiet",
                *os.environ.get("TEST_MPIRUN_ARGS", "").split(), "-n", str(args.pes), *args.command]
    return [sys.executable, os.path.abspath(__file__), "--fork-pes", str(args.pes), "--", *args.command]


def fork_pes(count, command):
    """The launcher without PMIx: starts the PEs; when one fails the others get 5 s to end by themselves."""
    env = dict(os.environ)
    preload = os.path.join(env.get("TEST_BUILD_ROOT", "."), "test", "libtern-test-launch.so")
    if os.path.exists(preload):
        env["LD_PRELOAD"] = preload
    env["TEST_LAUNCH_FILE"] = os.path.join(env["TMPDIR"], "launch-id")
    env["TEST_LAUNCH_PES"] = str(count)
    pes = [subprocess.Popen(command, env={**env, "TEST_LAUNCH_PE": str(pe)}) for pe in range(count)]
    status, kill_at = 0, None
    while True:
        states = [pe.poll() for pe in pes]
        bad = [128 - s if s < 0 else s for s in states if s]
        if bad and not status:
            status, kill_at = bad[0], time.monotonic() + 5
        if all(s is not None for s in states):
            return status
        if kill_at and time.monotonic() > kill_at:
            for pe in pes:
                pe.kill()
        time.sleep(0.005)


def clean_environment(tmp, launcher):
    """The caller's environment without what would make the program think that it is part of a job, or change Tern."""
    drop = ("OMPI_", "PMIX_", "PMI_", "PRTE_", "TERN_")
    env = {k: v for k, v in os.environ.items()
           if not k.startswith(drop) and (launcher == "srun" or not k.startswith("SLURM_"))}
    env["TMPDIR"] = tmp
    if not shutil.which("ssh") and not shutil.which("rsh"):
        env["OMPI_MCA_plm_rsh_agent"] = "false"  # else Open MPI does not even start PEs of this node
    return env


def main():
    parser = argparse.ArgumentParser(description=__doc__, epilog="""Exit status: the program's; 77 = skipped; 124 = time
        limit. TEST_LAUNCHER=mpirun|srun|fork chooses the launcher, TEST_MPIRUN_ARGS are added to mpirun's; TEST_TIME_SCALE=N multiplies limits. With one PE the program
        runs without a launcher unless --launcher is given. Variables TERN_* of the caller are dropped; give them by -e.""")
    parser.add_argument("-n", "--pes", type=int, default=1, help="number of PEs; 0: no launcher, whatever it is")
    parser.add_argument("-t", "--timeout", type=float, default=60, help="seconds until everything is killed")
    parser.add_argument("-e", "--env", action="append", default=[], metavar="NAME=VALUE", help="set for the program")
    parser.add_argument("--gpu", action="store_true", help="skip where there is no NVIDIA GPU")
    parser.add_argument("--launcher", action="store_true", help="use the launcher for one PE, too")
    parser.add_argument("--fork-pes", type=int, help=argparse.SUPPRESS)
    parser.add_argument("command", nargs="+", metavar="-- PROGRAM ARGS")
    args = parser.parse_args()
    if args.fork_pes:
        sys.exit(fork_pes(args.fork_pes, args.command))
    if args.gpu and not os.path.exists("/dev/nvidiactl"):
        print("skipped: no GPU")
        sys.exit(77)
    # the program starts in its temporary directory, so what names a file from here must name it from there
    args.command = [os.path.abspath(a) if "/" in a and os.path.exists(a) else a for a in args.command]

    tmp = tempfile.mkdtemp(prefix="tern-test-")
    launcher = launcher_name()
    env = clean_environment(tmp, launcher)
    env.update(pair.split("=", 1) for pair in args.env)
    command = launch_command(args, launcher)
    limit = args.timeout * float(os.environ.get("TEST_TIME_SCALE", "1"))
    status = 1
    adopt_orphans()
    process = subprocess.Popen(command, env=env, cwd=tmp, start_new_session=True, stdin=subprocess.DEVNULL)
    for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(sig, lambda number, frame: sys.exit(128 + number))
    try:
        status = process.wait(timeout=limit)
        if status < 0:
            print(f"run-pes: ended by signal {-status} ({signal.Signals(-status).name})", flush=True)
            status = 128 - status
    except subprocess.TimeoutExpired:
        print(f"run-pes: not done after {limit:g} s: killed", flush=True)
        status = 124
    finally:
        left = kill_descendants()
        if left and status == 0:
            print("run-pes: the program left processes behind", flush=True)
            status = 1
        process.wait()
        shutil.rmtree(tmp, ignore_errors=True)
    sys.exit(status)


if __name__ == "__main__":
    main()
