/*
 * ring.cu - the producer's side of the rings, against a plain consumer: kernels of several blocks make all device calls
 * to PEs that do not exist, and a host thread takes the entries by the rules of ring.h, checks every field, answers in
 * random order, lets rings fill up and runs late. Needs no runtime: the context points to a state block and rings made
 * here.
 */
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <tern/device.h>

#include "common/check.h"

#define UNITS TERN_RING_LEAST
#define N_PES 5
#define ME 1
#define ROUNDS 4
#define OPS 8 /* of a thread in a round */
#define SEQS (ROUNDS * OPS)
#define ROW 64u /* bytes that an operation has for itself, here and at the target */
#define IDS_MAX 512
#define REMOTE (1ull << 24)  /* offset of the rows there; here they begin at 0 */
#define SIGNALS (1ull << 26) /* offset of their signals */
#define SPAN (1ull << 40)
#define SEGMENT 2 /* the registered buffer */
#define HELD_MS 3 /* how long answers are kept back, or a ring not served */
#define DEADLINE_S 100

/* Kinds of operations: X(name, entry, bytes, offset in the row, a REPLY behind it). */
#define KIND_TABLE(X)                                                                                                  \
    X(p64, p64, 8, 0, 0)                                                                                               \
    X(p32, p, 4, 4, 0)                                                                                                 \
    X(p16, p, 2, 2, 0)                                                                                                 \
    X(p8, p, 1, 3, 0) X(put_word, p, 4, 4, 0) X(put_s, put_s, 48, 0, 0) X(put_l, put_l, 33, 1, 0)                      \
        X(put_buffer, put_l, 40, 0, 0) X(put_s_signal, put_s_sig, 32, 0, 0) X(put_l_signal, put_l_sig, 31, 3, 0)       \
            X(put_wait, put_s, 64, 0, 1) X(put_signal_wait, put_l_sig, 47, 5, 1) X(get_wait, get_s, 48, 0, 1)          \
                X(get_nbi, get_l, 33, 2, 0) X(signal_set, sig_set, 8, 0, 0) X(signal_add, sig_add, 8, 0, 0)            \
                    X(g64, g, 8, 0, 0) X(g16, g, 2, 2, 0) X(xor64, amo, 8, 0, 0) X(fetch_add32, amo, 4, 4, 0)          \
                        X(cas64, amo, 8, 0, 0) X(hole, p64, 8, 0, 0)
enum {
#define KIND_ENUM(name, entry, bytes, at, reply) KIND_##name,
    KIND_TABLE(KIND_ENUM)
#undef KIND_ENUM
        KIND_COUNT,
    KIND_ANY = KIND_COUNT
};

/* What operation `seq` of thread `id` is: both sides know it from its number. */
struct plan {
    int kind, pe;
    uint64_t value;
};

TERN_DEV_HOST uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

TERN_DEV_HOST struct plan plan_of(uint32_t seed, unsigned id, unsigned seq, int only)
{
    uint64_t h = mix((uint64_t)seed << 32 ^ (uint64_t)id * SEQS ^ (uint64_t)seq << 20);
    struct plan plan = {only == KIND_ANY ? (int)(h % KIND_COUNT) : only,
                        (ME + 1 + (int)(h >> 8 & 0xff) % (N_PES - 1)) % N_PES, mix(h)};
    return plan;
}

TERN_DEV_HOST uint64_t row_of(unsigned id, unsigned seq)
{
    return ((uint64_t)id * SEQS + seq) * ROW;
}

/* ---- kernels
 * ----------------------------------------------------------------------------------------------------------- */

