/*
 * floors.cu - the raw loops that tern-bench measures beside Tern: the same movement of data and the same synchronisation by
 * memory primitives alone, without a context, an address translation, a check, a deadline or a look at the abort word.
 * What they take is what the device allows.
 */
#include "device.h"

/* A peer that died must not hang the loop; counting polls costs nothing beside the load. */
#define BENCH_POLLS (1u << 28)

BENCH_DEV bool bench_poll(const struct bench_args *a, const uint64_t *word, uint64_t value)
{
    for (uint32_t polls = 0; tern_prim_ld_acquire_u64(word) < value; polls++) {
        if (polls == BENCH_POLLS)
            return bench_ok(a, TERN_ERR_TIMEOUT);
        tern_prim_pause();
    }
    return true;
}

/* ---- copies --------------------------------------------------------------------------------------------------------------- */

#define BENCH_FLIGHT 8 /* vectors in flight a thread */

BENCH_DEV void bench_copy_tail(char *dst, const char *src, uint64_t bytes)
{
    if (bytes & 8) {
        tern_prim_st_relaxed_u64((uint64_t *)dst, tern_prim_ld_relaxed_u64((const uint64_t *)src));
        dst += 8, src += 8;
    }
    if (bytes & 4) {
        tern_prim_st_relaxed_u32((uint32_t *)dst, tern_prim_ld_relaxed_u32((const uint32_t *)src));
        dst += 4, src += 4;
    }
    if (bytes & 2) {
        tern_prim_st_relaxed_u16((uint16_t *)dst, tern_prim_ld_relaxed_u16((const uint16_t *)src));
        dst += 2, src += 2;
    }
    if (bytes & 1)
        tern_prim_st_relaxed_u8((uint8_t *)dst, tern_prim_ld_relaxed_u8((const uint8_t *)src));
}

/* Addresses are aligned to 16 bytes. */
BENCH_DEV void bench_copy(char *dst, const char *src, uint64_t bytes, unsigned rank, unsigned threads)
{
    uint64_t n = bytes / 16, step = (uint64_t)threads * 16, i = rank;
    tern_v4_t v[BENCH_FLIGHT];

    for (; i + (BENCH_FLIGHT - 1) * (uint64_t)threads < n; i += BENCH_FLIGHT * (uint64_t)threads) {
        for (int k = 0; k < BENCH_FLIGHT; k++)
            v[k] = tern_prim_ld_v4(src + i * 16 + (uint64_t)k * step);
        for (int k = 0; k < BENCH_FLIGHT; k++)
            tern_prim_st_v4(dst + i * 16 + (uint64_t)k * step, v[k]);
    }
    for (int k = 0; k < BENCH_FLIGHT; k++) {
        if (i + (uint64_t)k * threads < n)
            v[k] = tern_prim_ld_v4(src + i * 16 + (uint64_t)k * step);
    }
    for (int k = 0; k < BENCH_FLIGHT; k++) {
        if (i + (uint64_t)k * threads < n)
            tern_prim_st_v4(dst + i * 16 + (uint64_t)k * step, v[k]);
    }
    if (rank == 0 && bytes % 16)
        bench_copy_tail(dst + n * 16, src + n * 16, bytes % 16);
}

BENCH_DEV void bench_floor_copy_body(const struct bench_args *a, char *dst, const char *src, bool put, int scope)
{
    struct bench_unit u = bench_unit_of(scope);
    uint64_t offset, bytes;

    bench_piece(u, a->bytes, &offset, &bytes);
    for (uint32_t round = 0; round < a->warmup + a->rounds; round++) {
        bench_round(a, round);
        bench_copy(dst + offset, src + offset, bytes, u.rank, u.threads);
        if (a->quiet) {
            bench_unit_sync(scope);
            if (u.rank == 0)
                tern_prim_fence_sys();
            bench_unit_sync(scope);
        }
    }
    if (put && !a->quiet)
        tern_prim_fence_sys();
    bench_end(a);
}

