/* check.cu - what --check needs: filling memory before a test and verifying it after, and tests that verify every round. */
#include "device.h"

#define BENCH_FILL_BLOCKS 8
#define BENCH_FILL_THREADS 128

/* ---- bytes ---------------------------------------------------------------------------------------------------------------- */

BENCH_DEV uint8_t bench_pattern_byte(uint64_t i, int pattern)
{
    uint8_t data = (uint8_t)(i * 7 + (i >> 8) * 13 + (i >> 16) * 5 + 1);
    return pattern == BENCH_PATTERN_DATA ? data : (uint8_t)~data;
}

static __global__ void bench_fill_kernel(char *to, uint64_t bytes, int pattern)
{
    for (uint64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < bytes; i += (uint64_t)gridDim.x * blockDim.x)
        to[i] = (char)bench_pattern_byte(i, pattern);
}

static __global__ void bench_verify_kernel(const char *at, uint64_t bytes, int pattern, struct bench_out *out)
{
    uint64_t wrong = 0;

    for (uint64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < bytes; i += (uint64_t)gridDim.x * blockDim.x)
        wrong += (uint8_t)at[i] != bench_pattern_byte(i, pattern);
    bench_wrong(out, wrong);
}

tern_status_t bench_fill_launch(char *to, uint64_t bytes, enum bench_pattern pattern)
{
    return tern_launch(bench_fill_kernel, dim3(BENCH_FILL_BLOCKS), dim3(BENCH_FILL_THREADS), 0, NULL, to, bytes, pattern);
}

tern_status_t bench_verify_launch(const char *at, uint64_t bytes, enum bench_pattern pattern, struct bench_out *out)
{
    return tern_launch(bench_verify_kernel, dim3(BENCH_FILL_BLOCKS), dim3(BENCH_FILL_THREADS), 0, NULL, at, bytes, pattern, out);
}

/* ---- elements and words --------------------------------------------------------------------------------------------------- */

/* Element i of each group of 64 is i. */
static __global__ void bench_elements_kernel(char *to, int count, int type)
{
    for (int i = (int)(blockIdx.x * blockDim.x + threadIdx.x); i < count; i += (int)(gridDim.x * blockDim.x)) {
        switch (type) {
#define BENCH_CASE(name, T)                                                                                            \
    case BENCH_TYPE_##name:                                                                                            \
        ((T *)to)[i] = (T)(i & 63);                                                                                    \
        break;
            TERN_SCALAR_TYPES(BENCH_CASE)
#undef BENCH_CASE
        }
    }
}

static __global__ void bench_words_kernel(struct bench_args a, uint64_t *words, int count)
{
    for (int i = (int)(blockIdx.x * blockDim.x + threadIdx.x); i < count; i += (int)(gridDim.x * blockDim.x)) {
        switch (a.type) {
#define BENCH_CASE(name, T)                                                                                            \
    case BENCH_TYPE_##name:                                                                                            \
        *(T *)(words + i) = BENCH_ATOMIC_START(T);                                                                     \
        break;
            TERN_INT_TYPES(BENCH_CASE)
#undef BENCH_CASE
        case BENCH_TYPE_float:
            *(float *)(words + i) = 0;
            break;
        case BENCH_TYPE_double:
            *(double *)(words + i) = 0;
            break;
        }
    }
}

/* What the operators make of a word, one after the other; with-value operators of floats are add, swap and set. */
#define BENCH_STEP(name, T, INT)                                                                                       \
    BENCH_DEV T bench_step_##name(int op, T word, uint64_t n)                                                          \
    {                                                                                                                  \
        T value = (T)bench_operand(op, n);                                                                             \
        switch (op) {                                                                                                  \
        case BENCH_OP_FETCH:                                                                                           \
            return word;                                                                                               \
        case BENCH_OP_ADD:                                                                                             \
        case BENCH_OP_FETCH_ADD:                                                                                       \
            return (T)(word + value);                                                                                  \
            INT(T)                                                                                                     \
        }                                                                                                              \
        return value;                                                                                                  \
    }                                                                                                                  \
    BENCH_DEV bool bench_word_right_##name(int op, T word, T start, uint64_t done)                                     \
    {                                                                                                                  \
        for (uint64_t n = 0; n < done; n++)                                                                            \
            start = bench_step_##name(op, start, n);                                                                   \
        return word == start;                                                                                          \
    }
#define BENCH_STEP_INT(T)                                                                                              \
    case BENCH_OP_INC:                                                                                                 \
    case BENCH_OP_FETCH_INC:                                                                                           \
        return (T)(word + 1);                                                                                          \
    case BENCH_OP_AND:                                                                                                 \
    case BENCH_OP_FETCH_AND:                                                                                           \
        return (T)(word & value);                                                                                      \
    case BENCH_OP_OR:                                                                                                  \
    case BENCH_OP_FETCH_OR:                                                                                            \
        return (T)(word | value);                                                                                      \
    case BENCH_OP_XOR:                                                                                                 \
    case BENCH_OP_FETCH_XOR:                                                                                           \
        return (T)(word ^ value);
