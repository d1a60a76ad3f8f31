/*
 * random.cu - a random program of all kinds of operations from every PE to every PE, its blocks side by side, against a
 * model on the host: nothing lost, nothing twice, nothing beside. Arguments: operations of each block (2000), blocks
 * (3).
 *
 * An operation is a function of (seed, PE, block, number), so every PE can replay every other. A block writes its own
 * area at each target, cell after cell; where its cursor comes round it calls quiet, so that two writes of one cell are
 * always ordered: by that, or by the fence of a rewrite. Words that all update must add up.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/device_test.h"

#define CELLS 32u
#define CELL 512u /* an operation takes one, or several in a row */
#define BYTES_MAX (6 * CELL)
#define OWN_WORDS 4u
#define PES_MAX 16
#define THREADS 32

enum kind {
    PUT_NBI,
    PUT,
    PUT_SIGNAL,
    PUT_SIGNAL_ADD,
    P,
    IPUT,
    REWRITE,
    GET,
    G,
    FENCE,
    QUIET,
    SIGNAL_SET,
    SIGNAL_ADD,
    SHARED_ADD,
    SHARED_FETCH,
    OWN_ATOMIC,
    KINDS
};

struct step {
    int kind, pe, scope;
    uint32_t bytes, at; /* at: offset in its first cell */
    uint64_t random;    /* for what is left to choose */
};

/* What one block of one PE writes at a target. */
struct area {
    uint64_t signal[CELLS];
    uint64_t added, own[OWN_WORDS], pad[3];
    char cell[CELLS * CELL];
};

struct shared_words {
    uint64_t sum64, fetched64, pad0[14];
    uint32_t sum32, pad1[31];
};

/* Where everything is; symmetric. */
struct world {
    tern_ctx_t ctx;
    uint64_t seed;
    int blocks, steps;
    struct area *areas; /* [n_pes * blocks] */
    char *sources;      /* [blocks * n_pes] times CELLS * CELL, twice: a rewrite's second */
    char *got;          /* [blocks] times BYTES_MAX */
    uint32_t *owners;   /* [blocks * n_pes * CELLS]: step that wrote the cell, + 1 */
    uint64_t *own;      /* [blocks * n_pes * OWN_WORDS]: what the own words must hold */
    struct shared_words *shared;
    uint32_t *bad; /* [blocks * 4]: wrong results, first step, its kind, status */
};

TERN_DEV_HOST uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

TERN_DEV_HOST struct step step_of(uint64_t seed, int n_pes, int pe, int block, uint32_t number)
{
    uint64_t r = mix(seed ^ mix((uint64_t)pe << 48 ^ (uint64_t)block << 32 ^ number)), s = mix(r);
    struct step step;
    step.kind = (int)(r % KINDS);
    step.pe = (int)(r / KINDS % (unsigned)n_pes);
    step.scope = (int)(r >> 40) % 3;
    step.random = s;
    step.at = (uint32_t)(s % 24);
    uint32_t limits[4] = {16, 300, CELL, BYTES_MAX - 32};
    step.bytes = (uint32_t)(s >> 8) % (limits[s >> 5 & 3] + 1);
    if (s >> 7 & 1) /* aligned */
        step.at &= ~15u, step.bytes &= ~15u;
    if (step.kind == P || step.kind == G) {
        step.bytes = 1u << (s >> 20 & 3);
        step.at = step.at / step.bytes * step.bytes;
    } else if (step.kind == IPUT) { /* 4-byte elements, every second one */
        step.at &= ~3u;
        step.bytes = (step.bytes % 200 + 4) & ~3u;
    }
    return step;
}

TERN_DEV_HOST bool writes(int kind)
{
    return kind <= REWRITE;
}

TERN_DEV_HOST uint32_t cells_of(struct step s)
{
    uint32_t span = s.kind == IPUT ? 2 * s.bytes : s.bytes;
    return (s.at + span + CELL - 1) / CELL + (s.at + span == 0);
}

/* Byte i of what step `number` writes; a rewrite writes twice. */
TERN_DEV_HOST char pattern(uint32_t number, bool second, uint32_t i)
{
    return (char)(mix((uint64_t)number << 1 | second) >> (i & 31) ^ i * 37 ^ i >> 8);
}

