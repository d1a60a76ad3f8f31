/*
 * intake.c - from rings to operations. A unit validates itself: both its words carry the lap's parity. An entry is
 * consumed when all its words are there and its destination has room; else the ring waits, others go on.
 */
#include "proxy/engine.h"

static bool unit_load(const struct tern_ring_in *ring, uint64_t ticket, uint32_t units, tern_unit_t *u)
{
    const tern_unit_t *at = &ring->units[ticket & (units - 1)];
    uint64_t lap = TERN_UNIT_LAP(ticket, units);

    for (int i = 0; i < 2; i++) {
        u->w[i] = __atomic_load_n(&at->w[i], __ATOMIC_ACQUIRE);
        if ((u->w[i] & TERN_UNIT_PARITY) != lap)
            return false;
        u->w[i] &= TERN_UNIT_LOW63;
    }
    return true;
}

void tern_reply_store(struct tern_proxy_thread *t, int channel, unsigned slot, uint64_t ticket, uint64_t value,
                      tern_status_t status)
{
    struct tern_reply *reply = &t->rings[channel].host->replies[slot];
    __atomic_store_n(&reply->value, value, __ATOMIC_RELAXED);
    __atomic_store_n(&reply->word, TERN_REPLY_WORD(status, ticket), __ATOMIC_RELEASE);
}

/* ---- fields of entries
 * ------------------------------------------------------------------------------------------------- */

static unsigned entry_op(const tern_unit_t *u)
{
    return (unsigned)(u->w[0] >> 58) & 31;
}

static unsigned entry_pe(const tern_unit_t *u)
{
    return (unsigned)(u->w[0] >> 36) & 0xffffu;
}

static uint64_t entry_a(const tern_unit_t *u)
{
    return u->w[0] & TERN_A_MASK;
}

/* Offset of P and G: A and 12 bits more. */
static uint64_t entry_offset(const tern_unit_t *u)
{
    return (u->w[1] >> 32 & 0xfff) << TERN_A_BITS | entry_a(u);
}

static uint64_t entry_top(uint64_t word, int bit)
{
    return (word >> bit & 1) << 63;
}

/* ---- one entry
 * ----------------------------------------------------------------------------------------------------------- */

/* What is being taken. */
struct entry {
    struct tern_proxy_thread *t;
    struct tern_ring_in *ring;
    int channel;
    uint64_t ticket;
    tern_unit_t u[TERN_ENTRY_MOST];
};

/* The entry is wrong: the program used an address or a PE that does not exist. */
static void entry_refuse(const struct entry *e, const char *what)
{
    tern_control_abort(
        e->t->px->rt, TERN_ERR_INVALID, e->t->px->rt->pe,
        "an operation of PE %d to PE %u %s (entry %u, proxy thread %d, ring %d); TERN_CHECK=1 tells which call it was",
        e->t->px->rt->pe, entry_pe(e->u), what, entry_op(e->u), e->t->index, e->channel);
}

static bool in_range(uint64_t offset, uint64_t bytes, uint64_t limit)
{
    return offset <= limit && bytes <= limit - offset;
}

/* Offsets are within the spans and the local side is registered memory. */
static bool op_valid(const struct entry *e, const struct tern_op *op)
{
    const struct tern_proxy *px = e->t->px;
    uint64_t stride = px->rt->stride;
    bool local = op->kind == TERN_OP_PUT || op->kind == TERN_OP_GET || op->kind == TERN_OP_PUT_SIGNAL;

    if (!in_range(op->remote, op->bytes, stride) || !in_range(op->signal, 8, stride))
        return false;
    if (!local || op->segment == 0)
        return !local || in_range(op->local, op->bytes, stride);
    return op->segment <= TERN_MAX_BUFFERS &&
           in_range(op->local, op->bytes, __atomic_load_n(&px->buffers[op->segment - 1].bytes, __ATOMIC_RELAXED));
}

