#!/usr/bin/env python3
"""tern_cc.py TERN_CC CASE: what tern-cc rewrites and refuses, and its command line."""
import os
import subprocess
import sys
import tempfile

TERN_CC = os.path.abspath(sys.argv[1])
failures = 0

# Each must be refused, at the line that has `// here`, with the words behind it.
REFUSED = {
    "template kernel": """
template <class T>
__global__ void k(T *p) { }  // here: template kernel
""",
    "launch of a template": """
void f(int *p) {
    k<int><<<1, 1>>>(p);  // here: launch of a template kernel
}
""",
    "launch through an expression": """
void f(void (*p)(int)) {
    (*p)<<<1, 1>>>(3);  // here: not a kernel's name
}
""",
    "launch through a member": """
void f(struct s *p) {
    p->kernel<<<1, 1>>>(3);  // here: not a kernel's name
}
""",
    "launch in a macro": """
#define LAUNCH(k) \\
    k<<<1, 1>>>()  // here-1: launch inside of a macro
""",
    "kernel in a macro": """
#define KERNEL(k) __global__ void k(void)  // here: __global__ inside of a macro
""",
    "dynamic memory in a macro": """
#define SMEM extern __shared__ char smem[];  // here: extern __shared__ inside of a macro
""",
    "launch without an end": """
void f(void) {
    k<<<1, 1>>(3);  // here: launch without '>>>'
}
""",
    "launch with one argument": """
void f(void) {
    k<<<1>>>(3);  // here: 1 configuration arguments
}
""",
    "launch without arguments": """
void f(void) {
    k<<<1, 2>>>;  // here: expected '('
}
""",
    "initializer": """
__global__ void k(void) {
    __shared__ int x = 3;  // here: initializer
}
""",
    "brace initializer": """
__global__ void k(void) {
    __shared__ int x[2]{1, 2};  // here: initializer
}
""",
    "file scope": """
__shared__ int x;  // here: outside of a function
""",
    "dynamic memory at file scope": """
extern __shared__ char smem[];  // here: outside of a function
""",
    "dynamic memory in a namespace": """
namespace n {
extern __shared__ char smem[];  // here: outside of a function
}
""",
    "dynamic memory of known size": """
__global__ void k(void) {
    extern __shared__ char smem[64];  // here: must be written as
}
""",
    "unbalanced preprocessor branches": """
__global__ void k(int n) {
#if A
    if (n) {
#else
    if (!n) {
#endif
    }
}  // here-7: no matching bracket
""",
}

# (source, text that the rewritten source must have)
REWRITTEN = [
    ("void f(int *p) { ns::k<<<dim3(1), 2>>>(p); }", "tern_cpu_call(ns::k, dim3(1), 2)(p);"),
    ("void f(int *p) { ::k <<< g(1, 2), b[3], s , st >>> (p, 1); }", "tern_cpu_call(::k ,  g(1, 2), b[3], s , st ) (p, 1)"),
    ("__global__ void k(int a);", "__global__ void k(int a);"),
    ("__global__ void k(int a) { }", "{ } TERN_CPU_REGISTER(k)"),
    ("__global__ __launch_bounds__(32, f(2)) void k(void (*f)(int)) { if (1) { } }", "{ if (1) { } } TERN_CPU_REGISTER(k)"),
    ('extern "C" { __global__ void k() { } }', "TERN_CPU_REGISTER(k)"),
    ("int a = x < y << 2 >> 1;", "int a = x < y << 2 >> 1;"),
    ("const char *s = \"k<<<1,1>>>(2)\"; // k<<<1,1>>>()\n", "\"k<<<1,1>>>(2)\"; // k<<<1,1>>>()"),
    ("char c = '\"'; char d = '\\''; /* __shared__ */ int e = 1'000;", "/* __shared__ */ int e = 1'000;"),
    ("#include <x.h> // '\n#define Q \"<<<\"\n", "#define Q \"<<<\""),
    ("__device__ void f() { static __shared__ int a; }", "static tern_cpu_site_t tern_site_a;"),
    ("__device__ void f() { __shared__ volatile float a[2][3], b; }", "tern_type_b &b ="),
    ("__device__ void f() { __shared__ struct { int x; } s; }", "tern_type_s &s ="),
    ("__device__ void f() { __shared__ alignas(16) char a[N * (M + 1)]; }", "tern_type_a[N * (M + 1)];"),
    ("__device__ void f() { __shared__ __align__(8) extern char d[]; }", "tern_cpu_shared_dynamic()"),
]