TERN_DEV_HOST uint64_t pattern_word(uint32_t number, uint32_t bytes)
{
    uint64_t word = 0;
    for (uint32_t i = 0; i < bytes; i++)
        word |= (uint64_t)(unsigned char)pattern(number, false, i) << 8 * i;
    return word;
}

/* ---- device
 * -------------------------------------------------------------------------------------------------------------- */

#define BY_SCOPE(call, ...)                                                                                            \
    do {                                                                                                               \
        if (scope == 0 && threadIdx.x == 0)                                                                            \
            call(__VA_ARGS__);                                                                                         \
        else if (scope == 1)                                                                                           \
            call##_warp(__VA_ARGS__);                                                                                  \
        else if (scope == 2)                                                                                           \
            call##_block(__VA_ARGS__);                                                                                 \
        __syncthreads();                                                                                               \
    } while (0)

TERN_DEV void fill(char *to, uint32_t number, bool second, uint32_t bytes)
{
    for (uint32_t i = threadIdx.x; i < bytes; i += THREADS)
        to[i] = pattern(number, second, i);
    __syncthreads();
}

TERN_DEV_SLOW void note(const struct world *w, uint32_t number, int kind, uint32_t status)
{
    uint32_t *bad = w->bad + 4 * blockIdx.x;
    if (atomicAdd(bad, 1) == 0)
        bad[1] = number, bad[2] = (uint32_t)kind, bad[3] = status;
}

static __device__ __noinline__ void write_step(struct world w, struct step s, uint32_t number, uint32_t cell)
{
    int scope = s.scope, which = (int)blockIdx.x * w.ctx.n_pes + s.pe;
    struct area *area = w.areas + w.ctx.my_pe * w.blocks + blockIdx.x;
    char *source = w.sources + (size_t)which * CELLS * CELL + cell * CELL + s.at;
    char *second = source + (size_t)w.blocks * w.ctx.n_pes * CELLS * CELL;
    char *dst = area->cell + cell * CELL + s.at;

    fill(source, number, false, s.bytes);
    if (s.kind == PUT_NBI || s.kind == REWRITE) {
        BY_SCOPE(tern_put_nbi, w.ctx, dst, source, s.bytes, s.pe);
    } else if (s.kind == PUT) {
        BY_SCOPE(tern_put, w.ctx, dst, source, s.bytes, s.pe);
    } else if (s.kind == PUT_SIGNAL) {
        BY_SCOPE(tern_put_signal_nbi, w.ctx, dst, source, s.bytes, &area->signal[cell], s.random, TERN_SIGNAL_SET,
                 s.pe);
    } else if (s.kind == PUT_SIGNAL_ADD) {
        BY_SCOPE(tern_put_signal, w.ctx, dst, source, s.bytes, &area->added, s.random, TERN_SIGNAL_ADD, s.pe);
    } else if (s.kind == IPUT) {
        BY_SCOPE(tern_int32_iput, w.ctx, (int32_t *)dst, (int32_t *)source, 2, 1, s.bytes / 4, s.pe);
    } else if (threadIdx.x == 0) {
        uint64_t word = pattern_word(number, s.bytes);
        if (s.bytes == 1)
            tern_uint8_p(w.ctx, (uint8_t *)dst, (uint8_t)word, s.pe);
        else if (s.bytes == 2)
            tern_uint16_p(w.ctx, (uint16_t *)dst, (uint16_t)word, s.pe);
        else if (s.bytes == 4)
            tern_uint32_p(w.ctx, (uint32_t *)dst, (uint32_t)word, s.pe);
        else
            tern_uint64_p(w.ctx, (uint64_t *)dst, word, s.pe);
    }
    if (s.kind == REWRITE) {
        fill(second, number, true, s.bytes);
        tern_fence_block(w.ctx);
        BY_SCOPE(tern_put_nbi, w.ctx, dst, second, s.bytes, s.pe);
    }
    if (threadIdx.x == 0)
        w.owners[which * CELLS + cell] = number + 1;
    __syncthreads();
}

