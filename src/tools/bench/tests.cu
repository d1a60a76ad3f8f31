/* tests.cu - the measured kernels of tern-bench: Tern's device API, and nothing else between the readings of the clock. */
#include "device.h"

/* ---- put, get ---------------------------------------------------------------------------------------------------------- */

/* The context with the unit's slice of the stage, if there is one. */
BENCH_DEV tern_ctx_t bench_stage(tern_ctx_t ctx, const struct bench_args *a, struct bench_unit u)
{
    extern __shared__ __align__(128) char bench_shared[];

    unsigned units = blockDim.x / u.threads, slice = a->stage / units & ~127u;
    /* not a choice between two contexts: that would put them into local memory */
    return tern_ctx_stage(ctx, a->stage ? bench_shared + threadIdx.x / u.threads * slice : NULL, slice);
}

BENCH_DEV void bench_put_one(tern_ctx_t ctx, int scope, void *dst, const void *src, uint64_t bytes, int pe)
{
    if (scope == BENCH_THREAD)
        tern_put_nbi(ctx, dst, src, bytes, pe);
    else if (scope == BENCH_WARP)
        tern_put_nbi_warp(ctx, dst, src, bytes, pe);
    else
        tern_put_nbi_block(ctx, dst, src, bytes, pe);
}

/* A warp has no quiet of its own: its put ends with a barrier of the warp, so one lane's quiet serves all. */
BENCH_DEV tern_status_t bench_quiet_one(tern_ctx_t ctx, int scope, struct bench_unit u)
{
    tern_status_t status = TERN_OK;

    if (scope == BENCH_BLOCK)
        return tern_quiet_block(ctx);
    if (u.rank == 0)
        status = tern_quiet(ctx);
    bench_unit_sync(scope);
    return status;
}

BENCH_DEV void bench_put_body(tern_ctx_t ctx, const struct bench_args *a, int scope)
{
    struct bench_unit u = bench_unit_of(scope);
    uint64_t offset, bytes;

    bench_piece(u, a->bytes, &offset, &bytes);
    ctx = bench_stage(ctx, a, u);
    for (uint32_t round = 0; round < a->warmup + a->rounds; round++) {
        bench_round(a, round);
        if (bytes)
            bench_put_one(ctx, scope, a->dst + offset, a->src + offset, bytes, a->peer);
        if (a->quiet)
            bench_ok(a, bench_quiet_one(ctx, scope, u));
    }
    if (!a->quiet)
        bench_ok(a, bench_quiet_one(ctx, scope, u));
    bench_end(a);
}

static __global__ void __launch_bounds__(1024) bench_put_thread(tern_ctx_t ctx, struct bench_args a)
{
    bench_put_body(ctx, &a, BENCH_THREAD);
}

static __global__ void __launch_bounds__(1024) bench_put_warp(tern_ctx_t ctx, struct bench_args a)
{
    bench_put_body(ctx, &a, BENCH_WARP);
}

static __global__ void __launch_bounds__(1024) bench_put_block(tern_ctx_t ctx, struct bench_args a)
{
    bench_put_body(ctx, &a, BENCH_BLOCK);
}

BENCH_DEV void bench_get_body(tern_ctx_t ctx, const struct bench_args *a, int scope)
{
    struct bench_unit u = bench_unit_of(scope);
    uint64_t offset, bytes;

    bench_piece(u, a->bytes, &offset, &bytes);
    ctx = bench_stage(ctx, a, u);
    for (uint32_t round = 0; round < a->warmup + a->rounds; round++) {
        bench_round(a, round);
        if (!bytes)
            continue;
        if (scope == BENCH_THREAD)
            tern_get(ctx, a->dst + offset, a->src + offset, bytes, a->peer);
        else if (scope == BENCH_WARP)
            tern_get_warp(ctx, a->dst + offset, a->src + offset, bytes, a->peer);
        else
            tern_get_block(ctx, a->dst + offset, a->src + offset, bytes, a->peer);
    }
    bench_end(a);
}

static __global__ void __launch_bounds__(1024) bench_get_thread(tern_ctx_t ctx, struct bench_args a)
{
    bench_get_body(ctx, &a, BENCH_THREAD);
}