/* A new operation to the entry's destination; what is not named in it is zero. NULL: refused. */
static struct tern_op *op_add(const struct entry *e, struct tern_dest *dest, const struct tern_op *fields)
{
    if (!op_valid(e, fields)) {
        entry_refuse(e, "goes beyond the symmetric heap or a registered buffer");
        return NULL;
    }
    struct tern_op *op = tern_op_new(e->t, dest, e->channel);
    op->kind = fields->kind;
    op->remote = fields->remote;
    op->local = fields->local;
    op->segment = fields->segment;
    op->bytes = fields->bytes;
    op->value = fields->value;
    op->compare = fields->compare;
    op->signal = fields->signal;
    op->amo = fields->amo;
    op->fetch = fields->fetch;
    op->answer = fields->answer;
    op->slot = fields->slot;
    op->ticket = e->ticket;
    op->rpc = op->kind == TERN_OP_AMO && !(e->t->px->caps & TERN_NET_AMO);
    e->ring->last = op;
    e->ring->last_number = op->number;
    e->ring->last_status = TERN_OK;
    return op;
}

/* Put or get, perhaps with a signal. */
static bool take_copy(struct entry *e, struct tern_dest *dest)
{
    const tern_unit_t *u = e->u;
    unsigned op = entry_op(u);
    bool small = op == TERN_ENTRY_put_s || op == TERN_ENTRY_get_s || op == TERN_ENTRY_put_s_sig;
    bool get = op == TERN_ENTRY_get_s || op == TERN_ENTRY_get_l,
         signal = op == TERN_ENTRY_put_s_sig || op == TERN_ENTRY_put_l_sig;
    struct tern_op f = {.kind = get ? TERN_OP_GET : TERN_OP_PUT};

    if (small) {
        f.remote = entry_a(u) << 4;
        f.bytes = u->w[1] >> 36;
        f.local = (u->w[1] & TERN_A_MASK) << 4;
    } else {
        f.bytes = entry_a(u);
        f.remote = u->w[1] & (TERN_LONG_OFFSET - 1);
        f.segment = (uint16_t)(u[1].w[0] >> 48);
        f.local = u[1].w[0] & (TERN_LONG_OFFSET - 1);
    }
    if (signal) {
        const tern_unit_t *s = &u[small ? 1 : 2];
        uint64_t value = s->w[1] | entry_top(s->w[0], 62), offset = (s->w[0] & ((1ull << 45) - 1)) << 3;
        if (s->w[0] >> 61 & 1) { /* an RPC waits for what is before it: for its data */
            struct tern_op add = {
                .kind = TERN_OP_AMO, .amo = TERN_AMO_add, .remote = offset, .bytes = 8, .value = value};
            if (!tern_dest_room(e->t, dest, 2))
                return false;
            if (op_add(e, dest, &f))
                op_add(e, dest, &add);
            return true;
        }
        f.kind = TERN_OP_PUT_SIGNAL;
        f.signal = offset;
        f.value = value;
    }
    if (!tern_dest_room(e->t, dest, 1))
        return false;
    op_add(e, dest, &f);
    return true;
}

static bool take_word(struct entry *e, struct tern_dest *dest)
{
    const tern_unit_t *u = e->u;
    unsigned op = entry_op(u), flags = (unsigned)(u->w[0] >> 52) & 15;
    struct tern_op f = {.kind = TERN_OP_WORD, .bytes = 8};

    if (op == TERN_ENTRY_p) {
        f.remote = entry_offset(u);
        f.bytes = 1u << (u->w[1] >> 44 & 3);
        f.value = (uint32_t)u->w[1];
    } else {
        f.remote = ((uint64_t)(flags & 3) << TERN_A_BITS | entry_a(u)) << 3;
        f.value = u->w[1] | entry_top(flags, 3);
    }
    if (op == TERN_ENTRY_sig_add) {
        f.kind = TERN_OP_AMO;
        f.amo = TERN_AMO_add;
    }
    if (!tern_dest_room(e->t, dest, 1))
        return false;
    op_add(e, dest, &f);
    return true;
}

static bool take_answered(struct entry *e, struct tern_dest *dest)
{
    const tern_unit_t *u = e->u;
    struct tern_op f = {.kind = TERN_OP_G, .answer = true};

    if (entry_op(u) == TERN_ENTRY_g) {
        f.remote = entry_offset(u);
        f.bytes = 1u << (u->w[1] >> 44 & 3);
        f.slot = (uint8_t)(u->w[1] >> 57) & 63;
    } else {
        uint64_t more = u[1].w[0];
        f.kind = TERN_OP_AMO;
        f.remote = (more >> 41 & 0xfff) << TERN_A_BITS | entry_a(u);
        f.bytes = more >> 60 & 1 ? 8 : 4;
        f.value = u[0].w[1] | entry_top(more, 62);
        f.compare = u[1].w[1] | entry_top(more, 61);
        f.amo = (uint8_t)(more >> 54) & 63;
        f.fetch = f.answer = more >> 53 & 1;
        f.slot = (uint8_t)(more >> 35) & 63;
    }
    if (!tern_dest_room(e->t, dest, 1))
        return false;
    op_add(e, dest, &f);
    return true;
}