struct game {
    char *buffer;   /* registered; as large as the rows */
    uint64_t *grid; /* counts arrivals */
    uint32_t *bad;  /* wrong results seen by threads */
    uint32_t seed;
    int only;
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
    if (ticket >= UNITS && !tern_ring_wait(v, ring, ticket + 1 - UNITS))
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

/* In each round all threads push, all meet, and one of them fences or completes what all have pushed. */
__global__ void __launch_bounds__(128) play(tern_ctx_t ctx, struct game g)
{
    unsigned id = blockIdx.x * blockDim.x + threadIdx.x;
    uint32_t bad = 0;
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < OPS; i++)
            bad += play_op(ctx, g, id, round * OPS + i, plan_of(g.seed, id, round * OPS + i, g.only));
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

/* ---- the consumer
 * ------------------------------------------------------------------------------------------------------ */

/* Whoever has asked, and is not answered yet. */
struct asked {
    unsigned slot;
    uint64_t ticket, value, row;
    int kind; /* get_wait: the row is filled first */
};

struct ring_seen {
    struct tern_ring_host *host;
    uint64_t next;
    uint64_t copy_end; /* ticket behind the last entry, if that was a copy which a REPLY may follow */
    struct plan copy;
    uint64_t copy_row;
    struct asked asked[TERN_RING_REPLIES];
    int open, open_most;
    uint64_t busy; /* slots that wait for an answer */
    int fences;    /* FENCE and QUIET entries so far */
    double held_until;
    bool copied; /* a REPLY must come */
};

struct consumer {
    struct ring_seen rings[16];
    int channels, threads, blocks, block_threads, only;
    uint32_t seed;
    char *heap, *buffer;
    struct tern_state_host *state;
    uint8_t seen[IDS_MAX][SEQS];
    int last[IDS_MAX][4];                     /* operation of a thread taken last, for each thread of the proxy */
    int channel[IDS_MAX];                     /* of a block; -1: not known */
    int taken[4][ROUNDS], planned[4][ROUNDS]; /* operations by proxy thread and round */
    int rounds_done[4];
    int wraps, torn, full, entries;
    uint64_t random;
    bool stop; /* atomic */
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static uint64_t word_at(const struct ring_seen *r, uint64_t ticket, int word)
{
    const uint64_t *units = (const uint64_t *)(r->host + 1);
    return __atomic_load_n(&units[2 * (ticket % UNITS) + (unsigned)word], __ATOMIC_ACQUIRE);
}

/* A word has arrived when its parity is that of its ticket's lap. */
static bool word_take(const struct ring_seen *r, uint64_t ticket, int word, uint64_t *value)
{
    uint64_t v = word_at(r, ticket, word);
    *value = v & ~TERN_UNIT_PARITY;
    return (v >> 63) == (ticket / UNITS % 2 == 0);
}

static void check_row(struct consumer *c, const struct plan *plan, const char *row, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 4) {
        uint32_t v, expect[4] = {(uint32_t)plan->value + (uint32_t)(i / 16), (uint32_t)(plan->value >> 32),
                                 (uint32_t)(i / 16), ~(uint32_t)(i / 16)};
        if (i + 4 > bytes)
            break;
        memcpy(&v, row + i, 4);
        CHECK(v == expect[i / 4 % 4], "source of operation at row %lld, byte %zu: %x, not %x",
              (long long)(row - c->heap), i, v, expect[i / 4 % 4]);
    }
}

static void ask(struct consumer *c, int ring, unsigned slot, uint64_t ticket, int kind, uint64_t value, uint64_t row)
{
    struct ring_seen *r = &c->rings[ring];
    CHECK(!(r->busy >> slot & 1), "ring %d: slot %u has two owners", ring, slot);
    r->busy |= 1ull << slot;
    r->asked[r->open++] = (struct asked){slot, ticket, value, row, kind};
    if (r->open > r->open_most)
        r->open_most = r->open;
}

static void answer(struct consumer *c, struct ring_seen *r, int i)
{
    struct asked a = r->asked[i];
    struct tern_reply *reply = &r->host->replies[a.slot];
    r->asked[i] = r->asked[--r->open];
    r->busy &= ~(1ull << a.slot);
    if (a.kind == KIND_get_wait) {
        for (uint32_t n = 0; n < 3; n++) {
            uint32_t v[4] = {(uint32_t)a.value + n, 0, 0, 0};
            memcpy(c->heap + a.row + 16 * n, v, sizeof v);
        }
    }
    __atomic_store_n(&reply->value, a.value, __ATOMIC_RELAXED);
    __atomic_store_n(&reply->word, TERN_REPLY_WORD(TERN_OK, a.ticket), __ATOMIC_RELEASE);
}

/* Fields of an entry, decoded by the table of ring.h. */
struct fields {
    unsigned op, units, pe, flags, log2, slot, segment, amo, wide, fetch, add;
    uint64_t remote, local, bytes, value, compare, signal;
};

static struct fields decode(const tern_unit_t *u)
{
    struct fields f = {};
    uint64_t w0 = u[0].w[0], w1 = u[0].w[1], a = w0 & ((1ull << 36) - 1);
    const tern_unit_t *s;
    f.op = (unsigned)(w0 >> 58) & 31;
    f.units = ((unsigned)(w0 >> 56) & 3) + 1;
    f.flags = (unsigned)(w0 >> 52) & 15;
    f.pe = (unsigned)(w0 >> 36) & 0xffff;
    switch (f.op) {
    case TERN_ENTRY_put_s:
    case TERN_ENTRY_get_s:
    case TERN_ENTRY_put_s_sig:
        f.remote = a << 4, f.bytes = w1 >> 36, f.local = (w1 & ((1ull << 36) - 1)) << 4;
        break;
    case TERN_ENTRY_put_l:
    case TERN_ENTRY_get_l:
    case TERN_ENTRY_put_l_sig:
        f.remote = w1 & ((1ull << 48) - 1), f.bytes = a;
        f.segment = (unsigned)(u[1].w[0] >> 48), f.local = u[1].w[0] & ((1ull << 48) - 1);
        break;
    case TERN_ENTRY_p64:
    case TERN_ENTRY_sig_set:
    case TERN_ENTRY_sig_add:
        f.remote = ((uint64_t)(f.flags & 3) << 36 | a) << 3, f.bytes = 8, f.value = w1 | (uint64_t)(f.flags >> 3) << 63;
        break;
    case TERN_ENTRY_p:
    case TERN_ENTRY_g:
        f.remote = (w1 >> 32 & 0xfff) << 36 | a, f.bytes = 1ull << (w1 >> 44 & 3);
        f.value = (uint32_t)w1, f.slot = (unsigned)(w1 >> 57) & 63;
        break;
    case TERN_ENTRY_amo:
        f.remote = (u[1].w[0] >> 41 & 0xfff) << 36 | a, f.bytes = u[1].w[0] >> 60 & 1 ? 8 : 4;
        f.amo = (unsigned)(u[1].w[0] >> 54) & 63, f.fetch = (unsigned)(u[1].w[0] >> 53) & 1;
        f.slot = (unsigned)(u[1].w[0] >> 35) & 63;
        f.value = w1 | (u[1].w[0] >> 62 & 1) << 63, f.compare = u[1].w[1] | (u[1].w[0] >> 61 & 1) << 63;
        break;
    default:
        f.slot = (unsigned)a & 63;
    }
    if (f.op == TERN_ENTRY_put_s_sig || f.op == TERN_ENTRY_put_l_sig) {
        s = &u[f.units - 1];
        f.signal = (s->w[0] & ((1ull << 45) - 1)) << 3, f.add = (unsigned)(s->w[0] >> 61) & 1;
        f.value = s->w[1] | (s->w[0] >> 62 & 1) << 63;
    }
    return f;
}

static const struct kind {
    const char *name;
    unsigned entry, bytes, at;
    int reply;
} kinds[] = {
#define KIND_ROW(name, entry, bytes, at, reply) {#name, TERN_ENTRY_##entry, bytes, at, reply},
    KIND_TABLE(KIND_ROW)
#undef KIND_ROW
};

/* Value that the entry carries. */
static uint64_t value_of(const struct plan *plan, const struct kind *kind)
{
    unsigned size = kind->entry == TERN_ENTRY_p ? kind->bytes : 8;
    switch (kind->entry) {
    case TERN_ENTRY_put_s:
    case TERN_ENTRY_put_l:
    case TERN_ENTRY_get_s:
    case TERN_ENTRY_get_l:
    case TERN_ENTRY_g:
        return 0;
    case TERN_ENTRY_amo:
        size = kind->bytes;
    }
    return size == 8 ? plan->value : plan->value & ((1ull << 8 * size) - 1);
}

static void check_fields(struct consumer *c, const struct fields *f, const struct plan *plan, uint64_t row)
{
    const struct kind *k = &kinds[plan->kind];
    bool copy = f->op >= TERN_ENTRY_put_s && f->op <= TERN_ENTRY_put_l_sig;
    unsigned segment = plan->kind == KIND_put_buffer ? SEGMENT : 0;
    CHECK(f->op == k->entry && (int)f->pe == plan->pe && f->bytes == k->bytes && f->remote == REMOTE + row + k->at,
          "%s: entry %u of %llu bytes to PE %u, remote %llx", k->name, f->op, (unsigned long long)f->bytes, f->pe,
          (unsigned long long)f->remote);
    CHECK(f->value == value_of(plan, k), "%s: value %llx, not %llx", k->name, (unsigned long long)f->value,
          (unsigned long long)value_of(plan, k));
    if (copy)
        CHECK(f->segment == segment && f->local == row, "%s: local side %u:%llx", k->name, f->segment,
              (unsigned long long)f->local);
    if (f->op == TERN_ENTRY_put_s_sig || f->op == TERN_ENTRY_put_l_sig)
        CHECK(f->signal == SIGNALS + row && f->add == (plan->kind == KIND_put_l_signal), "%s: signal %llx", k->name,
              (unsigned long long)f->signal);
    if (f->op == TERN_ENTRY_amo) {
        unsigned amo = plan->kind == KIND_xor64 ? TERN_AMO_xor : plan->kind == KIND_cas64 ? TERN_AMO_cas : TERN_AMO_add;
        CHECK(f->amo == amo && f->fetch == (plan->kind != KIND_xor64), "%s: operator %u, fetch %u", k->name, f->amo,
              f->fetch);
        CHECK(f->compare == (plan->kind == KIND_cas64 ? ~plan->value ^ 1 : 0), "%s: compare value", k->name);
    }
    if (copy && f->op != TERN_ENTRY_get_s && f->op != TERN_ENTRY_get_l)
        check_row(c, plan, (segment ? c->buffer : c->heap) + row, f->bytes);
}

/* An operation of thread `id`: once, in the order of its program, in the right ring. */
static void take_op(struct consumer *c, int ring, const struct fields *f, uint64_t ticket)
{
    struct ring_seen *r = &c->rings[ring];
    uint64_t row = (f->remote - REMOTE) / ROW * ROW, number = row / ROW;
    unsigned id = (unsigned)(number / SEQS), seq = (unsigned)(number % SEQS);
    int thread = ring / c->channels;
    REQUIRE(f->remote >= REMOTE && id < (unsigned)(c->blocks * c->block_threads), "entry %u to %llx", f->op,
            (unsigned long long)f->remote);
    struct plan plan = plan_of(c->seed, id, seq, c->only);
    unsigned block = id / (unsigned)c->block_threads;
    int *channel = &c->channel[block];
    CHECK(!c->seen[id][seq]++, "operation %u of thread %u came twice", seq, id);
    CHECK(c->last[id][thread] < (int)seq, "operation %u of thread %u behind %d", seq, id, c->last[id][thread]);
    if (*channel < 0)
        *channel = ring % c->channels;
    CHECK(thread == plan.pe % c->threads && ring % c->channels == *channel, "operation of block %u to PE %d in ring %d",
          block, plan.pe, ring);
    c->last[id][thread] = (int)seq;
    c->taken[thread][seq / OPS]++;
    check_fields(c, f, &plan, row);
    r->copied = kinds[plan.kind].reply;
    r->copy = plan, r->copy_row = row, r->copy_end = ticket + f->units;
    if (f->op == TERN_ENTRY_g || (f->op == TERN_ENTRY_amo && f->fetch))
        ask(c, ring, f->slot, ticket, plan.kind,
            f->bytes == 8 ? ~plan.value : ~plan.value & ((1ull << 8 * f->bytes) - 1), row);
}

/* All that was pushed by all blocks before the fence or quiet, and the meeting before it, has been taken. */
static void take_fence(struct consumer *c, int ring, const struct fields *f, uint64_t ticket)
{
    int thread = ring / c->channels, round = c->rounds_done[thread]++;
    REQUIRE(round < ROUNDS, "ring %d: too many fences", ring);
    CHECK(f->op == (round & 1 ? TERN_ENTRY_quiet : TERN_ENTRY_fence), "round %d ends with entry %u", round, f->op);
    CHECK(c->taken[thread][round] == c->planned[thread][round], "fence of round %d, proxy thread %d: %d of %d taken",
          round, thread, c->taken[thread][round], c->planned[thread][round]);
    if (f->op == TERN_ENTRY_quiet) {
        CHECK(f->pe == TERN_PE_ALL && f->slot < TERN_RING_REPLIES_ANY, "quiet of PE %u, slot %u", f->pe, f->slot);
        ask(c, ring, f->slot, ticket, KIND_ANY, 0, 0);
    }
}

/* One entry, if all words of it are there. */
static bool take(struct consumer *c, int ring)
{
    struct ring_seen *r = &c->rings[ring];
    tern_unit_t u[TERN_ENTRY_MOST];
    uint64_t ticket = r->next;
    if (!word_take(r, ticket, 0, &u[0].w[0]))
        return false;
    unsigned units = ((unsigned)(u[0].w[0] >> 56) & 3) + 1;
    for (unsigned i = 0; i < units; i++) {
        if (!word_take(r, ticket + i, 0, &u[i].w[0]) || !word_take(r, ticket + i, 1, &u[i].w[1])) {
            c->torn++;
            return false;
        }
    }
    struct fields f = decode(u);
    c->wraps += units > 1 && ticket % UNITS + units > UNITS;
    c->entries++;
    r->next += units;
    if (f.op == TERN_ENTRY_reply) {
        CHECK(r->copied && r->copy_end == ticket && (int)f.pe == r->copy.pe && f.slot < TERN_RING_REPLIES_ANY,
              "ring %d: a REPLY that follows nothing, slot %u", ring, f.slot);
        ask(c, ring, f.slot, ticket, r->copy.kind, ~r->copy.value, r->copy_row);
        r->copied = false;
        return true;
    }
    CHECK(!r->copied, "ring %d: the REPLY of a blocking call is missing", ring);
    if (f.op == TERN_ENTRY_fence || f.op == TERN_ENTRY_quiet)
        take_fence(c, ring, &f, ticket);
    else
        take_op(c, ring, &f, ticket);
    return true;
}

static bool ring_full(const struct ring_seen *r)
{
    uint64_t ignored;
    for (uint64_t i = 0; i < UNITS; i++)
        if (!word_take(r, r->next + i, 0, &ignored) || !word_take(r, r->next + i, 1, &ignored))
            return false;
    return true;
}

/* Serve a ring: not at all for some time, or some entries; answers are kept until all slots are asked for, or for some
 * time. */
static void serve(struct consumer *c, int ring)
{
    struct ring_seen *r = &c->rings[ring];
    int burst = (int)(test_random(&c->random) % 40);
    bool took = false;
    if (r->held_until > now() && !ring_full(r) && r->open < (int)TERN_RING_REPLIES_ANY)
        return;
    c->full += ring_full(r);
    r->held_until = test_random(&c->random) % 64 ? 0 : now() + HELD_MS * 1e-3;
    while (burst-- > 0 && take(c, ring))
        took = true;
    if (took)
        __atomic_store_n(&r->host->taken, r->next, __ATOMIC_RELEASE);
    if (c->only == KIND_ANY || r->open == (int)(kinds[c->only].reply ? TERN_RING_REPLIES_ANY : TERN_RING_REPLIES) ||
        test_random(&c->random) % 2000 == 0)
        for (int i = r->open - 1; i >= 0; i--)
            if (c->only != KIND_ANY || test_random(&c->random) % 4 == 0)
                answer(c, r, i);
}

static void *consume(void *arg)
{
    struct consumer *c = (struct consumer *)arg;
    while (!__atomic_load_n(&c->stop, __ATOMIC_ACQUIRE)) {
        int before = c->entries;
        for (int ring = 0; ring < c->threads * c->channels; ring++)
            serve(c, ring);
        if (c->entries == before)
            sched_yield();
    }
    return NULL;
}

/* ---- games
 * ------------------------------------------------------------------------------------------------------------- */

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
    struct tern_ring_dev fresh = {0, 0, ~0ull, {0}};
    struct tern_buffer_dev buffers[SEGMENT] = {};
    struct tern_state_dev state = {};
    memset(t, 0, sizeof *t);
    t->n_rings = channels * threads;
    REQUIRE_CUDA(cudaMallocHost(&t->state, sizeof *t->state));
    memset(t->state, 0, sizeof *t->state);
    REQUIRE_CUDA(cudaMallocHost(&t->rings_host, t->n_rings * TERN_RING_HOST_BYTES(UNITS)));
    memset(t->rings_host, 0, t->n_rings * TERN_RING_HOST_BYTES(UNITS));
    for (int i = 0; i < t->n_rings; i++)
        for (unsigned slot = 0; slot < TERN_RING_REPLIES; slot++)
            table_ring(t, i)->replies[slot].word = TERN_REPLY_NONE;
    REQUIRE_CUDA(cudaMalloc(&t->rings, t->n_rings * sizeof *t->rings));
    for (int i = 0; i < t->n_rings; i++)
        REQUIRE_CUDA(cudaMemcpy(t->rings + i, &fresh, sizeof fresh, cudaMemcpyHostToDevice));
    REQUIRE_CUDA(cudaMallocHost(&t->ctx.heap, row_of(IDS_MAX, 0))); /* the consumer reads and writes it */
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
    t->ctx.stride = SPAN;
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
        CHECK(ring.head == c->rings[i].next && ring.taken <= ring.head, "ring %d: %llu drawn, %llu taken", i,
              (unsigned long long)ring.head, (unsigned long long)c->rings[i].next);
        CHECK(ring.slots == ~0ull, "ring %d: free slots %llx", i, (unsigned long long)ring.slots);
        CHECK(!c->rings[i].open, "ring %d: %d unanswered", i, c->rings[i].open);
    }
    CHECK(table_bad(t) == 0, "%u wrong results in kernels", table_bad(t));
}

static void game(const char *name, int blocks, int block_threads, int channels, int threads, uint32_t seed, int only)
{
    struct consumer *c = (struct consumer *)calloc(1, sizeof *c);
    struct table t;
    pthread_t thread;
    double begin = now();
    int most = 0;
    table_open(&t, channels, threads, seed, only);
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
    game("one ring", 4, 64, 1, 1, seed, KIND_ANY);
    game("four channels, three threads", 6, 32, 4, 3, seed + 1, KIND_ANY);
    game("two channels of three blocks each", 6, 64, 2, 1, seed + 2, KIND_ANY);
    game("all slots, g", 2, 64, 1, 1, seed + 3, KIND_g64);
    game("all slots, put", 2, 64, 1, 1, seed + 4, KIND_put_wait);
    game_stuck(seed + 5);
    return test_end("ring");
}
