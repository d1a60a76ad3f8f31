/*
 * dest.c - operations on their way: the lists of a destination, what may be posted when, completion in any order,
 * quiets, and what happens when a destination fails.
 */
#include <stdio.h>
#include <string.h>

#include "proxy/engine.h"

struct tern_dest *tern_dest_of(struct tern_proxy_thread *t, int pe)
{
    int threads = t->px->threads;
    if (pe < 0 || pe >= t->px->rt->n_pes || pe % threads != t->index)
        return NULL;
    return &t->dests[pe / threads];
}

void *tern_op_local(const struct tern_proxy_thread *t, const struct tern_op *op)
{
    const struct tern_proxy *px = t->px;
    if (op->segment == 0)
        return px->rt->span + op->local;
    return (char *)(uintptr_t)__atomic_load_n(&px->buffers[op->segment - 1].base, __ATOMIC_RELAXED) + op->local;
}

void tern_op_text(const struct tern_proxy_thread *t, const struct tern_op *op, char *buf, size_t bytes)
{
    static const char *const kinds[] = {"put", "get", "put", "put_signal", "get", "atomic"};
    snprintf(buf, bytes, "%s of %llu bytes to PE %d (proxy thread %d, ring %u)", kinds[op->kind],
             (unsigned long long)op->bytes, op->dest->pe, t->index, op->ring);
}

void tern_dest_activate(struct tern_proxy_thread *t, struct tern_dest *dest)
{
    if (dest->active)
        return;
    dest->active = true;
    dest->active_next = t->active;
    t->active = dest;
}

/* Everything up to `number` is to be complete at the target. */
static void dest_want(struct tern_proxy_thread *t, struct tern_dest *dest, uint64_t number)
{
    if (number > dest->flush_want)
        dest->flush_want = number;
    tern_dest_activate(t, dest);
}

void tern_dest_want_all(struct tern_proxy_thread *t, struct tern_dest *dest)
{
    if (dest->last)
        dest_want(t, dest, dest->last->number);
}

/* ---- lists ------------------------------------------------------------------------------------------------------- */

/*
 * A destination may hold as many operations that are posted as it may hold others, so that it never has the whole pool.
 * One of the pool is always left, in which operations that are not to be are decoded.
 */
bool tern_dest_room(struct tern_proxy_thread *t, struct tern_dest *dest, uint32_t count)
{
    uint32_t most = t->px->pending_most, pending = dest->pending_count + count;

    if (dest->failed != TERN_OK ||
        (pending <= most && pending + dest->posted_count <= 2 * most && t->free_count > count))
        return true;
    tern_dest_want_all(t, dest);
    return false;
}

struct tern_op *tern_op_next(struct tern_proxy_thread *t)
{
    return t->free_ops ? t->free_ops : &t->pool[t->pool_used];
}

static void op_failed(struct tern_dest *dest, uint64_t number)
{
    if (!dest->failed_first || number < dest->failed_first)
        dest->failed_first = number;
    if (number > dest->failed_last)
        dest->failed_last = number;
}

bool tern_op_add(struct tern_proxy_thread *t, struct tern_dest *dest, int channel)
{
    struct tern_op *op = tern_op_next(t);
    struct tern_ring_in *ring = &t->rings[channel];

    op->number = ++t->number;
    ring->last = (struct tern_last){op, op->number, dest->failed};
    if (dest->failed != TERN_OK) {
        ring->last.op = NULL;
        op_failed(dest, op->number);
        if (op->answer)
            tern_reply_store(t, channel, op->slot, op->ticket, 0, dest->failed);
        return false;
    }
    if (t->free_ops)
        t->free_ops = op->next;
    else
        t->pool_used++;
    t->free_count--;
    op->next = op->all_next = NULL;
    op->prev = dest->last;
    *(dest->last ? &dest->last->next : &dest->first) = op;
    dest->last = op;
    op->all_prev = t->all_last;
    *(t->all_last ? &t->all_last->all_next : &t->all_first) = op;
    t->all_last = op;
    if (!dest->pending)
        dest->pending = op;
    dest->pending_count++;
    op->dest = dest;
    op->after = ring->fence;
    op->ring = (uint16_t)channel;
    op->taken_ms = t->now_ms;
    op->state = TERN_OP_PENDING;
    tern_dest_activate(t, dest);
    return true;
}

static void op_unlink(struct tern_proxy_thread *t, struct tern_op *op)
{
    struct tern_dest *dest = op->dest;

    if (op->state == TERN_OP_PENDING) {
        if (dest->pending == op)
            dest->pending = op->next;
        dest->pending_count--;
    } else {
        dest->posted_count--;
    }
    *(op->prev ? &op->prev->next : &dest->first) = op->next;
    *(op->next ? &op->next->prev : &dest->last) = op->prev;
    *(op->all_prev ? &op->all_prev->all_next : &t->all_first) = op->all_next;
    *(op->all_next ? &op->all_next->all_prev : &t->all_last) = op->all_prev;
    op->state = TERN_OP_FREE;
    op->next = t->free_ops;
    t->free_ops = op;
    t->free_count++;
}

