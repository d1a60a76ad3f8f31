/*
 * tern/detail/proxy.h - the way of device calls through the proxy: drawing tickets, storing entries (ring.h), waiting
 * for answers, fence and quiet. All of it out of line: a job whose PEs all reach each other by load/store pays one test
 * of a constant for it.
 *
 * A block's operations go through one channel, so what one of its threads pushes after another (in the order of a
 * barrier) is taken in that order. Between drawing a ticket and storing the entry nothing has a deadline, for a hole
 * would stop the ring; only job abort ends that wait, and then the rings are not used again. Whoever needs an answer
 * owns a reply slot before it draws a ticket: take, push, read and free stand in one branch of one lane.
 */
#ifndef TERN_DETAIL_PROXY_H
#define TERN_DETAIL_PROXY_H

#include <tern/detail/addr.h>
#include <tern/detail/look.h>
#include <tern/detail/ring.h>

/* What these functions need of a context, in few registers. */
typedef struct tern_via {
    struct tern_ring_dev *rings;
    char *rings_host;
    struct tern_state_dev *state;
    char *heap;
    uint64_t stride;
    uint32_t units, flags;
    uint16_t channels, threads;
    int32_t my_pe;
} tern_via_t;

TERN_DEV tern_via_t tern_via_of(tern_ctx_t ctx)
{
    tern_via_t v = {ctx.rings,      ctx.rings_host, ctx.state,    ctx.heap,          ctx.stride,
                    ctx.ring_units, ctx.flags,      ctx.channels, ctx.proxy_threads, ctx.my_pe};
    return v;
}

/* ---- pushing
 * ------------------------------------------------------------------------------------------------------------- */

/* One ring: of the calling block's channel and the thread that serves a PE. */
typedef struct tern_ring {
    struct tern_ring_dev *dev;
    struct tern_ring_host *host;
} tern_ring_t;

TERN_DEV tern_ring_t tern_ring_at(tern_via_t v, unsigned thread, unsigned channel)
{
    unsigned index = TERN_RING_INDEX(v.channels, thread, channel);
    tern_ring_t ring = {v.rings + index,
                        (struct tern_ring_host *)(v.rings_host + index * TERN_RING_HOST_BYTES(v.units))};
    return ring;
}

/* Stable for the block's life, and spread over the channels. */
TERN_DEV unsigned tern_ring_channel(tern_via_t v)
{
    unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    return (block + tern_prim_grid_id() * 0x9e3779b1u) & (v.channels - 1u);
}

/* Thread of a PE. The usual one costs no division, which a push would wait for. */
TERN_DEV unsigned tern_ring_thread(tern_via_t v, int pe)
{
    return v.threads > 1 ? (unsigned)pe % v.threads : 0;
}

TERN_DEV tern_ring_t tern_ring_of(tern_via_t v, int pe)
{
    return tern_ring_at(v, tern_ring_thread(v, pe), tern_ring_channel(v));
}

/* Low half of the published count, which is kept for those who look next. Halves do: a ring holds far less. */
TERN_DEV uint32_t tern_ring_refresh(tern_ring_t ring)
{
    uint32_t taken = tern_order_ring_taken((const uint32_t *)&ring.host->taken);
    tern_order_ring_cache(&ring.dev->taken, taken);
    return taken;
}

/* One turn of a wait for the proxy. False: the job was aborted. */
TERN_DEV bool tern_via_turn(tern_via_t v, tern_wait_t *w)
{
    tern_prim_pause();
    return !tern_wait_due(w) || tern_abort_status(v.state) == TERN_OK;
}

/* An entry that has been encoded, with slot 0, and perhaps the REPLY behind it. */
typedef struct tern_entry {
    tern_unit_t units[TERN_ENTRY_MOST];
    unsigned count;
} tern_entry_t;

TERN_DEV void tern_ring_store(tern_via_t v, tern_ring_t ring, uint64_t ticket, tern_unit_t u)
{
    uint64_t lap = ticket & v.units ? 0 : TERN_UNIT_PARITY;
    uint64_t *at = (uint64_t *)(ring.host + 1) + 2 * (ticket & (v.units - 1));
    tern_prim_st_unit(at, u.w[0] | lap, u.w[1] | lap);
}

