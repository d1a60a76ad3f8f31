/*
 * ring.cu - the producer's side of the rings, against a plain consumer: kernels of several blocks make all device calls
 * to PEs that do not exist, and a host thread takes the entries by the rules of ring.h, checks every field, answers in
 * random order, lets rings fill up and runs late. Needs no runtime: the context points to a state block and rings made
 * here.
 */
#include <pthread.h>
#include <unistd.h>

#include "proxy/ring_consumer.h"

/* ---- kernels ---- */

struct game {
    char *buffer;   /* registered; as large as the rows */
    uint64_t *grid; /* counts arrivals */
    uint32_t *bad;  /* wrong results seen by threads */
    uint32_t seed;
    int only;
    int by_block;
};

TERN_DEV void fill(char *row, uint64_t value)
{
    for (unsigned i = 0; i < ROW / 16; i++) {
        tern_v4_t v = {(uint32_t)value + i, (uint32_t)(value >> 32), i, ~i};
        tern_prim_st_v4(row + 16 * i, v);
    }
}

/* Draws a ticket and is late: nothing behind it may be taken meanwhile. One lane of a warp, so that no other waits for
 * it. */
TERN_DEV void play_hole(tern_ctx_t ctx, uint64_t *remote, uint64_t value, int pe)
{
    tern_via_t v = tern_via_of(ctx);
    tern_ring_t ring = tern_ring_of(v, pe);
    if (threadIdx.x % 32) {
        tern_uint64_p(ctx, remote, value, pe);
        return;
    }
    uint64_t ticket = tern_order_ring_ticket(&ring.dev->head, 1);
    tern_wait_t w = {0, 0, 0};
    while ((uint32_t)ticket + 1 - tern_ring_refresh(ring) > UNITS)
        if (!tern_via_turn(v, &w))
            return;
    for (unsigned i = 0; i < value % 2000; i++)
        tern_prim_pause();
    tern_ring_store(v, ring, ticket, tern_entry_word(TERN_ENTRY_p64, (unsigned)pe, tern_via_offset(v, remote), value));
}

/* One operation; true if its result was wrong. */
TERN_DEV bool play_op(tern_ctx_t ctx, struct game g, unsigned id, unsigned seq, struct plan plan)
{
    uint64_t value = plan.value, *sig = (uint64_t *)(ctx.heap + SIGNALS + row_of(id, seq));
    char *row = ctx.heap + row_of(id, seq), *remote = ctx.heap + REMOTE + row_of(id, seq);
    uint64_t *word = (uint64_t *)remote;
    int pe = plan.pe;
    fill(row, value);
    switch (plan.kind) {
    case KIND_p64:
        tern_uint64_p(ctx, word, value, pe);
        break;
    case KIND_p32:
        tern_uint32_p(ctx, (uint32_t *)(remote + 4), (uint32_t)value, pe);
        break;
    case KIND_p16:
        tern_uint16_p(ctx, (uint16_t *)(remote + 2), (uint16_t)value, pe);
        break;
    case KIND_p8:
        tern_uint8_p(ctx, (uint8_t *)(remote + 3), (uint8_t)value, pe);
        break;
    case KIND_put_word:
        tern_put(ctx, remote + 4, row, 4, pe);
        break;
    case KIND_put_s:
        tern_put_nbi(ctx, remote, row, 48, pe);
        break;
    case KIND_put_l:
        tern_put_nbi(ctx, remote + 1, row, 33, pe);
        break;
    case KIND_put_buffer:
        fill(g.buffer + row_of(id, seq), value);
        tern_put_nbi(ctx, remote, g.buffer + row_of(id, seq), 40, pe);
        break;
    case KIND_put_s_signal:
        tern_put_signal_nbi(ctx, remote, row, 32, sig, value, TERN_SIGNAL_SET, pe);
        break;
    case KIND_put_l_signal:
        tern_put_signal_nbi(ctx, remote + 3, row, 31, sig, value, TERN_SIGNAL_ADD, pe);
        break;
    case KIND_put_wait:
        tern_put(ctx, remote, row, 64, pe);
        fill(row, ~value);
        break;
    case KIND_put_signal_wait:
        tern_put_signal(ctx, remote + 5, row, 47, sig, value, TERN_SIGNAL_SET, pe);
        fill(row, ~value);
        break;
    case KIND_get_wait:
        tern_get(ctx, row, remote, 48, pe);
        return tern_prim_ld_v4(row + 32).x != (uint32_t)~value + 2;
    case KIND_get_nbi:
        tern_get_nbi(ctx, row, remote + 2, 33, pe);
        break;
    case KIND_signal_set:
        tern_signal_op(ctx, word, value, TERN_SIGNAL_SET, pe);
        break;
    case KIND_signal_add:
        tern_signal_op(ctx, word, value, TERN_SIGNAL_ADD, pe);
        break;
    case KIND_g64:
        return tern_uint64_g(ctx, word, pe) != ~value;
    case KIND_g16:
        return tern_uint16_g(ctx, (uint16_t *)(remote + 2), pe) != (uint16_t)~value;
    case KIND_xor64:
        tern_uint64_atomic_xor(ctx, word, value, pe);
        break;
    case KIND_fetch_add32:
        return tern_uint32_atomic_fetch_add(ctx, (uint32_t *)(remote + 4), (uint32_t)value, pe) != (uint32_t)~value;
    case KIND_cas64:
        return tern_uint64_atomic_compare_swap(ctx, word, ~value ^ 1, value, pe) != ~value;
    case KIND_near_add:
        tern_uint64_p(ctx, (uint64_t *)row, value, ME);
        return tern_uint64_atomic_fetch_add(ctx, (uint64_t *)row, value, ME) != ~value;
    default:
        play_hole(ctx, word, value, pe);
    }
    return false;
}