static __global__ void __launch_bounds__(1024) bench_floor_copy_thread(struct bench_args a, char *dst, const char *src, int put)
{
    bench_floor_copy_body(&a, dst, src, put, BENCH_THREAD);
}

static __global__ void __launch_bounds__(1024) bench_floor_copy_warp(struct bench_args a, char *dst, const char *src, int put)
{
    bench_floor_copy_body(&a, dst, src, put, BENCH_WARP);
}

static __global__ void __launch_bounds__(1024) bench_floor_copy_block(struct bench_args a, char *dst, const char *src, int put)
{
    bench_floor_copy_body(&a, dst, src, put, BENCH_BLOCK);
}

/* ---- bulk-async copies: one thread of each block drives them through shared memory ------------------------------------------- */

#define BENCH_BULK_SLOTS 4u
#define BENCH_BULK_AHEAD 2u
#define BENCH_BULK_PIECE 32768u
#define BENCH_BULK_SHARED (BENCH_BULK_SLOTS * BENCH_BULK_PIECE + 128u)

#ifdef TERN_PRIM_BULK
/* Loads run two pieces ahead of the stores. `count`: pieces loaded since the barriers were made. */
BENCH_DEV void bench_bulk_copy(char *dst, const char *src, uint64_t bytes, uint32_t barriers, uint32_t slots,
                               uint32_t *count)
{
    uint64_t pieces = (bytes + BENCH_BULK_PIECE - 1) / BENCH_BULK_PIECE;

    for (uint64_t k = 0; k < pieces + BENCH_BULK_AHEAD; k++) {
        if (k < pieces) {
            uint64_t at = k * BENCH_BULK_PIECE, left = bytes - at;
            uint32_t slot = (*count + (uint32_t)k) % BENCH_BULK_SLOTS;
            if (k >= BENCH_BULK_SLOTS)
                tern_prim_bulk_store_read_but_last();
            tern_prim_bulk_load(slots + slot * BENCH_BULK_PIECE, src + at,
                                left < BENCH_BULK_PIECE ? (uint32_t)left : BENCH_BULK_PIECE, barriers + 8 * slot);
        }
        if (k >= BENCH_BULK_AHEAD && k - BENCH_BULK_AHEAD < pieces) {
            uint64_t at = (k - BENCH_BULK_AHEAD) * BENCH_BULK_PIECE, left = bytes - at;
            uint32_t number = *count + (uint32_t)(k - BENCH_BULK_AHEAD), slot = number % BENCH_BULK_SLOTS;
            tern_prim_bulk_load_wait(barriers + 8 * slot, number / BENCH_BULK_SLOTS & 1);
            tern_prim_bulk_store(dst + at, slots + slot * BENCH_BULK_PIECE,
                                 left < BENCH_BULK_PIECE ? (uint32_t)left : BENCH_BULK_PIECE);
        }
    }
    *count += (uint32_t)pieces;
}
#endif

/* Only where the device has the engine; else the status says so and the floor is not used. */
static __global__ void __launch_bounds__(1024) bench_floor_bulk_kernel(struct bench_args a, char *dst, const char *src)
{
#ifdef TERN_PRIM_BULK
    extern __shared__ __align__(128) char bench_bulk_shared[];
    uint32_t barriers = tern_prim_shared_addr(bench_bulk_shared), slots = barriers + 128, count = 0;
    uint64_t share = ((a.bytes + gridDim.x - 1) / gridDim.x + 15) & ~(uint64_t)15, offset = blockIdx.x * share;
    uint64_t bytes = offset >= a.bytes ? 0 : a.bytes - offset < share ? a.bytes - offset : share;

    if (threadIdx.x == 0) {
        for (uint32_t slot = 0; slot < BENCH_BULK_SLOTS; slot++)
            tern_prim_bulk_init(barriers + 8 * slot);
        tern_prim_fence_async();
        for (uint32_t round = 0; round < a.warmup + a.rounds; round++) {
            bench_round(&a, round);
            bench_bulk_copy(dst + offset, src + offset, bytes, barriers, slots, &count);
            tern_prim_bulk_store_wait();
            if (a.quiet)
                tern_prim_fence_sys();
        }
        tern_prim_fence_sys();
    }
    bench_end(&a);
#else
    (void)dst;
    (void)src;
    bench_ok(&a, TERN_ERR_UNSUPPORTED);
#endif
}

