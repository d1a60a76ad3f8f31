/*
 * wait.cu - waits and tests on words of all types: every comparison against the host's, masks, any/all/some, with words that
 * other PEs set one by one in random order; deadlines; scope calls that must return one status to all threads.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/check.h"
#include "device/device_test.h"

#define WORDS 24
#define PAIRS 40

enum {
#define TYPE_ENUM(name, T) TYPE_##name,
    TERN_INT_TYPES(TYPE_ENUM)
#undef TYPE_ENUM
    TYPE_COUNT
};
static const char *const type_names[] = {
#define TYPE_NAME(name, T) #name,
    TERN_INT_TYPES(TYPE_NAME)
#undef TYPE_NAME
};

/* ---- comparisons: tests on words that stay ------------------------------------------------------------------------------- */

struct answers {
    int test[6], all[6];
    uint64_t any[6], some[6], indices[6][WORDS];
    int wait[6];
};

#define COMPARE(name, T)                                                                                               \
    TERN_DEV void compare_##name(tern_ctx_t ctx, void *words, size_t count, const int *mask, uint64_t value,           \
                                 struct answers *a)                                                                    \
    {                                                                                                                  \
        T *w = (T *)words, v = (T)value;                                                                               \
        for (int cmp = 0; cmp < 6; cmp++) {                                                                            \
            size_t found[WORDS];                                                                                       \
            a->test[cmp] = tern_##name##_test(ctx, w, cmp, v);                                                         \
            a->all[cmp] = tern_##name##_test_all(ctx, w, count, mask, cmp, v);                                         \
            a->any[cmp] = tern_##name##_test_any(ctx, w, count, mask, cmp, v);                                         \
            a->some[cmp] = tern_##name##_test_some(ctx, w, count, found, mask, cmp, v);                                \
            for (size_t i = 0; i < a->some[cmp]; i++)                                                                  \
                a->indices[cmp][i] = found[i];                                                                         \
            a->wait[cmp] = a->test[cmp] ? (int)tern_##name##_wait_until(ctx, w, cmp, v) : -1;                          \
        }                                                                                                              \
    }
TERN_INT_TYPES(COMPARE)

__global__ void compare_kernel(tern_ctx_t ctx, int type, void *words, size_t count, const int *mask, uint64_t value,
                               struct answers *a)
{
    switch (type) {
#define TYPE_CASE(name, T)                                                                                             \
    case TYPE_##name:                                                                                                  \
        compare_##name(ctx, words, count, mask, value, a);                                                             \
        break;
        TERN_INT_TYPES(TYPE_CASE)
#undef TYPE_CASE
    }
}

static int size_of(int type)
{
    return type == TYPE_int32 || type == TYPE_uint32 ? 4 : 8;
}

static int is_true(int type, uint64_t word, int cmp, uint64_t value)
{
    int less, equal;
    if (type == TYPE_int32) {
        less = (int32_t)word < (int32_t)value;
        equal = (int32_t)word == (int32_t)value;
    } else if (type == TYPE_uint32) {
        less = (uint32_t)word < (uint32_t)value;
        equal = (uint32_t)word == (uint32_t)value;
    } else if (type == TYPE_int64) {
        less = (int64_t)word < (int64_t)value;
        equal = word == value;
    } else {
        less = word < value;
        equal = word == value;
    }
    switch (cmp) {
    case TERN_CMP_EQ: return equal;
    case TERN_CMP_NE: return !equal;
    case TERN_CMP_GT: return !less && !equal;
    case TERN_CMP_LE: return less || equal;
    case TERN_CMP_LT: return less;
    default: return !less;
    }
}

/* Values around the places where signedness and width matter. */
static uint64_t random_word(uint64_t *rng)
{
    static const uint64_t edges[] = {0, 1, 0x7fffffffu, 0x80000000u, 0xffffffffu, 0x7fffffffffffffffu, 0x8000000000000000u,
                                     0xffffffffffffffffu, 0x100000000u};
    uint64_t r = test_random(rng);
    return edges[r % 9] + (r >> 32) % 3 - 1;
}

