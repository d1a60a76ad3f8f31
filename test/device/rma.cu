/*
 * rma.cu - put, get, put_signal, iput, iget, p and g, in all scopes and types, with odd sizes, misalignments and gaps, from
 * every PE to every PE, against a model on the host. Each PE's box has a part for every source PE; between the pieces that
 * arrive there are gaps, which must stay as they were.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/check.h"
#include "device/device_test.h"

#define CASES 48                /* of one PE in one round */
#define PART (192u << 10)       /* bytes of a box for one source PE */
#define SPAN_MAX 65536u         /* bytes that one case may touch */
#define STAGE (16u << 10)       /* shared memory lent */

enum { OP_PUT, OP_PUT_NBI, OP_GET, OP_GET_NBI, OP_PUT_SIGNAL, OP_PUT_SIGNAL_NBI, OP_IPUT, OP_IGET, OP_P, OP_G, OP_COUNT };
static const char *const op_names[] = {"put", "put_nbi", "get", "get_nbi", "put_signal", "put_signal_nbi", "iput", "iget",
                                       "p", "g"};
static const char *const scope_names[] = {"thread", "warp", "block"};

enum {
#define TYPE_ENUM(name, T) TYPE_##name,
    TERN_SCALAR_TYPES(TYPE_ENUM)
#undef TYPE_ENUM
    TYPE_COUNT
};
static const unsigned type_sizes[] = {
#define TYPE_SIZE(name, T) sizeof(T),
    TERN_SCALAR_TYPES(TYPE_SIZE)
#undef TYPE_SIZE
};

/* One operation. Offsets of the first element in the box (dst) and in the source memory (src). */
struct rma_case {
    int pe, type, signal_op;
    uint32_t dst, src;
    uint32_t count;             /* bytes; elements for typed ones */
    int dst_stride, src_stride; /* elements */
    uint64_t value;             /* of the signal */
};

/* ---- device -------------------------------------------------------------------------------------------------------------- */

