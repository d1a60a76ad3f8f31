/*
 * intake.c - from rings to operations. A unit validates itself: both its words carry the lap's parity. An entry is
 * consumed when all its words are there and its destination has room; else the ring waits, others go on.
 */
#include "proxy/engine.h"

void tern_reply_store(struct tern_proxy_thread *t, int channel, unsigned slot, uint64_t ticket, uint64_t value,
                      tern_status_t status)
{
    struct tern_reply *reply = &t->rings[channel].host->replies[slot];
    __atomic_store_n(&reply->value, value, __ATOMIC_RELAXED);
    __atomic_store_n(&reply->word, TERN_REPLY_WORD(status, ticket), __ATOMIC_RELEASE);
}

/* ---- fields of entries ------------------------------------------------------------------------------------------- */

static unsigned entry_op(const tern_unit_t *u)
{
    return (unsigned)(u->w[0] >> 58) & 31;
}

static unsigned entry_units(const tern_unit_t *u)
{
    return ((unsigned)(u->w[0] >> 56) & 3) + 1;
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

/* Bit 63 of a value, which the parity has pushed out of its word. */
static uint64_t entry_top(uint64_t word, int bit)
{
    return (word >> bit & 1) << 63;
}

/* ---- one entry --------------------------------------------------------------------------------------------------- */

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
    struct tern_rt *rt = e->t->px->rt;
    tern_control_abort(
        rt, TERN_ERR_INVALID, rt->pe,
        "an operation of PE %d to PE %u %s (entry %u, proxy thread %d, ring %d); TERN_CHECK=1 tells which "
        "call it was",
        rt->pe, entry_pe(e->u), what, entry_op(e->u), e->t->index, e->channel);
}

static bool in_range(uint64_t offset, uint64_t bytes, uint64_t limit)
{
    return offset <= limit && bytes <= limit - offset;
}

/* Offsets are within the spans, and the local side is registered memory. */
static bool op_valid(const struct tern_proxy *px, const struct tern_op *op)
{
    uint64_t stride = px->rt->stride, local = stride;

    if (op->segment)
        local =
            op->segment > TERN_MAX_BUFFERS ? 0 : __atomic_load_n(&px->buffers[op->segment - 1].bytes, __ATOMIC_RELAXED);
    return in_range(op->remote, op->bytes, stride) && in_range(op->signal, 8, stride) &&
           (op->kind > TERN_OP_GET && op->kind != TERN_OP_PUT_SIGNAL ? true : in_range(op->local, op->bytes, local));
}

/* Where an entry is decoded: what is not named by it is zero. */
static struct tern_op *op_begin(const struct entry *e, enum tern_op_kind kind)
{
    struct tern_op *op = tern_op_next(e->t);
    op->kind = (uint8_t)kind;
    op->amo = op->slot = 0;
    op->segment = 0;
    op->local = op->value = op->compare = op->signal = 0;
    op->answer = op->fetch = op->rpc = false;
    op->ticket = e->ticket;
    return op;
}

static bool op_native(const struct tern_proxy *px, const struct tern_dest *dest, const struct tern_op *op)
{
    return (px->caps & TERN_NET_AMO) ||
           ((px->caps & TERN_NET_AMO64) && op->bytes == 8 && !px->rt->peers[dest->pe].near &&
            (op->amo == TERN_AMO_add || op->amo == TERN_AMO_cas));
}

/* False: refused. */
static bool op_end(const struct entry *e, struct tern_dest *dest, struct tern_op *op)
{
    if (op->kind == TERN_OP_AMO)
        op->rpc = !op_native(e->t->px, dest, op);
    if (op_valid(e->t->px, op)) {
        tern_op_add(e->t, dest, e->channel);
        return true;
    }
    entry_refuse(e, "goes beyond the symmetric heap or a registered buffer");
    return false;
}

/* The ADD signal of a put: behind the put, also where nothing else keeps them in order. A REPLY goes to the put. */
static void take_add(const struct entry *e, struct tern_dest *dest, uint64_t offset, uint64_t value)
{
    struct tern_last put = e->ring->last;
    struct tern_op *op = op_begin(e, TERN_OP_AMO);

    op->amo = TERN_AMO_add;
    op->remote = offset;
    op->bytes = 8;
    op->value = value;
    if (!op_end(e, dest, op))
        return;
    e->ring->last = put;
    if (!(e->t->px->caps & TERN_NET_ORDERED))
        op->after = put.number;
}