/* ---- p, g, atomics --------------------------------------------------------------------------------------------------------------- */

BENCH_DEV void bench_store_word(char *at, uint64_t value, int size)
{
    if (size == 1)
        tern_prim_st_relaxed_u8((uint8_t *)at, (uint8_t)value);
    else if (size == 2)
        tern_prim_st_relaxed_u16((uint16_t *)at, (uint16_t)value);
    else if (size == 4)
        tern_prim_st_relaxed_u32((uint32_t *)at, (uint32_t)value);
    else
        tern_prim_st_relaxed_u64((uint64_t *)at, value);
}

BENCH_DEV uint64_t bench_load_word(const char *at, int size)
{
    if (size == 1)
        return tern_prim_ld_relaxed_u8((const uint8_t *)at);
    if (size == 2)
        return tern_prim_ld_relaxed_u16((const uint16_t *)at);
    return size == 4 ? tern_prim_ld_relaxed_u32((const uint32_t *)at) : tern_prim_ld_relaxed_u64((const uint64_t *)at);
}

static __global__ void __launch_bounds__(1024) bench_floor_p_kernel(struct bench_args a, int size)
{
    char *at = a.peer_dst + (size_t)(blockIdx.x * blockDim.x + threadIdx.x) * (size_t)size;

    for (uint32_t round = 0; round < a.warmup + a.rounds; round++) {
        bench_round(&a, round);
        bench_store_word(at, round & 63, size);
        tern_prim_fence_sys();
    }
    bench_end(&a);
}

static __global__ void __launch_bounds__(1024) bench_floor_g_kernel(struct bench_args a, int size)
{
    const char *at = a.peer_src + (size_t)(blockIdx.x * blockDim.x + threadIdx.x) * (size_t)size;
    uint64_t next = 0;

    for (uint32_t round = 0; round < a.warmup + a.rounds; round++) {
        bench_round(&a, round);
        next = bench_load_word(at + next, size) == a.never;
    }
    if (next)
        a.out[blockIdx.x].pad = 1;
    bench_end(&a);
}

/* The read-modify-write or store behind an operator. */
#define BENCH_RAW_ATOMIC(bits)                                                                                         \
    BENCH_DEV uint64_t bench_raw_atomic_u##bits(uint##bits##_t *word, int op, uint##bits##_t value, uint##bits##_t last)   \
    {                                                                                                                  \
        switch (op) {                                                                                                  \
        case BENCH_OP_FETCH:                                                                                           \
            return tern_prim_ld_relaxed_u##bits(word);                                                                 \
        case BENCH_OP_SWAP:                                                                                            \
            return tern_prim_rmw_swap_u##bits(word, value);                                                            \
        case BENCH_OP_COMPARE_SWAP:                                                                                    \
            return tern_prim_rmw_cas_u##bits(word, last, value);                                                       \
        case BENCH_OP_FETCH_AND:                                                                                       \
            return tern_prim_rmw_and_u##bits(word, value);                                                             \
        case BENCH_OP_FETCH_OR:                                                                                        \
            return tern_prim_rmw_or_u##bits(word, value);                                                              \
        case BENCH_OP_FETCH_XOR:                                                                                       \
            return tern_prim_rmw_xor_u##bits(word, value);                                                             \
        case BENCH_OP_FETCH_ADD:                                                                                       \
        case BENCH_OP_FETCH_INC:                                                                                       \
            return tern_prim_rmw_add_u##bits(word, value);                                                             \
        case BENCH_OP_AND:                                                                                             \
            tern_prim_red_and_u##bits(word, value);                                                                    \
            return 0;                                                                                                  \
        case BENCH_OP_OR:                                                                                              \
            tern_prim_red_or_u##bits(word, value);                                                                     \
            return 0;                                                                                                  \
        case BENCH_OP_XOR:                                                                                             \
            tern_prim_red_xor_u##bits(word, value);                                                                    \
            return 0;                                                                                                  \
        case BENCH_OP_SET:                                                                                             \
            tern_prim_st_relaxed_u##bits(word, value);                                                                 \
            return 0;                                                                                                  \
        }                                                                                                              \
        tern_prim_red_add_u##bits(word, value); /* add, inc */                                                         \
        return 0;                                                                                                      \
    }
