/*
 * stage.cu - stages lent to copies (tern_ctx_stage): which are refused, and that copies are right all the same; copies
 * of many times the stage; stages that threads use for themselves before and after each call, beside memory that no
 * copy may touch; local sides in global, shared, local and pinned host memory.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/check.h"
#include "device/device_test.h"

#define SHARED (40u << 10) /* dynamic shared memory: guard, stage, guard, a source */
#define GUARD 128u
#define SIDE 2048u        /* bytes of a source or destination in shared or local memory */
#define MOST (300u << 10) /* bytes of the largest copy */
#define CASES 24          /* of one launch */

/* What is given for a stage. The first ones are usable. */
enum { STAGE_GOOD, STAGE_NONE, STAGE_GLOBAL, STAGE_LOCAL, STAGE_UNALIGNED, STAGE_SMALL, STAGE_EMPTY, STAGE_COUNT };
static const char *const stage_names[] = {"good", "NULL", "global", "local", "unaligned", "small", "empty"};
/* Where the local side is. */
enum { SIDE_GLOBAL, SIDE_SHARED, SIDE_LOCAL, SIDE_HOST, SIDE_COUNT };
static const char *const side_names[] = {"global", "shared", "local", "host"};

struct stage_case {
    int pe, scope, get, signal, side;
    uint32_t bytes, dst, src; /* offsets in the box's part and in the source */
};

struct found {
    uint32_t accepted, guards; /* stages taken, guard bytes changed */
};

TERN_DEV_HOST unsigned char byte_of(int pe, uint32_t at)
{
    return (unsigned char)((at * 2654435761u + (uint32_t)pe * 40503u) >> 11);
}

/* ---- device
 * -------------------------------------------------------------------------------------------------------------- */

TERN_DEV tern_ctx_t lend(tern_ctx_t ctx, int kind, char *stage, uint32_t bytes, char *global, char *own)
{
    switch (kind) {
    case STAGE_NONE:
        return tern_ctx_stage(ctx, NULL, bytes);
    case STAGE_GLOBAL:
        return tern_ctx_stage(ctx, global, bytes);
    case STAGE_LOCAL:
        return tern_ctx_stage(ctx, own, bytes);
    case STAGE_UNALIGNED:
        return tern_ctx_stage(ctx, stage + 16 * (1 + bytes % 7), bytes - 128);
    case STAGE_SMALL:
        return tern_ctx_stage(ctx, stage, bytes % TERN_STAGE_MIN);
    case STAGE_EMPTY:
        return tern_ctx_stage(ctx, stage, 0);
    default:
        return tern_ctx_stage(ctx, stage, bytes);
    }
}