#define BY_SCOPE(call, ...)                                                                                            \
    (scope == 0 ? call(__VA_ARGS__) : scope == 1 ? call##_warp(__VA_ARGS__) : call##_block(__VA_ARGS__))

#define TYPED(name, T)                                                                                                 \
    TERN_DEV void typed_##name(tern_ctx_t ctx, int op, int scope, char *dst, const char *src, const struct rma_case *c) \
    {                                                                                                                  \
        T *d = (T *)dst;                                                                                               \
        const T *s = (const T *)src;                                                                                   \
        if (op == OP_IPUT)                                                                                             \
            BY_SCOPE(tern_##name##_iput, ctx, d, s, c->dst_stride, c->src_stride, c->count, c->pe);                    \
        else if (op == OP_IGET)                                                                                        \
            BY_SCOPE(tern_##name##_iget, ctx, d, s, c->dst_stride, c->src_stride, c->count, c->pe);                    \
        else if (op == OP_P)                                                                                           \
            tern_##name##_p(ctx, d, *s, c->pe);                                                                        \
        else                                                                                                           \
            *d = tern_##name##_g(ctx, s, c->pe);                                                                       \
    }
TERN_SCALAR_TYPES(TYPED)

TERN_DEV void run_case(tern_ctx_t ctx, int op, int scope, char *dst, const char *src, uint64_t *sig,
                       const struct rma_case *c)
{
    switch (op) {
    case OP_PUT:
        BY_SCOPE(tern_put, ctx, dst, src, c->count, c->pe);
        break;
    case OP_PUT_NBI:
        BY_SCOPE(tern_put_nbi, ctx, dst, src, c->count, c->pe);
        break;
    case OP_GET:
        BY_SCOPE(tern_get, ctx, dst, src, c->count, c->pe);
        break;
    case OP_GET_NBI:
        BY_SCOPE(tern_get_nbi, ctx, dst, src, c->count, c->pe);
        break;
    case OP_PUT_SIGNAL:
        BY_SCOPE(tern_put_signal, ctx, dst, src, c->count, sig, c->value, c->signal_op, c->pe);
        break;
    case OP_PUT_SIGNAL_NBI:
        BY_SCOPE(tern_put_signal_nbi, ctx, dst, src, c->count, sig, c->value, c->signal_op, c->pe);
        break;
    default:
        switch (c->type) {
#define TYPE_CASE(name, T)                                                                                             \
    case TYPE_##name:                                                                                                  \
        typed_##name(ctx, op, scope, dst, src, c);                                                                     \
        break;
            TERN_SCALAR_TYPES(TYPE_CASE)
#undef TYPE_CASE
        }
    }
}

/*
 * Cases are dealt out to the threads, warps or blocks of the grid. With a stage, each unit lends a piece of the block's
 * shared memory of its own; odd lanes have none.
 */
__global__ void rma_kernel(tern_ctx_t ctx, int op, int scope, int staged, const struct rma_case *cases, int count,
                           char *box, char *src, uint64_t *signals)
{
    extern __shared__ char shared[];
    int thread = (int)threadIdx.x, unit, units;
    char *stage = shared;
    uint32_t bytes = STAGE;
    if (scope == 0) {
        unit = (int)blockIdx.x * (int)blockDim.x + thread;
        units = (int)(gridDim.x * blockDim.x);
        bytes = 1024;
        stage = thread % 2 == 0 && thread / 2 < (int)(STAGE / bytes) ? shared + thread / 2 * bytes : NULL;
    } else if (scope == 1) {
        int warps = (int)(blockDim.x + 31) / 32;
        unit = (int)blockIdx.x * warps + thread / 32;
        units = (int)gridDim.x * warps;
        bytes = (uint32_t)(STAGE / warps) & ~127u;
        stage = shared + (thread / 32) * bytes;
    } else {
        unit = (int)blockIdx.x;
        units = (int)gridDim.x;
    }
    if (staged && stage)
        ctx = tern_ctx_stage(ctx, stage, bytes);
    for (int i = unit; i < count; i += units)
        run_case(ctx, op, scope, box + cases[i].dst, src + cases[i].src,
                 signals ? signals + tern_my_pe(ctx) * CASES + i : NULL, &cases[i]);
    tern_quiet(ctx);
}

/* ---- host: cases, model -------------------------------------------------------------------------------------------------- */

static int is_typed(int op)
{
    return op >= OP_IPUT;
}

static int is_get(int op)
{
    return op == OP_GET || op == OP_GET_NBI || op == OP_IGET || op == OP_G;
}

/* What a box holds before a round, and what the source memory of a PE holds. */
static unsigned char fresh_byte(uint64_t round, int pe, uint32_t at)
{
    return (unsigned char)((at * 2654435761u ^ (uint32_t)round * 97u ^ (uint32_t)pe * 31u) >> 13);
}

static unsigned char source_byte(int pe, uint32_t at)
{
    return (unsigned char)((at * 40503u + (uint32_t)pe * 7919u) >> 5 ^ at);
}

static uint32_t random_bytes(uint64_t *rng, int scope)
{
    uint32_t kind = (uint32_t)(test_random(rng) % 8), most = scope == 0 ? 3000 : scope == 1 ? 9000 : 40000;
    if (kind < 3)
        return (uint32_t)(test_random(rng) % 80);
    if (kind < 6)
        return (uint32_t)(test_random(rng) % 1200);
    return (uint32_t)(test_random(rng) % most) / (kind == 6 ? 16 : 1) * (kind == 6 ? 16 : 1);
}

/* The cases of one PE in a round: every PE can compute those of all others. */
static void make_cases(uint64_t seed, int op, int scope, int pe, int n_pes, struct rma_case *cases)
{
    uint64_t rng = seed + (uint64_t)pe * 0x9e3779b97f4a7c15u;
    uint32_t at = (uint32_t)pe * PART;
    for (int i = 0; i < CASES; i++) {
        struct rma_case *c = &cases[i];
        memset(c, 0, sizeof *c);
        c->pe = (int)(test_random(&rng) % (uint64_t)n_pes);
        c->type = (int)(test_random(&rng) % TYPE_COUNT);
        c->signal_op = (int)(test_random(&rng) % 2);
        c->value = test_random(&rng);
        uint32_t gap = (uint32_t)(test_random(&rng) % 40), lead = (uint32_t)(test_random(&rng) % 64), span;
        if (is_typed(op)) {
            uint32_t size = type_sizes[c->type];
            c->count = op >= OP_P ? 1 : (uint32_t)(test_random(&rng) % 70);
            c->dst_stride = (int)(test_random(&rng) % 4) + 1;
            c->src_stride = (int)(test_random(&rng) % 9) - 4;
            span = (c->count * (uint32_t)c->dst_stride + 1) * size;
            c->dst = (at + gap + size - 1) / size * size;
            c->src = (70 * 4 + lead) * size;
        } else {
            c->count = random_bytes(&rng, scope);
            span = c->count;
            int aligned = test_random(&rng) % 3 == 0;
            c->dst = aligned ? (at + gap + 15) & ~15u : at + gap;
            c->src = aligned ? lead & ~15u : lead;
        }
        uint32_t end = ((uint32_t)pe + 1) * PART;
        if (c->dst + span + 64 > end) /* no room left: nothing is copied */
            c->count = 0;
        else
            at = c->dst + span;
    }
    for (int i = 0; op >= OP_P && i < CASES; i++)
        if (cases[i].count == 0) /* p and g always move one */
            abort();
}

/* Apply one case to the model of PE `me`'s box, if it writes there. */
static void model_case(unsigned char *box, int op, int from, int me, const struct rma_case *c)
{
    int writes_to = is_get(op) ? from : c->pe, source = is_get(op) ? c->pe : from;
    if (writes_to != me)
        return;
    if (!is_typed(op)) {
        for (uint32_t k = 0; k < c->count; k++)
            box[c->dst + k] = source_byte(source, c->src + k);
        return;
    }
    int size = (int)type_sizes[c->type];
    for (int k = 0; k < (int)c->count; k++)
        for (int b = 0; b < size; b++)
            box[c->dst + (uint32_t)(k * c->dst_stride * size + b)] =
                source_byte(source, c->src + (uint32_t)(k * c->src_stride * size + b));
}

struct buffers {
    char *box, *src;            /* symmetric */
    uint64_t *signals;          /* symmetric: [source PE][case] */
    struct rma_case *cases;     /* device */
    unsigned char *model, *got;
    size_t box_bytes;
};

static void check_box(const struct buffers *b, const char *what)
{
    size_t wrong = 0, first = 0;
    cudaMemcpy(b->got, b->box, b->box_bytes, cudaMemcpyDeviceToHost);
    for (size_t i = 0; i < b->box_bytes; i++)
        if (b->got[i] != b->model[i] && wrong++ == 0)
            first = i;
    CHECK(wrong == 0, "%s, PE %d: %zu wrong bytes, first at %zu of the part of PE %zu: %02x for %02x", what, tern_my_pe(),
          wrong, first % PART, first / PART, b->got[first], b->model[first]);
}

static void check_signals(const struct buffers *b, int op, const struct rma_case *all, const char *what)
{
    int me = tern_my_pe(), n = tern_n_pes();
    uint64_t *got = (uint64_t *)malloc((size_t)n * CASES * sizeof *got);
    cudaMemcpy(got, b->signals, (size_t)n * CASES * sizeof *got, cudaMemcpyDeviceToHost);
    for (int i = 0; i < n * CASES; i++) {
        uint64_t start = 1000 + (uint64_t)i, want = start;
        if ((op == OP_PUT_SIGNAL || op == OP_PUT_SIGNAL_NBI) && all[i].pe == me)
            want = all[i].signal_op == TERN_SIGNAL_ADD ? start + all[i].value : all[i].value;
        CHECK(got[i] == want, "%s, PE %d: signal of case %d: %llx for %llx", what, me, i, (unsigned long long)got[i],
              (unsigned long long)want);
    }
    free(got);
}

static void play_round(const struct buffers *b, tern_ctx_t ctx, uint64_t seed, int op, int scope, int staged, int round)
{
    int me = tern_my_pe(), n = tern_n_pes(), threads = (int[]){1, 32, 96, 200, 256}[round % 5], blocks = round % 3 + 1;
    struct rma_case *all = (struct rma_case *)malloc((size_t)n * CASES * sizeof *all);
    char what[160];
    snprintf(what, sizeof what, "%s, scope %s%s, %d x %d threads, round %d", op_names[op], scope_names[scope],
             staged ? ", staged" : "", blocks, threads, round);
    for (size_t i = 0; i < b->box_bytes; i++)
        b->model[i] = fresh_byte((uint64_t)round, me, (uint32_t)i);
    cudaMemcpy(b->box, b->model, b->box_bytes, cudaMemcpyHostToDevice);
    uint64_t *start = (uint64_t *)malloc((size_t)n * CASES * sizeof *start);
    for (int i = 0; i < n * CASES; i++)
        start[i] = 1000 + (uint64_t)i;
    cudaMemcpy(b->signals, start, (size_t)n * CASES * sizeof *start, cudaMemcpyHostToDevice);
    free(start);
    for (int pe = 0; pe < n; pe++)
        make_cases(seed, op, scope, pe, n, all + pe * CASES);
    for (int pe = 0; pe < n; pe++)
        for (int i = 0; i < CASES; i++)
            model_case(b->model, op, pe, me, &all[pe * CASES + i]);
    cudaMemcpy(b->cases, all + me * CASES, CASES * sizeof *all, cudaMemcpyHostToDevice);
    REQUIRE(tern_barrier_all() == TERN_OK, "%s: %s", what, tern_last_error());
    tern_status_t status = tern_launch(rma_kernel, blocks, threads, STAGE, NULL, ctx, op, scope, staged, b->cases, CASES,
                                       b->box, b->src, b->signals);
    REQUIRE(status == TERN_OK, "%s: %s", what, tern_last_error());
    cudaError_t error = cudaDeviceSynchronize();
    REQUIRE(error == cudaSuccess, "%s: %s", what, cudaGetErrorString(error));
    REQUIRE(tern_barrier_all() == TERN_OK, "%s: %s", what, tern_last_error());
    check_box(b, what);
    check_signals(b, op, all, what);
    free(all);
    REQUIRE(tern_barrier_all() == TERN_OK, "%s: %s", what, tern_last_error());
}

static void play_all(int check, int rounds)
{
    tern_ctx_t ctx;
    struct buffers b;

    device_test_init(&ctx, check);
    uint64_t rng = device_test_seed();
    b.box_bytes = (size_t)tern_n_pes() * PART;
    b.box = (char *)tern_malloc(b.box_bytes);
    b.src = (char *)tern_malloc(SPAN_MAX);
    b.signals = (uint64_t *)tern_malloc((size_t)tern_n_pes() * CASES * sizeof *b.signals);
    b.model = (unsigned char *)malloc(b.box_bytes);
    b.got = (unsigned char *)malloc(b.box_bytes);
    REQUIRE(b.box && b.src && b.signals && b.model && b.got, "%s", tern_last_error());
    REQUIRE(cudaMalloc(&b.cases, CASES * sizeof *b.cases) == cudaSuccess, "no memory");
    for (uint32_t i = 0; i < SPAN_MAX; i++)
        b.got[i] = source_byte(tern_my_pe(), i);
    cudaMemcpy(b.src, b.got, SPAN_MAX, cudaMemcpyHostToDevice);
    for (int round = 0; round < rounds; round++)
        for (int op = 0; op < OP_COUNT; op++)
            for (int scope = 0; scope < (op >= OP_P ? 1 : 3); scope++)
                for (int staged = 0; staged < (is_typed(op) ? 1 : 2); staged++)
                    play_round(&b, ctx, test_random(&rng), op, scope, staged, round + scope + staged + op);
    cudaFree(b.cases);
    free(b.model);
    free(b.got);
    device_test_done();
}

int main(int argc, char **argv)
{
    play_all(0, argc > 1 ? atoi(argv[1]) : 5);
    play_all(1, 1);
    return test_end("rma");
}