/* Read what is known to be complete: a cell below `done`. */
static __device__ __noinline__ void read_step(struct world w, struct step s, uint32_t number, uint32_t done)
{
    int which = (int)blockIdx.x * w.ctx.n_pes + s.pe, scope = s.scope;
    uint32_t cell = done ? (uint32_t)(s.random % done) : 0, owner = done ? w.owners[which * CELLS + cell] : 0;
    char *got = w.got + (size_t)blockIdx.x * BYTES_MAX;
    struct area *area = w.areas + w.ctx.my_pe * w.blocks + blockIdx.x;

    if (!owner) /* inside of a longer one, or nothing is there */
        return;
    struct step wrote = step_of(w.seed, w.ctx.n_pes, w.ctx.my_pe, blockIdx.x, owner - 1);
    char *src = area->cell + cell * CELL + wrote.at;
    if (wrote.kind == IPUT)
        return;
    if (s.kind == G) {
        if (threadIdx.x == 0 && wrote.bytes &&
            (uint8_t)tern_uint8_g(w.ctx, (uint8_t *)src, s.pe) != (uint8_t)pattern(owner - 1, wrote.kind == REWRITE, 0))
            note(&w, number, s.kind, 0);
        __syncthreads();
        return;
    }
    if (s.random >> 32 & 1) {
        BY_SCOPE(tern_get, w.ctx, got, src, wrote.bytes, s.pe);
    } else {
        BY_SCOPE(tern_get_nbi, w.ctx, got, src, wrote.bytes, s.pe);
        tern_quiet_pe_block(w.ctx, s.pe);
    }
    for (uint32_t i = threadIdx.x; i < wrote.bytes; i += THREADS) {
        if (got[i] != pattern(owner - 1, wrote.kind == REWRITE, i))
            note(&w, number, s.kind, 0);
    }
    __syncthreads();
}

/* A word that only this block updates: by calls that fetch, so that each result is known. */
TERN_DEV bool own_atomic(struct world w, struct step s)
{
    uint32_t which = (uint32_t)(s.random >> 4) % OWN_WORDS;
    uint64_t *model = w.own + ((size_t)blockIdx.x * w.ctx.n_pes + s.pe) * OWN_WORDS + which, before = *model, old,
             v = mix(s.random);
    uint64_t *word = &w.areas[w.ctx.my_pe * w.blocks + blockIdx.x].own[which];
    switch (s.random % 6) {
    case 0:
        old = tern_uint64_atomic_swap(w.ctx, word, v, s.pe);
        *model = v;
        break;
    case 1:
        old = tern_uint64_atomic_compare_swap(w.ctx, word, s.random & 64 ? before : ~before, v, s.pe);
        *model = s.random & 64 ? v : before;
        break;
    case 2:
        old = tern_uint64_atomic_fetch_and(w.ctx, word, v, s.pe);
        *model = before & v;
        break;
    case 3:
        old = tern_uint64_atomic_fetch_or(w.ctx, word, v, s.pe);
        *model = before | v;
        break;
    case 4:
        old = tern_uint64_atomic_fetch_xor(w.ctx, word, v, s.pe);
        *model = before ^ v;
        break;
    default:
        old = tern_uint64_atomic_fetch(w.ctx, word, s.pe);
        break;
    }
    return old == before;
}

/* The leader's part of a step that moves one word. */
static __device__ __noinline__ void word_step(struct world w, struct step s, uint32_t number, uint64_t *fetched)
{
    struct area *area = w.areas + w.ctx.my_pe * w.blocks + blockIdx.x;
    bool right = true;
    if (s.kind == SIGNAL_SET) {
        tern_fence(w.ctx); /* behind other values of the same signal */
        tern_signal_op(w.ctx, &area->signal[CELLS - 1], s.random, TERN_SIGNAL_SET, s.pe);
        tern_fence(w.ctx);
    } else if (s.kind == SIGNAL_ADD) {
        tern_signal_op(w.ctx, &area->added, s.random, TERN_SIGNAL_ADD, s.pe);
    } else if (s.kind == SHARED_ADD) {
        if (s.random & 1)
            tern_uint64_atomic_add(w.ctx, &w.shared->sum64, s.random, s.pe);
        else
            tern_uint32_atomic_add(w.ctx, &w.shared->sum32, (uint32_t)s.random, s.pe);
    } else if (s.kind == SHARED_FETCH) {
        uint64_t old = tern_uint64_atomic_fetch_inc(w.ctx, &w.shared->fetched64, s.pe);
        right = old + 1 > fetched[s.pe];
        fetched[s.pe] = old + 1;
    } else if (s.kind == OWN_ATOMIC) {
        right = own_atomic(w, s);
    }
    if (!right)
        note(&w, number, s.kind, 0);
}