def expect(condition, text):
    global failures
    if not condition:
        failures += 1
        print("FAILED:", text)


def tern_cc(*args, env=None):
    return subprocess.run([TERN_CC, *args], capture_output=True, text=True, check=False, env={**os.environ, **(env or {})})


def write(name, text):
    with open(name, "w", encoding="utf-8") as file:
        file.write(text)


def case_refused():
    for name, source in REFUSED.items():
        lines = source.split("\n")
        at = next(i for i, line in enumerate(lines) if "// here" in line)
        mark, words = lines[at].split("// here", 1)[1].split(": ", 1)
        line = at + 1 + int(mark or 0)
        write("x.cu", source)
        done = tern_cc("-c", "x.cu", "-o", "x.o")
        expect(done.returncode == 1, f"{name}: status {done.returncode}, not refused")
        expect(done.stderr.startswith(f"x.cu:{line}: error: ") and words in done.stderr, f"{name}: {done.stderr!r}")
        expect(not os.path.exists("x.o"), f"{name}: an object was written")


def case_rewritten():
    for source, wanted in REWRITTEN:
        write("x.cu", source)
        done = tern_cc("--rewrite", "x.cu")
        expect(done.returncode == 0, f"{source!r}: {done.stderr}")
        expect(wanted in done.stdout, f"{source!r}: no {wanted!r} in {done.stdout!r}")
        expect(done.stdout.count("\n") == source.count("\n") + 1, f"{source!r}: lines have moved")


PROGRAM = """#include <stdio.h>
#include "inner/value.cuh"
extern "C" int from_c(int x);
__global__ void k(int *out)
{
    out[0] = value();
}
int main(void)
{
    int *p;
    if (cudaMallocHost(&p, 4) != cudaSuccess)
        return 1;
    k<<<1, 1>>>(p);
    launch_in_header(p + 0);
    cudaDeviceSynchronize();
    printf("%d\\n", from_c(*p));
    cudaFreeHost(p);
    return 0;
}
"""


def case_commands():
    """Compile and link in all the ways; sources in another directory; dependencies."""
    os.makedirs("src/inner")
    os.makedirs("out dir")
    write("src/app.cu", PROGRAM)
    write("src/inner/value.cuh", '#include "number.h"\nstatic __device__ int value(void) { __shared__ int x; x = NUMBER; return x; }\n'
          "static __global__ void more(int *p) { p[0] += 1; }\n"
          "static inline void launch_in_header(int *p) { more<<<1, 1>>>(p); }\n")
    write("src/inner/number.h", "#ifndef NUMBER\n#define NUMBER 41\n#endif\n")
    write("util.c", "int from_c(int x);\nint from_c(int x) { return x * 2; }\n")
    done = tern_cc("-O1", "-Wall", "-Wextra", "-Werror", "-o", "app", "src/app.cu", "util.c")
    expect(done.returncode == 0, f"compile and link: {done.stderr}")
    expect(subprocess.run(["./app"], capture_output=True, text=True, check=False).stdout == "84\n", "app")

    done = tern_cc("-c", "src/app.cu", "-o", "out dir/app.o", "-MD", "-MF", "out dir/app.d", "-DNUMBER=9", "-g")
    expect(done.returncode == 0, f"compile: {done.stderr}")
    with open("out dir/app.d", encoding="utf-8") as file:
        deps = file.read()
    for name in ("src/app.cu", "src/inner/value.cuh", "src/inner/number.h", "tern/detail/cpu.h"):
        expect(name in deps, f"{name} is not among the dependencies: {deps}")
    expect("tern-cc-" not in deps, f"dependencies name temporary files: {deps}")
    expect(tern_cc("-c", "util.c").returncode == 0 and os.path.exists("util.o"), "default name of an object")
    subprocess.run(["ar", "rcs", "libutil.a", "util.o"], check=True)
    done = tern_cc("-o", "app2", "out dir/app.o", "-L.", "-lutil")
    expect(done.returncode == 0, f"link: {done.stderr}")
    expect(subprocess.run(["./app2"], capture_output=True, text=True, check=False).stdout == "20\n", "app2")
    needed = subprocess.run(["ldd", "./app2"], capture_output=True, text=True, check=True).stdout
    expect("libstdc++" not in needed or "libubsan" in needed, f"a program needs libstdc++: {needed}")
    expect("libtern" in needed, f"a program does not use libtern: {needed}")

    write("bad.cu", '#include "src/inner/value.cuh"\n__global__ void k(int *p)\n{\n    p[0] = missing;\n}\n')
    done = tern_cc("-c", "bad.cu")
    expect(done.returncode == 1 and "bad.cu:4:" in done.stderr, f"an error of the compiler is at its line: {done.stderr}")
    write("src/inner/value.cuh", "\n\n#define L(k) k<<<1, 1>>>()\n")
    done = tern_cc("-c", "bad.cu")
    expect(done.returncode == 1 and "src/inner/value.cuh:3: error" in done.stderr, f"refused in a header: {done.stderr}")


