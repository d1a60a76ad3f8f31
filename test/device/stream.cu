/*
 * stream.cu - the stream-ordered operations against a model: sizes from nothing to several blocks' shares, all peers,
 * signals, order with kernels and copies in the stream, graphs captured once and replayed, bad arguments with their
 * sentences; and the derived contexts of the host.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/check.h"
#include "device/device_test.h"

#define PART (1u << 20)     /* bytes of a box for one source PE */

struct buffers {
    char *box, *src;        /* symmetric; box: a part for each source PE */
    uint64_t *sig;          /* symmetric: a word for each source PE */
    char *local;            /* device memory, not symmetric */
    unsigned char *host;
    cudaStream_t stream;
};

static unsigned char byte_of(uint64_t round, int pe, size_t at)
{
    return (unsigned char)((at * 2654435761u + round * 40503u + (size_t)pe * 97u) >> 7);
}

static void fill(const struct buffers *b, char *to, uint64_t round, int pe, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        b->host[i] = byte_of(round, pe, i);
    cudaMemcpy(to, b->host, bytes, cudaMemcpyHostToDevice);
}

static void check_part(const struct buffers *b, const char *what, const char *at, uint64_t round, int pe, size_t bytes)
{
    size_t wrong = 0;
    cudaMemcpy(b->host, at, bytes, cudaMemcpyDeviceToHost);
    for (size_t i = 0; i < bytes; i++)
        wrong += b->host[i] != byte_of(round, pe, i);
    CHECK(wrong == 0, "%s, PE %d, from PE %d, %zu bytes: %zu wrong", what, tern_my_pe(), pe, bytes, wrong);
}

#define OK(call) REQUIRE((call) == TERN_OK, "%s: %s", #call, tern_last_error())

/* Puts to the next PE, gets from the one after it, puts with a signal to all, each with a size of its own. */
static void test_sizes(const struct buffers *b)
{
    static const size_t sizes[] = {0, 1, 16, 4093, 65536, 65537, 300001, PART};
    int me = tern_my_pe(), n = tern_n_pes(), next = (me + 1) % n, before = (me + n - 1) % n;
    for (uint64_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        size_t bytes = sizes[k], odd = k % 3 == 1 && bytes < PART;
        fill(b, b->src, k, me, PART);
        cudaMemset(b->box, 0, (size_t)n * PART);
        cudaMemset(b->sig, 0, (size_t)n * sizeof *b->sig);
        cudaDeviceSynchronize();
        OK(tern_barrier_all());
        OK(tern_put_on_stream(b->box + (size_t)me * PART + odd, b->src, bytes, next, b->stream));
        OK(tern_barrier_all_on_stream(b->stream));
        cudaStreamSynchronize(b->stream);
        check_part(b, "put", b->box + (size_t)before * PART + odd, k, before, bytes);
        OK(tern_get_on_stream(b->local, b->src, bytes, next, b->stream));
        cudaStreamSynchronize(b->stream);
        check_part(b, "get", b->local, k, next, bytes);
        OK(tern_sync_all_on_stream(b->stream));
        cudaStreamSynchronize(b->stream);
        for (int pe = 0; pe < n; pe++)
            OK(tern_put_signal_on_stream(b->box + (size_t)me * PART, b->src, bytes, b->sig + me, k + 1,
                                         pe % 2 ? TERN_SIGNAL_ADD : TERN_SIGNAL_SET, pe, b->stream));
        for (int pe = 0; pe < n; pe++)
            OK(tern_signal_wait_until_on_stream(b->sig + pe, TERN_CMP_EQ, k + 1, b->stream));
        cudaStreamSynchronize(b->stream);
        for (int pe = 0; pe < n; pe++)
            check_part(b, "put_signal", b->box + (size_t)pe * PART, k, pe, bytes);
        OK(tern_barrier_all());
    }
}

/* A kernel, a put of what it wrote, quiet, a signal; on the other side a wait, then a kernel that reads: all by the stream. */
__global__ void write_kernel(uint32_t *words, size_t count, const uint32_t *round)
{
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        words[i] = (uint32_t)i * 3 + *round;
}

