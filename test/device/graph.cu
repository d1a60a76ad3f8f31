/*
 * graph.cu - a graph with every kind of stream-ordered operation and with a kernel of the user that puts and waits,
 * captured once and replayed a thousand times: the data change with every replay, and every replay checks all of it.
 * Between replays, and while some are queued, the heap grows; what has been captured then puts into memory that did not
 * exist at capture.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/check.h"
#include "device/device_test.h"

#define WORDS 3000u /* 32-bit words of a part: a PE's data in one replay */
#define BLOCKS 3
#define THREADS 64
#define AREAS 4 /* memory that the heap grows by */
#define OK(call) REQUIRE((call) == TERN_OK, "%s: %s", #call, tern_last_error())
#define CUDA_OK(call)                                                                                                  \
    do {                                                                                                               \
        cudaError_t cuda_error = (call);                                                                               \
        REQUIRE(cuda_error == cudaSuccess, "%s: %s", #call, cudaGetErrorString(cuda_error));                           \
    } while (0)

/* What changes between replays, in device memory; the graph holds only its address. */
struct changing {
    uint32_t replay, input; /* counted by the graph; written by the host before each replay */
    char *area;             /* symmetric: where the user's kernel puts to, a part for each source PE */
};

/* What one replay found. */
struct found {
    uint32_t input, checked, wrong, failed;
};

struct test {
    tern_ctx_t ctx;
    uint32_t *src, *box, *signalled; /* symmetric; the last two have a part for each source PE */
    uint64_t *sig; /* symmetric: [0, n) of puts on the stream, [n, 2n) of put_signal, then one for each block */
    uint32_t *got; /* device: destination of gets */
    struct changing *now;
    struct found *found; /* device: one for each replay */
    uint32_t *inputs;    /* host */
    cudaStream_t stream;
};

TERN_DEV_HOST uint32_t word_of(uint32_t input, uint32_t replay, int pe, uint32_t at)
{
    return (input ^ (at + replay * 40503u) * 2654435761u) + (uint32_t)pe * 97u;
}

/* ---- kernels of the graph
 * ------------------------------------------------------------------------------------------------ */

__global__ void begin_kernel(struct changing *now, struct found *found)
{
    now->replay++;
    found[now->replay].input = now->input;
}

__global__ void fill_kernel(tern_ctx_t ctx, const struct changing *now, uint32_t *src)
{
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < WORDS; i += gridDim.x * blockDim.x)
        src[i] = word_of(now->input, now->replay, tern_my_pe(ctx), i);
}

TERN_DEV void check_word(const struct changing *now, struct found *found, uint32_t word, int pe, uint32_t at)
{
    struct found *f = found + now->replay;
    atomicAdd(&f->checked, 1u);
    if (word != word_of(now->input, now->replay, pe, at))
        atomicAdd(&f->wrong, 1u);
}

__global__ void check_kernel(const struct changing *now, struct found *found, const uint32_t *words, int pe)
{
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < WORDS; i += gridDim.x * blockDim.x)
        check_word(now, found, words[i], pe, i);
}

/*
 * The user's kernel: each block puts its share to the next PE with a signal, waits for that of the one before, and
 * checks it. Some shares go as put, fence, signal.
 */
__global__ void user_kernel(tern_ctx_t ctx, const struct changing *now, struct found *found, const uint32_t *src,
                            uint64_t *sig)
{
    int me = tern_my_pe(ctx), n = tern_n_pes(ctx), next = (me + 1) % n, before = (me + n - 1) % n;
    uint32_t each = WORDS / BLOCKS, from = blockIdx.x * each;
    uint32_t *area = (uint32_t *)now->area, *to = area + (uint32_t)me * WORDS + from;
    const uint32_t *mine = area + (uint32_t)before * WORDS + from;
    if ((now->replay + blockIdx.x) % 2) {
        tern_put_signal_nbi_block(ctx, to, src + from, each * sizeof *src, sig + blockIdx.x, now->replay,
                                  TERN_SIGNAL_SET, next);
    } else {
        tern_put_nbi_block(ctx, to, src + from, each * sizeof *src, next);
        if (threadIdx.x == 0) {
            tern_fence(ctx);
            tern_signal_op(ctx, sig + blockIdx.x, now->replay, TERN_SIGNAL_SET, next);
        }
    }
    if (tern_signal_wait_until_block(ctx, sig + blockIdx.x, TERN_CMP_GE, now->replay) != TERN_OK)
        atomicAdd(&found[now->replay].failed, 1u);
    for (uint32_t i = threadIdx.x; i < each; i += blockDim.x)
        check_word(now, found, mine[i], before, from + i);
}

