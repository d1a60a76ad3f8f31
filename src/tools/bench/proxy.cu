/*
 * proxy.cu - tests of the way through the proxy, and the raw loops that bound them: a ticket, a look at the space, the stores
 * of an entry into pinned host memory; and one word there and back between a kernel and a CPU thread that does nothing else.
 */
#include <pthread.h>
#include <sched.h>

#include "device.h"

#define BENCH_BURST 32u /* puts that are issued before the quiet, which is not timed */

/* Time of the bursts alone: clocks, and what a clock is in ns from the whole kernel. */
struct bench_burst {
    uint64_t clocks, clock, ns;
};

BENCH_DEV void bench_burst_begin(struct bench_burst *b)
{
    b->clocks = 0;
    b->clock = (uint64_t)clock64();
    b->ns = tern_prim_clock_ns();
}

BENCH_DEV void bench_burst_end(const struct bench_args *a, const struct bench_burst *b)
{
    uint64_t clocks = (uint64_t)clock64() - b->clock, ns = tern_prim_clock_ns() - b->ns;

    if (threadIdx.x == 0) {
        a->out[blockIdx.x].begin = 0;
        a->out[blockIdx.x].end = (uint64_t)((double)b->clocks / BENCH_BURST * (double)ns / (double)clocks);
    }
}

static __global__ void __launch_bounds__(1024) bench_issue_kernel(tern_ctx_t ctx, struct bench_args a)
{
    uint64_t at = 16u * (blockIdx.x * blockDim.x + threadIdx.x);
    struct bench_burst burst;

    if (a.released)
        ctx = tern_ctx_flags(ctx, TERN_RELEASED);
    bench_burst_begin(&burst);
    for (uint32_t round = 0; round < a.warmup + a.rounds; round++) {
        uint64_t begin = (uint64_t)clock64();
        for (uint32_t i = 0; i < BENCH_BURST; i++)
            tern_put_nbi(ctx, a.dst + at, a.src + at, 16, a.peer);
        if (round >= a.warmup)
            burst.clocks += (uint64_t)clock64() - begin;
        bench_ok(&a, tern_quiet(ctx));
    }
    bench_burst_end(&a, &burst);
}

/* The kernels' side of pinned host memory: `head` and `taken` lie in GPU memory, as those of a ring. */
struct bench_pinned {
    uint64_t ask[16], answer[16]; /* a line each */
    uint64_t units[2048];
};

#define BENCH_UNITS (sizeof(((struct bench_pinned *)0)->units) / 16)

static __global__ void __launch_bounds__(1024) bench_floor_issue_kernel(struct bench_args a, struct bench_pinned *pinned)
{
    uint64_t *head = a.floor_words, *taken = a.floor_words + BENCH_LINE / 2;
    struct bench_burst burst;

    bench_burst_begin(&burst);
    for (uint32_t round = 0; round < a.warmup + a.rounds; round++) {
        uint64_t begin = (uint64_t)clock64();
        for (uint32_t i = 0; i < BENCH_BURST; i++) {
            if (!a.released)
                tern_prim_fence_gpu();
            uint64_t ticket = tern_prim_rmw_add_u64(head, 1), seen = tern_prim_ld_relaxed_u64(taken);
            if (ticket - seen == a.never)
                return;
            tern_prim_st_unit(&pinned->units[2 * (ticket % BENCH_UNITS)], ticket, seen);
        }
        if (round >= a.warmup)
            burst.clocks += (uint64_t)clock64() - begin;
        tern_prim_fence_sys(); /* the bus is quiet again */
    }
    bench_burst_end(&a, &burst);
}

static __global__ void __launch_bounds__(1024) bench_nop_kernel(tern_ctx_t ctx, struct bench_args a)
{
    tern_via_t v = tern_via_of(ctx);
    tern_ring_t ring = tern_ring_of(v, a.peer);

    for (uint32_t round = 0; round < a.warmup + a.rounds; round++) {
        tern_entry_t e = {{tern_entry_plain(TERN_ENTRY_nop, (unsigned)a.peer, 0)}, 1};
        bench_round(&a, round);
        bench_ok(&a, tern_ring_ask(v, ring, TERN_SLOTS_ALL, e, TERN_SLOT_BIT_PLAIN, 0, NULL));
    }
    bench_end(&a);
}

static __global__ void bench_floor_nop_kernel(struct bench_args a, struct bench_pinned *pinned)
{
    for (uint32_t round = 0; round < a.warmup + a.rounds; round++) {
        uint64_t number = a.base + round + 1;
        bench_round(&a, round);
        tern_prim_st_unit(pinned->ask, number, number);
        for (uint32_t polls = 0; tern_prim_ld_acquire_u64(pinned->answer) != number; polls++) {
            if (polls == 1u << 24) {
                bench_ok(&a, TERN_ERR_TIMEOUT);
                return;
            }
            tern_prim_pause();
        }
    }
    bench_end(&a);
}

