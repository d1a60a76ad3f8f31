/* proxy.c - the proxy: intake from rings, the destinations' lists, flushes and completions, replies, the host's quiet.
 */
#include "model.h"

#include <stdio.h>
#include <string.h>

static const struct wire *wire_of(int op)
{
    return &program.wire[op];
}

static uint32_t proxy_ops(int proxy)
{
    uint32_t mask = 0;
    for (int d = proxy; d < config->dests; d += config->proxies)
        mask |= program.ops_of_dest[d];
    return mask;
}

static uint32_t pending_ops(const struct state *s, int dest)
{
    uint32_t mask = 0;
    for (int i = s->posted[dest]; i < s->listed[dest]; i++)
        mask |= bit(s->list[dest][i] - 1);
    return mask;
}

static uint32_t all_pending_ops(const struct state *s)
{
    uint32_t mask = 0;
    for (int d = 0; d < config->dests; d++)
        mask |= pending_ops(s, d);
    return mask;
}

/* ---- flush and completion ---------------------------------------------------------------------------------------- */

static void want(struct state *s, uint32_t ops)
{
    for (int op = 0; op < program.wires; op++)
        if (has(ops & s->open & ~s->flushed, op) && net_needs_flush(wire_of(op)))
            s->wanted |= bit(op);
}

/* Operations before the ring's last FENCE that must be complete at the target before `op` is posted. */
static uint32_t fence_blocks(const struct state *s, int op)
{
    uint32_t ops = net_ordered() ? 0 : s->after[op] & s->open;
    for (int v = 0; MUTANT(after_without_signal) && v < program.wires; v++)
        if (wire_of(v)->signal != NONE && has(s->arrived, v))
            ops &= ~bit(v);
    return ops;
}

/* Everything taken earlier for the destination, which an RPC waits for. */
static uint32_t rpc_blocks(const struct state *s, int op)
{
    int dest = wire_of(op)->dest;
    bool rpc = wire_of(op)->kind == WIRE_RPC && !MUTANT(rpc_not_waiting);
    return rpc ? s->open & program.ops_of_dest[dest] & ~pending_ops(s, dest) & ~bit(op) : 0;
}

/* What the first pending operation waits for has to be flushed. */
static void want_for_first(struct state *s, int dest)
{
    if (s->posted[dest] == s->listed[dest])
        return;
    int op = s->list[dest][s->posted[dest]] - 1;
    if (!MUTANT(flush_not_for_fence))
        want(s, fence_blocks(s, op));
    if (!MUTANT(flush_not_for_rpc))
        want(s, rpc_blocks(s, op));
}

/* A flush covers what is wanted and has been posted: it is called again when more of that has been. */
static void flush(struct state *s, int dest)
{
    uint32_t mine = program.ops_of_dest[dest], pending = pending_ops(s, dest);
    want_for_first(s, dest);
    uint32_t now = s->wanted & mine & ~pending;
    if (!now || ((s->wanted & pending) && MUTANT(flush_when_all_posted)))
        return;
    s->flushed |= now;
    s->wanted &= ~(MUTANT(flush_once) ? mine : now);
}

static bool rpc_on_its_way(const struct state *s, int dest)
{
    for (int i = 0; i < s->posted[dest]; i++)
        if (wire_of(s->list[dest][i] - 1)->kind == WIRE_RPC)
            return true;
    return false;
}

/* At the target, and the proxy knows it: by the answer (to all RPCs of a message together), by a flush, by itself. */
static bool op_is_complete(const struct state *s, int op)
{
    const struct wire *w = wire_of(op);
    if (net_op_wires(op) & ~s->arrived)
        return false;
    if (w->kind == WIRE_RPC)
        return !rpc_on_its_way(s, w->dest);
    return !net_needs_flush(w) || has(s->flushed, op);
}

static void op_complete(struct state *s, int op)
{
    uint32_t others = ~bit(op);
    s->open &= others;
    s->flushed &= others;
    s->wanted &= others;
    for (int w = 0; w < program.wires; w++)
        s->after[w] &= others;
    for (int r = 0; r < program.rings; r++)
        s->fence[r] &= others;
    for (int k = 0; k < config->proxies; k++)
        s->host_after[k] &= others;
    for (int q = 0; q < program.answers; q++)
        if (!(s->reply[q] & (REPLY_SOURCE | REPLY_COUNT)))
            s->reply[q] &= others;
}

/* ---- posting: first in, first out -------------------------------------------------------------------------------- */

