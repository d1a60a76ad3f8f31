#!/usr/bin/env python3
"""Checks of the source tree that no compiler makes. Usage: checks.py CHECK; exit status 0, 1, or 77 for a skip."""
import os
import re
import shutil
import subprocess
import sys

ROOT = os.environ.get("TEST_SOURCE_ROOT") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("TEST_BUILD_ROOT", "")
CODE = (".c", ".h", ".cu", ".inc")
MAX_LINES = 800
MAX_CU = 40
# Where instructions of the memory model may stand: the primitives, the raw loops that benchmarks measure as floor, tests of
# what the device itself promises, and fences between the host's own threads.
PRIMITIVES = re.compile(r"include/tern/detail/(prim|cpu|cuda)\w*\.h$|src/device/cpu/|bench/\w*floor\w*\.|test/(cpu|litmus)/|"
                        r"src/host/\w+\.c$")
RAW = re.compile(r"\b(asm|__asm__|__asm|__threadfence\w*|__sync_synchronize|atomic_thread_fence|__atomic_thread_fence|"
                 r"_mm_[ls]?fence)\b")
# TERN_ words that are no run-time variables though they are written in strings or documents: build and CMake names.
OTHER_NAMES = {"TERN_CC", "TERN_DEVICE", "TERN_VERSION"}


def all_files():
    """What belongs to the project: by git where it knows, else all but build directories."""
    if shutil.which("git"):
        done = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True,
                              check=False)
        if done.returncode == 0 and done.stdout:
            return [path for path in done.stdout.splitlines() if os.path.isfile(os.path.join(ROOT, path))]
    found = []
    for folder, names, leaves in os.walk(ROOT):
        names[:] = [n for n in names if not n.startswith((".git", "build", "__pycache__", ".cache"))]
        found += [os.path.relpath(os.path.join(folder, leaf), ROOT) for leaf in leaves]
    return found


def files(*suffixes, under=""):
    return sorted(path for path in all_files() if path.startswith(under) and (not suffixes or path.endswith(suffixes)))


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as f:
        return f.read()


def blank(match):
    return re.sub(r"[^\n]", " ", match.group(0))


def without_comments(text):
    """The code, strings included, with comments blanked out."""
    return re.sub(r'"(?:\\.|[^"\\\n])*"|/\*.*?\*/|//[^\n]*', lambda m: m.group(0) if m.group(0)[0] == '"' else blank(m),
                  text, flags=re.S)


def check_lines():
    return [f"{path}: {count} lines; split it: at most {MAX_LINES}" for path in files(*CODE, ".py", ".sh", ".build", ".in")
            if (count := read(path).count("\n")) > MAX_LINES]


def check_raw():
    bad = []
    for path in files(*CODE):
        if PRIMITIVES.search(path):
            continue
        text = re.sub(r'"(?:\\.|[^"\\\n])*"', blank, without_comments(read(path)))
        for number, line in enumerate(text.split("\n"), 1):
            if found := RAW.search(line):
                bad.append(f"{path}:{number}: {found.group(0)}: order of memory belongs into order.h and its primitives")
    return bad


def check_first_lines():
    return [f"{path}: does not begin with a comment that says what the file owns" for path in files(*CODE)
            if not read(path).lstrip().startswith(("/*", "//"))]


def table_names():
    return set(re.findall(r"^\s*X\((TERN_\w+),", read("src/host/env.h"), flags=re.M))


