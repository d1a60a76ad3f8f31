#!/usr/bin/env python3
"""Tests of examples/moe_layer. Usage: cases.py PROGRAM CASE [PES]"""
import os
import random
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "common"))
from jobs import end, expect, json_lines, run, show  # noqa: E402

PROGRAM = sys.argv[1]
SMALL = ["--tokens", 48, "--hidden", 32, "--iters", 2]


def check_json(o, pes, tokens, experts, topk):
    """What must hold for every correct run."""
    expect(o["ok"] is True and o["wrong"] == 0, f"not ok: {o}")
    expect(o["pes"] == pes and len(o["rows_sent"]) == pes, f"{pes} PEs: {o}")
    expect(o["rows_sent"] == o["rows_routed"], f"rows sent differ from the routing's: {o}")
    total = sum(o["rows_sent"])
    expect(tokens <= total <= tokens * min(topk, pes), f"{total} rows for {tokens} tokens, top-{topk}, {pes} PEs")
    expect(o["expert_tokens_min"] * experts <= tokens * topk <= o["expert_tokens_max"] * experts, f"tokens per expert: {o}")
    for pe in range(pes):
        if experts * (pe + 1) // pes == experts * pe // pes:
            expect(o["rows_sent"][pe] == 0, f"PE {pe} owns no expert and got rows: {o}")
    expect(0 <= o["error"] <= o["tolerance"], f"error {o['error']}")


def shape(pes, tokens, hidden, experts, topk, dtype, iters=2, seed=1):
    args = ["--tokens", tokens, "--hidden", hidden, "--experts", experts, "--topk", topk, "--dtype", dtype, "--iters", iters,
            "--seed", seed, "--json"]
    for o in json_lines(run(pes, PROGRAM, args)):
        check_json(o, pes, tokens, experts, topk)
        return o
    return None


def case_shapes(pes):
    """Odd shapes: experts that do not divide, fewer experts or tokens than PEs, all experts chosen, one of everything."""
    for tokens, hidden, experts, topk, dtypes in [
            (48, 32, 8, 2, ("fp32", "bf16")), (7, 24, 5, 3, ("bf16",)), (1, 8, 1, 1, ("fp32",)), (3, 8, 3, 3, ("bf16",)),
            (65, 40, 7, 4, ("fp32",)), (33, 16, 2, 1, ("bf16",)), (20, 8, 16, 16, ("fp32", "bf16"))]:
        for dtype in dtypes:
            shape(pes, tokens, hidden, experts, topk, dtype)


def case_random(pes):
    seed = int(os.environ.get("TEST_SEED", random.randrange(1 << 30)))
    print(f"seed {seed} (TEST_SEED)")
    rng = random.Random(seed)
    for _ in range(5):
        experts = rng.randint(1, 20)
        shape(pes, rng.randint(1, 90), 8 * rng.randint(1, 12), experts, rng.randint(1, min(experts, 16)),
              rng.choice(["fp32", "bf16"]), rng.randint(1, 4), rng.randint(0, 1 << 40))


def case_default(pes):
    """The command of the README: the project's own text, the table, OK as last line."""
    done = run(pes, PROGRAM, [])
    lines = done.stdout.splitlines()
    if not expect(done.returncode == 0 and lines and lines[-1] == "OK", "the default run is not OK"):
        show(done)
        return
    for word in ("device", "tokens/expert", "min", "mean", "max", "rows sent to", "bytes sent to", "dispatch", "combine",
                 "largest error", "README.md"):
        expect(word in done.stdout, f"the table lacks '{word}':\n{done.stdout}")


def case_same_bits(_):
    """The result does not depend on the number of PEs, and repeats for a seed."""
    for dtype in ("fp32", "bf16"):
        runs = [shape(pes, 40, 32, 6, 3, dtype) for pes in (1, 1, 2, 3, 4)]
        if all(runs):
            keys = ("error", "largest", "expert_tokens_min", "expert_tokens_max")
            seen = {tuple(o[key] for key in keys) for o in runs}
            expect(len(seen) == 1, f"{dtype}: results differ between runs: {seen}")
    one, two = shape(1, 40, 32, 6, 3, "fp32", seed=1), shape(1, 40, 32, 6, 3, "fp32", seed=2)
    expect(one and two and one["largest"] != two["largest"], "another seed gives the same layer")


