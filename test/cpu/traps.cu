/*
 * traps.cu - what a rewriter of launches, shared memory and kernels can get wrong, in one source that nvcc compiles too:
 * launches over several lines, in conditions, with shifts and comments; text that only looks like a launch; shared memory
 * in device functions, unions, several declarators; namespaces, attributes, conversions of arguments.
 */
#include <stdio.h>
#include <string.h>
#include "common/check.h"
#include "traps.cuh"

/* not a kernel: __global__ void commented(int) { } and no launch: nope<<<1, 2>>>(3); extern __shared__ int s[]; */
struct point {
    int a;
    double b;
    char c[12];
};

__device__ int block_sum(int v)         /* shared memory in a device function with several callers */
{
    __shared__ int part[64];
    int t = threadIdx.x + threadIdx.y * blockDim.x, n = blockDim.x * blockDim.y;
    part[t] = v;
    __syncthreads();
    for (int s = n / 2; s > 0; s >>= 1) {
        if (t < s)
            part[t] += part[t + s];
        __syncthreads();
    }
    int sum = part[0];
    __syncthreads();
    return sum;
}

__global__ void reverse(int *a, int n)
{
    __shared__ int s[64], twice[64];    /* two declarators */
    extern __shared__ __align__(16) char dynamic[];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    int *d = (int *)dynamic;
    s[t] = i < n ? a[i] : 0;
    twice[t] = 2 * s[t];
    d[t] = twice[t];
    __syncthreads();
    if (i < n)
        a[i] = s[blockDim.x - 1 - t] + d[(t + 1) % blockDim.x];
}

__global__ void __launch_bounds__(64) bounded(int *out)
{
    int v = block_sum((int)threadIdx.x + (int)blockIdx.x);
    if (threadIdx.x == 0)
        out[blockIdx.x] = v;
}

static __global__ void converts(int *out, struct point p, float f, short h)
{
    int x = block_sum(p.a + (int)p.b + p.c[3] + (int)f + h);
    if (threadIdx.x == 0)
        out[blockIdx.x] = x;
}

extern "C" __global__ void linkage(unsigned *out)
{
    unsigned linear = threadIdx.y * blockDim.x + threadIdx.x;
    int v = (int)linear;
    for (int m = 16; m; m >>= 1)
        v += __shfl_xor_sync(0xffffffffu, v, m);
    unsigned odd = __ballot_sync(0xffffffffu, linear & 1);
    if ((linear & 31) == 0) {
        out[2 * (linear / 32)] = (unsigned)v;
        out[2 * (linear / 32) + 1] = odd;
    }
}

namespace outer
{
namespace inner
{
__global__ void shared_union(int *o)
{
    __shared__ union {
        int i[8];
        float f[8];
    } u;
    __shared__ volatile struct {
        int x;
    } one;
    if (threadIdx.x < 8)
        u.i[threadIdx.x] = (int)blockIdx.x;
    if (threadIdx.x == 9)
        one.x = (int)blockIdx.y * 100;
    __syncthreads();
    if (threadIdx.x == 31)
        o[blockIdx.x + gridDim.x * blockIdx.y] = u.i[7] + one.x;
}
} // namespace inner
} // namespace outer

__global__ void declared(int *out, int value);  /* a declaration registers nothing */

__global__ void declared(int *out, int value)
{
    if (threadIdx.x == 0 && threadIdx.y == 0)
        out[blockIdx.x] = value;
}

#if 0
__global__ void left_out(int *out) { out[0] = 1; }
#endif

static const char *text = "str<<<1,1>>>(x) \" __global__ void f(int){} extern __shared__ int q[];";
static const char *raw = R"x(<<< " )" __global__)x";
static const char quote = '"', digits[] = {'\'', '<'};
static const int separated = 1'000'000;

static void wait_device(void)
{
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess, "kernel failed");
}

static void test_launches(int *a, int *o, unsigned *u)
{
    struct point p = {5, 2.5, {0, 0, 0, 7}};
    cudaStream_t stream = 0;
    for (int i = 0; i < 640; i++)
        a[i] = i;
    reverse<<<10, 64,
              64 * sizeof(int) /* a comment with >>> and ( */,
              stream>>>(a, // and another >>>
                        640);
    wait_device();
    for (int b = 0; b < 10; b++)
        for (int t = 0; t < 64; t++)
            CHECK(a[b * 64 + t] == b * 64 + 63 - t + 2 * (b * 64 + (t + 1) % 64), "block %d thread %d", b, t);
    bounded<<<dim3(8), dim3(64, 1, 1)>>>(o);
    wait_device();
    for (int b = 0; b < 8; b++)
        CHECK(o[b] == 63 * 32 + 64 * b, "%d", o[b]);
    converts<<<(1 << 2), 32 >> 0>>>(o, p, 3, 'A' > 'B' ? 1 : 4);
    wait_device();
    for (int b = 0; b < 4; b++)
        CHECK(o[b] == 32 * (5 + 2 + 7 + 3 + 4), "%d", o[b]);
    linkage<<<1, dim3(16, 8)>>>(u);
    wait_device();
    for (unsigned w = 0; w < 4; w++)
        CHECK(u[2 * w] == 31 * 16 + 32 * 32 * w && u[2 * w + 1] == 0xaaaaaaaau, "warp %u", w);
    if (stream == 0)
        outer::inner::shared_union<<<dim3(3, 2), 32>>>(o);
    else
        declared<<<1, 1>>>(o, 0);
    wait_device();
    for (int y = 0; y < 2; y++)
        for (int x = 0; x < 3; x++)
            CHECK(o[x + 3 * y] == x + 100 * y, "%d", o[x + 3 * y]);
    for (int i = 0; i < 2; i++)
        i ? declared<<<4, 1>>>(o, separated) : ::declared<<<4, dim3{8, 4}>>>(o, 7), wait_device();
    CHECK(o[3] == 1000000, "%d", o[3]);
    from_header(o, 5);
    wait_device();
    CHECK(o[0] == 5 && o[1] == 64, "a kernel and a launch of a header: %d %d", o[0], o[1]);
}

static void test_by_pointer(int *o)
{
    struct point p = {5, 2.5, {0, 0, 0, 7}};
    short h = 1;
    float f = 2;
    void *args[] = {&o, &p, &f, &h};
    for (int i = 0; i < 8; i++)
        o[i] = -1;
    CHECK(cudaLaunchKernel((const void *)converts, dim3(8), dim3(64), args, 0, 0) == cudaSuccess, "launch by pointer");
    h = 1000;                           /* the arguments have been copied */
    wait_device();
    for (int b = 0; b < 8; b++)
        CHECK(o[b] == 64 * 17, "%d", o[b]);
}

int main()
{
    int *a = NULL, *o = NULL;
    unsigned *u = NULL;
    if (cudaMallocHost(&a, 640 * sizeof *a) != cudaSuccess)
        return TEST_SKIP;
    cudaMallocHost(&o, 64 * sizeof *o);
    cudaMallocHost(&u, 64 * sizeof *u);
    test_launches(a, o, u);
    test_by_pointer(o);
    CHECK(strlen(text) == 69 && strlen(raw) == 19 && quote == '"' && digits[1] == '<', "texts have changed: %zu %zu",
          strlen(text), strlen(raw));
    cudaFreeHost(a);
    cudaFreeHost(o);
    cudaFreeHost(u);
    return test_end("traps");
}
