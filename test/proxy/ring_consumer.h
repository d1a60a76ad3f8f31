/* ring_consumer.h - the plain consumer of ring.cu: takes entries by the rules of ring.h and checks them against the
 * plan. */
#ifndef TEST_PROXY_RING_CONSUMER_H
#define TEST_PROXY_RING_CONSUMER_H

#include <sched.h>

#include "common/check.h"
#include "proxy/ring_plan.h"

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
    int fences;    /* by_block: of the ring's only block */
    int gets;      /* the same, of its iget so far */
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
    bool by_block; /* rounds end block by block, each in a ring of its own */
    bool stop;     /* atomic */
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
    CHECK(f->op == k->entry && (int)f->pe == plan->pe && f->bytes == k->bytes &&
              f->remote == (plan->pe == ME ? 0 : REMOTE) + row + k->at,
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
    if (plan->kind == KIND_near_add) {
        uint64_t word = __atomic_load_n((uint64_t *)(c->heap + row), __ATOMIC_ACQUIRE);
        CHECK(word == plan->value, "near_add: the store before it has not arrived: %llx", (unsigned long long)word);
    }
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
    uint64_t remote = (int)f->pe == ME ? f->remote + REMOTE : f->remote;
    uint64_t row = (remote - REMOTE) / ROW * ROW, number = row / ROW;
    unsigned id = (unsigned)(number / SEQS), seq = (unsigned)(number % SEQS);
    int thread = ring / c->channels;
    REQUIRE(remote >= REMOTE && id < (unsigned)(c->blocks * c->block_threads), "entry %u to %llx", f->op,
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
    CHECK(!c->by_block || (int)seq / OPS == r->fences, "operation %u of thread %u behind %d fences", seq, id,
          r->fences);
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
    int thread = ring / c->channels;
    if (c->by_block) {
        CHECK(f->op == TERN_ENTRY_fence, "a block's round ends with entry %u", f->op);
        c->rings[ring].fences++;
        return;
    }
    int round = c->rounds_done[thread]++;
    REQUIRE(round < ROUNDS, "ring %d: too many fences", ring);
    CHECK(f->op == (round & 1 ? TERN_ENTRY_quiet : TERN_ENTRY_fence), "round %d ends with entry %u", round, f->op);
    CHECK(c->taken[thread][round] == c->planned[thread][round], "fence of round %d, proxy thread %d: %d of %d taken",
          round, thread, c->taken[thread][round], c->planned[thread][round]);
    if (f->op == TERN_ENTRY_quiet) {
        CHECK(f->pe == TERN_PE_ALL && f->slot < TERN_RING_REPLIES_ANY, "quiet of PE %u, slot %u", f->pe, f->slot);
        ask(c, ring, f->slot, ticket, KIND_ANY, 0, 0);
    }
}

/* A block's iget: what its threads get, then the quiet of its leader. */
static void take_iget(struct consumer *c, int ring, const struct fields *f, uint64_t ticket)
{
    struct ring_seen *r = &c->rings[ring];
    if (f->op == TERN_ENTRY_quiet) {
        CHECK(r->gets == c->block_threads, "ring %d: the quiet of an iget is behind %d of its gets", ring, r->gets);
        r->gets = 0;
        ask(c, ring, f->slot, ticket, KIND_ANY, 0, 0);
        return;
    }
    CHECK((f->op == TERN_ENTRY_get_l || f->op == TERN_ENTRY_get_s) && f->bytes == 8 && !f->segment &&
              f->local - IDS_MAX * SEQS * ROW == f->remote - GETS,
          "iget: entry %u of %llu bytes", f->op, (unsigned long long)f->bytes);
    r->gets++;
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
    if (f.remote >= GETS || (f.op == TERN_ENTRY_quiet && f.pe != TERN_PE_ALL))
        take_iget(c, ring, &f, ticket);
    else if (f.op == TERN_ENTRY_fence || f.op == TERN_ENTRY_quiet)
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
    int all_slots = c->only == KIND_g64        ? (int)TERN_RING_REPLIES
                    : c->only == KIND_put_wait ? (int)TERN_RING_REPLIES_ANY
                                               : 0;
    bool took = false;
    if (r->held_until > now() && !ring_full(r) && r->open < (int)TERN_RING_REPLIES_ANY)
        return;
    c->full += ring_full(r);
    r->held_until = all_slots || test_random(&c->random) % 16 ? 0 : now() + HELD_MS * 1e-3;
    while (burst-- > 0 && take(c, ring))
        took = true;
    if (took)
        __atomic_store_n(&r->host->taken, r->next, __ATOMIC_RELEASE);
    if (!all_slots || r->open == all_slots || test_random(&c->random) % 500 == 0)
        for (int i = r->open - 1; i >= 0; i--)
            if (!all_slots || test_random(&c->random) % 4 == 0)
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

#endif