/* Put or get, perhaps with a signal. */
static bool take_copy(const struct entry *e, struct tern_dest *dest, bool small, bool get, bool signal)
{
    const tern_unit_t *u = e->u, *s = &u[small ? 1 : 2];
    bool add = signal && (s->w[0] >> 61 & 1);
    uint64_t offset = 0, value = 0;

    if (!tern_dest_room(e->t, dest, add ? 2 : 1))
        return false;
    struct tern_op *op = op_begin(e, get ? TERN_OP_GET : TERN_OP_PUT);
    if (small) {
        op->remote = entry_a(u) << 4;
        op->bytes = u->w[1] >> 36;
        op->local = (u->w[1] & TERN_A_MASK) << 4;
    } else {
        op->bytes = entry_a(u);
        op->remote = u->w[1] & (TERN_LONG_OFFSET - 1);
        op->segment = (uint16_t)(u[1].w[0] >> 48);
        op->local = u[1].w[0] & (TERN_LONG_OFFSET - 1);
    }
    if (signal) {
        value = s->w[1] | entry_top(s->w[0], 62);
        offset = (s->w[0] & ((1ull << 45) - 1)) << 3;
    }
    if (signal && !add) {
        op->kind = TERN_OP_PUT_SIGNAL;
        op->signal = offset;
        op->value = value;
    }
    if (op_end(e, dest, op) && add)
        take_add(e, dest, offset, value);
    return true;
}

static bool take_word(const struct entry *e, struct tern_dest *dest, bool add)
{
    const tern_unit_t *u = e->u;
    unsigned flags = (unsigned)(u->w[0] >> 52) & 15;

    if (!tern_dest_room(e->t, dest, 1))
        return false;
    struct tern_op *op = op_begin(e, add ? TERN_OP_AMO : TERN_OP_WORD);
    op->amo = add ? TERN_AMO_add : 0;
    op->remote = ((uint64_t)(flags & 3) << TERN_A_BITS | entry_a(u)) << 3;
    op->bytes = 8;
    op->value = u->w[1] | entry_top(flags, 3);
    op_end(e, dest, op);
    return true;
}

static bool take_p(const struct entry *e, struct tern_dest *dest)
{
    if (!tern_dest_room(e->t, dest, 1))
        return false;
    struct tern_op *op = op_begin(e, TERN_OP_WORD);
    op->remote = entry_offset(e->u);
    op->bytes = 1u << (e->u->w[1] >> 44 & 3);
    op->value = (uint32_t)e->u->w[1];
    op_end(e, dest, op);
    return true;
}

static bool take_g(const struct entry *e, struct tern_dest *dest)
{
    if (!tern_dest_room(e->t, dest, 1))
        return false;
    struct tern_op *op = op_begin(e, TERN_OP_G);
    op->remote = entry_offset(e->u);
    op->bytes = 1u << (e->u->w[1] >> 44 & 3);
    op->slot = (uint8_t)(e->u->w[1] >> 57) & 63;
    op->answer = true;
    op_end(e, dest, op);
    return true;
}

static bool take_amo(const struct entry *e, struct tern_dest *dest)
{
    const tern_unit_t *u = e->u;
    uint64_t more = u[1].w[0];

    if (!tern_dest_room(e->t, dest, 1))
        return false;
    struct tern_op *op = op_begin(e, TERN_OP_AMO);
    op->remote = (more >> 41 & 0xfff) << TERN_A_BITS | entry_a(u);
    op->bytes = more >> 60 & 1 ? 8 : 4;
    op->value = u[0].w[1] | entry_top(more, 62);
    op->compare = u[1].w[1] | entry_top(more, 61);
    op->amo = (uint8_t)(more >> 54) & 63;
    op->fetch = op->answer = more >> 53 & 1;
    op->slot = (uint8_t)(more >> 35) & 63;
    op_end(e, dest, op);
    return true;
}

/* Answer the operation just before, on consecutive tickets: at once where it has come so far. */
static void take_reply(const struct entry *e)
{
    const struct tern_last *last = &e->ring->last;
    struct tern_op *op = last->op;
    unsigned slot = (unsigned)entry_a(e->u) & 63;

    if (!op || op->number != last->number || op->state == TERN_OP_FREE) {
        tern_reply_store(e->t, e->channel, slot, e->ticket, 0, last->status);
    } else if (op->state == TERN_OP_SENT) {
        tern_reply_store(e->t, e->channel, slot, e->ticket, 0, TERN_OK);
    } else {
        op->answer = true;
        op->slot = (uint8_t)slot;
        op->ticket = e->ticket;
        if (op->state == TERN_OP_POSTED && (e->t->px->caps & TERN_NET_LAZY))
            tern_dest_want_all(e->t, op->dest);
    }
}