BENCH_RAW_ATOMIC(32)
BENCH_RAW_ATOMIC(64)

BENCH_DEV uint64_t bench_raw_atomic(const struct bench_args *a, uint64_t *word, uint64_t value, uint64_t last, int size)
{
    bool adds = a->op == BENCH_OP_ADD || a->op == BENCH_OP_FETCH_ADD;

    if (adds && a->type == BENCH_TYPE_float)
        return (uint64_t)tern_prim_rmw_add_f32((float *)word, (float)value);
    if (adds && a->type == BENCH_TYPE_double)
        return (uint64_t)tern_prim_rmw_add_f64((double *)word, (double)value);
    if (size == 4)
        return bench_raw_atomic_u32((uint32_t *)word, a->op, (uint32_t)value, (uint32_t)last);
    return bench_raw_atomic_u64(word, a->op, value, last);
}

static __global__ void __launch_bounds__(1024) bench_floor_atomic_kernel(struct bench_args a, int size)
{
    uint64_t *own = a.peer_words + blockIdx.x * blockDim.x + threadIdx.x, at = 0;
    uint64_t last = a.base ? bench_operand(a.op, a.base - 1) : 0;

    for (uint32_t round = 0; round < a.warmup + a.rounds; round++) {
        uint64_t value = bench_operand(a.op, a.base + round);
        bench_round(&a, round);
        at = bench_raw_atomic(&a, own + at, value, last, size) == a.never;
        last = value;
    }
    tern_prim_fence_sys();
    bench_end(&a);
}

/* ---- ping-pongs ---------------------------------------------------------------------------------------------------------------------- */

static __global__ void __launch_bounds__(1024) bench_floor_signal_kernel(struct bench_args a)
{
    uint64_t *mine = a.floor_words + blockIdx.x * BENCH_LINE, *peers = a.peer_words + blockIdx.x * BENCH_LINE;
    bool begins = a.pe < a.peer, going = threadIdx.x == 0;

    for (uint32_t round = 0; going && round < a.warmup + a.rounds; round++) {
        bench_round(&a, round);
        if (begins)
            tern_prim_st_relaxed_u64(peers, a.base + round + 1);
        going = bench_poll(&a, mine, a.base + round + 1);
        if (!begins)
            tern_prim_st_relaxed_u64(peers, a.base + round + 1);
    }
    bench_end(&a);
}

/* Copy, the threads of the unit meet, one of them releases. */
BENCH_DEV void bench_send(const struct bench_args *a, int scope, struct bench_unit u, uint64_t offset, uint64_t *flag,
                          uint64_t value)
{
    bench_copy(a->peer_dst + offset, a->src + offset, a->bytes, u.rank, u.threads);
    bench_unit_sync(scope);
    if (u.rank == 0)
        tern_prim_st_release_u64(flag, value);
}