def case_options():
    done = tern_cc("--help")
    expect(done.returncode == 0 and "usage: tern-cc" in done.stdout and "template kernels" in done.stdout, "--help")
    expect(tern_cc("--device").stdout == "cpu\n", "--device")
    expect(tern_cc("--version").stdout.startswith("tern-cc "), "--version")
    done = tern_cc()
    expect(done.returncode == 1 and "no input files" in done.stderr, f"no arguments: {done.stderr}")
    done = tern_cc("-c", "none.cu")
    expect(done.returncode == 1 and "none.cu: no such file" in done.stderr, f"missing source: {done.stderr}")
    done = tern_cc("-o")
    expect(done.returncode == 1 and "-o needs a value" in done.stderr, f"-o alone: {done.stderr}")
    write("x.cu", "int main(void) { return 0; }\n")
    for args in [("-c", "x.cpp"), ("-o", "x", "x.cu", "x.cpp")]:
        done = tern_cc(*args)
        expect(done.returncode == 1 and "x.cpp: sources are .cu or .c" in done.stderr, f"C++ source: {done.stderr}")
    done = tern_cc("-c", "x.o")
    expect(done.returncode == 1 and "no .cu or .c source" in done.stderr, f"-c without a source: {done.stderr}")
    done = tern_cc("--show", "-O3", "-o", "x", "x.cu", "-lm")
    expect(done.returncode == 0 and len(done.stdout.splitlines()) == 2 and " -O3 " in done.stdout and not os.path.exists("x"),
           f"--show: {done.stdout} {done.stderr}")
    expect("-ltern" in done.stdout and "-ltern" not in tern_cc("--show", "--no-tern", "-o", "x", "x.cu").stdout, "--no-tern")
    done = tern_cc("-c", "x.cu", env={"CXX": "no-such-compiler"})
    expect(done.returncode == 1 and "no-such-compiler" in done.stderr and "CXX" in done.stderr, f"CXX: {done.stderr}")
    write("ro.cu", "x")
    os.chmod("ro.cu", 0)
    if os.geteuid():
        expect("ro.cu" in tern_cc("-c", "ro.cu").stderr, "unreadable source")
    done = tern_cc("-c", "-o", "no/such/dir/x.o", "x.cu")
    expect(done.returncode == 1 and "no/such/dir" in done.stderr, f"unwritable object: {done.stderr}")


def main():
    with tempfile.TemporaryDirectory(prefix="tern-test-") as directory:
        os.chdir(directory)
        globals()["case_" + sys.argv[2]]()
    print(f"tern-cc {sys.argv[2]}: {'FAILED' if failures else 'ok'}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