/* All blocks meet; false: the job was aborted. */
TERN_DEV bool grid_sync(tern_ctx_t ctx, uint64_t *count, uint64_t until)
{
    tern_status_t status = TERN_OK;
    tern_prim_fence_gpu();
    __syncthreads();
    if (threadIdx.x == 0) {
        tern_prim_fence_gpu();
        tern_prim_red_add_u64(count, 1);
        while (tern_prim_ld_acquire_u64(count) < until && status == TERN_OK) {
            tern_prim_pause();
            status = tern_ctx_status(ctx);
        }
    }
    return !__syncthreads_or(status != TERN_OK);
}

/* A block fences for itself; in even rounds it gets before that. */
TERN_DEV void end_by_block(tern_ctx_t ctx, unsigned round)
{
    uint64_t at = gets_of(blockIdx.x, round);
    if (round % 2 == 0)
        tern_uint64_iget_block(ctx, (uint64_t *)(ctx.heap + IDS_MAX * SEQS * ROW + at),
                               (const uint64_t *)(ctx.heap + GETS + at), 1, 1, blockDim.x, gets_pe(blockIdx.x, round));
    tern_fence_block(ctx);
}

/* In each round all threads push, all meet, and one of them fences or completes what all have pushed. */
__global__ void __launch_bounds__(THREADS_MAX) play(tern_ctx_t ctx, struct game g)
{
    unsigned id = blockIdx.x * blockDim.x + threadIdx.x;
    uint32_t bad = 0;
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < OPS; i++)
            bad += play_op(ctx, g, id, round * OPS + i, plan_of(g.seed, id, round * OPS + i, g.only));
        if (g.by_block) {
            end_by_block(ctx, round);
            continue;
        }
        if (!grid_sync(ctx, g.grid, (uint64_t)gridDim.x * (round + 1)))
            break;
        if (blockIdx.x == round % gridDim.x && threadIdx.x == blockDim.x - 1) {
            if (round & 1)
                bad += tern_quiet(ctx) != TERN_OK;
            else
                tern_fence(ctx);
        }
    }
    if (bad)
        tern_prim_red_add_u32(g.bad, bad);
}

/* Nobody takes anything: every wait for the proxy ends by the abort. */
__global__ void stuck(tern_ctx_t ctx, struct game g)
{
    uint64_t *word = (uint64_t *)(ctx.heap + REMOTE);
    bool bad = false;
    if (threadIdx.x == 0) {
        bad = tern_quiet(ctx) != TERN_ERR_ABORTED;
    } else if (threadIdx.x == 1) {
        bad = tern_uint64_g(ctx, word, 0) != 0;
    } else if (threadIdx.x == 2) {
        tern_put(ctx, word, ctx.heap, 64, 0);
    } else if (threadIdx.x == 3) {
        bad = tern_uint64_atomic_fetch_inc(ctx, word, 0) != 0;
    } else {
        for (unsigned i = 0; i < 2 * UNITS; i++)
            tern_uint64_p(ctx, word, i, 0);
    }
    if (bad)
        tern_prim_red_add_u32(g.bad, 1);
}

