#!/usr/bin/env python3
"""Counts the ordering instructions that each device call costs, and compares them with test/repo/fences-ptx.tsv.

A kernel with one call each is compiled for sm_90; what stands in the kernel itself counts, slow paths out of line do not.
By default from PTX (nvcc is enough); --sass counts MEMBAR and barriers in machine code (needs cuobjdump, as GPU machines
have) and compares with fences-sass.tsv. --write makes the table anew: look at its difference before you commit it, and tell why in order.h.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TABLES = {kind: os.path.join(ROOT, f"test/repo/fences-{kind}.tsv") for kind in ("ptx", "sass")}
CALLS = [
    ("put_nbi", "tern_put_nbi(c, d, s, n, pe)"),
    ("put_nbi_warp", "tern_put_nbi_warp(c, d, s, n, pe)"),
    ("put_nbi_block", "tern_put_nbi_block(c, d, s, n, pe)"),
    ("uint64_p", "tern_uint64_p(c, d, 1, pe)"),
    ("uint64_g", "*s = tern_uint64_g(c, d, pe)"),
    ("put_signal set", "tern_put_signal(c, d, s, n, d, 1, TERN_SIGNAL_SET, pe)"),
    ("put_signal add", "tern_put_signal(c, d, s, n, d, 1, TERN_SIGNAL_ADD, pe)"),
    ("put_signal_block set", "tern_put_signal_block(c, d, s, n, d, 1, TERN_SIGNAL_SET, pe)"),
    ("signal_op set", "tern_signal_op(c, d, 1, TERN_SIGNAL_SET, pe)"),
    ("signal_op add", "tern_signal_op(c, d, 1, TERN_SIGNAL_ADD, pe)"),
    ("signal_fetch", "*s = tern_signal_fetch(c, d)"),
    ("signal_wait_until", "tern_signal_wait_until(c, d, TERN_CMP_GE, 1)"),
    ("signal_wait_until_block", "tern_signal_wait_until_block(c, d, TERN_CMP_GE, 1)"),
    ("uint64_atomic_add", "tern_uint64_atomic_add(c, d, 1, pe)"),
    ("uint64_atomic_fetch_add", "*s = tern_uint64_atomic_fetch_add(c, d, 1, pe)"),
    ("fence", "tern_fence(c)"),
    ("fence_block", "tern_fence_block(c)"),
    ("quiet", "tern_quiet(c)"),
    ("quiet_block", "tern_quiet_block(c)"),
    ("barrier_all_block", "tern_barrier_all_block(c)"),
    ("sync_all_block", "tern_sync_all_block(c)"),
    ("sync_all_block released", "tern_sync_all_block(tern_ctx_flags(c, TERN_RELEASED))"),
]
# column: what is counted in PTX, in SASS. Loads that acquire are no fences: they cost what relaxed ones cost.
COUNTS = {
    "ptx": [("fence.sys", r"\bfence\.acq_rel\.sys"), ("release", r"\bst\.release\.sys"),
            ("acquire", r"\bld\.acquire\.sys"), ("barrier", r"\bbar\.(sync|red)|\bbarrier\.(sync|red)|\bbar\.warp\.sync")],
    "sass": [("MEMBAR.SYS", r"\bMEMBAR\.\w+\.SYS"), ("BAR", r"\bBAR\.(SYNC|RED)")],
}


def source():
    text = "#include <tern/device.h>\n"
    for i, (_, call) in enumerate(CALLS):
        text += (f'extern "C" __global__ void call_{i}(tern_ctx_t c, uint64_t *d, uint64_t *s, size_t n, int pe)\n'
                 f"{{\n    {call};\n}}\n")
    return text


def sass_body(text):
    """Functions out of line follow the kernel in its code: what is below the lowest address that is called."""
    end = min([int(a, 16) for a in re.findall(r"CALL\.REL\.NOINC 0x(\w+)", text)] or [1 << 62])
    lines = [(re.search(r"/\*(\w{4,})\*/", line), line) for line in text.splitlines()]
    return "\n".join(line for at, line in lines if at and int(at.group(1), 16) < end)


def kernels(nvcc, kind):
    """Body of each kernel, as text."""
    with tempfile.TemporaryDirectory() as tmp:
        cu, out = os.path.join(tmp, "calls.cu"), os.path.join(tmp, "calls")
        with open(cu, "w", encoding="utf-8") as f:
            f.write(source())
        mode = ["-ptx"] if kind == "ptx" else ["-cubin"]
        subprocess.run([nvcc, *mode, "-arch=sm_90", "-O3", "-std=c++17", "-I", os.path.join(ROOT, "include"), cu, "-o", out],
                       check=True)
        if kind == "sass":
            text = subprocess.run(["cuobjdump", "--dump-sass", out], check=True, capture_output=True, text=True).stdout
            parts = re.split(r"Function : ", text)[1:]
            return {p.split()[0]: sass_body(p) for p in parts}
        with open(out, encoding="utf-8") as f:
            text = f.read()
    return {m.group(1): m.group(2) for m in re.finditer(r"\.entry (\w+)\(.*?\n\{(.*?)\n\}", text, re.S)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sass", action="store_true", help="count in machine code")
    parser.add_argument("--write", action="store_true", help="write the table")
    args = parser.parse_args()
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if not os.path.exists(nvcc) or (args.sass and not shutil.which("cuobjdump")):
        print("fences.py: there is no nvcc here, or no cuobjdump (--sass)")
        return 77
    kind = "sass" if args.sass else "ptx"
    bodies = kernels(nvcc, kind)
    lines = ["\t".join(["call"] + [name for name, _ in COUNTS[kind]])]
    for i, (name, _) in enumerate(CALLS):
        lines.append("\t".join([name] + [str(len(re.findall(p, bodies[f"call_{i}"]))) for _, p in COUNTS[kind]]))
    text = "\n".join(lines) + "\n"
    table = TABLES[kind]
    if args.write:
        with open(table, "w", encoding="utf-8") as f:
            f.write(text)
        return 0
    with open(table, encoding="utf-8") as f:
        expected = f.read().splitlines()
    wrong = [(a, b) for a, b in zip(lines, expected) if a != b]
    for found, wanted in wrong:
        print(f"found    {found}\nexpected {wanted}")
    if wrong or len(lines) != len(expected):
        print(f"fences.py: ordering instructions differ from {os.path.relpath(table, ROOT)}: give the reason in order.h, then --write")
        return 1
    print(f"{len(CALLS)} calls cost the ordering instructions of the table")
    return 0


if __name__ == "__main__":
    sys.exit(main())