def case_inject(_):
    for pes in (1, 2, 4):
        for dtype in ("fp32", "bf16") if pes == 2 else ("fp32",):
            done = run(pes, PROGRAM, [*SMALL, "--dtype", dtype, "--inject", "flip"])
            if not (expect(done.returncode == 1, "a turned bit went unnoticed")
                    and expect("differs from the token" in done.stderr, "the turned bit is not named")
                    and expect("FAILED" in done.stdout.splitlines(), "the table does not say FAILED")):
                show(done)
        done = run(pes, PROGRAM, [*SMALL, "--inject", "drop", "--timeout", 700])
        if not (expect(done.returncode == 1, "a lost row went unnoticed")
                and expect("row 0 from PE 0 did not come" in done.stderr, "the lost row is not named")):
            show(done)
        expect("OK" not in done.stdout.splitlines(), "a lost row, and OK")


def case_options(_):
    """Wrong usage: status 2 and a message that names the option, the value and what is allowed."""
    for args, words in [
            (["--tokens", "0"], ["--tokens '0'", "from 1"]), (["--tokens", "x"], ["--tokens 'x'"]),
            (["--tokens", "9999999999999999999999"], ["--tokens"]), (["--hidden", "12"], ["--hidden 12", "multiple of 8"]),
            (["--hidden", "8192"], ["--hidden '8192'", "4096"]), (["--experts", "-3"], ["--experts '-3'"]),
            (["--topk", "17"], ["--topk '17'", "16"]), (["--topk", "4", "--experts", "3"], ["--topk 4", "--experts 3"]),
            (["--dtype", "fp64"], ["--dtype 'fp64'", "fp32 or bf16"]), (["--iters", "1.5"], ["--iters '1.5'"]),
            (["--seed", "-1"], ["--seed '-1'"]), (["--inject", "swap"], ["--inject 'swap'", "drop or flip"]),
            (["--timeout", "0"], ["--timeout '0'"]), (["--nonsense"], ["--nonsense", "--help"]),
            (["--tokens"], ["tokens", "--help"]), (["stray.txt"], ["stray.txt", "--text"]),
            (["--text", "/nonexistent/text"], ["/nonexistent/text", "No such file"]),
            (["--text", "/"], ["'/'", "directory"]), (["--text", "/dev/null"], ["/dev/null", "no words"])]:
        done = run(0, PROGRAM, args)
        if not expect(done.returncode == 2 and all(word in done.stderr for word in words) and not done.stdout,
                      f"{args}: status 2 and {words} expected"):
            show(done)
    done = run(0, PROGRAM, ["--help"])
    expect(done.returncode == 0 and "--inject drop|flip" in done.stdout, "--help")
    done = run(2, PROGRAM, ["--text", "/nonexistent/text"])
    expect(done.returncode == 2 and "/nonexistent/text" in done.stderr, "an unreadable text on two PEs")


def case_text(_):
    """Several files, a text in UTF-8, one that is shorter than the tokens asked for; and no README anywhere."""
    with tempfile.TemporaryDirectory() as folder:
        names = [os.path.join(folder, name) for name in ("a.txt", "b.txt")]
        for name, text in zip(names, ("Zwölf Boxkämpfer jagen Viktor.", "one two\tthree\n\x01 four_5 averyveryverylongwordindeed")):
            with open(name, "w", encoding="utf-8") as f:
                f.write(text)
        for args in (["--text", *names, *SMALL], [*SMALL, "--text", names[0], "--text", names[1]]):
            done = run(2, PROGRAM, args)
            if not expect(done.returncode == 0 and "a.txt and more: 13 tokens, 48 used" in done.stdout, "two short files"):
                show(done)
        copy = os.path.join(folder, "moe_layer")
        shutil.copy(PROGRAM, copy)
        library = os.path.join(os.environ["TEST_BUILD_ROOT"], "src")
        done = run(0, copy, SMALL, env={"LD_LIBRARY_PATH": library})
        if not expect(done.returncode == 2 and "README.md" in done.stderr and "--text" in done.stderr, "no README to find"):
            show(done)


if __name__ == "__main__":
    globals()["case_" + sys.argv[2]](int(sys.argv[3]) if len(sys.argv) > 3 else 0)
    end("moe_layer " + " ".join(sys.argv[2:]))