#define TERN_TICKET_NONE (~0ull)
#define TERN_RING_AHEAD                                                                                                \
    32u /* units: pushes that come that soon look at the published count, the others at its cache                      \
         */

/*
 * How far the proxy is, for a push that lacks `lack` units of space. Masses of waiting lanes would fill the bus with
 * reads; so most look only at what the first ones found, and now and then for themselves, should those be done.
 */
TERN_DEV uint32_t tern_ring_space(tern_ring_t ring, uint32_t lack, const tern_wait_t *w)
{
    return lack <= TERN_RING_AHEAD || w->polls % TERN_WAIT_POLLS == 0 ? tern_ring_refresh(ring)
                                                                      : tern_order_ring_space(&ring.dev->taken);
}

/* A ticket, and the count of units taken that was read with it (low half). */
typedef struct tern_draw {
    uint64_t ticket;
    uint32_t taken;
} tern_draw_t;

/* Both are on their way while the caller encodes the entry, so this comes first. What is drawn must be filled. */
TERN_DEV tern_draw_t tern_ring_draw(tern_ring_t ring, unsigned units)
{
    tern_draw_t draw;
    draw.ticket = tern_order_ring_ticket(&ring.dev->head, units);
    draw.taken = tern_order_ring_space(&ring.dev->taken);
    return draw;
}

/*
 * Ticket of the first unit; TERN_TICKET_NONE: the job was aborted. A lane that has space stores before it meets lanes
 * that wait for some, or they would wait for each other.
 */
TERN_DEV uint64_t tern_ring_fill(tern_via_t v, tern_ring_t ring, tern_draw_t draw, tern_entry_t e)
{
    tern_wait_t w = {0, 0, 0};
    bool waits = true;
    do {
        uint32_t held = (uint32_t)draw.ticket + e.count - draw.taken;
        if (held <= v.units) {
            for (unsigned i = 0; i < TERN_ENTRY_MOST; i++)
                if (i < e.count)
                    tern_ring_store(v, ring, draw.ticket + i, e.units[i]);
            waits = false;
        } else {
            draw.taken = tern_ring_space(ring, held - v.units, &w);
            if (!tern_via_turn(v, &w)) {
                draw.ticket = TERN_TICKET_NONE;
                waits = false;
            }
        }
    } while (tern_prim_unknown(waits));
    return draw.ticket;
}

TERN_DEV void tern_ring_fill1(tern_via_t v, tern_ring_t ring, tern_draw_t draw, tern_unit_t u)
{
    tern_entry_t e = {{u}, 1};
    tern_ring_fill(v, ring, draw, e);
}

/* ---- answers
 * --------------------------------------------------------------------------------------------------------------- */

#define TERN_SLOTS_ANY ((1ull << TERN_RING_REPLIES_ANY) - 1) /* for quiets, puts and gets */
#define TERN_SLOTS_ALL (~0ull)                               /* for g and atomics, so that they go on beside those */

/*
 * One reply slot of those that `*seen` holds, from bit `start` on; -1: it is not free, and `*seen` are those that are.
 * The first try is blind, and begins elsewhere for each lane of a warp: they get theirs at once, and wait for the proxy
 * together.
 */
TERN_DEV int tern_slot_try(tern_ring_t ring, unsigned start, uint64_t which, uint64_t *seen)
{
    if (!*seen)
        *seen = tern_order_ring_slots(&ring.dev->slots) & which;
    if (!*seen)
        return -1;
    uint64_t from = *seen >> start | *seen << ((64 - start) & 63);
    unsigned slot = ((unsigned)__ffsll((long long)from) - 1 + start) & 63;
    uint64_t were = tern_order_slot_take(&ring.dev->slots, ~(1ull << slot));
    *seen = were & which & ~(1ull << slot);
    return were >> slot & 1 ? (int)slot : -1;
}

/*
 * The answer to what was asked on `ticket`; the slot is free again. False: the job was aborted. `value` may be NULL: it
 * lies in pinned memory, and loading it takes as long as the way there and back.
 */