__global__ void random_kernel(struct world w)
{
    __shared__ uint32_t cursor[PES_MAX], done[PES_MAX];
    uint64_t fetched[PES_MAX] = {0};
    if (threadIdx.x < PES_MAX)
        cursor[threadIdx.x] = done[threadIdx.x] = 0;
    __syncthreads();
    for (uint32_t number = 0; number < (uint32_t)w.steps; number++) {
        struct step s = step_of(w.seed, w.ctx.n_pes, w.ctx.my_pe, blockIdx.x, number);
        uint32_t at = cursor[s.pe], cells = cells_of(s);
        tern_status_t status = TERN_OK;
        bool wraps = writes(s.kind) && at + cells > CELLS - 1; /* the last cell's signal is SIGNAL_SET's */
        if (wraps || s.kind == QUIET)
            status = s.random & 2 || wraps ? tern_quiet_block(w.ctx) : tern_quiet_pe_block(w.ctx, s.pe);
        __syncthreads();
        if ((wraps || s.kind == QUIET) && threadIdx.x == 0)
            done[s.pe] = cursor[s.pe] = wraps ? 0 : at;
        __syncthreads();
        if (status != TERN_OK) {
            if (threadIdx.x == 0)
                note(&w, number, s.kind, (uint32_t)status);
            return;
        }
        if (writes(s.kind)) {
            at = cursor[s.pe];
            for (uint32_t i = threadIdx.x; i < cells; i += THREADS)
                w.owners[((int)blockIdx.x * w.ctx.n_pes + s.pe) * CELLS + at + i] = 0;
            __syncthreads();
            write_step(w, s, number, at);
            if (threadIdx.x == 0)
                cursor[s.pe] = at + cells;
        } else if (s.kind == GET || s.kind == G) {
            read_step(w, s, number, done[s.pe]);
        } else if (s.kind == FENCE) {
            tern_fence_block(w.ctx);
        } else if (threadIdx.x == 0) {
            word_step(w, s, number, fetched);
        }
        __syncthreads();
    }
    tern_quiet_block(w.ctx);
}

/* ---- model
 * ----------------------------------------------------------------------------------------------------------------- */

struct sums {
    uint64_t sum64, fetched64;
    uint32_t sum32;
};

static void model_write(struct area *area, struct step s, uint32_t number, uint32_t cell)
{
    char *to = area->cell + cell * CELL + s.at;
    for (uint32_t i = 0; i < s.bytes; i++)
        to[s.kind == IPUT ? i / 4 * 8 + i % 4 : i] = pattern(number, s.kind == REWRITE, i);
    if (s.kind == PUT_SIGNAL)
        area->signal[cell] = s.random;
    if (s.kind == PUT_SIGNAL_ADD)
        area->added += s.random;
}

/* What block `block` of PE `from` does to PE `to`. */
static void model_replay(const struct world *w, int from, int block, int to, struct area *area, struct sums *sums)
{
    uint32_t cursor = 0;
    for (uint32_t number = 0; number < (uint32_t)w->steps; number++) {
        struct step s = step_of(w->seed, w->ctx.n_pes, from, block, number);
        if (s.pe != to)
            continue;
        if (writes(s.kind)) {
            uint32_t cells = cells_of(s);
            if (cursor + cells > CELLS - 1)
                cursor = 0;
            model_write(area, s, number, cursor);
            cursor += cells;
        } else if (s.kind == SIGNAL_SET) {
            area->signal[CELLS - 1] = s.random;
        } else if (s.kind == SIGNAL_ADD) {
            area->added += s.random;
        } else if (s.kind == SHARED_FETCH) {
            sums->fetched64++;
        } else if (s.kind == SHARED_ADD && s.random & 1) {
            sums->sum64 += s.random;
        } else if (s.kind == SHARED_ADD) {
            sums->sum32 += (uint32_t)s.random;
        }
    }
}