/* An RPC that is not answered holds everything behind it. */
static bool held_by_rpc(const struct state *s, int dest)
{
    if (MUTANT(rpc_no_hold) || !rpc_on_its_way(s, dest))
        return false;
    for (int op = 0; MUTANT(rpc_hold_until_first) && op < program.wires; op++)
        if (wire_of(op)->kind == WIRE_RPC && has(s->open & s->arrived & program.ops_of_dest[dest], op))
            return false;
    return true;
}

static bool can_post(const struct state *s, int op)
{
    int dest = wire_of(op)->dest;
    return s->posted[dest] < config->credits && !held_by_rpc(s, dest) && !rpc_blocks(s, op) && !fence_blocks(s, op);
}

/* The pending operation at `place` goes to the end of the posted ones. */
static void post(struct state *s, int dest, int place)
{
    uint8_t op = s->list[dest][place];
    for (int i = place; i > s->posted[dest]; i--)
        s->list[dest][i] = s->list[dest][i - 1];
    s->list[dest][s->posted[dest]++] = op;
}

/* Consecutive RPCs leave in one message. */
static void post_rpcs(struct state *s, int dest)
{
    int count = 0;
    for (int i = s->posted[dest]; i < s->listed[dest] && count < config->batch; i++) {
        if (wire_of(s->list[dest][i] - 1)->kind == WIRE_RPC) {
            post(s, dest, i);
            count++;
        } else if (!MUTANT(rpc_gathers)) {
            break;
        }
    }
}

static enum outcome complete_at_once(struct state *s, int dest)
{
    if (net_deliver(s, dest, s->posted[dest] - 1, false) == VIOLATED)
        return VIOLATED;
    int place = s->posted[dest] - 1; /* still there: it has a signal */
    return place < 0 || net_deliver(s, dest, place, true) != VIOLATED ? DONE : VIOLATED;
}

enum outcome proxy_pump(struct state *s, int dest)
{
    int place = s->posted[dest];
    if (place == s->listed[dest])
        return BLOCKED;
    int op = s->list[dest][place] - 1;
    if (!can_post(s, op))
        return BLOCKED;
    DESCRIBE("proxy: posts %s", wire_of(op)->name);
    if (wire_of(op)->kind == WIRE_RPC)
        post_rpcs(s, dest);
    else
        post(s, dest, place);
    return net == NET_NULL ? complete_at_once(s, dest) : DONE;
}

/* ---- intake ------------------------------------------------------------------------------------------------------ */

static bool unit_is_there(const struct state *s, int ring, int ticket)
{
    for (int half = 0; half < (MUTANT(one_half) ? 1 : 2); half++) {
        unsigned word = s->unit[ring][ticket % config->depth][half], parity = 1 - ((ticket / config->depth) & 1);
        if (!(word & 255) || (word >> 15 != parity && !MUTANT(no_parity)))
            return false;
    }
    return true;
}

/* The host's quiet asks for each ring to be empty once. Units behind a hole are not nothing: they may be a finished
 * kernel's. */
static enum outcome ring_is_empty(struct state *s, int ring)
{
    int proxy = ring % config->proxies, channel = ring / config->proxies;
    if (s->host_phase[proxy] != HOST_INTAKE || !has(s->host_rings[proxy], channel))
        return BLOCKED;
    for (int i = 0; i < config->depth && !MUTANT(host_quiet_stops_at_hole); i++)
        if (unit_is_there(s, ring, s->taken[ring] + i))
            return BLOCKED;
    s->host_rings[proxy] &= (uint8_t)~bit(channel);
    DESCRIBE("proxy: finds ring %d empty", ring);
    return DONE;
}

static bool dest_room(const struct state *s, int dest, int count)
{
    return s->listed[dest] - s->posted[dest] + count <= config->pending;
}

/* A new operation at the end of its destination's list. */
static enum outcome op_new(struct state *s, int op, int ring)
{
    const struct wire *w = wire_of(op);
    int dest = w->dest;
    if (has(s->taken_ops, op))
        return violated("(3) TWICE: %s is taken again", w->name);
    s->taken_ops |= bit(op);
    if (w->kind != WIRE_RPC && !MUTANT(after_ignored))
        s->after[op] = s->fence[ring] & program.ops_of_dest[dest];
    bool bypass = MUTANT(pending_bypassed) && can_post(s, op);
    s->open |= bit(op);
    s->list[dest][s->listed[dest]++] = (uint8_t)(op + 1);
    if (bypass)
        post(s, dest, s->listed[dest] - 1);
    return DONE;
}

