/*
 * atomic.cu - the atomics of all types: every thread of every PE updates words of every PE, the own included; sums, sets of
 * bits, tickets and swaps must come out exactly.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/check.h"
#include "device/device_test.h"

#define BLOCKS 2
static int threads = 96;
static uint32_t workers;                /* of a PE */

/* Words of one type at each PE, every one 8 bytes apart. */
enum { W_INC, W_FETCH_INC, W_ADD, W_FETCH_ADD, W_AND, W_FETCH_AND, W_OR, W_FETCH_OR, W_XOR, W_FETCH_XOR, W_SWAP, W_CAS,
       W_SET, W_COUNT };

enum {
#define TYPE_ENUM(name, T) TYPE_##name,
    TERN_INT_TYPES(TYPE_ENUM) TERN_FLOAT_TYPES(TYPE_ENUM)
#undef TYPE_ENUM
    TYPE_COUNT,
    TYPE_INTS = TYPE_float /* how many come before the floats */
};
static const char *const type_names[] = {
#define TYPE_NAME(name, T) #name,
    TERN_INT_TYPES(TYPE_NAME) TERN_FLOAT_TYPES(TYPE_NAME)
#undef TYPE_NAME
};

/* What a thread brings back: how often an old value was impossible, and the old values whose sets are checked on the host. */
struct worker {
    uint32_t wrong;
    uint64_t ticket, added, swapped;
};

/* ---- device: worker `id` of all PEs' `all` on the words of PE `pe` ------------------------------------------------------- */

