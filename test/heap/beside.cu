/*
 * beside.cu - allocation, growth and zeroing while kernels that fill the device wait for a signal: no call of the heap may
 * wait for a kernel, or PEs that wait for each other would stop here. The same while a stream is being captured.
 */
#include "heap_test.h"

#define MIB ((size_t)1 << 20)

__global__ void wait_kernel(tern_ctx_t ctx, uint64_t *sig, uint64_t *bad)
{
    if (tern_signal_wait_until_block(ctx, sig, TERN_CMP_GE, 1) != TERN_OK && threadIdx.x == 0)
        atomicAdd((unsigned long long *)bad, 1ull);
}

/* A copy that needs no multiprocessor. */
static void copy(void *dst, const void *src, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream)
{
    REQUIRE(cudaMemcpyAsync(dst, src, bytes, kind, stream) == cudaSuccess && cudaStreamSynchronize(stream) == cudaSuccess,
            "copy of %zu bytes", bytes);
}

/* The program may be capturing: nothing of the heap's may enter the capture, nor end it. */
static void capture(cudaStream_t stream)
{
    cudaGraph_t graph;
    void *p;

    REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess, "begin of a capture");
    p = tern_calloc(5, 8 * MIB);
    CHECK(p && tern_free(p) == TERN_OK, "beside a capture: %s", tern_last_error());
    REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaSuccess, "the capture was broken");
    REQUIRE(cudaGraphDestroy(graph) == cudaSuccess, "graph");
}

int main(void)
{
    cudaStream_t kernels, copies;
    tern_info_t info;
    tern_ctx_t ctx;
    uint64_t *words, *host;
    char *zero;
    bool on_cpu;
    int blocks, threads;

    heap_test_init();
    info = heap_test_info();
    on_cpu = !strcmp(tern_device_name(), "cpu");
    blocks = on_cpu ? info.sms : info.sms * 2 / info.sharers;
    threads = on_cpu ? 32 : 1024;
    REQUIRE(tern_ctx(&ctx) == TERN_OK, "%s", tern_last_error());
    words = (uint64_t *)tern_calloc(2, sizeof(*words));
    REQUIRE(words, "%s", tern_last_error());
    REQUIRE(cudaMallocHost(&host, 2 * MIB) == cudaSuccess, "pinned memory");
    REQUIRE(cudaStreamCreateWithFlags(&kernels, cudaStreamNonBlocking) == cudaSuccess &&
                cudaStreamCreateWithFlags(&copies, cudaStreamNonBlocking) == cudaSuccess,
            "streams");

    tern_launch(wait_kernel, blocks, threads, 0, kernels, ctx, words, words + 1);
    for (int i = 0; i < 6; i++)
        REQUIRE(tern_malloc(3 * MIB), "growth beside a kernel: %s", tern_last_error());
    zero = (char *)tern_calloc(1, 2 * MIB);
    REQUIRE(zero, "%s", tern_last_error());
    REQUIRE(cudaStreamQuery(kernels) == cudaErrorNotReady, "the kernel did not wait");
    for (int pe = 0; pe < tern_n_pes(); pe++) {
        size_t nonzero = 0;

        memset(host, 1, 2 * MIB);
        copy(host, tern_ptr(zero, pe), 2 * MIB, cudaMemcpyDeviceToHost, copies);
        for (size_t i = 0; i < 2 * MIB; i++)
            nonzero += ((char *)host)[i] != 0;
        CHECK(!nonzero, "%zu bytes of PE %d's calloc are not zero", nonzero, pe);
    }
    REQUIRE(tern_barrier_all() == TERN_OK, "%s", tern_last_error());
    host[0] = 1;
    copy(words, host, sizeof(*words), cudaMemcpyHostToDevice, copies);
    REQUIRE(cudaStreamSynchronize(kernels) == cudaSuccess, "the kernel failed");
    copy(host, words + 1, sizeof(*words), cudaMemcpyDeviceToHost, copies);
    CHECK(host[0] == 0, "%llu blocks did not see the signal", (unsigned long long)host[0]);
    capture(copies);

    cudaStreamDestroy(kernels);
    cudaStreamDestroy(copies);
    cudaFreeHost(host);
    CHECK(tern_finalize() == TERN_OK, "%s", tern_last_error());
    return test_end("beside");
}