TERN_DEV bool tern_reply_wait(tern_via_t v, tern_ring_t ring, int slot, uint64_t ticket, uint64_t *value,
                              tern_status_t *status)
{
    struct tern_reply *reply = &ring.host->replies[slot];
    tern_wait_t w = {0, 0, 0};
    uint64_t word;
    while ((word = tern_order_reply_acquire(&reply->word)) == TERN_REPLY_NONE ||
           (word & TERN_REPLY_TICKET) != (ticket & TERN_REPLY_TICKET))
        if (!tern_via_turn(v, &w))
            return false;
    if (value) {
        *value = tern_prim_ld_relaxed_u64(&reply->value);
        tern_order_answer_read(*value);
    }
    *status = (tern_status_t)(word >> 56);
    tern_order_slot_free(&ring.dev->slots, 1ull << slot);
    return true;
}

/*
 * Push an entry with a slot, at bit `slot_bit` of its last unit, and wait for the answer to the ticket of unit `asks`.
 * Take, push, read and free stand in one branch, whose lanes do not wait for those that found no slot free.
 */
TERN_DEV tern_status_t tern_ring_ask(tern_via_t v, tern_ring_t ring, uint64_t which, tern_entry_t e, unsigned slot_bit,
                                     unsigned asks, uint64_t *value)
{
    tern_wait_t w = {0, 0, 0};
    tern_status_t status = TERN_OK;
    bool waits = true, alive = true;
    uint64_t seen = which;
    unsigned start = (tern_block_rank() + 8 * blockIdx.x) % TERN_RING_REPLIES_ANY; /* other blocks share the ring */
    do {
        int slot = tern_slot_try(ring, start, which, &seen);
        if (slot >= 0) {
            for (unsigned i = 0; i < TERN_ENTRY_MOST; i++)
                if (i + 1 == e.count)
                    e.units[i].w[slot_bit >> 6] |= (uint64_t)slot << (slot_bit & 63);
            uint64_t ticket = tern_ring_fill(v, ring, tern_ring_draw(ring, e.count), e);
            alive = ticket != TERN_TICKET_NONE && tern_reply_wait(v, ring, slot, ticket + asks, value, &status);
            waits = false;
        } else {
            waits = alive = tern_via_turn(v, &w);
        }
    } while (tern_prim_unknown(waits));
    return alive ? status : tern_abort_status(v.state);
}

/* ---- words, g, atomics
 * ------------------------------------------------------------------------------------------------------ */

TERN_DEV uint64_t tern_via_offset(tern_via_t v, const void *addr)
{
    return (uint64_t)((const char *)addr - v.heap);
}

TERN_DEV unsigned tern_size_log2(unsigned size)
{
    return size == 8 ? 3 : size == 4 ? 2 : size - 1;
}

/* A store of 1, 2, 4 or 8 bytes, whose value the entry carries. */
TERN_DEV_SLOW void tern_via_word(tern_via_t v, void *dst, uint64_t value, unsigned size, int pe)
{
    tern_ring_t ring = tern_ring_of(v, pe);
    tern_draw_t draw = tern_ring_draw(ring, 1);
    uint64_t offset = tern_via_offset(v, dst);
    tern_ring_fill1(v, ring, draw,
                    size == 8 ? tern_entry_word(TERN_ENTRY_p64, (unsigned)pe, offset, value)
                              : tern_entry_p((unsigned)pe, offset, (uint32_t)value, tern_size_log2(size)));
}

TERN_DEV_SLOW void tern_via_signal(tern_via_t v, uint64_t *sig, uint64_t value, int add, int pe)
{
    tern_ring_t ring = tern_ring_of(v, pe);
    tern_draw_t draw = tern_ring_draw(ring, 1);
    tern_ring_fill1(
        v, ring, draw,
        tern_entry_word(add ? TERN_ENTRY_sig_add : TERN_ENTRY_sig_set, (unsigned)pe, tern_via_offset(v, sig), value));
}