__global__ void read_kernel(const uint32_t *words, size_t count, const uint32_t *round, uint32_t *wrong)
{
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        if (words[i] != (uint32_t)i * 3 + *round)
            atomicAdd(wrong, 1);
}

__global__ void next_kernel(uint32_t *round)
{
    *round += 1;
}

static void enqueue_round(const struct buffers *b, uint32_t *round, uint32_t *wrong)
{
    int me = tern_my_pe(), n = tern_n_pes(), next = (me + 1) % n, before = (me + n - 1) % n;
    size_t count = 50000;
    next_kernel<<<1, 1, 0, b->stream>>>(round);
    write_kernel<<<4, 64, 0, b->stream>>>((uint32_t *)b->src, count, round);
    OK(tern_put_on_stream(b->box + (size_t)me * PART, b->src, count * 4, next, b->stream));
    OK(tern_quiet_on_stream(b->stream));
    OK(tern_signal_op_on_stream(b->sig + me, 1, TERN_SIGNAL_ADD, next, b->stream));
    /* Satisfied by the round's own signal, and by no earlier one: the barrier at the end keeps rounds apart. */
    OK(tern_signal_wait_until_on_stream(b->sig + before, TERN_CMP_GE, 1, b->stream));
    read_kernel<<<4, 64, 0, b->stream>>>((const uint32_t *)(b->box + (size_t)before * PART), count, round, wrong);
    cudaMemsetAsync(b->sig + before, 0, sizeof *b->sig, b->stream);
    OK(tern_barrier_all_on_stream(b->stream));
}