static void take_quiet(const struct entry *e, struct tern_dest *dest)
{
    unsigned slot = (unsigned)entry_a(e->u) & 63;
    struct tern_quiet *quiet = &e->ring->quiets[slot];

    *quiet = (struct tern_quiet){
        .dest = dest, .number = e->t->number, .ticket = e->ticket, .ring = (uint16_t)e->channel, .slot = (uint8_t)slot};
    tern_quiet_begin(e->t, quiet);
}

/* Those that go to a PE. False: no room. */
static bool take_to(const struct entry *e)
{
    struct tern_dest *dest = tern_dest_of(e->t, (int)entry_pe(e->u));

    if (!dest) {
        entry_refuse(e, "names a PE that is not of this job, or of another proxy thread");
        return true;
    }
    switch (entry_op(e->u)) {
    case TERN_ENTRY_put_s:
        return take_copy(e, dest, true, false, false);
    case TERN_ENTRY_get_s:
        return take_copy(e, dest, true, true, false);
    case TERN_ENTRY_put_l:
        return take_copy(e, dest, false, false, false);
    case TERN_ENTRY_get_l:
        return take_copy(e, dest, false, true, false);
    case TERN_ENTRY_put_s_sig:
        return take_copy(e, dest, true, false, true);
    case TERN_ENTRY_put_l_sig:
        return take_copy(e, dest, false, false, true);
    case TERN_ENTRY_p64:
    case TERN_ENTRY_sig_set:
        return take_word(e, dest, false);
    case TERN_ENTRY_sig_add:
        return take_word(e, dest, true);
    case TERN_ENTRY_p:
        return take_p(e, dest);
    case TERN_ENTRY_g:
        return take_g(e, dest);
    case TERN_ENTRY_amo:
        return take_amo(e, dest);
    default:
        take_quiet(e, dest);
        return true;
    }
}

/* False: no room. */
static bool entry_take(const struct entry *e)
{
    static const uint8_t units_of[32] = {
#define UNITS(name, units) [TERN_ENTRY_##name] = units,
        TERN_ENTRY_TABLE(UNITS)
#undef UNITS
    };
    unsigned op = entry_op(e->u);

    if (units_of[op] != entry_units(e->u) || op == TERN_ENTRY_none) {
        entry_refuse(e, "is no operation");
        return true;
    }
    switch (op) {
    case TERN_ENTRY_nop:
        tern_reply_store(e->t, e->channel, (unsigned)entry_a(e->u) & 63, e->ticket, 0, TERN_OK);
        return true;
    case TERN_ENTRY_fence:
        e->ring->fence = e->t->number;
        return true;
    case TERN_ENTRY_reply:
        take_reply(e);
        return true;
    case TERN_ENTRY_quiet:
        if (entry_pe(e->u) != TERN_PE_ALL)
            return take_to(e);
        take_quiet(e, NULL);
        return true;
    default:
        return take_to(e);
    }
}

/* ---- a ring ------------------------------------------------------------------------------------------------------ */

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

/* All units of the next entry. 0: not there yet. */
static unsigned entry_load(const struct tern_ring_in *ring, uint32_t units, tern_unit_t *u)
{
    if (!unit_load(ring, ring->next, units, &u[0]))
        return 0;
    unsigned count = entry_units(u);
    for (unsigned i = 1; i < count; i++) {
        if (!unit_load(ring, ring->next + i, units, &u[i]))
            return 0;
    }
    return count;
}

int tern_intake_ring(struct tern_proxy_thread *t, int channel, int most)
{
    struct tern_ring_in *ring = &t->rings[channel];
    struct entry e;
    int taken = 0;
    unsigned count;

    e.t = t;
    e.ring = ring;
    e.channel = channel;
    while (taken < most && (count = entry_load(ring, t->px->units, e.u))) {
        e.ticket = ring->next;
        tern_intake_prefetch(t, channel,
                             4); /* the next line: kernels have written it, so it is in nobody's cache here */
        if (!entry_take(&e)) {
            ring->stalls++;
            if (!taken)
                return -1;
            break;
        }
        ring->next += count;
        taken++;
    }
    if (taken) {
        ring->entries += (uint64_t)taken;
        __atomic_store_n(&ring->host->taken, ring->next, __ATOMIC_RELEASE);
    }
    return taken;
}