static void check_answers(int type, const uint64_t *words, size_t count, const int *mask, uint64_t value,
                          const struct answers *a)
{
    for (int cmp = 0; cmp < 6; cmp++) {
        uint64_t first = ~(uint64_t)0, some = 0;
        int all = 1, same = 1;
        for (size_t i = 0; i < count; i++) {
            if (mask[i])
                continue;
            if (!is_true(type, words[i], cmp, value)) {
                all = 0;
                continue;
            }
            if (first == ~(uint64_t)0)
                first = i;
            same = same && some < WORDS && a->indices[cmp][some] == i;
            some++;
        }
        int test = is_true(type, words[0], cmp, value);
        CHECK(a->test[cmp] == test, "%s: test of %llx, comparison %d, %llx: %d", type_names[type],
              (unsigned long long)words[0], cmp, (unsigned long long)value, a->test[cmp]);
        CHECK(a->wait[cmp] == (test ? 0 : -1), "%s: wait %d", type_names[type], a->wait[cmp]);
        CHECK(a->all[cmp] == all && a->any[cmp] == first && a->some[cmp] == some && same,
              "%s, comparison %d: all %d for %d, any %lld for %lld, some %llu for %llu", type_names[type], cmp, a->all[cmp],
              all, (long long)a->any[cmp], (long long)first, (unsigned long long)a->some[cmp], (unsigned long long)some);
    }
}

static void test_comparisons(tern_ctx_t ctx, uint64_t *rng)
{
    void *words = tern_malloc(WORDS * 8);
    struct answers *a, got;
    int *mask_dev;
    REQUIRE(words && cudaMalloc(&a, sizeof *a) == cudaSuccess && cudaMalloc(&mask_dev, WORDS * sizeof(int)) == cudaSuccess,
            "no memory");
    for (int k = 0; k < PAIRS; k++) {
        int type = k % TYPE_COUNT, mask[WORDS];
        size_t count = k < TYPE_COUNT ? 1 : test_random(rng) % WORDS + 1;
        uint64_t value[WORDS], v = random_word(rng);
        uint32_t narrow[WORDS];
        for (size_t i = 0; i < WORDS; i++) {
            value[i] = k % 3 ? random_word(rng) : v;
            narrow[i] = (uint32_t)value[i];
            mask[i] = i > 0 && test_random(rng) % 3 == 0;
        }
        cudaMemcpy(words, size_of(type) == 4 ? (void *)narrow : value, WORDS * (size_t)size_of(type), cudaMemcpyHostToDevice);
        cudaMemcpy(mask_dev, mask, sizeof mask, cudaMemcpyHostToDevice);
        REQUIRE(tern_launch(compare_kernel, 1, 1, 0, NULL, ctx, type, words, count, mask_dev, v, a) == TERN_OK, "%s",
                tern_last_error());
        device_test_wait("comparisons");
        cudaMemcpy(&got, a, sizeof got, cudaMemcpyDeviceToHost);
        check_answers(type, value, count, mask, v, &got);
    }
    cudaFree(a);
    cudaFree(mask_dev);
    REQUIRE(tern_free(words) == TERN_OK, "%s", tern_last_error());
}

/* ---- any, all, some, with words that arrive one by one --------------------------------------------------------------------- */

struct arrivals {
    uint32_t wrong, status;
};

/* Block 1 sets the words of the next PE in the order given, each by a p of its own; block 0 waits for those of its own. */
#define ARRIVE(name, T)                                                                                                \
    TERN_DEV void send_##name(tern_ctx_t ctx, void *words, const int *order, int round)                                \
    {                                                                                                                  \
        for (int i = 0; i < WORDS; i++) {                                                                              \
            for (int k = 0; k < order[i] % 7; k++)                                                                     \
                tern_prim_pause();                                                                                     \
            tern_##name##_p(ctx, (T *)words + order[i], (T)(round + order[i]),                                         \
                            (tern_my_pe(ctx) + 1) % tern_n_pes(ctx));                                                  \
        }                                                                                                              \
    }                                                                                                                  \
    TERN_DEV void receive_##name(tern_ctx_t ctx, void *words, int *mask, int round, struct arrivals *a)                \
    {                                                                                                                  \
        T *w = (T *)words;                                                                                             \
        size_t indices[WORDS], found, index;                                                                           \
        int left = WORDS;                                                                                              \
        tern_status_t status = tern_##name##_wait_until_any(ctx, w, WORDS, mask, TERN_CMP_GE, (T)round, &index);       \
        if (status == TERN_OK && index < WORDS) {                                                                      \
            a->wrong += w[index] != (T)(round + (int)index);                                                           \
            mask[index] = 1;                                                                                           \
            left--;                                                                                                    \
        }                                                                                                              \
        while (left > WORDS / 2 && status == TERN_OK) {                                                                \
            status = tern_##name##_wait_until_some(ctx, w, WORDS, indices, mask, TERN_CMP_GE, (T)round, &found);       \
            for (size_t i = 0; i < found && status == TERN_OK; i++) {                                                  \
                a->wrong += mask[indices[i]] || w[indices[i]] != (T)(round + (int)indices[i]);                         \
                mask[indices[i]] = 1;                                                                                  \
                left--;                                                                                                \
            }                                                                                                          \
            a->wrong += status == TERN_OK && found == 0;                                                               \
        }                                                                                                              \
        if (status == TERN_OK)                                                                                         \
            status = tern_##name##_wait_until_all(ctx, w, WORDS, mask, TERN_CMP_GE, (T)round);                         \
        for (int i = 0; i < WORDS && status == TERN_OK; i++)                                                           \
            a->wrong += w[i] != (T)(round + i);                                                                        \
        for (int i = 0; i < WORDS; i++)                                                                                \
            mask[i] = 1;                                                                                               \
        a->wrong += tern_##name##_wait_until_any(ctx, w, WORDS, mask, TERN_CMP_EQ, (T)0, &index) != TERN_OK ||         \
                    index != SIZE_MAX ||                                                                               \
                    tern_##name##_wait_until_some(ctx, w, WORDS, indices, mask, TERN_CMP_EQ, (T)0, &found) != TERN_OK || \
                    found != 0 || !tern_##name##_test_all(ctx, w, WORDS, mask, TERN_CMP_EQ, (T)0);                     \
        a->status = (uint32_t)status;                                                                                  \
    }