static __global__ void __launch_bounds__(1024) bench_get_warp(tern_ctx_t ctx, struct bench_args a)
{
    bench_get_body(ctx, &a, BENCH_WARP);
}

static __global__ void __launch_bounds__(1024) bench_get_block(tern_ctx_t ctx, struct bench_args a)
{
    bench_get_body(ctx, &a, BENCH_BLOCK);
}

/* ---- p, g ---------------------------------------------------------------------------------------------------------------- */

/* Each thread has its own element. */
#define BENCH_P(name, T)                                                                                               \
    BENCH_DEV void bench_p_##name(tern_ctx_t ctx, const struct bench_args *a)                                          \
    {                                                                                                                  \
        T *dst = (T *)a->dst + blockIdx.x * blockDim.x + threadIdx.x;                                                  \
        for (uint32_t round = 0; round < a->warmup + a->rounds; round++) {                                             \
            bench_round(a, round);                                                                                     \
            tern_##name##_p(ctx, dst, (T)(round & 63), a->peer);                                                       \
            bench_ok(a, tern_quiet(ctx));                                                                              \
        }                                                                                                              \
        bench_end(a);                                                                                                  \
    }
TERN_SCALAR_TYPES(BENCH_P)

/* The value that comes is the index of the next element: itself, as bench_elements_launch() has filled them. */
#define BENCH_G(name, T)                                                                                               \
    BENCH_DEV void bench_g_##name(tern_ctx_t ctx, const struct bench_args *a)                                          \
    {                                                                                                                  \
        unsigned id = blockIdx.x * blockDim.x + threadIdx.x, at = 1 + id % 63;                                         \
        const T *src = (const T *)a->src + (id & ~63u);                                                                \
        for (uint32_t round = 0; round < a->warmup + a->rounds; round++) {                                             \
            bench_round(a, round);                                                                                     \
            at = (unsigned)tern_##name##_g(ctx, src + (at & 63), a->peer);                                             \
        }                                                                                                              \
        bench_wrong(&a->out[blockIdx.x], at != 1 + id % 63);                                                           \
        bench_end(a);                                                                                                  \
    }
TERN_SCALAR_TYPES(BENCH_G)

static __global__ void __launch_bounds__(1024) bench_p_kernel(tern_ctx_t ctx, struct bench_args a)
{
    switch (a.type) {
#define BENCH_CASE(name, T)                                                                                            \
    case BENCH_TYPE_##name:                                                                                            \
        bench_p_##name(ctx, &a);                                                                                       \
        break;
        TERN_SCALAR_TYPES(BENCH_CASE)
#undef BENCH_CASE
    }
}

static __global__ void __launch_bounds__(1024) bench_g_kernel(tern_ctx_t ctx, struct bench_args a)
{
    switch (a.type) {
#define BENCH_CASE(name, T)                                                                                            \
    case BENCH_TYPE_##name:                                                                                            \
        bench_g_##name(ctx, &a);                                                                                       \
        break;
        TERN_SCALAR_TYPES(BENCH_CASE)
#undef BENCH_CASE
    }
}

/* ---- ping-pongs: the lower PE begins -------------------------------------------------------------------------------------- */

static __global__ void __launch_bounds__(1024) bench_signal_kernel(tern_ctx_t ctx, struct bench_args a)
{
    uint64_t *word = a.words + blockIdx.x * BENCH_LINE;
    bool begins = a.pe < a.peer, going = threadIdx.x == 0;

    ctx = tern_ctx_timeout(ctx, a.timeout_ms);
    for (uint32_t round = 0; going && round < a.warmup + a.rounds; round++) {
        uint64_t value = a.base + round + 1;
        bench_round(&a, round);
        if (begins)
            tern_signal_op(ctx, word, value, TERN_SIGNAL_SET, a.peer);
        going = bench_ok(&a, tern_signal_wait_until(ctx, word, TERN_CMP_EQ, value));
        if (!begins)
            tern_signal_op(ctx, word, value, TERN_SIGNAL_SET, a.peer);
    }
    bench_end(&a);
}