#define BY_SCOPE(call, ...)                                                                                            \
    (c->scope == 0 ? call(__VA_ARGS__) : c->scope == 1 ? call##_warp(__VA_ARGS__) : call##_block(__VA_ARGS__))

/* One copy by the first thread, the first warp or the block. */
TERN_DEV void copy(tern_ctx_t ctx, const struct stage_case *c, char *dst, char *src, uint64_t *sig)
{
    if (threadIdx.x >= (c->scope == 0 ? 1u : c->scope == 1 ? 32u : blockDim.x))
        return;
    if (c->get)
        BY_SCOPE(tern_get, ctx, dst, src, c->bytes, c->pe);
    else if (c->signal)
        BY_SCOPE(tern_put_signal, ctx, dst, src, c->bytes, sig, 1, TERN_SIGNAL_ADD, c->pe);
    else
        BY_SCOPE(tern_put, ctx, dst, src, c->bytes, c->pe);
}

/* A case whose local side is in memory of the block or of the thread: it goes there and from there by ordinary
 * accesses. */
TERN_DEV void copy_side(tern_ctx_t ctx, const struct stage_case *c, char *dst, char *src, uint64_t *sig, char *shared)
{
    char own[SIDE] __attribute__((aligned(16)));
    char *side = c->side == SIDE_SHARED ? shared : own;
    bool each = c->side == SIDE_LOCAL; /* only a thread's own calls reach it */
    for (uint32_t i = each ? 0 : threadIdx.x; !c->get && i < c->bytes; i += each ? 1 : blockDim.x)
        side[i] = src[i];
    __syncthreads();
    copy(ctx, c, c->get ? side : dst, c->get ? src : side, sig);
    __syncthreads();
    if (each && threadIdx.x)
        return;
    for (uint32_t i = each ? 0 : threadIdx.x; c->get && i < c->bytes; i += each ? 1 : blockDim.x)
        dst[i] = side[i];
}

/* All of the block's shared memory is the caller's between calls: it is written before each, the guards are read after
 * it. */
__global__ void stage_kernel(tern_ctx_t ctx, int kind, uint32_t stage_bytes, const struct stage_case *cases, char *box,
                             char *src, char *host, uint64_t *sig, char *global, struct found *found)
{
    extern __shared__ char shared[];
    char own[TERN_STAGE_MIN] __attribute__((aligned(128)));
    char *side = shared + SHARED - SIDE;
    uint32_t end = GUARD + (stage_bytes + GUARD - 1) / GUARD * GUARD;
    for (int i = 0; i < CASES; i++) {
        const struct stage_case *c = cases + i;
        for (uint32_t k = threadIdx.x; k < SHARED; k += blockDim.x)
            shared[k] = (char)(k + i);
        __syncthreads();
        tern_ctx_t staged = lend(ctx, kind, shared + GUARD, stage_bytes, global, own);
        if (threadIdx.x == 0 && staged.stage)
            found->accepted++;
        char *to = box + c->dst, *from = c->side == SIDE_HOST ? host + c->src : src + c->src;
        if (c->side == SIDE_SHARED || c->side == SIDE_LOCAL)
            copy_side(staged, c, to, from, sig, side);
        else
            copy(staged, c, to, from, sig);
        __syncthreads();
        for (uint32_t k = threadIdx.x; k < SHARED - SIDE; k += blockDim.x) {
            if ((k < GUARD || k >= (kind == STAGE_GOOD ? end : 0)) && shared[k] != (char)(k + i))
                atomicAdd(&found->guards, 1u);
        }
        __syncthreads();
    }
    tern_quiet(ctx);
}

/* ---- host
 * ---------------------------------------------------------------------------------------------------------------- */

struct buffers {
    char *box, *src, *global, *host; /* box, src: symmetric; box: a part of MOST bytes for each source PE */
    uint64_t *sig;
    struct stage_case *cases;
    struct found *found;
    unsigned char *model, *got;
    size_t bytes;
};

/* Sizes about the pieces that a stage is divided into, and any; offsets mostly aligned, as bulk copies need them. */
static void make_cases(uint64_t seed, uint32_t stage, int pe, int n, struct stage_case *cases)
{
    uint64_t rng = seed + (uint64_t)pe * 0x9e3779b97f4a7c15u;
    uint32_t at = (uint32_t)pe * MOST, piece = (stage - 128) / 4 & ~15u;
    memset(cases, 0, CASES * sizeof *cases);
    for (int i = 0; i < CASES; i++) {
        struct stage_case *c = &cases[i];
        uint32_t kind = (uint32_t)(test_random(&rng) % 4), end = (uint32_t)(pe + 1) * MOST;
        c->pe = (int)(test_random(&rng) % (uint64_t)n);
        c->scope = (int)(test_random(&rng) % 3);
        c->get = (int)(test_random(&rng) % 2);
        c->signal = (int)(test_random(&rng) % 2);
        c->side = test_random(&rng) % 3 ? SIDE_GLOBAL : (int)(test_random(&rng) % SIDE_COUNT);
        uint32_t around = piece * (1 + (uint32_t)(test_random(&rng) % 6)), any = (uint32_t)(test_random(&rng) % 20000);
        c->bytes = kind == 0 ? around : kind == 1 ? around + 16 : kind == 2 ? any & ~15u : any;
        if (i == CASES / 2) /* many times the stage */
            c->bytes = (MOST / 2 + any) & ~15u;
        if (c->side == SIDE_SHARED || c->side == SIDE_LOCAL)
            c->bytes %= SIDE + 1;
        if (c->side == SIDE_LOCAL)
            c->scope = 0;
        if (c->side == SIDE_HOST)
            c->get = 0;
        c->dst = ((at + 15) & ~15u) + (kind == 3 ? (uint32_t)(test_random(&rng) % 16) : 0);
        c->src = ((uint32_t)(test_random(&rng) % 4096) & ~15u) + (kind == 3 ? (uint32_t)(test_random(&rng) % 16) : 0);
        if (c->dst + c->bytes > end) /* no room left */
            c->bytes = c->dst < end ? (end - c->dst) & ~15u : 0;
        at = c->dst + c->bytes;
    }
}

/* A get writes the part of the own box at the own PE, from the source of another; a put that of the target. */
static void apply(const struct buffers *b, int from, const struct stage_case *c, uint64_t *signals)
{
    int me = tern_my_pe();
    if ((c->get ? from : c->pe) != me)
        return;
    for (uint32_t k = 0; k < c->bytes; k++)
        b->model[c->dst + k] = byte_of(c->get ? c->pe : from, c->src + k);
    *signals += !c->get && c->signal;
}

static void play(const struct buffers *b, tern_ctx_t ctx, uint64_t seed, int kind, uint32_t stage_bytes, int threads)
{
    int n = tern_n_pes(), me = tern_my_pe();
    struct stage_case all[CASES];
    struct found found = {0, 0};
    uint64_t signals = 0, got = 0;
    char what[128];
    snprintf(what, sizeof what, "stage %s, %u bytes, %d threads, PE %d", stage_names[kind], stage_bytes, threads, me);
    memset(b->model, 0x77, b->bytes);
    for (int pe = 0; pe < n; pe++) {
        make_cases(seed, stage_bytes, pe, n, all);
        for (int i = 0; i < CASES; i++)
            apply(b, pe, &all[i], &signals);
    }
    make_cases(seed, stage_bytes, me, n, all);
    cudaMemset(b->box, 0x77, b->bytes);
    cudaMemset(b->sig, 0, sizeof *b->sig);
    cudaMemset(b->found, 0, sizeof found);
    cudaMemcpy(b->cases, all, sizeof all, cudaMemcpyHostToDevice);
    cudaDeviceSynchronize();
    REQUIRE(tern_barrier_all() == TERN_OK, "%s: %s", what, tern_last_error());
    REQUIRE(tern_launch(stage_kernel, 1, threads, SHARED, NULL, ctx, kind, stage_bytes, b->cases, b->box, b->src,
                        b->host, b->sig, b->global, b->found) == TERN_OK,
            "%s: %s", what, tern_last_error());
    device_test_wait(what);
    REQUIRE(tern_barrier_all() == TERN_OK, "%s: %s", what, tern_last_error());
    cudaMemcpy(&found, b->found, sizeof found, cudaMemcpyDeviceToHost);
    cudaMemcpy(&got, b->sig, sizeof got, cudaMemcpyDeviceToHost);
    cudaMemcpy(b->got, b->box, b->bytes, cudaMemcpyDeviceToHost);
    CHECK(found.accepted == (kind == STAGE_GOOD ? CASES : 0), "%s: taken %u times", what, found.accepted);
    CHECK(found.guards == 0, "%s: %u bytes beside the stage changed", what, found.guards);
    CHECK(got == signals, "%s: %llu signals for %llu", what, (unsigned long long)got, (unsigned long long)signals);
    size_t wrong = 0, first = 0;
    for (size_t i = 0; i < b->bytes; i++)
        if (b->got[i] != b->model[i] && wrong++ == 0)
            first = i;
    CHECK(wrong == 0, "%s: %zu wrong bytes, first at %zu of the part of PE %zu", what, wrong, first % MOST,
          first / MOST);
    for (int i = 0; wrong && i < CASES; i++)
        fprintf(stderr, "  own case %d: %s of %u bytes, scope %d, PE %d, %s, from %u to %u\n", i,
                all[i].get ? "get" : "put", all[i].bytes, all[i].scope, all[i].pe, side_names[all[i].side], all[i].src,
                all[i].dst);
    REQUIRE(tern_barrier_all() == TERN_OK, "%s: %s", what, tern_last_error());
}

/* With the argument "few" only some stages of the usable kind are lent: for tools that make kernels slow. */
int main(int argc, char **argv)
{
    int few = argc > 1 && !strcmp(argv[1], "few");
    static const uint32_t stages[] = {1024, 1040, 1152, 4096, 8200, 32768};
    tern_ctx_t ctx;
    struct buffers b;

    device_test_init(&ctx, 0);
    uint64_t rng = device_test_seed();
    b.bytes = (size_t)tern_n_pes() * MOST;
    b.box = (char *)tern_malloc(b.bytes);
    b.src = (char *)tern_malloc(MOST);
    b.sig = (uint64_t *)tern_malloc(sizeof *b.sig);
    b.model = (unsigned char *)malloc(b.bytes);
    b.got = (unsigned char *)malloc(b.bytes);
    REQUIRE(b.box && b.src && b.sig && b.model && b.got, "%s", tern_last_error());
    REQUIRE(cudaMalloc(&b.cases, CASES * sizeof *b.cases) == cudaSuccess &&
                cudaMalloc(&b.global, SHARED) == cudaSuccess && cudaMalloc(&b.found, sizeof *b.found) == cudaSuccess &&
                cudaMallocHost(&b.host, MOST) == cudaSuccess,
            "no memory");
    for (uint32_t i = 0; i < MOST; i++)
        b.host[i] = (char)byte_of(tern_my_pe(), i);
    cudaMemcpy(b.src, b.host, MOST, cudaMemcpyHostToDevice);
    for (int i = 1; few && i <= 4; i += 3)
        play(&b, ctx, test_random(&rng), STAGE_GOOD, stages[i], 128);
    for (int kind = 0; kind < STAGE_COUNT && !few; kind++)
        for (unsigned i = 0; i < (kind == STAGE_GOOD ? 6 : 2); i++)
            for (int threads = 32; threads <= 128; threads += 96)
                play(&b, ctx, test_random(&rng), kind, stages[kind == STAGE_GOOD ? i : 3 * i + 2], threads);
    cudaFree(b.cases);
    cudaFree(b.global);
    cudaFree(b.found);
    cudaFreeHost(b.host);
    free(b.model);
    free(b.got);
    device_test_done();
    return test_end("stage");
}
