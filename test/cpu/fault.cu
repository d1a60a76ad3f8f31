/*
 * fault.cu - kernels that can never end, or break a rule, end with a message instead: a barrier that cannot complete, a
 * warp operation likewise, a grid whose resident blocks wait for those that queue, too much shared memory. One argument
 * names the fault; the program ends well if it came back as an error that says what happened. With `rt` behind it a
 * runtime runs, and the fault aborts its job.
 */
#include <tern/device.h>
#include <tern/tern.h>
#include "common/check.h"

__global__ void barrier_fault(int *sink)
{
    if (threadIdx.x == 5)
        __syncwarp();                   /* the others never come */
    __syncthreads();
    sink[0] = 1;
}

__global__ void warp_fault(int *sink)
{
    if (threadIdx.x & 1)
        sink[0] = __shfl_sync(0xffffffffu, 1, 0);
    else
        sink[1] = (int)__ballot_sync(0xffffffffu, 1);
}

__global__ void mask_fault(int *sink)
{
    sink[0] = __shfl_sync(1u, 1, 0);    /* lane 1 and up call with a mask that leaves them out */
}

__global__ void shared_fault(int *sink)
{
    __shared__ int large[20000];
    large[threadIdx.x] = 1;
    sink[0] = large[threadIdx.x];
}

/* Every block waits for the last one. */
__global__ void grid_wait(unsigned *arrived)
{
    if (threadIdx.x == 0) {
        atomicAdd(arrived, 1u);
        while (tern_prim_ld_acquire_u32(arrived) < gridDim.x)
            tern_prim_pause();
    }
    __syncthreads();
}

/* The same by Tern's own wait, which ends by job abort. */
__global__ void grid_tern_wait(tern_ctx_t ctx, uint64_t *arrived, unsigned *ended)
{
    if (threadIdx.x == 0) {
        tern_uint64_atomic_add(ctx, arrived, 1, ctx.my_pe);
        if (tern_signal_wait_until(ctx, arrived, TERN_CMP_GE, gridDim.x) == TERN_ERR_ABORTED)
            atomicAdd(ended, 1u);
    }
    __syncthreads();
}

static int sms(void)
{
    int n = 0;
    cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, 0);
    return n;
}

static void launch(const char *fault, int *sink)
{
    if (!strcmp(fault, "barrier"))
        barrier_fault<<<3, 64>>>(sink);
    else if (!strcmp(fault, "warp"))
        warp_fault<<<1, 32>>>(sink);
    else if (!strcmp(fault, "mask"))
        mask_fault<<<1, 32>>>(sink);
    else if (!strcmp(fault, "shared"))
        shared_fault<<<1, 32>>>(sink);
    else if (!strcmp(fault, "grid"))
        grid_wait<<<2 * (unsigned)sms() + 1, 1024>>>((unsigned *)sink);
    else
        REQUIRE(0, "no such fault: %s", fault);
}

static const char *const texts[][2] = {
    {"barrier", "can go on: 0 of 64 have ended, 63 wait at __syncthreads; 1 in warp operations, the first is thread 5 in "
                "__syncwarp with mask 0xffffffff"},
    {"warp", "in warp operations, the first is thread 0 in a vote"},
    {"mask", "which leaves its own lane 1 out"},
    {"shared", "a static __shared__ variable of 80000 bytes"},
    {"grid", "blocks waits for blocks that cannot be resident"},
};

static const char *expected(const char *fault)
{
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (!strcmp(texts[i][0], fault))
            return texts[i][1];
    return "";
}

/* Tern's waits end with the job; then the blocks that queued run, and the device goes on. */
static void test_grid_abort(int *sink)
{
    tern_ctx_t ctx;
    uint64_t *arrived = (uint64_t *)tern_calloc(1, sizeof *arrived);
    unsigned blocks = 2 * (unsigned)sms() + 1;
    REQUIRE(arrived && tern_ctx(&ctx) == TERN_OK, "%s", tern_last_error());
    REQUIRE(tern_launch(grid_tern_wait, blocks, 1024, 0, NULL, ctx, arrived, (unsigned *)sink) == TERN_OK, "%s",
            tern_last_error());
    CHECK(cudaDeviceSynchronize() == cudaSuccess, "the kernel has not ended by itself: %s", cudaGetErrorString(cudaGetLastError()));
    CHECK(tern_status() == TERN_ERR_ABORTED && strstr(tern_abort_reason(), expected("grid")), "reason: %s", tern_abort_reason());
    CHECK(*sink > 0, "no wait was aborted");
}

static void test_fault(const char *fault, int *sink, bool rt)
{
    launch(fault, sink);
    cudaError_t error = cudaDeviceSynchronize();
    CHECK(error == cudaErrorLaunchFailure, "%s: %d", fault, (int)error);
    CHECK(strstr(cudaGetErrorString(error), expected(fault)), "'%s' is not in '%s'", expected(fault), cudaGetErrorString(error));
    CHECK(cudaGetLastError() == cudaErrorLaunchFailure && cudaGetLastError() == cudaErrorLaunchFailure, "the error must stay");
    CHECK(tern_launch(barrier_fault, 1, 1, 0, NULL, sink) == TERN_ERR_DEVICE, "the device must be closed");
    if (rt)
        CHECK(tern_status() == TERN_ERR_ABORTED && strstr(tern_abort_reason(), expected(fault)), "reason: %s", tern_abort_reason());
}

__global__ void works(int *sink)
{
    __syncthreads();
    sink[0] = 77;
}

int main(int argc, char **argv)
{
    const char *fault = argc > 1 ? argv[1] : "barrier";
    bool rt = argc > 2;
    int *sink;
    REQUIRE(cudaMallocHost(&sink, 4096) == cudaSuccess, "memory");
    memset(sink, 0, 4096);
    if (rt)
        REQUIRE(tern_init() == TERN_OK, "%s", tern_last_error());
    if (rt && !strcmp(fault, "grid"))
        test_grid_abort(sink);
    else
        test_fault(fault, sink, rt);
    if (rt) {                           /* only finalize works now; a new runtime finds a working device */
        CHECK(tern_finalize() == TERN_OK, "%s", tern_last_error());
        REQUIRE(tern_init() == TERN_OK, "%s", tern_last_error());
        works<<<1, 64>>>(sink);
        CHECK(cudaDeviceSynchronize() == cudaSuccess && sink[0] == 77, "the device does not work again");
        CHECK(tern_finalize() == TERN_OK, "%s", tern_last_error());
    }
    cudaFreeHost(sink);
    return test_end(fault);
}