TERN_INT_TYPES(ARRIVE)

__global__ void arrive_kernel(tern_ctx_t ctx, int type, void *words, const int *order, int *mask, int round,
                              struct arrivals *a)
{
    switch (type) {
#define TYPE_CASE(name, T)                                                                                             \
    case TYPE_##name:                                                                                                  \
        if (blockIdx.x == 1)                                                                                           \
            send_##name(ctx, words, order, round);                                                                     \
        else                                                                                                           \
            receive_##name(ctx, words, mask, round, a);                                                                \
        break;
        TERN_INT_TYPES(TYPE_CASE)
#undef TYPE_CASE
    }
}

static void test_arrivals(tern_ctx_t ctx, uint64_t *rng)
{
    void *words = tern_calloc(WORDS, 8);
    struct arrivals *a, got;
    int *order_dev, *mask_dev, order[WORDS];
    REQUIRE(words && cudaMalloc(&a, sizeof *a) == cudaSuccess && cudaMalloc(&order_dev, sizeof order) == cudaSuccess &&
                cudaMalloc(&mask_dev, sizeof order) == cudaSuccess,
            "no memory");
    for (int k = 0; k < 3 * TYPE_COUNT; k++) {
        cudaMemset(words, 0, WORDS * 8);
        cudaMemset(a, 0, sizeof *a);
        cudaMemset(mask_dev, 0, sizeof order);
        for (int i = 0; i < WORDS; i++) {
            int other = (int)(test_random(rng) % (uint64_t)(i + 1));
            order[i] = i;
            order[i] = order[other];
            order[other] = i;
        }
        cudaMemcpy(order_dev, order, sizeof order, cudaMemcpyHostToDevice);
        REQUIRE(tern_barrier_all() == TERN_OK, "%s", tern_last_error());
        REQUIRE(tern_launch(arrive_kernel, 2, 1, 0, NULL, tern_ctx_timeout(ctx, 20000), k % TYPE_COUNT, words, order_dev,
                            mask_dev, 1000 * (k + 1), a) == TERN_OK,
                "%s", tern_last_error());
        device_test_wait("arrivals");
        cudaMemcpy(&got, a, sizeof got, cudaMemcpyDeviceToHost);
        CHECK(got.wrong == 0 && got.status == TERN_OK, "%s: %u wrong answers, status %s", type_names[k % TYPE_COUNT],
              got.wrong, tern_status_name((tern_status_t)got.status));
        REQUIRE(tern_barrier_all() == TERN_OK, "%s", tern_last_error());
    }
    cudaFree(a);
    cudaFree(order_dev);
    cudaFree(mask_dev);
    REQUIRE(tern_free(words) == TERN_OK, "%s", tern_last_error());
}

/* ---- deadlines, signals ---------------------------------------------------------------------------------------------------- */

enum { LATE_SIGNAL, LATE_SIGNAL_WARP, LATE_SIGNAL_BLOCK, LATE_WAIT, LATE_ANY, LATE_ALL, LATE_SOME, LATE_COUNT };