BENCH_DEV void bench_put_signal_one(tern_ctx_t ctx, int scope, const struct bench_args *a, uint64_t offset, uint64_t *word,
                                    uint64_t value)
{
    if (scope == BENCH_THREAD)
        tern_put_signal_nbi(ctx, a->dst + offset, a->src + offset, a->bytes, word, value, TERN_SIGNAL_SET, a->peer);
    else if (scope == BENCH_WARP)
        tern_put_signal_nbi_warp(ctx, a->dst + offset, a->src + offset, a->bytes, word, value, TERN_SIGNAL_SET, a->peer);
    else
        tern_put_signal_nbi_block(ctx, a->dst + offset, a->src + offset, a->bytes, word, value, TERN_SIGNAL_SET, a->peer);
}

BENCH_DEV tern_status_t bench_wait_one(tern_ctx_t ctx, int scope, uint64_t *word, uint64_t value)
{
    if (scope == BENCH_THREAD)
        return tern_signal_wait_until(ctx, word, TERN_CMP_EQ, value);
    if (scope == BENCH_WARP)
        return tern_signal_wait_until_warp(ctx, word, TERN_CMP_EQ, value);
    return tern_signal_wait_until_block(ctx, word, TERN_CMP_EQ, value);
}

BENCH_DEV void bench_put_signal_body(tern_ctx_t ctx, const struct bench_args *a, int scope)
{
    struct bench_unit u = bench_unit_of(scope);
    uint64_t *word = a->words + blockIdx.x * BENCH_LINE, offset = blockIdx.x * ((a->bytes + 15) & ~(uint64_t)15);
    bool begins = a->pe < a->peer, going = u.first;

    ctx = bench_stage(tern_ctx_timeout(ctx, a->timeout_ms), a, u);
    for (uint32_t round = 0; going && round < a->warmup + a->rounds; round++) {
        uint64_t value = a->base + round + 1;
        bench_round(a, round);
        if (begins)
            bench_put_signal_one(ctx, scope, a, offset, word, value);
        going = bench_ok(a, bench_wait_one(ctx, scope, word, value));
        if (!begins)
            bench_put_signal_one(ctx, scope, a, offset, word, value);
    }
    bench_end(a);
}

static __global__ void __launch_bounds__(1024) bench_put_signal_thread(tern_ctx_t ctx, struct bench_args a)
{
    bench_put_signal_body(ctx, &a, BENCH_THREAD);
}

static __global__ void __launch_bounds__(1024) bench_put_signal_warp(tern_ctx_t ctx, struct bench_args a)
{
    bench_put_signal_body(ctx, &a, BENCH_WARP);
}

static __global__ void __launch_bounds__(1024) bench_put_signal_block(tern_ctx_t ctx, struct bench_args a)
{
    bench_put_signal_body(ctx, &a, BENCH_BLOCK);
}

/* ---- atomics: each thread on its own word; those that return the old value wait for it ---------------------------------------- */

#define BENCH_AMO(name, T, suffix, ...)                                                                                \
    case BENCH_OP_##suffix:                                                                                            \
        return (uint64_t)tern_##name##_atomic_##__VA_ARGS__;
#define BENCH_AMO_SET(name, T, suffix, ...)                                                                            \
    case BENCH_OP_##suffix:                                                                                            \
        tern_##name##_atomic_##__VA_ARGS__;                                                                            \
        return 0;
#define BENCH_AMO_COMMON(name, T)                                                                                      \
    BENCH_AMO(name, T, FETCH, fetch(ctx, word, pe))                                                                    \
    BENCH_AMO(name, T, SWAP, swap(ctx, word, value, pe))                                                               \
    BENCH_AMO(name, T, FETCH_ADD, fetch_add(ctx, word, value, pe))                                                     \
    BENCH_AMO_SET(name, T, ADD, add(ctx, word, value, pe))                                                             \
    BENCH_AMO_SET(name, T, SET, set(ctx, word, value, pe))
#define BENCH_AMO_INT(name, T)                                                                                         \
    BENCH_AMO(name, T, FETCH_INC, fetch_inc(ctx, word, pe))                                                            \
    BENCH_AMO(name, T, FETCH_AND, fetch_and(ctx, word, value, pe))                                                     \
    BENCH_AMO(name, T, FETCH_OR, fetch_or(ctx, word, value, pe))                                                       \
    BENCH_AMO(name, T, FETCH_XOR, fetch_xor(ctx, word, value, pe))                                                     \
    BENCH_AMO(name, T, COMPARE_SWAP, compare_swap(ctx, word, last, value, pe))                                         \
    BENCH_AMO_SET(name, T, INC, inc(ctx, word, pe))                                                                    \
    BENCH_AMO_SET(name, T, AND, and (ctx, word, value, pe))                                                            \
    BENCH_AMO_SET(name, T, OR, or (ctx, word, value, pe))                                                              \
    BENCH_AMO_SET(name, T, XOR, xor (ctx, word, value, pe))