BENCH_DEV void bench_floor_put_signal_body(const struct bench_args *a, int scope)
{
    struct bench_unit u = bench_unit_of(scope);
    uint64_t *mine = a->floor_words + blockIdx.x * BENCH_LINE, *peers = a->peer_words + blockIdx.x * BENCH_LINE;
    uint64_t offset = blockIdx.x * ((a->bytes + 15) & ~(uint64_t)15);
    bool begins = a->pe < a->peer, going = u.first;

    for (uint32_t round = 0; going && round < a->warmup + a->rounds; round++) {
        bench_round(a, round);
        if (begins)
            bench_send(a, scope, u, offset, peers, a->base + round + 1);
        if (u.rank == 0)
            going = bench_poll(a, mine, a->base + round + 1);
        bench_unit_sync(scope);
        if (!begins)
            bench_send(a, scope, u, offset, peers, a->base + round + 1);
    }
    bench_end(a);
}

static __global__ void __launch_bounds__(1024) bench_floor_put_signal_thread(struct bench_args a)
{
    bench_floor_put_signal_body(&a, BENCH_THREAD);
}

static __global__ void __launch_bounds__(1024) bench_floor_put_signal_warp(struct bench_args a)
{
    bench_floor_put_signal_body(&a, BENCH_WARP);
}

static __global__ void __launch_bounds__(1024) bench_floor_put_signal_block(struct bench_args a)
{
    bench_floor_put_signal_body(&a, BENCH_BLOCK);
}

/* ---- barrier, sync: a flag to each PE, then wait for theirs ------------------------------------------------------------------------------ */

BENCH_DEV void bench_floor_meet_body(const struct bench_args *a, bool barrier, int scope)
{
    struct bench_unit u = bench_unit_of(scope);
    bool going = u.first;

    for (uint32_t round = 0; going && round < a->warmup + a->rounds; round++) {
        uint64_t epoch = a->base + round + 1;
        bench_round(a, round);
        if (barrier && a->bytes) {
            for (int pe = 0; pe < a->n_pes; pe++) {
                uint64_t *dst = (uint64_t *)(a->all_dst[pe] + (uint64_t)a->pe * a->bytes);
                for (uint64_t i = u.rank; i < a->bytes / 8; i += u.threads)
                    tern_prim_st_relaxed_u64(dst + i, epoch);
            }
        }
        bench_unit_sync(scope);
        for (int pe = (int)u.rank; pe < a->n_pes; pe += (int)u.threads) {
            uint64_t *flag = a->all_words[pe] + (uint64_t)a->pe * BENCH_LINE;
            if (a->released && !barrier)
                tern_prim_st_relaxed_u64(flag, epoch);
            else
                tern_prim_st_release_u64(flag, epoch);
        }
        for (int pe = (int)u.rank; pe < a->n_pes && going; pe += (int)u.threads)
            going = bench_poll(a, a->floor_words + (uint64_t)pe * BENCH_LINE, epoch);
        bench_unit_sync(scope);
    }
    bench_end(a);
}

static __global__ void __launch_bounds__(1024) bench_floor_meet_thread(struct bench_args a, int barrier)
{
    bench_floor_meet_body(&a, barrier, BENCH_THREAD);
}

static __global__ void __launch_bounds__(1024) bench_floor_meet_warp(struct bench_args a, int barrier)
{
    bench_floor_meet_body(&a, barrier, BENCH_WARP);
}

static __global__ void __launch_bounds__(1024) bench_floor_meet_block(struct bench_args a, int barrier)
{
    bench_floor_meet_body(&a, barrier, BENCH_BLOCK);
}

/* ---- launch ------------------------------------------------------------------------------------------------------------------------------ */