/* Blocks are dealt out to the other PEs. */
BENCH_DEV int bench_rate_pe(const struct bench_args *a, unsigned block)
{
    return a->n_pes == 1 ? 0 : 1 + (int)(block % (unsigned)(a->n_pes - 1));
}

static __global__ void __launch_bounds__(1024) bench_rate_kernel(tern_ctx_t ctx, struct bench_args a)
{
    uint64_t *dst = (uint64_t *)a.dst + blockIdx.x * blockDim.x + threadIdx.x;
    int pe = bench_rate_pe(&a, blockIdx.x);

    for (uint32_t round = 0; round < a.warmup + a.rounds; round++) {
        bench_round(&a, round);
        tern_uint64_p(ctx, dst, a.base + round + 1, pe);
    }
    bench_ok(&a, tern_quiet(ctx));
    bench_end(&a);
}

/* The same entries into memory that nobody empties. */
static __global__ void __launch_bounds__(1024) bench_floor_rate_kernel(struct bench_args a, struct bench_pinned *pinned)
{
    uint64_t *head = a.floor_words + blockIdx.x % 32 * BENCH_LINE; /* as many as there are channels by default */

    for (uint32_t round = 0; round < a.warmup + a.rounds; round++) {
        bench_round(&a, round);
        uint64_t ticket = tern_prim_rmw_add_u64(head, 1);
        tern_prim_st_unit(&pinned->units[2 * (ticket % BENCH_UNITS)], ticket, ticket);
    }
    tern_prim_fence_sys();
    bench_end(&a);
}

/* Every element that blocks of PE 0 wrote here holds the number of the last round. */
static __global__ void bench_rate_verify_kernel(struct bench_args a, int blocks, int threads, uint64_t last, struct bench_out *out)
{
    for (int i = (int)threadIdx.x; i < blocks * threads; i += (int)blockDim.x) {
        if (bench_rate_pe(&a, (unsigned)(i / threads)) == a.pe)
            bench_wrong(out, ((const uint64_t *)a.dst)[i] != last);
    }
}

/* ---- host ---------------------------------------------------------------------------------------------------------------- */

static struct bench_pinned *bench_pinned_host, *bench_pinned_dev;
static pthread_t bench_echo_thread;
static int bench_echo_stop;

/* Answers each new word at once, until it is told to stop. */
static void *bench_echo(void *few_cores)
{
    uint64_t seen = 0, now;
    while (!__atomic_load_n(&bench_echo_stop, __ATOMIC_RELAXED)) {
        now = __atomic_load_n(&bench_pinned_host->ask[0], __ATOMIC_ACQUIRE);
        if (now != seen)
            __atomic_store_n(&bench_pinned_host->answer[0], seen = now, __ATOMIC_RELEASE);
        else if (few_cores)
            sched_yield();
    }
    return NULL;
}

bool bench_proxy_open(bool echo, bool few_cores)
{
    if (cudaHostAlloc(&bench_pinned_host, sizeof *bench_pinned_host, cudaHostAllocMapped) != cudaSuccess)
        return false;
    memset(bench_pinned_host, 0, sizeof *bench_pinned_host);
    if (cudaHostGetDevicePointer(&bench_pinned_dev, bench_pinned_host, 0) != cudaSuccess)
        return false;
    bench_echo_stop = !echo || pthread_create(&bench_echo_thread, NULL, bench_echo, few_cores ? &bench_echo_stop : NULL);
    return !echo || !bench_echo_stop;
}

void bench_proxy_close(void)
{
    if (bench_pinned_host && !bench_echo_stop) {
        __atomic_store_n(&bench_echo_stop, 1, __ATOMIC_RELAXED);
        pthread_join(bench_echo_thread, NULL);
    }
    cudaFreeHost(bench_pinned_host);
}

tern_status_t bench_proxy_launch(enum bench_test test, const tern_ctx_t *ctx, const struct bench_args *a, int blocks,
                                 int threads)
{
    static void (*const kernel[])(tern_ctx_t, struct bench_args) = {bench_issue_kernel, bench_nop_kernel, bench_rate_kernel};
    return tern_launch(kernel[test - BENCH_ISSUE], dim3((unsigned)blocks), dim3((unsigned)threads), 0, NULL, *ctx, *a);
}

tern_status_t bench_proxy_floor_launch(enum bench_test test, const struct bench_args *a, int blocks, int threads)
{
    dim3 grid((unsigned)blocks), block((unsigned)threads);

    if (test == BENCH_NOP) /* one thread: there is one word */
        return tern_launch(bench_floor_nop_kernel, dim3(1), dim3(1), 0, NULL, *a, bench_pinned_dev);
    return tern_launch(test == BENCH_ISSUE ? bench_floor_issue_kernel : bench_floor_rate_kernel, grid, block, 0, NULL, *a,
                       bench_pinned_dev);
}

tern_status_t bench_rate_verify_launch(const struct bench_args *a, int blocks, int threads, uint64_t last,
                                       struct bench_out *out)
{
    return tern_launch(bench_rate_verify_kernel, dim3(1), dim3(256), 0, NULL, *a, blocks, threads, last, out);
}