def check_env():
    """Every TERN_ word in a string of the library, and in documents and scripts, is a variable of the table or a C name."""
    table, names, bad = table_names(), set(OTHER_NAMES), []
    if not table:
        return ["src/host/env.h: no table of variables found"]
    strings = re.compile(r'"(?:\\.|[^"\\\n])*"')
    for path in files(*CODE):
        names |= set(re.findall(r"\bTERN_\w+", strings.sub('""', without_comments(read(path)))))
    used = {}
    for path in files(*CODE):
        if not path.startswith("test/"):
            for text in strings.findall(without_comments(read(path))):
                used.update((word, path) for word in re.findall(r"\bTERN_[A-Z][A-Z0-9_]*\b", text))
    for path in files(".md", ".sh") + ["README.md"]:
        used.update((word, path) for word in re.findall(r"\bTERN_[A-Z][A-Z0-9_]*\b", read(path)))
    for word, path in sorted(used.items()):
        if word not in table and word not in names and not word.endswith("_"):
            bad.append(f"{path}: {word} is neither a variable of the table in src/host/env.h nor a name of the code")
    library = "".join(read(p) for p in files(*CODE) if p.startswith(("src/", "include/")) and p != "src/host/env.h")
    for name in sorted(table):
        field = re.search(rf"X\({name},\s*(\w+),", read("src/host/env.h")).group(1)
        if not re.search(rf'(\.|->){field}\b|"{name}"', library):
            bad.append(f"src/host/env.h: nothing reads {name} (field {field})")
    for path in files(*CODE):
        if path.startswith(("src/", "include/")):
            for name in re.findall(r'getenv\("(TERN_\w+)"', read(path)):
                if name not in table:
                    bad.append(f"{path}: getenv of {name}, which is not in the table")
    return bad


def check_cu_count():
    count = len(files(".cu"))
    return [f"{count} .cu files, at most {MAX_CU}: nvcc takes seconds for each"] if count > MAX_CU else []


def check_scripts():
    if not shutil.which("shellcheck"):
        print("skipped: there is no shellcheck")
        sys.exit(77)
    scripts = files(".sh") + [p for p in files(under=".ci/") if read(p).startswith("#!")]
    done = subprocess.run(["shellcheck", *scripts], cwd=ROOT, capture_output=True, text=True, check=False)
    bad = [done.stdout + done.stderr] if done.returncode else []
    for script in scripts:
        if not os.access(os.path.join(ROOT, script), os.X_OK):
            bad.append(f"{script}: not executable")
    for script in [s for s in scripts if s.startswith("scripts/")]:
        done = subprocess.run(["bash", script, "--help"], cwd=ROOT, capture_output=True, text=True, timeout=20, check=False)
        if done.returncode or not done.stdout.startswith("Usage:"):
            bad.append(f"{script} --help: status {done.returncode}, must print `Usage: ...`")
    return bad


def check_readme():
    """The kernel in README is examples/put_signal.cu, its table of variables is what tern-info prints."""
    bad, readme = [], read("README.md")
    kernel = read("examples/put_signal.cu")
    blocks = re.findall(r"^```\w*\n(.*?)^```$", readme, flags=re.M | re.S)
    if kernel not in blocks:
        bad.append("README.md: no code block is the text of examples/put_signal.cu")
    done = subprocess.run([os.path.join(BUILD, "src/tools/tern-info"), "--env", "--markdown"], capture_output=True,
                          text=True, check=False, env={k: v for k, v in os.environ.items() if not k.startswith("TERN_")})
    if done.returncode or not done.stdout.startswith("|"):
        bad.append(f"tern-info --env --markdown: status {done.returncode}: {done.stderr}")
    elif done.stdout not in readme:
        bad.append("README.md: the table of variables is not what `tern-info --env --markdown` prints; run scripts/readme-env.sh")
    for path in re.findall(r"\]\(([^)#:]+)\)", readme):
        if not os.path.exists(os.path.join(ROOT, path)):
            bad.append(f"README.md: links to {path}, which does not exist")
    return bad


CHECKS = {"lines": check_lines, "raw-memory-order": check_raw, "first-lines": check_first_lines, "variables": check_env,
          "cu-count": check_cu_count, "scripts": check_scripts, "readme": check_readme}


def main():
    if len(sys.argv) != 2 or sys.argv[1] not in CHECKS:
        sys.exit(__doc__ + "\nChecks: " + " ".join(CHECKS))
    bad = CHECKS[sys.argv[1]]()
    print("\n".join(bad) if bad else "ok")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
