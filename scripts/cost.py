#!/usr/bin/env python3
"""What a device call costs the kernel that makes it, in registers and code, and what architectures without bulk copies get.

Each call is compiled for sm_90 in kernels with nothing else in them, and in kernels that have 24 values live across the call,
in a loop (a user's, with registers of its own): as they are, limited to 64 registers, and with the headers' idle paths compiled
away: checks, the table of slots and the proxy, which a job between load/store peers never takes. The figures are those of
nvcc's -Xptxas -v and of the object file's symbols. They may not be noticeably higher than in the table in docs/performance.md,
if that is of the same nvcc; --write makes it anew. Then a kernel with a staged put is compiled for sm_80 and sm_90: only the
latter may have bulk copies.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PAGE = os.path.join(ROOT, "docs/performance.md")
NVCC = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
HEADING = "## What a call costs its kernel"
CALLS = [
    ("nothing", ""),
    ("put_nbi", "tern_put_nbi(c, d, s, n, pe)"),
    ("put_nbi_block", "tern_put_nbi_block(c, d, s, n, pe)"),
    ("uint64_p", "tern_uint64_p(c, d, 1, pe)"),
    ("put_signal_nbi", "tern_put_signal_nbi(c, d, s, n, d, 1, TERN_SIGNAL_SET, pe)"),
    ("put_signal_nbi_block", "tern_put_signal_nbi_block(c, d, s, n, d, 1, TERN_SIGNAL_SET, pe)"),
    ("signal_op", "tern_signal_op(c, d, 1, TERN_SIGNAL_SET, pe)"),
    ("signal_wait_until", "tern_signal_wait_until(c, d, TERN_CMP_GE, 1)"),
    ("signal_wait_until_block", "tern_signal_wait_until_block(c, d, TERN_CMP_GE, 1)"),
    ("uint64_atomic_fetch_add", "*s = tern_uint64_atomic_fetch_add(c, d, 1, pe)"),
    ("fence", "tern_fence(c)"),
    ("quiet", "tern_quiet(c)"),
    ("barrier_all_block", "tern_barrier_all_block(c)"),
]
KERNELS = """#include <tern/device.h>
#define ARGS tern_ctx_t c, uint64_t *d, uint64_t *s, size_t n, int pe
#define KERNELS(i, call)                                                                                \\
    extern "C" __global__ void alone_##i(ARGS) { call; }                                                 \\
    extern "C" __global__ void busy_##i(ARGS, const float *x, float *y, int m)                           \\
    {                                                                                                   \\
        float a[24];                                                                                    \\
        for (int j = 0; j < 24; j++)                                                                    \\
            a[j] = x[j * 256 + threadIdx.x];                                                            \\
        _Pragma("unroll 1") for (int k = 0; k < m; k++) {                                               \\
            for (int j = 0; j < 24; j++)                                                                \\
                a[j] = a[j] * x[k] + 1.5f;                                                              \\
            if (k == pe) {                                                                              \\
                call;                                                                                   \\
            }                                                                                           \\
        }                                                                                               \\
        for (int j = 0; j < 24; j++)                                                                    \\
            y[j * 256 + threadIdx.x] = a[j];                                                            \\
    }
"""
STAGED = """#include <tern/device.h>
extern "C" __global__ void staged(tern_ctx_t c, char *d, const char *s, size_t n, int pe)
{
    __shared__ char stage[8192] __attribute__((aligned(128)));
    tern_put_block(tern_ctx_stage(c, stage, sizeof stage), d, s, n, pe);
}
"""
BULK = re.compile(r"cp\.async\.bulk|mbarrier\.|fence\.proxy")
LIMIT = 64  # registers of the limited kernels
# what is noticed: more registers or spilled bytes than these above the table's, and more code than a tenth
SLACK = 8


def nvcc(args, source, tmp, include):
    path = os.path.join(tmp, "kernels.cu")
    with open(path, "w", encoding="utf-8") as f:
        f.write(source)
    return subprocess.run([NVCC, *args, "-O3", "-std=c++17", "-I", include, path, "-o", os.path.join(tmp, "out")],
                          check=True, capture_output=True, text=True).stderr


def functions(tmp):
    """Functions of the object file: name, bytes, section. A kernel's bytes include those of the functions behind it."""
    text = subprocess.run(["readelf", "-sW", os.path.join(tmp, "out")], check=True, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True).stdout
    rows = [line.split() for line in text.splitlines()]
    return [(w[-1], int(w[2]), [x for x in w[4:-1] if x.isdigit()][-1]) for w in rows if len(w) >= 8 and w[3] == "FUNC"]


def figures(tmp, include, *options):
    """For each kernel: registers, bytes spilled, bytes of its own code, bytes of functions out of line."""
    source = KERNELS + "".join(f"KERNELS({i}, {call})\n" for i, (_, call) in enumerate(CALLS))
    log = nvcc(["-cubin", "-arch=sm_90", "-Xptxas", "-v", *options], source, tmp, include)
    found = re.findall(r"Compiling entry function '(\w+)'.*?(\d+) bytes spill stores.*?Used (\d+) registers", log, re.S)
    table = functions(tmp)
    kernels = {where: name for name, _, where in table if re.match(r"(alone|busy)_\d+$", name)}
    whole = {name: size for name, size, _ in table if name in kernels.values()}
    out = {name: 0 for name in whole}
    for name, size, where in table:
        if name not in whole:
            out[kernels[where]] += size
    return {k: (int(registers), int(spilled), whole[k] - out[k], out[k]) for k, spilled, registers in found}