/* ---- capture, replays
 * ---------------------------------------------------------------------------------------------------- */

static void enqueue(const struct test *t)
{
    int me = tern_my_pe(), n = tern_n_pes(), next = (me + 1) % n, before = (me + n - 1) % n;
    size_t bytes = WORDS * sizeof *t->src;
    begin_kernel<<<1, 1, 0, t->stream>>>(t->now, t->found);
    fill_kernel<<<2, THREADS, 0, t->stream>>>(t->ctx, t->now, t->src);
    OK(tern_put_on_stream(t->box + (size_t)me * WORDS, t->src, bytes, next, t->stream));
    OK(tern_quiet_on_stream(t->stream));
    OK(tern_signal_op_on_stream(t->sig + me, 1, TERN_SIGNAL_ADD, next, t->stream));
    OK(tern_put_signal_on_stream(t->signalled + (size_t)me * WORDS, t->src, bytes, t->sig + n + me, 1, TERN_SIGNAL_SET,
                                 next, t->stream));
    user_kernel<<<BLOCKS, THREADS, 0, t->stream>>>(t->ctx, t->now, t->found, t->src, t->sig + 2 * n);
    OK(tern_signal_wait_until_on_stream(t->sig + before, TERN_CMP_EQ, 1, t->stream));
    check_kernel<<<2, THREADS, 0, t->stream>>>(t->now, t->found, t->box + (size_t)before * WORDS, before);
    OK(tern_signal_wait_until_on_stream(t->sig + n + before, TERN_CMP_EQ, 1, t->stream));
    check_kernel<<<2, THREADS, 0, t->stream>>>(t->now, t->found, t->signalled + (size_t)before * WORDS, before);
    cudaMemsetAsync(t->sig, 0, 2 * (size_t)n * sizeof *t->sig, t->stream);
    OK(tern_sync_all_on_stream(t->stream));
    OK(tern_get_on_stream(t->got, t->src, bytes, next, t->stream));
    check_kernel<<<2, THREADS, 0, t->stream>>>(t->now, t->found, t->got, next);
    OK(tern_barrier_all_on_stream(t->stream)); /* keeps replays apart: all have been read */
}

/* The k-th area is larger than all of the heap before it. Replays are queued meanwhile, on this PE and others. */
static char *grow(const struct test *t, int k)
{
    size_t part = (size_t)tern_n_pes() * WORDS * sizeof(uint32_t), bytes = ((size_t)8 << 20 << k) + part;
    char *area = (char *)tern_malloc(bytes), *at = area + bytes - part;
    REQUIRE(area, "%s", tern_last_error());
    at -= (uintptr_t)at % 16;
    CUDA_OK(cudaMemcpyAsync(&t->now->area, &at, sizeof at, cudaMemcpyHostToDevice, t->stream));
    CUDA_OK(cudaStreamSynchronize(t->stream)); /* `at` is on this stack */
    return area;
}