#define INT_WORK(name, T)                                                                                              \
    TERN_DEV void work_##name(tern_ctx_t ctx, uint64_t *words, int pe, uint32_t id, struct worker *w)                  \
    {                                                                                                                  \
        T bit = (T)1 << id % (sizeof(T) * 8 - 1), old;                                                                 \
        tern_##name##_atomic_inc(ctx, (T *)&words[W_INC], pe);                                                         \
        w->ticket = (uint64_t)tern_##name##_atomic_fetch_inc(ctx, (T *)&words[W_FETCH_INC], pe);                       \
        tern_##name##_atomic_add(ctx, (T *)&words[W_ADD], (T)(id * 2654435761u), pe);                                  \
        w->added = (uint64_t)tern_##name##_atomic_fetch_add(ctx, (T *)&words[W_FETCH_ADD], (T)3, pe);                  \
        tern_##name##_atomic_and(ctx, (T *)&words[W_AND], (T)~bit, pe);                                                \
        old = tern_##name##_atomic_fetch_and(ctx, (T *)&words[W_FETCH_AND], (T)~bit, pe);                              \
        w->wrong += (old & ((T)1 << (sizeof(T) * 8 - 1))) == 0; /* nobody clears the sign */                           \
        tern_##name##_atomic_or(ctx, (T *)&words[W_OR], bit, pe);                                                      \
        old = tern_##name##_atomic_fetch_or(ctx, (T *)&words[W_FETCH_OR], bit, pe);                                    \
        old = tern_##name##_atomic_fetch_or(ctx, (T *)&words[W_FETCH_OR], (T)0, pe);                                   \
        w->wrong += (old & bit) == 0;                                                                                  \
        tern_##name##_atomic_xor(ctx, (T *)&words[W_XOR], bit, pe);                                                    \
        (void)tern_##name##_atomic_fetch_xor(ctx, (T *)&words[W_FETCH_XOR], bit, pe);                                  \
        w->swapped = (uint64_t)(uint32_t)tern_##name##_atomic_swap(ctx, (T *)&words[W_SWAP], (T)(id + 1), pe);         \
        T seen = tern_##name##_atomic_fetch(ctx, (T *)&words[W_CAS], pe);                                              \
        while ((old = tern_##name##_atomic_compare_swap(ctx, (T *)&words[W_CAS], seen, seen + 1, pe)) != seen) {       \
            seen = old;                                                                                                \
            tern_prim_pause();                                                                                         \
        }                                                                                                              \
        (void)tern_##name##_atomic_compare_swap(ctx, (T *)&words[W_CAS], (T)-5, (T)0, pe); /* never equal: no effect */ \
        tern_##name##_atomic_set(ctx, (T *)&words[W_SET], (T)-7, pe);                                                  \
    }
TERN_INT_TYPES(INT_WORK)

#define FLOAT_WORK(name, T)                                                                                            \
    TERN_DEV void work_##name(tern_ctx_t ctx, uint64_t *words, int pe, uint32_t id, struct worker *w)                  \
    {                                                                                                                  \
        tern_##name##_atomic_add(ctx, (T *)&words[W_ADD], (T)(id % 64) - (T)16.5, pe);                                 \
        w->ticket = (uint64_t)tern_##name##_atomic_fetch_add(ctx, (T *)&words[W_FETCH_INC], (T)1, pe);                 \
        w->swapped = (uint64_t)tern_##name##_atomic_swap(ctx, (T *)&words[W_SWAP], (T)(id + 1), pe);                   \
        tern_##name##_atomic_set(ctx, (T *)&words[W_SET], (T)-7.25, pe);                                               \
        w->wrong += tern_##name##_atomic_fetch(ctx, (T *)&words[W_SET], pe) != (T)-7.25;                               \
    }
TERN_FLOAT_TYPES(FLOAT_WORK)

__global__ void work_kernel(tern_ctx_t ctx, int type, uint64_t *words, struct worker *workers)
{
    uint32_t mine = blockIdx.x * blockDim.x + threadIdx.x, all = gridDim.x * blockDim.x,
             id = (uint32_t)tern_my_pe(ctx) * all + mine;
    for (int i = 0; i < tern_n_pes(ctx); i++) {
        int pe = (tern_my_pe(ctx) + i) % tern_n_pes(ctx);
        struct worker *w = &workers[(uint32_t)pe * all + mine];
        switch (type) {
#define TYPE_CASE(name, T)                                                                                             \
    case TYPE_##name:                                                                                                  \
        work_##name(ctx, words, pe, id, w);                                                                            \
        break;
            TERN_INT_TYPES(TYPE_CASE)
            TERN_FLOAT_TYPES(TYPE_CASE)
#undef TYPE_CASE
        }
    }
}

/* ---- host ---------------------------------------------------------------------------------------------------------------- */

struct buffers {
    uint64_t *words;            /* symmetric */
    struct worker *gathered;    /* symmetric: results of all PEs for the words of this one, [PE][worker] */
    struct worker *own;         /* symmetric: results of the own workers, [target PE][worker] */
};

static int bits_of(int type)
{
    return type == TYPE_int32 || type == TYPE_uint32 || type == TYPE_float ? 32 : 64;
}

/* A word as a number of its type; floats as the number they hold. */
static double float_of(int type, uint64_t word)
{
    float f;
    double d;
    memcpy(&f, &word, sizeof f);
    memcpy(&d, &word, sizeof d);
    return type == TYPE_float ? (double)f : d;
}

static uint64_t start_word(int type, int word)
{
    uint64_t zero = 0;
    float f = 0;
    if (word == W_AND || word == W_FETCH_AND)
        return ~zero;
    if (type >= TYPE_INTS)
        memcpy(&zero, &f, sizeof f);
    return zero;
}

/* Every ticket of 0 … all−1 came out once; `step` apart. */
static void check_tickets(const char *what, const struct worker *w, uint32_t all, int added, uint64_t step)
{
    unsigned char *seen = (unsigned char *)calloc(all, 1);
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < all; i++) {
        uint64_t t = (added ? w[i].added : w[i].ticket);
        if (t % step || t / step >= all || seen[t / step]++)
            wrong++;
    }
    CHECK(wrong == 0, "%s: %u of %u tickets are doubled or impossible", what, wrong, all);
    free(seen);
}

/* What was swapped out, and what remained, are all the values that were swapped in, and the first. */
static void check_swaps(const char *what, const struct worker *w, uint32_t all, uint64_t last)
{
    unsigned char *seen = (unsigned char *)calloc(all + 1, 1);
    uint32_t wrong = last > all || seen[last > all ? 0 : last]++;
    for (uint32_t i = 0; i < all; i++)
        if (w[i].swapped > all || seen[w[i].swapped]++)
            wrong++;
    CHECK(wrong == 0, "%s: %u swapped values are lost or doubled", what, wrong);
    free(seen);
}