#define BENCH_AMO_NONE(name, T)

#define BENCH_ATOMIC(name, T, MORE)                                                                                    \
    BENCH_DEV uint64_t bench_amo_##name(tern_ctx_t ctx, int op, T *word, T value, T last, int pe)                      \
    {                                                                                                                  \
        (void)last;                                                                                                    \
        switch (op) {                                                                                                  \
            BENCH_AMO_COMMON(name, T)                                                                                  \
            MORE(name, T)                                                                                              \
        }                                                                                                              \
        return 0;                                                                                                      \
    }                                                                                                                  \
    BENCH_DEV void bench_atomic_##name(tern_ctx_t ctx, const struct bench_args *a)                                     \
    {                                                                                                                  \
        uint64_t *own = a->words + blockIdx.x * blockDim.x + threadIdx.x, at = 0;                                      \
        T last = a->base ? (T)bench_operand(a->op, a->base - 1) : BENCH_ATOMIC_START(T);                               \
        for (uint32_t round = 0; round < a->warmup + a->rounds; round++) {                                             \
            T value = (T)bench_operand(a->op, a->base + round);                                                        \
            bench_round(a, round);                                                                                     \
            at = bench_amo_##name(ctx, a->op, (T *)(own + at), value, last, a->peer) == a->never;                      \
            last = value;                                                                                              \
        }                                                                                                              \
        bench_ok(a, tern_quiet(ctx));                                                                                  \
        bench_end(a);                                                                                                  \
    }
#define BENCH_ATOMIC_INT(name, T) BENCH_ATOMIC(name, T, BENCH_AMO_INT)
#define BENCH_ATOMIC_FLOAT(name, T) BENCH_ATOMIC(name, T, BENCH_AMO_NONE)
TERN_INT_TYPES(BENCH_ATOMIC_INT)
TERN_FLOAT_TYPES(BENCH_ATOMIC_FLOAT)

static __global__ void __launch_bounds__(1024) bench_atomic_kernel(tern_ctx_t ctx, struct bench_args a)
{
    switch (a.type) {
#define BENCH_CASE(name, T)                                                                                            \
    case BENCH_TYPE_##name:                                                                                            \
        bench_atomic_##name(ctx, &a);                                                                                  \
        break;
        TERN_INT_TYPES(BENCH_CASE)
        TERN_FLOAT_TYPES(BENCH_CASE)
#undef BENCH_CASE
    }
}

/* ---- barrier, sync ------------------------------------------------------------------------------------------------------------ */

BENCH_DEV tern_status_t bench_meet_one(tern_ctx_t ctx, int scope, bool barrier)
{
    if (scope == BENCH_THREAD)
        return barrier ? tern_barrier_all(ctx) : tern_sync_all(ctx);
    if (scope == BENCH_WARP)
        return barrier ? tern_barrier_all_warp(ctx) : tern_sync_all_warp(ctx);
    return barrier ? tern_barrier_all_block(ctx) : tern_sync_all_block(ctx);
}

/* Behind puts of `bytes` to every PE, 8 bytes a time, shared out among the unit's threads. */
BENCH_DEV void bench_meet_body(tern_ctx_t ctx, const struct bench_args *a, int scope, bool barrier)
{
    struct bench_unit u = bench_unit_of(scope);
    uint64_t *dst = (uint64_t *)(a->dst + (uint64_t)a->pe * a->bytes);
    bool going = u.first;

    if (a->released)
        ctx = tern_ctx_flags(ctx, TERN_RELEASED);
    for (uint32_t round = 0; going && round < a->warmup + a->rounds; round++) {
        bench_round(a, round);
        if (barrier && a->bytes) {
            for (int pe = 0; pe < a->n_pes; pe++) {
                for (uint64_t i = u.rank; i < a->bytes / 8; i += u.threads)
                    tern_uint64_p(ctx, dst + i, a->base + round, pe);
            }
        }
        going = bench_ok(a, bench_meet_one(ctx, scope, barrier));
    }
    bench_end(a);
}