/* ---- quiets ----------------------------------------------------------------------------------------------------- */

static bool quiet_reached(const struct tern_proxy_thread *t, const struct tern_quiet *quiet)
{
    const struct tern_op *first = quiet->dest ? quiet->dest->first : t->all_first;
    return !first || first->number > quiet->number;
}

/*
 * A failure that the quiet covers, and none of this ring has told yet. Where operations before and after the quiet have
 * failed, one of those before is taken to be new.
 */
static tern_status_t quiet_status(const struct tern_proxy_thread *t, const struct tern_quiet *quiet, uint64_t told)
{
    for (int i = 0; t->failures && i < t->dest_count; i++) {
        const struct tern_dest *dest = &t->dests[i];
        if ((!quiet->dest || quiet->dest == dest) && dest->failed_first && dest->failed_first <= quiet->number &&
            dest->failed_last > told)
            return dest->failed;
    }
    return TERN_OK;
}

static void quiet_answer(struct tern_proxy_thread *t, const struct tern_quiet *quiet)
{
    struct tern_ring_in *ring = &t->rings[quiet->ring];
    uint64_t *told = quiet->host ? &t->host_number : &ring->quiet_number;
    tern_status_t status = quiet_status(t, quiet, *told);

    if (!quiet->dest)
        *told = quiet->number;
    if (!quiet->host) {
        tern_reply_store(t, quiet->ring, quiet->slot, quiet->ticket, 0, status);
        return;
    }
    t->host_quiet_status = (int)status;
    t->host_ring = 0;
    atomic_store_explicit(&t->host_quiet_done, (uint32_t)quiet->ticket, memory_order_release);
}

static void quiets_check(struct tern_proxy_thread *t, struct tern_quiets *quiets)
{
    struct tern_quiet *quiet;
    while ((quiet = quiets->first) && quiet_reached(t, quiet)) {
        quiets->first = quiet->next;
        if (!quiets->first)
            quiets->tail = &quiets->first;
        quiet_answer(t, quiet);
    }
}

void tern_quiet_begin(struct tern_proxy_thread *t, struct tern_quiet *quiet)
{
    struct tern_quiets *quiets = quiet->dest ? &quiet->dest->quiets : &t->quiets;

    if (quiet_reached(t, quiet)) {
        quiet_answer(t, quiet);
        return;
    }
    quiet->next = NULL;
    *quiets->tail = quiet;
    quiets->tail = &quiet->next;
    for (int i = 0; i < t->dest_count; i++) {
        struct tern_dest *dest = &t->dests[i];
        if ((!quiet->dest || quiet->dest == dest) && dest->first && dest->first->number <= quiet->number)
            dest_want(t, dest, quiet->number);
    }
}

/* ---- failure ----------------------------------------------------------------------------------------------------- */

static bool on_death_abort(const struct tern_rt *rt)
{
    return rt->env.on_death == 0; /* TERN_ON_DEATH=abort */
}

/* Told once, by what found it out. */
static void dest_lose(struct tern_proxy_thread *t, struct tern_dest *dest, tern_status_t status,
                      const struct tern_op *op, const char *why)
{
    struct tern_rt *rt = t->px->rt;
    char text[160];

    if (op)
        tern_op_text(t, op, text, sizeof text);
    else
        snprintf(text, sizeof text, "the way to PE %d (proxy thread %d)", dest->pe, t->index);
    dest->failed = status;
    dest->failed_now = true;
    t->failures++;
    if (on_death_abort(rt))
        tern_control_abort(rt, status, dest->pe, "%s failed: %s", text, why);
    else
        tern_log(TERN_LOG_WARN, "%s failed: %s; nothing goes to PE %d any more", text, why, dest->pe);
    tern_dest_activate(t, dest);
}

/* What was not posted ends; what was posted ends by the transport, an RPC by itself: its answer will find nobody. */
static void dest_clear(struct tern_proxy_thread *t, struct tern_dest *dest)
{
    struct tern_op *op, *next;

    if (dest->failed_now && t->px->transport && t->px->transport->dest_fail)
        t->px->transport->dest_fail(t, dest, dest->failed);
    dest->failed_now = false;
    for (op = dest->first; op; op = next) {
        next = op->next;
        if (op->state == TERN_OP_PENDING || op->rpc)
            tern_op_done(t, op, dest->failed);
    }
    dest->rpc_busy = false;
}

void tern_dest_fail(struct tern_proxy_thread *t, struct tern_dest *dest, tern_status_t status, const struct tern_op *op,
                    const char *why)
{
    if (dest->failed != TERN_OK)
        return;
    dest_lose(t, dest, status, op, why);
    dest_clear(t, dest);
}