static enum outcome take_data(struct state *s, int ring, int entry)
{
    const struct entry *e = &program.entry[entry];
    int count = e->op[1] == NONE ? 1 : 2;
    if (!dest_room(s, e->dest, count)) {
        if (MUTANT(signal_split_in_parts) && !has(s->taken_ops, e->op[0]) && dest_room(s, e->dest, 1))
            return op_new(s, e->op[0], ring);
        return BLOCKED; /* the ring stalls */
    }
    for (int i = 0; i < count; i++)
        if (op_new(s, e->op[i], ring) == VIOLATED)
            return VIOLATED;
    if (e->answer != NONE)
        s->reply[e->answer] = REPLY_OWED | bit(e->op[0]);
    return DONE;
}

/* The ring keeps the thread's number. In masks: what is incomplete now, and on ordered transports may be overtaken. */
static void take_fence(struct state *s, int ring, const struct entry *e)
{
    uint32_t ops = s->open & proxy_ops(e->proxy);
    if (MUTANT(after_own_ring))
        ops &= program.ops_of_ring[ring];
    for (int op = 0; op < program.wires && net_ordered(); op++) {
        const struct wire *w = wire_of(op);
        bool follows_writes =
            w->kind == WIRE_WRITE && (w->signal == NONE || program.wire[w->signal].kind == WIRE_WRITE);
        if (follows_writes || w->kind == WIRE_RPC || !(net_op_wires(op) & ~s->arrived))
            ops &= ~bit(op);
    }
    s->fence[ring] = ops;
}

/* Notes what is incomplete of each destination: its last number. */
static enum outcome take_quiet(struct state *s, const struct entry *e)
{
    uint32_t ops = 0;
    for (int d = e->proxy; d < config->dests; d += config->proxies) {
        if (e->dest != DEST_ALL && e->dest != d)
            continue;
        if (MUTANT(quiet_needs_room) && !dest_room(s, d, 1))
            return BLOCKED;
        ops |= s->open & program.ops_of_dest[d];
    }
    if (MUTANT(quiet_local))
        ops &= all_pending_ops(s);
    if (MUTANT(quiet_ignores_pending))
        ops &= ~all_pending_ops(s);
    if (!MUTANT(flush_not_for_quiet))
        want(s, ops);
    if (MUTANT(quiet_counts))
        ops = REPLY_COUNT | (uint32_t)(__builtin_popcount(s->taken_ops & ~s->open) + __builtin_popcount(ops));
    s->reply[e->answer] = REPLY_OWED | ops;
    return DONE;
}

/* Answers for the entry just before: put, when its source may be reused; get, when the data are there. */
static void take_reply(struct state *s, int ring, const struct entry *e)
{
    int op = s->before[ring] - 1;
    uint32_t waits = op < 0 ? 0 : wire_of(op)->kind == WIRE_WRITE ? REPLY_SOURCE | bit(op) : bit(op) & s->open;
    s->reply[e->answer] = REPLY_OWED | waits;
}

static enum outcome take(struct state *s, int ring, int entry)
{
    const struct entry *e = &program.entry[entry];
    enum outcome o = DONE;
    DESCRIBE("proxy: takes %s from ring %d ticket %d", e->name, ring, s->taken[ring]);
    if (has(s->taken_entries, entry))
        return violated("(3) TWICE: %s is taken again", e->name);
    if (e->kind == ENTRY_DATA) {
        o = take_data(s, ring, entry);
        if (o != DONE || (e->op[1] != NONE && !has(s->taken_ops, e->op[1])))
            return o;
    } else if (e->kind == ENTRY_FENCE) {
        take_fence(s, ring, e);
    } else if (e->kind == ENTRY_QUIET) {
        o = take_quiet(s, e);
        if (o != DONE)
            return o;
    } else {
        take_reply(s, ring, e);
    }
    bool reply_next = entry + 1 < program.entries && program.entry[entry + 1].kind == ENTRY_REPLY;
    s->before[ring] = e->kind == ENTRY_DATA && reply_next ? (uint8_t)(e->op[0] + 1) : 0;
    s->taken_entries |= bit(entry);
    s->taken[ring] += e->units;
    if (e->answer == NONE && !MUTANT(freed_at_completion))
        s->entry_ticket[entry] = 0;
    return DONE;
}