def without_idle_paths(tmp):
    """A copy of the headers in which the flags of the idle paths are no bits, so that nothing of them is left."""
    include = os.path.join(tmp, "include")
    shutil.copytree(os.path.join(ROOT, "include"), include)
    path = os.path.join(include, "tern/types.h")
    with open(path, encoding="utf-8") as f:
        text, count = re.subn(r"(#define TERN_CTX_(?:CHECK|PROXY|SLOTS)) 0x\w+", r"\1 0u", f.read())
    assert count == 3, "the flags of the idle paths are not where they were: types.h"
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    return include


def section():
    """The section of the page."""
    with tempfile.TemporaryDirectory() as tmp:
        include = os.path.join(ROOT, "include")
        full, tight, bare = figures(tmp, include), figures(tmp, include, f"-maxrregcount={LIMIT}"), figures(tmp, without_idle_paths(tmp))
    version = subprocess.run([NVCC, "--version"], check=True, capture_output=True, text=True).stdout
    lines = [HEADING, "", f"By `scripts/cost.py --write`, nvcc {re.search(r'V([0-9.]+)', version).group(1)}, sm_90. *Alone*: the call is all "
             "that the kernel does. *Busy*: 24 values are live",
             f"across the call, in a branch of a loop; *spilled*: by the busy kernel limited to {LIMIT} registers, around the call only. "
             "*Idle*: what of",
             "that is due to the idle paths: checks, the table of slots and the proxy, which a job between load/store peers never "
             "takes.",
             "Code out of line is fetched when it runs.", "",
             "| call | registers alone | busy | idle | spilled, B | code in the kernel, B | idle | out of line, B | idle |",
             "|---|--:|--:|--:|--:|--:|--:|--:|--:|"]
    base = full["busy_0"]
    for i, (name, _) in enumerate(CALLS):
        busy, less = full[f"busy_{i}"], bare[f"busy_{i}"]
        lines.append(f"| {name} | {full[f'alone_{i}'][0]} | {busy[0]} | {busy[0] - less[0]:+d} | {tight[f'busy_{i}'][1]} "
                     f"| {busy[2] - base[2]:+d} | {busy[2] - less[2]:+d} | {busy[3]} | {busy[3] - less[3]:+d} |")
    return "\n".join(lines) + "\n"


def rows(text):
    """The table's numbers, by call."""
    cells = [[c.strip() for c in line.strip("|\n").split("|")] for line in text.splitlines() if line.startswith("| ")][1:]
    return {c[0]: [int(n) for n in c[1:]] for c in cells}


def dearer(found, page):
    """What costs noticeably more than the page says."""
    old, wrong = rows(page), []
    for call, now in rows(found).items():
        if call not in old:
            wrong.append(f"{call}: not in the table")
            continue
        for what, at, slack in (("registers alone", 0, SLACK), ("registers, busy", 1, SLACK), ("bytes spilled", 3, 4 * SLACK),
                                ("bytes in the kernel", 4, 256), ("bytes out of line", 6, old[call][6] // 10)):
            if now[at] > old[call][at] + slack:
                wrong.append(f"{call}: {now[at]} {what}, {old[call][at]} in the table")
    return wrong


def page_section(text):
    """Where the section stands in the page's text."""
    found = re.search(re.escape(HEADING) + r".*?\n(?=## |\Z)", text, re.S)
    return found.span() if found else (len(text), len(text))


def older_architecture():
    """What is wrong with the code for GPUs without bulk copies."""
    with tempfile.TemporaryDirectory() as tmp:
        for arch, wanted in (("80", False), ("90", True)):
            nvcc(["-ptx", f"-arch=compute_{arch}"], STAGED, tmp, os.path.join(ROOT, "include"))
            with open(os.path.join(tmp, "out"), encoding="utf-8") as f:
                found = BULK.findall(f.read())
            if bool(found) != wanted:
                return [f"a staged put for sm_{arch} has {', '.join(sorted(set(found))) or 'no bulk copies'}"]
    return []


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the table")
    args = parser.parse_args()
    if not os.path.exists(NVCC) or not shutil.which("readelf"):
        print("cost.py: there is no nvcc here, or no readelf")
        return 77
    found = section()
    with open(PAGE, encoding="utf-8") as f:
        page = f.read()
    begin, end = page_section(page)
    if args.write:
        with open(PAGE, "w", encoding="utf-8") as f:
            f.write(page[:begin].rstrip() + "\n\n" + found + ("\n" + page[end:] if page[end:] else ""))
        return 0
    wrong = older_architecture() + ([] if begin < end else ["docs/performance.md has no table"])
    if re.search(r"nvcc [0-9.]+,", found).group(0) in page[begin:end]:
        wrong += dearer(found, page[begin:end])
    print("\n".join(wrong) or f"{len(CALLS) - 1} calls cost what docs/performance.md says; GPUs without bulk copies take the plain path")
    if wrong:
        print("cost.py: scripts/cost.py --write makes the table anew; say why it is dearer")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