/*
 * An operation failed by itself. A wrong address is the program's fault and ends the job, as it does where the proxy
 * finds it; else its destination is lost. What else is under way to it ends later: the transport is in the midst of its
 * own lists.
 */
static void op_fail(struct tern_proxy_thread *t, struct tern_op *op, tern_status_t status)
{
    struct tern_rt *rt = t->px->rt;
    char text[160];

    op_failed(op->dest, op->number);
    t->failures++;
    if (op->dest->failed != TERN_OK)
        return;
    if (status != TERN_ERR_INVALID && status != TERN_ERR_UNSUPPORTED) {
        dest_lose(t, op->dest, status, op, tern_status_text(status));
        return;
    }
    tern_op_text(t, op, text, sizeof text);
    tern_control_abort(rt, status, rt->pe, "%s at offset %#llx was refused: %s", text, (unsigned long long)op->remote,
                       tern_status_text(status));
}

/* ---- completion -------------------------------------------------------------------------------------------------- */

void tern_op_sent(struct tern_proxy_thread *t, struct tern_op *op)
{
    op->state = TERN_OP_SENT;
    if (op->answer)
        tern_reply_store(t, op->ring, op->slot, op->ticket, 0, TERN_OK);
    op->answer = false;
}

void tern_op_done(struct tern_proxy_thread *t, struct tern_op *op, tern_status_t status)
{
    struct tern_dest *dest = op->dest;
    struct tern_last *last = &t->rings[op->ring].last;

    if (last->number == op->number)
        last->status = status;
    if (status != TERN_OK)
        op_fail(t, op, status);
    if (op->answer)
        tern_reply_store(t, op->ring, op->slot, op->ticket, status == TERN_OK ? op->value : 0, status);
    op_unlink(t, op);
    if (dest->quiets.first)
        quiets_check(t, &dest->quiets);
    if (t->quiets.first)
        quiets_check(t, &t->quiets);
}

/* ---- posting ----------------------------------------------------------------------------------------------------- */

/* May it go now? If it must wait for others, they are made to complete. */
static bool op_may_go(struct tern_proxy_thread *t, struct tern_dest *dest, const struct tern_op *op)
{
    if (op->rpc) { /* behind everything */
        if (dest->first != op)
            dest_want(t, dest, op->number - 1);
        return dest->first == op;
    }
    if ((t->px->caps & TERN_NET_ORDERED) || dest->first == op || dest->first->number > op->after)
        return true;
    dest_want(t, dest, op->after);
    return false;
}

/* False: it stays where it is. */
static bool op_post(struct tern_proxy_thread *t, struct tern_dest *dest, struct tern_op *op)
{
    uint64_t number = op->number, bytes = op->bytes;
    uint8_t kind = op->kind;

    op->state = TERN_OP_POSTED;
    dest->pending = op->next;
    dest->pending_count--;
    dest->posted_count++;
    enum tern_post posted = t->px->transport->post(t, op); /* which may have ended it */
    if (posted == TERN_POSTED) {
        tern_dest_count(dest, number, bytes, kind);
        return true;
    }
    op->state = TERN_OP_PENDING;
    dest->pending = op;
    dest->pending_count++;
    dest->posted_count--;
    if (posted == TERN_POST_FAILED) {
        char why[256];
        snprintf(why, sizeof why, "%s", tern_last_error());
        tern_dest_fail(t, dest, TERN_ERR_TRANSPORT, op, why);
    }
    return false;
}

/* A flush covers what has been posted: call it again when more of what is wanted has been. */
static bool dest_flush(struct tern_proxy_thread *t, struct tern_dest *dest)
{
    uint64_t upto =
        dest->pending && dest->pending->number <= dest->flush_want ? dest->pending->number - 1 : dest->flush_want;

    if (upto <= dest->flushed || !dest->first || dest->first->number > upto)
        return false;
    dest->flushed = upto;
    if (t->px->transport && t->px->transport->flush)
        t->px->transport->flush(t, dest);
    return true;
}

bool tern_dest_pump(struct tern_proxy_thread *t, struct tern_dest *dest)
{
    struct tern_op *op;
    bool any = false;

    while ((op = dest->pending) && !dest->rpc_busy && dest->failed == TERN_OK && op_may_go(t, dest, op)) {
        if (op->rpc ? !tern_rpc_send(t, dest) : !op_post(t, dest, op))
            break;
        any = true;
    }
    if (dest->failed == TERN_OK)
        return dest_flush(t, dest) || any;
    any |= dest->failed_now || dest->pending;
    if (any)
        dest_clear(t, dest);
    return any;
}

bool tern_dests_pump(struct tern_proxy_thread *t)
{
    struct tern_dest *dest = t->active, *next;
    bool any = false;

    for (t->active = NULL; dest; dest = next) {
        next = dest->active_next;
        dest->active = false;
        any |= tern_dest_pump(t, dest);
        if (dest->pending)
            tern_dest_activate(t, dest);
    }
    return any;
}