TERN_DEV_SLOW uint64_t tern_via_g(tern_via_t v, const void *src, unsigned size, int pe)
{
    tern_entry_t e = {{tern_entry_g((unsigned)pe, tern_via_offset(v, src), tern_size_log2(size), 0)}, 1};
    uint64_t value = 0;
    tern_ring_ask(v, tern_ring_of(v, pe), TERN_SLOTS_ALL, e, TERN_SLOT_BIT_G, 0, &value);
    return value;
}

/*
 * An atomic at its home. `near`: the target is a load/store peer, whose words direct stores reach too: it comes behind
 * the earlier ones, and is complete when the call returns. `fetch`: the old value is wanted, which comes with
 * completion.
 */
TERN_DEV_SLOW uint64_t tern_via_amo(tern_via_t v, void *addr, unsigned amo, unsigned size, uint64_t operand,
                                    uint64_t compare, bool fetch, bool near, int pe)
{
    tern_ring_t ring = tern_ring_of(v, pe);
    uint64_t offset = tern_via_offset(v, addr), value = 0;
    tern_entry_t e = {{tern_entry_amo((unsigned)pe, offset, operand),
                       tern_entry_amo_more(offset, amo, size == 8, operand, compare, fetch || near, 0)},
                      2};
    if (near)
        tern_order_amo_near();
    if (fetch || near)
        tern_ring_ask(v, ring, TERN_SLOTS_ALL, e, TERN_SLOT_BIT_AMO, 0, fetch ? &value : NULL);
    else
        tern_ring_fill(v, ring, tern_ring_draw(ring, e.count), e);
    return value;
}

/* ---- put, get
 * ----------------------------------------------------------------------------------------------------------------- */

/* Segment and offset of local memory; false: it is neither in the heap nor registered. */
TERN_DEV bool tern_via_local(tern_via_t v, const void *p, uint64_t bytes, unsigned *segment, uint64_t *offset)
{
    const struct tern_state_dev *state = v.state;
    *offset = tern_via_offset(v, p);
    *segment = 0;
    if (*offset < v.stride && bytes <= v.stride - *offset)
        return true;
    for (unsigned i = 0; i < state->n_buffers; i++) {
        uint64_t base = tern_prim_ld_relaxed_u64(&state->buffers[i].base);
        uint64_t size = tern_prim_ld_relaxed_u64(&state->buffers[i].bytes);
        *offset = (uint64_t)(uintptr_t)p - base;
        *segment = i + 1;
        if (*offset < size && bytes <= size - *offset)
            return true;
    }
    return false;
}

/* The local side is visible to who reads or overwrites it, be it the copy engine, a NIC or a CPU. */
TERN_DEV void tern_via_release(tern_via_t v, unsigned segment)
{
    if (v.flags & TERN_RELEASED)
        return;
    if (segment || (v.flags & TERN_CTX_STRICT))
        tern_order_source_sys();
    else
        tern_order_source_gpu();
}

/* What a copy does besides. */
enum { TERN_VIA_GET = 1, TERN_VIA_WAIT = 2, TERN_VIA_SIGNAL = 4, TERN_VIA_ADD = 8 };

#define TERN_VIA_MOST (TERN_LONG_BYTES - (1ull << 20)) /* bytes of one entry */