static void compare(const struct world *w, int from, int block, const struct area *is, const struct area *want)
{
    const char *a = (const char *)is, *b = (const char *)want;
    for (size_t i = 0; i < sizeof *is; i++) {
        if (i >= offsetof(struct area, own) && i < offsetof(struct area, pad)) /* the block knew each result itself */
            continue;
        if (a[i] != b[i]) {
            CHECK(0, "PE %d, from block %d of PE %d: byte %zu (%s %zu) is %#x, not %#x", w->ctx.my_pe, block, from, i,
                  i < offsetof(struct area, cell) ? "word" : "cell",
                  i < offsetof(struct area, cell) ? i / 8 : (i - offsetof(struct area, cell)) / CELL,
                  (unsigned char)a[i], (unsigned char)b[i]);
            return;
        }
    }
}

static void verify(const struct world *w)
{
    size_t count = (size_t)w->ctx.n_pes * w->blocks;
    struct area *is = (struct area *)malloc(count * sizeof *is), *want = (struct area *)malloc(sizeof *want);
    struct shared_words shared;
    struct sums sums = {0, 0, 0};
    uint32_t bad[4];
    REQUIRE(is && want, "no memory");
    cudaMemcpy(is, w->areas, count * sizeof *is, cudaMemcpyDeviceToHost);
    cudaMemcpy(&shared, w->shared, sizeof shared, cudaMemcpyDeviceToHost);
    for (int from = 0; from < w->ctx.n_pes; from++) {
        for (int block = 0; block < w->blocks; block++) {
            memset(want, 0, sizeof *want);
            model_replay(w, from, block, w->ctx.my_pe, want, &sums);
            compare(w, from, block, &is[from * w->blocks + block], want);
        }
    }
    CHECK(shared.sum64 == sums.sum64 && shared.sum32 == sums.sum32 && shared.fetched64 == sums.fetched64,
          "PE %d: sums %#llx, %#x, count %llu; must be %#llx, %#x, %llu", w->ctx.my_pe,
          (unsigned long long)shared.sum64, shared.sum32, (unsigned long long)shared.fetched64,
          (unsigned long long)sums.sum64, sums.sum32, (unsigned long long)sums.fetched64);
    for (int block = 0; block < w->blocks; block++) {
        cudaMemcpy(bad, w->bad + 4 * block, sizeof bad, cudaMemcpyDeviceToHost);
        CHECK(bad[0] == 0, "PE %d, block %d: %u wrong results, first at step %u (kind %u, status %u)", w->ctx.my_pe,
              block, bad[0], bad[1], bad[2], bad[3]);
    }
    free(is);
    free(want);
}

static void *symmetric(size_t bytes)
{
    void *p = tern_calloc(1, bytes);
    REQUIRE(p, "%s", tern_last_error());
    return p;
}

int main(int argc, char **argv)
{
    struct world w;
    memset(&w, 0, sizeof w);
    w.steps = argc > 1 ? atoi(argv[1]) : 2000;
    w.blocks = argc > 2 ? atoi(argv[2]) : 3;
    device_test_init(&w.ctx, 0);
    REQUIRE(w.ctx.n_pes <= PES_MAX, "at most %d PEs", PES_MAX);
    w.seed = device_test_seed();
    size_t pairs = (size_t)w.ctx.n_pes * w.blocks;
    w.areas = (struct area *)symmetric(pairs * sizeof *w.areas);
    w.sources = (char *)symmetric(2 * pairs * CELLS * CELL);
    w.got = (char *)symmetric((size_t)w.blocks * BYTES_MAX);
    w.owners = (uint32_t *)symmetric(pairs * CELLS * sizeof *w.owners);
    w.own = (uint64_t *)symmetric(pairs * OWN_WORDS * sizeof *w.own);
    w.shared = (struct shared_words *)symmetric(sizeof *w.shared);
    w.bad = (uint32_t *)symmetric((size_t)w.blocks * 16);

    REQUIRE(tern_launch(random_kernel, w.blocks, THREADS, 0, NULL, w) == TERN_OK, "%s", tern_last_error());
    device_test_wait("random");
    CHECK(tern_barrier_all() == TERN_OK, "%s", tern_last_error());
    verify(&w);
    CHECK(tern_barrier_all() == TERN_OK, "%s", tern_last_error());
    device_test_done();
    if (w.ctx.my_pe == 0)
        printf("%d operations of %d blocks on each of %d PEs\n", w.steps, w.blocks, w.ctx.n_pes);
    return test_end("random");
}