static void test_order(const struct buffers *b, int graph)
{
    uint32_t *words, got[2];
    cudaGraph_t captured = NULL;
    cudaGraphExec_t exec = NULL;
    REQUIRE(cudaMalloc(&words, sizeof got) == cudaSuccess, "no memory");
    cudaMemset(words, 0, sizeof got);
    cudaMemset(b->sig, 0, (size_t)tern_n_pes() * sizeof *b->sig);
    cudaDeviceSynchronize();
    OK(tern_barrier_all());
    if (graph) {
        REQUIRE(cudaStreamBeginCapture(b->stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess, "capture");
        enqueue_round(b, words, words + 1);
        REQUIRE(cudaStreamEndCapture(b->stream, &captured) == cudaSuccess, "capture ends");
        REQUIRE(cudaGraphInstantiate(&exec, captured, 0) == cudaSuccess, "graph");
    }
    for (int round = 0; round < 6; round++) {
        if (graph)
            REQUIRE(cudaGraphLaunch(exec, b->stream) == cudaSuccess, "launch of the graph");
        else
            enqueue_round(b, words, words + 1);
    }
    cudaError_t error = cudaStreamSynchronize(b->stream);
    REQUIRE(error == cudaSuccess, "%s", cudaGetErrorString(error));
    cudaMemcpy(got, words, sizeof got, cudaMemcpyDeviceToHost);
    CHECK(got[0] == 6 && got[1] == 0, "%s: %u rounds, %u wrong words", graph ? "graph" : "stream", got[0], got[1]);
    if (graph) {
        cudaGraphExecDestroy(exec);
        cudaGraphDestroy(captured);
    }
    cudaFree(words);
    OK(tern_barrier_all());
}

static void expect(tern_status_t status, const char *call, const char *reason)
{
    CHECK(status == TERN_ERR_INVALID, "%s, %s: status %s", call, reason, tern_status_name(status));
    CHECK(strstr(tern_last_error(), call) && strstr(tern_last_error(), reason), "%s: %s", call, tern_last_error());
}

static void test_arguments(const struct buffers *b)
{
    int n = tern_n_pes();
    const char *no_pe = "is out of range", *no_heap = "is not a symmetric address";
    expect(tern_put_on_stream(b->box, b->src, 8, n, b->stream), "tern_put_on_stream", no_pe);
    expect(tern_put_on_stream(b->local, b->src, 8, 0, b->stream), "tern_put_on_stream", no_heap);
    expect(tern_put_on_stream(b->box, NULL, 8, 0, b->stream), "tern_put_on_stream", "source is NULL");
    expect(tern_put_on_stream(b->box, b->src, (size_t)1 << 44, 0, b->stream), "tern_put_on_stream", "beyond the end");
    expect(tern_get_on_stream(b->local, b->src, 8, -1, b->stream), "tern_get_on_stream", no_pe);
    expect(tern_get_on_stream(b->local, b->local, 8, 0, b->stream), "tern_get_on_stream", no_heap);
    expect(tern_get_on_stream(NULL, b->src, 8, 0, b->stream), "tern_get_on_stream", "destination is NULL");
    expect(tern_put_signal_on_stream(b->box, b->src, 8, (uint64_t *)((char *)b->sig + 4), 1, TERN_SIGNAL_SET, 0, b->stream),
           "tern_put_signal_on_stream", "not aligned");
    expect(tern_put_signal_on_stream(b->box, b->src, 8, b->sig, 1, 5, 0, b->stream), "tern_put_signal_on_stream",
           "signal operation 5");
    expect(tern_signal_op_on_stream(b->sig, 1, -1, 0, b->stream), "tern_signal_op_on_stream", "signal operation -1");
    expect(tern_signal_op_on_stream((uint64_t *)b->local, 1, TERN_SIGNAL_SET, 0, b->stream), "tern_signal_op_on_stream",
           no_heap);
    expect(tern_signal_wait_until_on_stream(b->sig, 6, 1, b->stream), "tern_signal_wait_until_on_stream", "comparison 6");
    expect(tern_signal_wait_until_on_stream(NULL, TERN_CMP_EQ, 1, b->stream), "tern_signal_wait_until_on_stream", no_heap);
    OK(tern_put_on_stream(NULL, NULL, 0, 0, b->stream));
    tern_status_t status = tern_launch(next_kernel, 1, 100000, 0, b->stream, (uint32_t *)b->local);
    CHECK((status == TERN_ERR_INVALID || status == TERN_ERR_DEVICE) && strstr(tern_last_error(), "launch"),
          "a launch that cannot be: %s", tern_last_error());
    (void)cudaGetLastError();
}

static void test_contexts(void)
{
    tern_ctx_t ctx, other;
    OK(tern_ctx(&ctx));
    CHECK(tern_my_pe(ctx) == tern_my_pe() && tern_n_pes(ctx) == tern_n_pes(), "numbers");
    other = tern_ctx_flags(ctx, 0xffffffffu);
    CHECK((other.flags ^ ctx.flags) == TERN_RELEASED, "flags %x of %x", other.flags, ctx.flags);
    CHECK(tern_ctx_flags(other, 0).flags == ctx.flags, "flags off");
    CHECK(tern_ctx_timeout(ctx, 7).timeout_ms == 7 && ctx.timeout_ms == 0, "timeout");
}

int main(void)
{
    struct buffers b;
    tern_ctx_t ctx;

    setenv("TERN_LOG", "none", 0);
    device_test_init(&ctx, 0);
    b.box = (char *)tern_malloc((size_t)tern_n_pes() * PART);
    b.src = (char *)tern_malloc(PART);
    b.sig = (uint64_t *)tern_malloc((size_t)tern_n_pes() * sizeof *b.sig);
    b.host = (unsigned char *)malloc(PART);
    REQUIRE(b.box && b.src && b.sig && b.host, "%s", tern_last_error());
    REQUIRE(cudaMalloc(&b.local, PART) == cudaSuccess && cudaStreamCreateWithFlags(&b.stream, cudaStreamNonBlocking) == cudaSuccess,
            "no memory");
    REQUIRE(tern_buffer_register(b.local, PART) == TERN_OK, "%s", tern_last_error()); /* for PEs that are reached by a proxy */
    test_contexts();
    test_arguments(&b);
    test_sizes(&b);
    test_order(&b, 0);
    test_order(&b, 1);
    cudaStreamDestroy(b.stream);
    CHECK(tern_buffer_unregister(b.local) == TERN_OK, "%s", tern_last_error());
    cudaFree(b.local);
    free(b.host);
    device_test_done();
    return test_end("stream");
}