#define BENCH_STEP_NONE(T)
#define BENCH_STEP_OF_INT(name, T) BENCH_STEP(name, T, BENCH_STEP_INT)
#define BENCH_STEP_OF_FLOAT(name, T) BENCH_STEP(name, T, BENCH_STEP_NONE)
TERN_INT_TYPES(BENCH_STEP_OF_INT)
TERN_FLOAT_TYPES(BENCH_STEP_OF_FLOAT)

BENCH_DEV bool bench_word_right(const struct bench_args *a, const uint64_t *word, uint64_t done)
{
    switch (a->type) {
#define BENCH_CASE(name, T)                                                                                            \
    case BENCH_TYPE_##name:                                                                                            \
        return bench_word_right_##name(a->op, *(const T *)word, BENCH_ATOMIC_START(T), done);
        TERN_INT_TYPES(BENCH_CASE)
#undef BENCH_CASE
    case BENCH_TYPE_float:
        return bench_word_right_float(a->op, *(const float *)word, 0, done);
    default:
        return bench_word_right_double(a->op, *(const double *)word, 0, done);
    }
}

static __global__ void bench_words_verify_kernel(struct bench_args a, const uint64_t *words, int count, uint64_t done,
                                                 struct bench_out *out)
{
    uint64_t wrong = 0;

    for (int i = (int)(blockIdx.x * blockDim.x + threadIdx.x); i < count; i += (int)(gridDim.x * blockDim.x))
        wrong += !bench_word_right(&a, words + i, done);
    bench_wrong(out, wrong);
}

/* p leaves the number of its last round, modulo 64, in each element. */
static __global__ void bench_p_verify_kernel(struct bench_args a, const char *at, int count, uint64_t last,
                                             struct bench_out *out)
{
    uint64_t wrong = 0;

    for (int i = (int)(blockIdx.x * blockDim.x + threadIdx.x); i < count; i += (int)(gridDim.x * blockDim.x)) {
        switch (a.type) {
#define BENCH_CASE(name, T)                                                                                            \
    case BENCH_TYPE_##name:                                                                                            \
        wrong += ((const T *)at)[i] != (T)(last & 63);                                                                 \
        break;
            TERN_SCALAR_TYPES(BENCH_CASE)
#undef BENCH_CASE
        }
    }
    bench_wrong(out, wrong);
}

tern_status_t bench_elements_launch(char *to, int count, int type)
{
    return tern_launch(bench_elements_kernel, dim3(BENCH_FILL_BLOCKS), dim3(BENCH_FILL_THREADS), 0, NULL, to, count, type);
}

tern_status_t bench_words_launch(const struct bench_args *a, uint64_t *words, int count)
{
    return tern_launch(bench_words_kernel, dim3(BENCH_FILL_BLOCKS), dim3(BENCH_FILL_THREADS), 0, NULL, *a, words, count);
}

tern_status_t bench_words_verify_launch(const struct bench_args *a, const uint64_t *words, int count, uint64_t done,
                                        struct bench_out *out)
{
    return tern_launch(bench_words_verify_kernel, dim3(BENCH_FILL_BLOCKS), dim3(BENCH_FILL_THREADS), 0, NULL, *a, words,
                       count, done, out);
}

tern_status_t bench_p_verify_launch(const struct bench_args *a, const char *at, int count, uint64_t last,
                                    struct bench_out *out)
{
    return tern_launch(bench_p_verify_kernel, dim3(BENCH_FILL_BLOCKS), dim3(BENCH_FILL_THREADS), 0, NULL, *a, at, count, last,
                       out);
}

/* ---- tests that verify each round -------------------------------------------------------------------------------------------- */

/* Byte i of the message that the PE sends in a round. */
BENCH_DEV char bench_message_byte(int pe, uint64_t round, uint64_t i)
{
    return (char)(i * 11 + (i >> 8) + round * 29 + (uint64_t)pe * 101 + 3);
}

BENCH_DEV void bench_rounds_send(tern_ctx_t ctx, const struct bench_args *a, struct bench_unit u, uint64_t offset,
                                 uint64_t *word, uint64_t value)
{
    for (uint64_t i = u.rank; i < a->bytes; i += u.threads)
        a->src[offset + i] = bench_message_byte(a->pe, value, i);
    if (a->scope == BENCH_THREAD)
        tern_put_signal_nbi(ctx, a->dst + offset, a->src + offset, a->bytes, word, value, TERN_SIGNAL_SET, a->peer);
    else if (a->scope == BENCH_WARP)
        tern_put_signal_nbi_warp(ctx, a->dst + offset, a->src + offset, a->bytes, word, value, TERN_SIGNAL_SET, a->peer);
    else
        tern_put_signal_nbi_block(ctx, a->dst + offset, a->src + offset, a->bytes, word, value, TERN_SIGNAL_SET, a->peer);
}