/* One entry, its signal, and a reply to it: consecutive tickets, so that the reply is to this entry. */
TERN_DEV void tern_via_push_copy(tern_via_t v, unsigned how, uint64_t remote, unsigned segment, uint64_t local,
                                 uint64_t bytes, uint64_t signal, uint64_t value, int pe)
{
    tern_ring_t ring = tern_ring_of(v, pe);
    bool small = !segment && ((remote | local) & 15) == 0 && remote < TERN_SHORT_OFFSET && local < TERN_SHORT_OFFSET &&
                 bytes < TERN_SHORT_BYTES;
    bool has_signal = how & TERN_VIA_SIGNAL, waits = how & TERN_VIA_WAIT;
    unsigned units = (small ? 1u : 2u) + has_signal;
    tern_draw_t draw = {0, 0};
    if (!waits)
        draw = tern_ring_draw(ring, units);
    unsigned op = how & TERN_VIA_GET ? (small ? TERN_ENTRY_get_s : TERN_ENTRY_get_l)
                  : has_signal       ? (small ? TERN_ENTRY_put_s_sig : TERN_ENTRY_put_l_sig)
                                     : (small ? TERN_ENTRY_put_s : TERN_ENTRY_put_l);
    tern_unit_t reply = tern_entry_plain(TERN_ENTRY_reply, (unsigned)pe, 0);
    tern_unit_t behind = has_signal ? tern_entry_signal(signal, value, how & TERN_VIA_ADD ? 1 : 0) : reply;
    tern_entry_t e;
    e.units[0] = small ? tern_entry_short(op, units, (unsigned)pe, remote, local, bytes)
                       : tern_entry_long(op, units, (unsigned)pe, remote, bytes);
    e.units[1] = small ? behind : tern_entry_local(segment, local);
    e.units[2] = small ? reply : behind;
    e.units[3] = reply;
    e.count = units + waits;
    if (waits)
        tern_ring_ask(v, ring, TERN_SLOTS_ANY, e, TERN_SLOT_BIT_PLAIN, units, NULL);
    else
        tern_ring_fill(v, ring, draw, e);
}

/* By one thread, behind the entry barrier of its scope. */
TERN_DEV_SLOW void tern_via_copy(tern_via_t v, unsigned how, void *remote, const void *local, uint64_t bytes,
                                 uint64_t *sig, uint64_t value, int pe)
{
    uint64_t at = tern_via_offset(v, remote), signal = sig ? tern_via_offset(v, sig) : 0, offset;
    unsigned segment;
    if (!bytes) {
        if (how & TERN_VIA_SIGNAL)
            tern_via_signal(v, sig, value, how & TERN_VIA_ADD ? 1 : 0, pe);
        return;
    }
    if (!tern_via_local(v, local, bytes, &segment, &offset)) {
        tern_report_check(v.state,
                          how & TERN_VIA_GET      ? TERN_CALL_get
                          : how & TERN_VIA_SIGNAL ? TERN_CALL_put_signal
                                                  : TERN_CALL_put,
                          TERN_WHY_BUFFER, local, bytes, pe, 0);
        return;
    }
    tern_via_release(v, segment);
    while (bytes > TERN_VIA_MOST) {
        tern_via_push_copy(v, how & (TERN_VIA_GET | TERN_VIA_WAIT), at, segment, offset, TERN_VIA_MOST, 0, 0, pe);
        at += TERN_VIA_MOST, offset += TERN_VIA_MOST, bytes -= TERN_VIA_MOST;
    }
    tern_via_push_copy(v, how, at, segment, offset, bytes, signal, value, pe);
}

/* ---- fence, quiet
 * --------------------------------------------------------------------------------------------------------------- */

/*
 * The published counts of a batch go to its caches: all of them, for others wait for some of these, too. Behind the
 * last ring there is memory for a batch.
 */
TERN_DEV_SLOW void tern_rings_refresh(tern_via_t v, unsigned at)
{
    const char *host = v.rings_host + at * TERN_RING_HOST_BYTES(v.units);
    uint32_t taken[TERN_RINGS_AT_ONCE];
    for (unsigned i = 0; i < TERN_RINGS_AT_ONCE; i++) {
        taken[i] = tern_order_ring_published((const uint32_t *)&((const struct tern_ring_host *)host)->taken);
        host += TERN_RING_HOST_BYTES(v.units);
    }
    tern_order_fence_taken();
    for (unsigned i = 0; i < TERN_RINGS_AT_ONCE; i++)
        tern_order_ring_cache_more(&v.rings[at + i].taken, taken[i]);
}

/*
 * Of the rings from `at` on, those in `behind` have been taken up to `head` (low half). One at a time reads the
 * published counts over the bus, the others look at what it finds: 64 blocks that fence would fill the bus, and take
 * the lines that the proxy writes away from it. Who reads waits for nobody meanwhile. False: the job was aborted.
 */