static __global__ void __launch_bounds__(1024) bench_barrier_thread(tern_ctx_t ctx, struct bench_args a)
{
    bench_meet_body(ctx, &a, BENCH_THREAD, true);
}

static __global__ void __launch_bounds__(1024) bench_barrier_warp(tern_ctx_t ctx, struct bench_args a)
{
    bench_meet_body(ctx, &a, BENCH_WARP, true);
}

static __global__ void __launch_bounds__(1024) bench_barrier_block(tern_ctx_t ctx, struct bench_args a)
{
    bench_meet_body(ctx, &a, BENCH_BLOCK, true);
}

static __global__ void __launch_bounds__(1024) bench_sync_thread(tern_ctx_t ctx, struct bench_args a)
{
    bench_meet_body(ctx, &a, BENCH_THREAD, false);
}

static __global__ void __launch_bounds__(1024) bench_sync_warp(tern_ctx_t ctx, struct bench_args a)
{
    bench_meet_body(ctx, &a, BENCH_WARP, false);
}

static __global__ void __launch_bounds__(1024) bench_sync_block(tern_ctx_t ctx, struct bench_args a)
{
    bench_meet_body(ctx, &a, BENCH_BLOCK, false);
}

/* ---- launch --------------------------------------------------------------------------------------------------------------------- */

typedef void (*bench_kernel_t)(tern_ctx_t, struct bench_args);

static bench_kernel_t bench_kernel(enum bench_test test, int scope)
{
    static const bench_kernel_t put[] = {bench_put_thread, bench_put_warp, bench_put_block};
    static const bench_kernel_t get[] = {bench_get_thread, bench_get_warp, bench_get_block};
    static const bench_kernel_t put_signal[] = {bench_put_signal_thread, bench_put_signal_warp, bench_put_signal_block};
    static const bench_kernel_t barrier[] = {bench_barrier_thread, bench_barrier_warp, bench_barrier_block};
    static const bench_kernel_t sync[] = {bench_sync_thread, bench_sync_warp, bench_sync_block};

    switch (test) {
    case BENCH_PUT:
    case BENCH_PUT_QUIET:
        return put[scope];
    case BENCH_GET:
        return get[scope];
    case BENCH_P:
        return bench_p_kernel;
    case BENCH_G:
        return bench_g_kernel;
    case BENCH_SIGNAL:
        return bench_signal_kernel;
    case BENCH_PUT_SIGNAL:
        return put_signal[scope];
    case BENCH_ATOMIC:
        return bench_atomic_kernel;
    case BENCH_BARRIER:
        return barrier[scope];
    default:
        return sync[scope];
    }
}

tern_status_t bench_test_launch(enum bench_test test, const tern_ctx_t *ctx, const struct bench_args *a, int blocks,
                                int threads)
{
    bench_kernel_t kernel = bench_kernel(test, a->scope);
    tern_ctx_t context = *ctx;
    struct bench_args args = *a;
    void *list[] = {&context, &args};

    if (a->stage && cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)a->stage) != cudaSuccess)
        return TERN_ERR_DEVICE;
    return tern_launch_ptr((const void *)kernel, dim3((unsigned)blocks), dim3((unsigned)threads), list, a->stage, NULL);
}

/* ---- device memory ---------------------------------------------------------------------------------------------------------------- */

void *bench_alloc(size_t bytes)
{
    void *ptr = NULL;
    if (cudaMalloc(&ptr, bytes) != cudaSuccess)
        return NULL;
    if (cudaMemset(ptr, 0, bytes) != cudaSuccess) {
        cudaFree(ptr);
        return NULL;
    }
    return ptr;
}

void bench_free(void *ptr)
{
    cudaFree(ptr);
}

bool bench_upload(void *dst, const void *src, size_t bytes)
{
    return cudaMemcpy(dst, src, bytes, cudaMemcpyHostToDevice) == cudaSuccess;
}

bool bench_download(void *dst, const void *src, size_t bytes)
{
    return cudaMemcpy(dst, src, bytes, cudaMemcpyDeviceToHost) == cudaSuccess;
}

bool bench_device_sync(void)
{
    return cudaDeviceSynchronize() == cudaSuccess;
}