/* True: go on. */
BENCH_DEV bool bench_rounds_receive(tern_ctx_t ctx, const struct bench_args *a, struct bench_unit u, uint64_t offset,
                                    uint64_t *word, uint64_t value)
{
    uint64_t wrong = 0;
    tern_status_t status = a->scope == BENCH_THREAD ? tern_signal_wait_until(ctx, word, TERN_CMP_EQ, value)
                           : a->scope == BENCH_WARP ? tern_signal_wait_until_warp(ctx, word, TERN_CMP_EQ, value)
                                                    : tern_signal_wait_until_block(ctx, word, TERN_CMP_EQ, value);
    if (!bench_ok(a, status))
        return false;
    for (uint64_t i = u.rank; i < a->bytes; i += u.threads)
        wrong += a->dst[offset + i] != bench_message_byte(a->peer, value, i);
    bench_wrong(&a->out[blockIdx.x], wrong);
    return true;
}

static __global__ void __launch_bounds__(1024) bench_rounds_put_signal(tern_ctx_t ctx, struct bench_args a)
{
    struct bench_unit u = bench_unit_of(a.scope);
    uint64_t *word = a.words + blockIdx.x * BENCH_LINE, offset = blockIdx.x * ((a.bytes + 15) & ~(uint64_t)15);
    bool going = u.first;

    ctx = tern_ctx_timeout(ctx, a.timeout_ms);
    for (uint32_t round = 0; going && round < a.rounds; round++) {
        if (a.pe < a.peer)
            bench_rounds_send(ctx, &a, u, offset, word, a.base + round + 1);
        going = bench_rounds_receive(ctx, &a, u, offset, word, a.base + round + 1);
        if (a.pe > a.peer)
            bench_rounds_send(ctx, &a, u, offset, word, a.base + round + 1);
    }
    bench_end(&a);
}

BENCH_DEV tern_status_t bench_rounds_meet_one(tern_ctx_t ctx, int scope, int barrier)
{
    if (scope == BENCH_THREAD)
        return barrier ? tern_barrier_all(ctx) : tern_sync_all(ctx);
    if (scope == BENCH_WARP)
        return barrier ? tern_barrier_all_warp(ctx) : tern_sync_all_warp(ctx);
    return barrier ? tern_barrier_all_block(ctx) : tern_sync_all_block(ctx);
}

/*
 * barrier: the number of the round, put to every PE before it, is there after it, or that of the next round, which a PE may
 * have begun. sync: the number, stored in own memory before it, is there for every PE to get.
 */
static __global__ void __launch_bounds__(1024) bench_rounds_meet(tern_ctx_t ctx, struct bench_args a, int barrier)
{
    struct bench_unit u = bench_unit_of(a.scope);
    bool going = u.first;

    for (uint32_t round = 0; going && round < a.rounds; round++) {
        uint64_t epoch = a.base + round + 1, wrong = 0;
        if (barrier) {
            for (int pe = (int)u.rank; pe < a.n_pes; pe += (int)u.threads)
                tern_uint64_p(ctx, a.words + (uint64_t)a.pe * BENCH_LINE, epoch, pe);
        } else if (u.rank == 0) {
            tern_uint64_p(ctx, a.words + (uint64_t)a.pe * BENCH_LINE, epoch, a.pe);
            if (a.released)
                tern_quiet(ctx);
        }
        tern_ctx_t c = a.released ? tern_ctx_flags(ctx, TERN_RELEASED) : ctx;
        going = bench_ok(&a, bench_rounds_meet_one(c, a.scope, barrier));
        for (int pe = (int)u.rank; going && pe < a.n_pes; pe += (int)u.threads) {
            const uint64_t *word = a.words + (uint64_t)pe * BENCH_LINE;
            uint64_t seen = barrier ? tern_uint64_g(ctx, word, a.pe) : tern_uint64_g(ctx, word, pe);
            wrong += seen != epoch && seen != epoch + 1;
        }
        bench_wrong(a.out, wrong);
    }
    bench_end(&a);
}

tern_status_t bench_rounds_launch(enum bench_test test, const tern_ctx_t *ctx, const struct bench_args *a, int blocks,
                                  int threads)
{
    dim3 grid((unsigned)blocks), block((unsigned)threads);

    if (test == BENCH_PUT_SIGNAL)
        return tern_launch(bench_rounds_put_signal, grid, block, 0, NULL, *ctx, *a);
    return tern_launch(bench_rounds_meet, grid, block, 0, NULL, *ctx, *a, test == BENCH_BARRIER);
}