TERN_DEV bool tern_rings_wait(tern_via_t v, unsigned at, const uint32_t *head, uint32_t behind)
{
    uint32_t *reading = &v.rings[at].reading;
    tern_wait_t w = {0, 0, 0};
    bool waits = true, alive = true;
    do {
        if (tern_order_ring_claim(reading, 0, 1) == 0) {
            tern_rings_refresh(v, at);
            tern_order_ring_unclaim(reading, 0);
        }
        for (unsigned i = 0; i < TERN_RINGS_AT_ONCE; i++)
            if (behind >> i & 1 && (int32_t)(head[i] - tern_order_ring_behind(&v.rings[at + i].taken)) <= 0)
                behind &= ~(1u << i);
        if (behind)
            waits = alive = tern_via_turn(v, &w);
        else
            waits = false;
    } while (tern_prim_unknown(waits));
    return alive;
}

/*
 * All that was pushed before, by whatever thread of this PE, to the proxy threads `first` to `last`, is taken: but what
 * is in the own channel, whose order is its ring's. The first look is at low halves, which differ by what the ring
 * holds and its waiting pushes at most. Blocks begin with different rings, so that they need different counts. False:
 * the job was aborted.
 */
TERN_DEV bool tern_via_others_taken(tern_via_t v, unsigned first, unsigned last)
{
    unsigned own = tern_ring_channel(v), begin = TERN_RING_INDEX(v.channels, first, 0u), end = (last + 1) * v.channels;
    unsigned at = begin + own / TERN_RINGS_AT_ONCE * TERN_RINGS_AT_ONCE;
    for (unsigned done = 0; done < end - begin; done += TERN_RINGS_AT_ONCE) {
        uint32_t head[TERN_RINGS_AT_ONCE], taken[TERN_RINGS_AT_ONCE], behind = 0;
        for (unsigned i = 0; i < TERN_RINGS_AT_ONCE; i++) {
            head[i] = tern_order_ring_behind((const uint32_t *)&v.rings[at + i].head);
            taken[i] = tern_order_ring_behind(&v.rings[at + i].taken);
        }
        for (unsigned i = 0; i < TERN_RINGS_AT_ONCE; i++)
            if ((int32_t)(head[i] - taken[i]) > 0 && at + i < end && ((at + i) & (v.channels - 1u)) != own)
                behind |= 1u << i;
        if (behind && !tern_rings_wait(v, at, head, behind))
            return false;
        at = at + TERN_RINGS_AT_ONCE < end ? at + TERN_RINGS_AT_ONCE : begin;
    }
    tern_order_fence_taken();
    return true;
}

/* After the system fence of the caller; `block`: only the block's own operations count, and they are in its channel. */
TERN_DEV_SLOW void tern_via_fence(tern_via_t v, bool block)
{
    unsigned channel = tern_ring_channel(v);
    if (!block && !tern_via_others_taken(v, 0, v.threads - 1u))
        return;
    for (unsigned thread = 0; thread < v.threads; thread++) {
        tern_ring_t ring = tern_ring_at(v, thread, channel);
        tern_ring_fill1(v, ring, tern_ring_draw(ring, 1), tern_entry_plain(TERN_ENTRY_fence, 0, 0));
    }
}

/*
 * `pe`: TERN_PE_ALL or a PE. Proxy threads are asked in ascending order, each when the one before it has answered: a
 * lane that held slots of one while it waits for slots of another could wait for lanes of its own warp.
 */
TERN_DEV_SLOW tern_status_t tern_via_quiet(tern_via_t v, unsigned pe, bool block)
{
    unsigned first = pe == TERN_PE_ALL ? 0 : tern_ring_thread(v, (int)pe),
             last = pe == TERN_PE_ALL ? v.threads - 1u : first;
    tern_status_t status = TERN_OK;
    if (!block && !tern_via_others_taken(v, first, last))
        return tern_abort_status(v.state);
    for (unsigned thread = first; thread <= last; thread++) {
        tern_entry_t e = {{tern_entry_plain(TERN_ENTRY_quiet, pe, 0)}, 1};
        tern_status_t one = tern_ring_ask(v, tern_ring_at(v, thread, tern_ring_channel(v)), TERN_SLOTS_ANY, e,
                                          TERN_SLOT_BIT_PLAIN, 0, NULL);
        status = status == TERN_OK ? one : status;
    }
    return status;
}

#endif