/* Answer the operation just before, on consecutive tickets: at once where it has come so far. */
static void take_reply(struct entry *e)
{
    struct tern_ring_in *ring = e->ring;
    struct tern_op *op = ring->last;
    unsigned slot = (unsigned)entry_a(e->u) & 63;

    if (!op || op->number != ring->last_number || op->state == TERN_OP_FREE) {
        tern_reply_store(e->t, e->channel, slot, e->ticket, 0, ring->last_status);
    } else if (op->state == TERN_OP_SENT) {
        tern_reply_store(e->t, e->channel, slot, e->ticket, 0, TERN_OK);
    } else {
        op->answer = true;
        op->slot = (uint8_t)slot;
        op->ticket = e->ticket;
    }
}

/* False: no room. */
static bool entry_take(struct entry *e)
{
    struct tern_proxy_thread *t = e->t;
    unsigned op = entry_op(e->u), pe = entry_pe(e->u), slot = (unsigned)entry_a(e->u) & 63;
    struct tern_quiet *quiet = &e->ring->quiets[slot];
    struct tern_dest *dest = NULL;

    if (op == TERN_ENTRY_nop) {
        tern_reply_store(t, e->channel, slot, e->ticket, 0, TERN_OK);
        return true;
    }
    if (op == TERN_ENTRY_fence) {
        e->ring->fence = t->number;
        return true;
    }
    if (op == TERN_ENTRY_reply) {
        take_reply(e);
        return true;
    }
    if (op != TERN_ENTRY_quiet || pe != TERN_PE_ALL) {
        dest = tern_dest_of(t, (int)pe);
        if (!dest || op >= TERN_ENTRY_COUNT || op == TERN_ENTRY_none) {
            entry_refuse(e, "names a PE that is not of this job, or is no operation");
            return true;
        }
    }
    switch (op) {
    case TERN_ENTRY_quiet:
        *quiet = (struct tern_quiet){.dest = dest,
                                     .number = t->number,
                                     .ticket = e->ticket,
                                     .ring = (uint16_t)e->channel,
                                     .slot = (uint8_t)slot};
        tern_quiet_begin(t, quiet);
        return true;
    case TERN_ENTRY_p64:
    case TERN_ENTRY_p:
    case TERN_ENTRY_sig_set:
    case TERN_ENTRY_sig_add:
        return take_word(e, dest);
    case TERN_ENTRY_g:
    case TERN_ENTRY_amo:
        return take_answered(e, dest);
    default:
        return take_copy(e, dest);
    }
}

/* All units of the next entry. 0: not there yet. */
static unsigned entry_load(const struct tern_ring_in *ring, uint32_t units, tern_unit_t *u)
{
    if (!unit_load(ring, ring->next, units, &u[0]))
        return 0;
    unsigned count = ((unsigned)(u[0].w[0] >> 56) & 3) + 1;
    for (unsigned i = 1; i < count; i++) {
        if (!unit_load(ring, ring->next + i, units, &u[i]))
            return 0;
    }
    return count;
}

int tern_intake_ring(struct tern_proxy_thread *t, int channel, int most)
{
    struct tern_ring_in *ring = &t->rings[channel];
    struct entry e = {.t = t, .ring = ring, .channel = channel};
    int taken = 0;
    bool stalled = false;

    while (taken < most && !stalled) {
        unsigned count = entry_load(ring, t->px->units, e.u);
        if (!count)
            break;
        e.ticket = ring->next;
        if (entry_take(&e)) {
            ring->next += count;
            taken++;
        } else {
            stalled = true;
        }
    }
    if (taken) {
        ring->entries += (uint64_t)taken;
        __atomic_store_n(&ring->host->taken, ring->next, __ATOMIC_RELEASE);
    }
    ring->stalls += stalled;
    return taken ? taken : stalled ? -1 : 0;
}