/* ---- games ---- */

struct table {
    tern_ctx_t ctx;
    struct game game;
    struct tern_state_host *state;
    struct tern_ring_dev *rings;
    char *rings_host;
    struct tern_state_dev *state_dev;
    struct tern_buffer_dev *buffers;
    int n_rings;
};

#define REQUIRE_CUDA(call)                                                                                             \
    do {                                                                                                               \
        cudaError_t cuda_error = (call);                                                                               \
        REQUIRE(cuda_error == cudaSuccess, "%s: %s", #call, cudaGetErrorString(cuda_error));                           \
    } while (0)

static struct tern_ring_host *table_ring(const struct table *t, int i)
{
    return (struct tern_ring_host *)(t->rings_host + i * TERN_RING_HOST_BYTES(UNITS));
}

static void table_open(struct table *t, int channels, int threads, uint32_t seed, int only)
{
    struct tern_ring_dev fresh = {0, 0, 0, ~0ull, 0, 0, {0}};
    struct tern_buffer_dev buffers[SEGMENT] = {};
    struct tern_state_dev state = {};
    memset(t, 0, sizeof *t);
    t->n_rings = channels * threads;
    REQUIRE_CUDA(cudaMallocHost(&t->state, sizeof *t->state));
    memset(t->state, 0, sizeof *t->state);
    REQUIRE_CUDA(cudaMallocHost(&t->rings_host, (t->n_rings + TERN_RINGS_AT_ONCE) * TERN_RING_HOST_BYTES(UNITS)));
    memset(t->rings_host, 0, (t->n_rings + TERN_RINGS_AT_ONCE) * TERN_RING_HOST_BYTES(UNITS));
    for (int i = 0; i < t->n_rings; i++)
        for (unsigned slot = 0; slot < TERN_RING_REPLIES; slot++)
            table_ring(t, i)->replies[slot].word = TERN_REPLY_NONE;
    REQUIRE_CUDA(cudaMalloc(&t->rings, (t->n_rings + TERN_RINGS_AT_ONCE) * sizeof *t->rings));
    for (int i = 0; i < t->n_rings; i++)
        REQUIRE_CUDA(cudaMemcpy(t->rings + i, &fresh, sizeof fresh, cudaMemcpyHostToDevice));
    REQUIRE_CUDA(cudaMallocHost(&t->ctx.heap, HEAP_BYTES)); /* the consumer reads and writes it */
    REQUIRE_CUDA(cudaMallocHost(&t->game.buffer, row_of(IDS_MAX, 0)));
    REQUIRE_CUDA(cudaMalloc(&t->game.grid, sizeof(uint64_t)));
    REQUIRE_CUDA(cudaMemset(t->game.grid, 0, sizeof(uint64_t)));
    REQUIRE_CUDA(cudaMalloc(&t->game.bad, sizeof(uint32_t)));
    REQUIRE_CUDA(cudaMemset(t->game.bad, 0, sizeof(uint32_t)));
    t->game.seed = seed;
    t->game.only = only;
    buffers[SEGMENT - 1].base = (uint64_t)(uintptr_t)t->game.buffer;
    buffers[SEGMENT - 1].bytes = row_of(IDS_MAX, 0);
    REQUIRE_CUDA(cudaMalloc(&t->buffers, sizeof buffers));
    REQUIRE_CUDA(cudaMemcpy(t->buffers, buffers, sizeof buffers, cudaMemcpyHostToDevice));
    state.host = t->state;
    state.heap = t->ctx.heap;
    state.stride = SIGNALS + row_of(IDS_MAX, 0);
    /* a buffer lies wherever it lies: not in the span */
    state.stride = (uint64_t)(t->game.buffer - t->ctx.heap) < state.stride ? (uint64_t)(t->game.buffer - t->ctx.heap)
                                                                           : state.stride;
    state.n_pes = N_PES;
    state.buffers = t->buffers;
    state.n_buffers = SEGMENT;
    REQUIRE_CUDA(cudaMalloc(&t->state_dev, sizeof state));
    REQUIRE_CUDA(cudaMemcpy(t->state_dev, &state, sizeof state, cudaMemcpyHostToDevice));
#if defined(__CUDACC__)
    t->ctx.flags = TERN_CTX_PROXY | TERN_CTX_STRICT; /* the heap is host memory */
#else
    t->ctx.flags = TERN_CTX_PROXY;
#endif
    t->ctx.my_pe = t->ctx.near_first = ME;
    t->ctx.near_count = 1;
    t->ctx.n_pes = N_PES;
    t->ctx.stride = state.stride;
    t->ctx.state = t->state_dev;
    t->ctx.rings = t->rings;
    t->ctx.rings_host = t->rings_host;
    t->ctx.channels = (uint16_t)channels;
    t->ctx.proxy_threads = (uint16_t)threads;
    t->ctx.ring_units = UNITS;
}

static void table_close(struct table *t)
{
    void *device[] = {t->rings, t->game.grid, t->game.bad, t->buffers, t->state_dev};
    void *host[] = {t->rings_host, t->state, t->ctx.heap, t->game.buffer};
    for (void *p : device)
        REQUIRE_CUDA(cudaFree(p));
    for (void *p : host)
        REQUIRE_CUDA(cudaFreeHost(p));
}

static uint32_t table_bad(struct table *t)
{
    uint32_t bad;
    REQUIRE_CUDA(cudaMemcpy(&bad, t->game.bad, sizeof bad, cudaMemcpyDeviceToHost));
    return bad;
}

/* The kernel ends, or is made to by an abort at the deadline. */
static void wait_kernel(struct table *t)
{
    double end = now() + DEADLINE_S;
    cudaError_t error;
    while ((error = cudaStreamQuery(NULL)) == cudaErrorNotReady && now() < end)
        usleep(1000);
    CHECK(error == cudaSuccess, "kernel: %s", cudaGetErrorString(error));
    if (error == cudaErrorNotReady)
        __atomic_store_n(&t->state->abort, TERN_ABORT_WORD(1, 0, TERN_ERR_ABORTED), __ATOMIC_RELEASE);
    REQUIRE_CUDA(cudaDeviceSynchronize());
}

static void consumer_open(struct consumer *c, struct table *t, int blocks, int block_threads)
{
    c->channels = t->ctx.channels, c->threads = t->ctx.proxy_threads;
    c->blocks = blocks, c->block_threads = block_threads;
    c->seed = t->game.seed, c->only = t->game.only, c->random = t->game.seed;
    c->heap = t->ctx.heap, c->buffer = t->game.buffer;
    memset(c->last, 0xff, sizeof c->last);
    memset(c->channel, 0xff, sizeof c->channel);
    for (int i = 0; i < t->n_rings; i++)
        c->rings[i].host = table_ring(t, i);
    for (unsigned id = 0; id < (unsigned)(blocks * block_threads); id++)
        for (unsigned seq = 0; seq < SEQS; seq++)
            c->planned[plan_of(c->seed, id, seq, c->only).pe % c->threads][seq / OPS]++;
}

/* What is left when all kernels have ended: nothing. */
static void check_end(struct consumer *c, struct table *t)
{
    for (int id = 0; id < c->blocks * c->block_threads; id++)
        for (int seq = 0; seq < SEQS; seq++)
            CHECK(c->seen[id][seq] == 1, "operation %d of thread %d came %d times", seq, id, c->seen[id][seq]);
    for (int i = 0; i < t->n_rings; i++) {
        struct tern_ring_dev ring;
        REQUIRE_CUDA(cudaMemcpy(&ring, t->rings + i, sizeof ring, cudaMemcpyDeviceToHost));
        CHECK(ring.head == c->rings[i].next && (uint32_t)ring.head - ring.taken <= UNITS, "ring %d: %llu drawn, %llu taken", i,
              (unsigned long long)ring.head, (unsigned long long)c->rings[i].next);
        CHECK(ring.slots == ~0ull, "ring %d: free slots %llx", i, (unsigned long long)ring.slots);
        CHECK(!c->by_block || (c->rings[i].fences == ROUNDS && !c->rings[i].gets), "ring %d: %d fences, %d gets", i,
              c->rings[i].fences, c->rings[i].gets);
        CHECK(!c->rings[i].open, "ring %d: %d unanswered", i, c->rings[i].open);
    }
    CHECK(table_bad(t) == 0, "%u wrong results in kernels", table_bad(t));
}

static void game(const char *name, int blocks, int block_threads, int channels, int threads, uint32_t seed, int only,
                 bool by_block)
{
    struct consumer *c = (struct consumer *)calloc(1, sizeof *c);
    struct table t;
    pthread_t thread;
    double begin = now();
    int most = 0;
    table_open(&t, channels, threads, seed, only);
    t.game.by_block = c->by_block = by_block;
    consumer_open(c, &t, blocks, block_threads);
    REQUIRE(pthread_create(&thread, NULL, consume, c) == 0, "thread");
    play<<<blocks, block_threads>>>(t.ctx, t.game);
    wait_kernel(&t);
    for (double end = now() + DEADLINE_S; now() < end;) {
        uint64_t left = 0;
        for (int i = 0; i < t.n_rings; i++) {
            struct tern_ring_dev ring;
            REQUIRE_CUDA(cudaMemcpy(&ring, t.rings + i, sizeof ring, cudaMemcpyDeviceToHost));
            left += ring.head - __atomic_load_n(&c->rings[i].host->taken, __ATOMIC_ACQUIRE);
        }
        if (!left)
            break;
        usleep(1000);
    }
    __atomic_store_n(&c->stop, true, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    check_end(c, &t);
    for (int i = 0; i < t.n_rings; i++)
        most = c->rings[i].open_most > most ? c->rings[i].open_most : most;
    printf("%s: %.1f s, %d entries, %d over the wrap, full %d times, %d not whole, at most %d answers owed\n", name,
           now() - begin, c->entries, c->wraps, c->full, c->torn, most);
    if (only == KIND_ANY && channels == 1 && threads == 1)
        CHECK(c->wraps && c->full, "the ring was never full, or no entry went over its end");
    if (only == KIND_g64)
        CHECK(most == (int)TERN_RING_REPLIES, "at most %d of %u slots were in use", most, TERN_RING_REPLIES);
    if (only == KIND_put_wait)
        CHECK(most == (int)TERN_RING_REPLIES_ANY, "at most %d of %u slots were in use", most, TERN_RING_REPLIES_ANY);
    table_close(&t);
    free(c);
}

static void game_stuck(uint32_t seed)
{
    struct table t;
    table_open(&t, 1, 1, seed, KIND_ANY);
    stuck<<<2, 32>>>(t.ctx, t.game);
    usleep(50000);
    CHECK(cudaStreamQuery(NULL) == cudaErrorNotReady, "nothing took an entry, yet the kernel has ended");
    __atomic_store_n(&t.state->abort, TERN_ABORT_WORD(1, 0, TERN_ERR_ABORTED), __ATOMIC_RELEASE);
    wait_kernel(&t);
    CHECK(table_bad(&t) == 0, "%u calls did not say that the job was aborted", table_bad(&t));
    table_close(&t);
}

int main(void)
{
#if defined(__CUDACC__)
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || !devices) {
        printf("skipped: no GPU\n");
        return TEST_SKIP;
    }
#endif
    uint32_t seed = (uint32_t)test_seed();
    game("one ring", 4, 64, 1, 1, seed, KIND_ANY, false);
    game("four channels, three threads", 6, 32, 4, 3, seed + 1, KIND_ANY, false);
    game("two channels of three blocks each", 6, 64, 2, 1, seed + 2, KIND_ANY, false);
    game("fences, each behind operations that nobody waits for", 6, 32, 2, 2, seed + 3, KIND_p64, false);
    game("blocks with rings of their own", 4, 64, 4, 3, seed + 4, KIND_ANY, true);
    game("all slots, g", 2, 64, 1, 1, seed + 5, KIND_g64, false);
    game("all slots, put", 2, 64, 1, 1, seed + 6, KIND_put_wait, false);
    game_stuck(seed + 7);
    return test_end("ring");
}