static void replay_all(const struct test *t, cudaGraphExec_t exec, uint32_t replays)
{
    char *areas[AREAS] = {NULL};
    for (uint32_t r = 1, grown = 0; r <= replays; r++) {
        CUDA_OK(cudaMemcpyAsync(&t->now->input, &t->inputs[r], sizeof *t->inputs, cudaMemcpyHostToDevice, t->stream));
        CUDA_OK(cudaGraphLaunch(exec, t->stream));
        if (r == (grown + 1) * replays / (AREAS + 1) && grown < AREAS)
            areas[grown] = grow(t, (int)grown), grown++;
    }
    CUDA_OK(cudaStreamSynchronize(t->stream));
    REQUIRE(areas[AREAS - 1], "%u replays are too few to grow in between", replays);
    for (int k = 0; k < AREAS; k++)
        OK(tern_free(areas[k]));
}

static void check_all(const struct test *t, uint32_t replays)
{
    struct found *got = (struct found *)malloc((replays + 1) * sizeof *got);
    CUDA_OK(cudaMemcpy(got, t->found, (replays + 1) * sizeof *got, cudaMemcpyDeviceToHost));
    for (uint32_t r = 1; r <= replays && !test_failures; r++)
        CHECK(got[r].input == t->inputs[r] && got[r].checked == 4 * WORDS && !got[r].wrong && !got[r].failed,
              "PE %d, replay %u: input %x for %x, %u words checked of %u, %u wrong, %u waits failed", tern_my_pe(), r,
              got[r].input, t->inputs[r], got[r].checked, 4 * WORDS, got[r].wrong, got[r].failed);
    free(got);
}

static void play(int check, uint32_t replays)
{
    struct test t;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    device_test_init(&t.ctx, check);
    int n = tern_n_pes();
    uint64_t rng = device_test_seed();
    size_t part = WORDS * sizeof(uint32_t), words = 2 * (size_t)n + BLOCKS;
    t.src = (uint32_t *)tern_malloc(part);
    t.box = (uint32_t *)tern_malloc(3 * (size_t)n * part);
    t.sig = (uint64_t *)tern_calloc(words, sizeof *t.sig);
    t.inputs = (uint32_t *)calloc(replays + 1, sizeof *t.inputs);
    REQUIRE(t.src && t.box && t.sig && t.inputs, "%s", tern_last_error());
    t.signalled = t.box + (size_t)n * WORDS;
    struct changing first = {0, 0, (char *)(t.box + 2 * (size_t)n * WORDS)};
    CUDA_OK(cudaMalloc(&t.got, part));
    CUDA_OK(cudaMalloc(&t.now, sizeof *t.now));
    CUDA_OK(cudaMalloc(&t.found, (replays + 1) * sizeof *t.found));
    CUDA_OK(cudaMemset(t.found, 0, (replays + 1) * sizeof *t.found));
    CUDA_OK(cudaMemcpy(t.now, &first, sizeof first, cudaMemcpyHostToDevice));
    CUDA_OK(cudaStreamCreateWithFlags(&t.stream, cudaStreamNonBlocking));
    OK(tern_buffer_register(t.got, part));  /* for PEs that are reached by a proxy */
    for (uint32_t r = 1; r <= replays; r++) /* the same on all PEs */
        t.inputs[r] = (uint32_t)test_random(&rng);
    CUDA_OK(cudaDeviceSynchronize());
    OK(tern_barrier_all());

    CUDA_OK(cudaStreamBeginCapture(t.stream, cudaStreamCaptureModeThreadLocal));
    enqueue(&t);
    CUDA_OK(cudaStreamEndCapture(t.stream, &graph));
    CUDA_OK(cudaGraphInstantiate(&exec, graph, 0));
    replay_all(&t, exec, replays);
    check_all(&t, replays);

    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    cudaStreamDestroy(t.stream);
    OK(tern_buffer_unregister(t.got));
    cudaFree(t.got);
    cudaFree(t.now);
    cudaFree(t.found);
    free(t.inputs);
    device_test_done();
}

int main(int argc, char **argv)
{
    setenv("TERN_LOG", "none", 0);
    play(0, argc > 1 ? (uint32_t)atoi(argv[1]) : 1000);
    if (argc <= 1)
        play(1, 20); /* captured checks know the grown heap */
    return test_end("graph");
}