const char *bench_floor_name(enum bench_test test, enum bench_floor floor, const struct bench_args *a)
{
    bool copies = test == BENCH_PUT || test == BENCH_PUT_QUIET || test == BENCH_GET;

    if (floor == BENCH_FLOOR_BULK)
        return copies && a->bytes % 16 == 0 && a->bytes ? "bulk copy by one thread a block" : NULL;
    switch (test) {
    case BENCH_PUT:
        return "ld, st";
    case BENCH_PUT_QUIET:
        return "ld, st, fence.sys";
    case BENCH_GET:
        return "ld, st";
    case BENCH_P:
        return "st, fence.sys";
    case BENCH_G:
        return "ld";
    case BENCH_SIGNAL:
        return "st.relaxed, ld.acquire";
    case BENCH_PUT_SIGNAL:
        return "ld, st, st.release, ld.acquire";
    case BENCH_ATOMIC:
        return "the atomic instruction";
    case BENCH_BARRIER:
        return "unit barrier, st.release to all, ld.acquire";
    case BENCH_ISSUE:
        return a->released ? "ticket, space, st" : "fence.gpu, ticket, space, st";
    case BENCH_NOP:
        return "st and ld of pinned memory, a CPU thread";
    case BENCH_RATE:
        return "ticket, st";
    default:
        return a->released ? "unit barrier, st.relaxed to all, ld.acquire" : "unit barrier, st.release to all, ld.acquire";
    }
}

static int bench_type_size(int type)
{
#define BENCH_SIZE(name, T) (int)sizeof(T),
    static const int size[] = {TERN_SCALAR_TYPES(BENCH_SIZE)};
#undef BENCH_SIZE
    return size[type];
}

static tern_status_t bench_copy_launch(enum bench_test test, enum bench_floor floor, const struct bench_args *a, dim3 grid,
                                       dim3 block)
{
    static void (*const kernel[])(struct bench_args, char *, const char *, int) = {
        bench_floor_copy_thread, bench_floor_copy_warp, bench_floor_copy_block};
    char *dst = test == BENCH_GET ? a->dst : a->peer_dst;
    const char *src = test == BENCH_GET ? a->peer_src : a->src;

    if (floor == BENCH_FLOOR_RAW)
        return tern_launch(kernel[a->scope], grid, block, 0, NULL, *a, dst, src, test != BENCH_GET);
    if (cudaFuncSetAttribute(bench_floor_bulk_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             (int)BENCH_BULK_SHARED) != cudaSuccess) {
        (void)cudaGetLastError();
        return TERN_ERR_UNSUPPORTED;
    }
    return tern_launch(bench_floor_bulk_kernel, grid, dim3(32), BENCH_BULK_SHARED, NULL, *a, dst, src);
}

tern_status_t bench_floor_launch(enum bench_test test, enum bench_floor floor, const struct bench_args *a, int blocks,
                                 int threads)
{
    static void (*const put_signal[])(struct bench_args) = {bench_floor_put_signal_thread, bench_floor_put_signal_warp,
                                                            bench_floor_put_signal_block};
    static void (*const meet[])(struct bench_args, int) = {bench_floor_meet_thread, bench_floor_meet_warp,
                                                           bench_floor_meet_block};
    dim3 grid((unsigned)blocks), block((unsigned)threads);

    switch (test) {
    case BENCH_PUT:
    case BENCH_PUT_QUIET:
    case BENCH_GET:
        return bench_copy_launch(test, floor, a, grid, block);
    case BENCH_P:
        return tern_launch(bench_floor_p_kernel, grid, block, 0, NULL, *a, bench_type_size(a->type));
    case BENCH_G:
        return tern_launch(bench_floor_g_kernel, grid, block, 0, NULL, *a, bench_type_size(a->type));
    case BENCH_SIGNAL:
        return tern_launch(bench_floor_signal_kernel, grid, block, 0, NULL, *a);
    case BENCH_PUT_SIGNAL:
        return tern_launch(put_signal[a->scope], grid, block, 0, NULL, *a);
    case BENCH_ATOMIC:
        return tern_launch(bench_floor_atomic_kernel, grid, block, 0, NULL, *a, bench_type_size(a->type));
    default:
        return tern_launch(meet[a->scope], grid, block, 0, NULL, *a, test == BENCH_BARRIER);
    }
}