static void check_ints(const char *what, int type, const uint64_t *words, const struct worker *w, uint32_t all)
{
    uint64_t mask = bits_of(type) == 32 ? 0xffffffffu : ~(uint64_t)0, sum = 0, set = 0, flip = 0;
    int bits = bits_of(type) - 1; /* the sign stays as it is */
    for (uint32_t id = 0; id < all; id++) {
        sum += id * 2654435761u;
        set |= (uint64_t)1 << id % (uint32_t)bits;
        flip ^= (uint64_t)1 << id % (uint32_t)bits;
    }
    const uint64_t want[W_COUNT] = {all, all, sum, 3 * (uint64_t)all, ~set, ~set, set, set, flip, flip, words[W_SWAP], all,
                                    (uint64_t)-7};
    for (int i = 0; i < W_COUNT; i++)
        CHECK((words[i] & mask) == (want[i] & mask), "%s, word %d: %llx for %llx", what, i,
              (unsigned long long)(words[i] & mask), (unsigned long long)(want[i] & mask));
    check_tickets(what, w, all, 0, 1);
    check_tickets(what, w, all, 1, 3);
    check_swaps(what, w, all, words[W_SWAP] & mask);
}

static void check_floats(const char *what, int type, const uint64_t *words, const struct worker *w, uint32_t all)
{
    double sum = 0;
    for (uint32_t id = 0; id < all; id++)
        sum += id % 64 - 16.5;
    CHECK(float_of(type, words[W_ADD]) == sum, "%s: sum %g for %g", what, float_of(type, words[W_ADD]), sum);
    CHECK(float_of(type, words[W_FETCH_INC]) == all, "%s: count %g", what, float_of(type, words[W_FETCH_INC]));
    CHECK(float_of(type, words[W_SET]) == -7.25, "%s: set %g", what, float_of(type, words[W_SET]));
    check_tickets(what, w, all, 0, 1);
    check_swaps(what, w, all, (uint64_t)float_of(type, words[W_SWAP]));
}

static void play(const struct buffers *b, tern_ctx_t ctx, int type)
{
    int me = tern_my_pe(), n = tern_n_pes();
    uint32_t all = (uint32_t)n * workers, wrong = 0;
    size_t bytes = all * sizeof(struct worker), part = workers * sizeof(struct worker);
    uint64_t words[W_COUNT];
    struct worker *w = (struct worker *)malloc(bytes);
    char what[64];

    snprintf(what, sizeof what, "%s, PE %d", type_names[type], me);
    for (int i = 0; i < W_COUNT; i++)
        words[i] = start_word(type, i);
    cudaMemcpy(b->words, words, sizeof words, cudaMemcpyHostToDevice);
    cudaMemset(b->own, 0, bytes);
    cudaDeviceSynchronize();
    REQUIRE(tern_barrier_all() == TERN_OK, "%s: %s", what, tern_last_error());
    REQUIRE(tern_launch(work_kernel, BLOCKS, threads, 0, NULL, ctx, type, b->words, b->own) == TERN_OK, "%s: %s", what,
            tern_last_error());
    for (int pe = 0; pe < n; pe++)
        REQUIRE(tern_put_on_stream(b->gathered + (size_t)me * workers, b->own + (size_t)pe * workers, part, pe, NULL) ==
                    TERN_OK,
                "%s: %s", what, tern_last_error());
    device_test_wait(what);
    REQUIRE(tern_barrier_all() == TERN_OK, "%s: %s", what, tern_last_error());
    cudaMemcpy(words, b->words, sizeof words, cudaMemcpyDeviceToHost);
    cudaMemcpy(w, b->gathered, bytes, cudaMemcpyDeviceToHost);
    for (uint32_t i = 0; i < all; i++)
        wrong += w[i].wrong;
    CHECK(wrong == 0, "%s: %u old values are impossible", what, wrong);
    if (type < TYPE_INTS)
        check_ints(what, type, words, w, all);
    else
        check_floats(what, type, words, w, all);
    free(w);
    REQUIRE(tern_barrier_all() == TERN_OK, "%s: %s", what, tern_last_error());
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 4;

    if (argc > 2)
        threads = atoi(argv[2]);
    workers = (uint32_t)(BLOCKS * threads);

    for (int check = 0; check < 2; check++) {
        struct buffers b;
        tern_ctx_t ctx;
        device_test_init(&ctx, check);
        b.words = (uint64_t *)tern_malloc(W_COUNT * sizeof *b.words);
        b.gathered = (struct worker *)tern_malloc((size_t)tern_n_pes() * workers * sizeof *b.gathered);
        b.own = (struct worker *)tern_malloc((size_t)tern_n_pes() * workers * sizeof *b.own);
        REQUIRE(b.words && b.gathered && b.own, "%s", tern_last_error());
        for (int round = 0; round < (check ? 1 : rounds); round++)
            for (int type = 0; type < TYPE_COUNT; type++)
                play(&b, ctx, type);
        device_test_done();
    }
    return test_end("atomic");
}