enum outcome proxy_visit(struct state *s, int ring)
{
    int ticket = s->taken[ring];
    if (!unit_is_there(s, ring, ticket))
        return ring_is_empty(s, ring);
    int entry = (s->unit[ring][ticket % config->depth][0] & 255) - 1;
    for (int u = 0; u < program.entry[entry].units; u++) {
        unsigned parity = 1 - (((ticket + u) / config->depth) & 1);
        if (!unit_is_there(s, ring, ticket + u))
            return ring_is_empty(s, ring);
        for (int half = 0; half < 2; half++) {
            unsigned word = s->unit[ring][(ticket + u) % config->depth][half];
            if (word != (parity << 15 | (unsigned)u << 8 | (unsigned)(entry + 1)))
                return violated("(3) TORN: the proxy reads %s with a word that is not its own",
                                program.entry[entry].name);
        }
    }
    return take(s, ring, entry);
}

enum outcome proxy_publish(struct state *s, int ring)
{
    int value = s->taken[ring];
    for (int e = 0; MUTANT(freed_at_completion) && e < program.entries; e++) {
        const struct entry *x = &program.entry[e];
        if (x->ring == ring && x->op[0] != NONE && has(s->taken_ops & s->open, x->op[0]) && s->entry_ticket[e] < value)
            value = s->entry_ticket[e];
    }
    if (value < s->published[ring] + (MUTANT(taken_lazily) ? 2 : 1))
        return BLOCKED;
    s->published[ring] = (uint8_t)value;
    DESCRIBE("proxy: publishes taken of ring %d = %d", ring, value);
    return DONE;
}

/* ---- replies, the host's quiet ----------------------------------------------------------------------------------- */

bool proxy_owes(const struct state *s, int answer)
{
    uint32_t reply = s->reply[answer], ops = reply & REPLY_OPS;
    if (!(reply & REPLY_OWED))
        return false;
    if (reply & REPLY_COUNT)
        return (uint32_t)__builtin_popcount(s->taken_ops & ~s->open) >= ops;
    if (reply & REPLY_SOURCE)
        return (ops & s->sent) || (MUTANT(reply_at_posting) && !(ops & all_pending_ops(s)));
    return !ops;
}

enum outcome proxy_answer(struct state *s, int answer)
{
    if (!proxy_owes(s, answer))
        return BLOCKED;
    int entry = 0;
    while (program.entry[entry].answer != answer)
        entry++;
    const struct entry *e = &program.entry[entry];
    int slot = s->entry_slot[entry];
    s->slot_value[e->ring][slot] = (uint8_t)(entry + 1);
    s->slot_ticket[e->ring][slot] = s->entry_ticket[entry];
    s->reply[answer] = 0;
    s->entry_slot[entry] = s->entry_ticket[entry] = 0;
    DESCRIBE("proxy: answers %s in slot %d of ring %d", e->name, slot, e->ring);
    return DONE;
}

void proxy_host_ask(struct state *s)
{
    for (int k = 0; k < (MUTANT(host_quiet_one_proxy) ? 1 : config->proxies); k++) {
        s->host_phase[k] = HOST_INTAKE;
        s->host_rings[k] = MUTANT(host_quiet_no_intake) ? 0 : (uint8_t)(bit(config->channels) - 1);
    }
}

static void host_note(struct state *s)
{
    for (int k = 0; k < config->proxies; k++) {
        if (s->host_phase[k] == HOST_INTAKE && !s->host_rings[k]) {
            s->host_phase[k] = HOST_NOTED;
            s->host_after[k] = s->open & proxy_ops(k);
            want(s, s->host_after[k]);
        }
    }
}

bool proxy_host_answered(const struct state *s)
{
    for (int k = 0; k < (MUTANT(host_quiet_one_proxy) ? 1 : config->proxies); k++)
        if (s->host_phase[k] != HOST_NOTED || s->host_after[k])
            return false;
    return true;
}

/* ---- what follows at once ---------------------------------------------------------------------------------------- */

enum outcome proxy_settle(struct state *s)
{
    for (bool again = true; again;) {
        again = false;
        host_note(s);
        for (int d = 0; d < config->dests; d++)
            flush(s, d);
        for (int op = 0; op < program.wires; op++) {
            if (has(s->open, op) && op_is_complete(s, op)) {
                op_complete(s, op);
                again = true;
            }
        }
        if (config->detail & LAZY)
            continue;
        for (int d = 0; d < config->dests; d++) {
            enum outcome o = proxy_pump(s, d);
            if (o == VIOLATED)
                return o;
            again |= o == DONE;
        }
        for (int r = 0; r < program.rings; r++)
            again |= proxy_publish(s, r) == DONE;
    }
    return DONE;
}