/* Nothing comes: each form must end with TERN_ERR_TIMEOUT, in every thread of its scope. counts[status] of threads. */
__global__ void late_kernel(tern_ctx_t ctx, int form, uint64_t *sig, uint32_t *counts, uint32_t *wrong)
{
    tern_ctx_t c = tern_ctx_timeout(ctx, 30);
    int32_t *words = (int32_t *)sig;
    size_t index = 7, found = 7, indices[4];
    tern_status_t status = TERN_OK;
    if (form == LATE_SIGNAL)
        status = tern_signal_wait_until(c, sig, TERN_CMP_NE, 0);
    else if (form == LATE_SIGNAL_WARP)
        status = tern_signal_wait_until_warp(c, sig, TERN_CMP_NE, 0);
    else if (form == LATE_SIGNAL_BLOCK)
        status = tern_signal_wait_until_block(c, sig, TERN_CMP_NE, 0);
    else if (form == LATE_WAIT)
        status = tern_int32_wait_until(c, words, TERN_CMP_LT, 0);
    else if (form == LATE_ANY)
        status = tern_int32_wait_until_any(c, words, 4, NULL, TERN_CMP_GT, 0, &index);
    else if (form == LATE_ALL)
        status = tern_int32_wait_until_all(c, words, 4, NULL, TERN_CMP_EQ, 1);
    else
        status = tern_int32_wait_until_some(c, words, 4, indices, NULL, TERN_CMP_NE, 0, &found);
    atomicAdd(&counts[status], 1);
    if ((form == LATE_ANY && index != SIZE_MAX) || (form == LATE_SOME && found != 0))
        atomicAdd(wrong, 1);
}

static void test_deadlines(tern_ctx_t ctx)
{
    uint64_t *sig = (uint64_t *)tern_calloc(4, sizeof *sig);
    uint32_t *out, got[33];
    REQUIRE(sig && cudaMalloc(&out, sizeof got) == cudaSuccess, "no memory");
    for (int form = 0; form < LATE_COUNT; form++) {
        int threads = (int[]){1, 40, 64, 33}[form % 4];
        cudaMemset(out, 0, sizeof got);
        REQUIRE(tern_launch(late_kernel, 2, threads, 0, NULL, ctx, form, sig, out, out + 32) == TERN_OK, "%s",
                tern_last_error());
        device_test_wait("deadlines");
        cudaMemcpy(got, out, sizeof got, cudaMemcpyDeviceToHost);
        CHECK(got[TERN_ERR_TIMEOUT] == 2u * (uint32_t)threads && got[32] == 0, "form %d: %u of %d threads timed out", form,
              got[TERN_ERR_TIMEOUT], 2 * threads);
    }
    cudaFree(out);
    REQUIRE(tern_free(sig) == TERN_OK, "%s", tern_last_error());
}

/* Ping-pong of SET, then of ADD signals around the ring, by thread, warp and block waits. */
__global__ void signals_kernel(tern_ctx_t ctx, uint64_t *sig, int rounds, uint32_t *wrong)
{
    int next = (tern_my_pe(ctx) + 1) % tern_n_pes(ctx);
    for (int i = 1; i <= rounds; i++) {
        int op = i % 2 ? TERN_SIGNAL_SET : TERN_SIGNAL_ADD;
        if (threadIdx.x == 0)
            tern_signal_op(ctx, sig, i % 2 ? (uint64_t)i : 1, op, next);
        tern_status_t status = TERN_OK;
        if (i % 3 == 0)
            status = tern_signal_wait_until_block(ctx, sig, TERN_CMP_EQ, (uint64_t)i);
        else if (threadIdx.x / 32 == 0)
            status = i % 3 == 1 ? tern_signal_wait_until_warp(ctx, sig, TERN_CMP_GE, (uint64_t)i)
                                : tern_signal_wait_until(ctx, sig, TERN_CMP_GT, (uint64_t)i - 1);
        if (status != TERN_OK || (threadIdx.x == 0 && tern_signal_fetch(ctx, sig) != (uint64_t)i))
            atomicAdd(wrong, 1);
        tern_status_t met = tern_barrier_all_block(ctx);
        if (met != TERN_OK)
            atomicAdd(wrong, 1);
    }
}

static void test_signals(tern_ctx_t ctx)
{
    uint64_t *sig = (uint64_t *)tern_calloc(1, sizeof *sig);
    uint32_t *wrong, got;
    REQUIRE(sig && cudaMalloc(&wrong, sizeof *wrong) == cudaSuccess, "no memory");
    cudaMemset(wrong, 0, sizeof *wrong);
    REQUIRE(tern_launch(signals_kernel, 1, 80, 0, NULL, tern_ctx_timeout(ctx, 20000), sig, 60, wrong) == TERN_OK, "%s",
            tern_last_error());
    device_test_wait("signals");
    cudaMemcpy(&got, wrong, sizeof got, cudaMemcpyDeviceToHost);
    CHECK(got == 0, "signals: %u wrong", got);
    cudaFree(wrong);
    REQUIRE(tern_free(sig) == TERN_OK, "%s", tern_last_error());
}

int main(void)
{
    for (int check = 0; check < 2; check++) {
        tern_ctx_t ctx;
        device_test_init(&ctx, check);
        uint64_t rng = device_test_seed();
        test_comparisons(ctx, &rng);
        test_arrivals(ctx, &rng);
        test_deadlines(ctx);
        test_signals(ctx);
        device_test_done();
    }
    return test_end("wait");
}
