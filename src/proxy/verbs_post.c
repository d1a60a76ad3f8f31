/*
 * verbs_post.c - data path of the verbs transport: one thread, its completion queue, its queue pairs.
 *
 * A queue pair executes its requests in order, so that a put's signal behind it, and a fence, cost nothing; but what
 * comes behind a read or an atomic may overtake it, unless it has the fence flag. A completed write is sent, not yet
 * complete at the target: a read of one byte behind it pushes it there. So puts are completed by flushes, the others by
 * themselves. Few requests are signaled; a completion ends all requests before it.
 */
#include "proxy/verbs.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "host/log.h"

#define VERDICT_MS 1000u /* after which a broken queue pair without a death is a failure of its own */
#define SELF_MS 10000u   /* bound of an atomic on own words */
#define RESERVE 2u       /* requests kept free for a flush */
#define POLL_MOST 32
#define REQUEST_BITS 40 /* of a request's number in wr_id, the destination above */

static uint64_t now_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

void verbs_lost(struct verbs_dest *d, const char *what)
{
    struct verbs_thread *vt = d->t->net;
    if (d->lost_ms || d->failed != TERN_OK)
        return;
    snprintf(d->why, sizeof d->why, "verbs: %s", what);
    d->lost_ms = d->t->now_ms ? d->t->now_ms : 1;
    d->lost_next = vt->lost;
    vt->lost = d;
    d->state = VERBS_BROKEN;
}

/* ---- work requests ----------------------------------------------------------------------------------------------- */

/* Requests of one doorbell. */
struct list {
    struct ibv_send_wr wr[VERBS_LIST];
    struct ibv_sge sge[VERBS_LIST];
    unsigned count;
};

static struct verbs_request *request_at(struct verbs_dest *d, uint64_t number)
{
    const struct verbs_net *net = d->t->px->net;
    return &d->requests[number & (net->depth - 1)];
}

static uint32_t room(const struct verbs_dest *d)
{
    const struct verbs_net *net = d->t->px->net;
    return net->depth - (uint32_t)(d->head - d->tail);
}

/* Room for a request that is signaled, if it has to be. */
static bool may_signal(const struct verbs_thread *vt)
{
    return vt->signals < vt->signals_most;
}

static struct ibv_send_wr *list_add(struct verbs_dest *d, struct list *l, struct verbs_request request,
                                    enum ibv_wr_opcode opcode, bool signaled)
{
    struct verbs_thread *vt = d->t->net;
    struct ibv_send_wr *wr = &l->wr[l->count];
    uint64_t number = d->head++;

    *wr = (struct ibv_send_wr){
        .wr_id = (uint64_t)(d - vt->dests) << REQUEST_BITS | (number & ((1ull << REQUEST_BITS) - 1)),
        .sg_list = &l->sge[l->count],
        .num_sge = 1,
        .opcode = opcode,
    };
    if (l->count)
        l->wr[l->count - 1].next = wr;
    l->count++;
    *request_at(d, number) = request;
    if (signaled || d->head - d->signaled >= VERBS_SIGNAL_EVERY) {
        wr->send_flags |= IBV_SEND_SIGNALED;
        d->signaled = d->head;
        d->signals++;
        vt->signals++;
    }
    return wr;
}

static bool list_post(struct verbs_dest *d, struct list *l)
{
    struct ibv_send_wr *bad;
    int error = l->count ? d->qp->context->ops.post_send(d->qp, l->wr, &bad) : 0;

    l->count = 0;
    if (!error)
        return true;
    verbs_lost(d, strerror(error));
    return false;
}

/* ---- operations -------------------------------------------------------------------------------------------------- */

/* How much of an operation has been posted: kept in its words for the transport. */
#define OP_BEGUN(op) ((op)->net[0]) /* its number, when it has begun */
#define OP_BYTES(op) ((op)->net[1])

static bool op_reads(const struct tern_op *op)
{
    return op->kind == TERN_OP_GET || op->kind == TERN_OP_G || op->kind == TERN_OP_AMO;
}

/* What an operation that has to come behind all reads before a fence needs: they are still under way. */
static unsigned fence_flag(const struct verbs_dest *d, const struct tern_op *op)
{
    return d->reads && op->after >= d->reads_first ? IBV_SEND_FENCE : 0;
}

static void read_count(struct verbs_dest *d, const struct tern_op *op)
{
    if (!d->reads++)
        d->reads_first = op->number;
}

static uint16_t slot_take(struct verbs_thread *vt)
{
    return vt->free_count ? vt->free_slots[--vt->free_count] : 0;
}

static void slot_free(struct verbs_thread *vt, uint16_t slot)
{
    if (slot)
        vt->free_slots[vt->free_count++] = slot;
}

/* The local side of an operation from `offset` on: address, key and bytes that lie in one registration. */
static bool local_side(struct verbs_dest *d, const struct tern_op *op, uint64_t offset, struct ibv_sge *sge,
                       uint64_t *left)
{
    struct verbs_net *net = d->t->px->net;
    struct verbs_chunk *chunk;

    if (op->segment) {
        sge->addr = (uint64_t)(uintptr_t)tern_op_local(d->t, op) + offset;
        sge->lkey = net->buffers[op->segment]->lkey;
        *left = op->bytes - offset;
        return true;
    }
    chunk = verbs_chunk_find(&net->own, op->local + offset);
    if (!chunk)
        return false;
    sge->addr = chunk->base + op->local + offset;
    sge->lkey = chunk->lkey;
    *left = chunk->offset + chunk->bytes - (op->local + offset);
    return true;
}

/* Add the next piece of a put or get, cut at the edges of chunks on both sides. False: an address without memory. */
static bool piece_add(struct verbs_dest *d, struct list *l, struct tern_op *op)
{
    struct verbs_net *net = d->t->px->net;
    uint64_t offset = OP_BYTES(op), bytes = op->bytes - offset, left;
    struct verbs_chunk *there = verbs_chunk_find(&net->peers[d->dest->pe], op->remote + offset);
    bool get = op->kind == TERN_OP_GET, whole;
    struct ibv_sge sge;

    if (!there || !local_side(d, op, offset, &sge, &left))
        return false;
    bytes = bytes < left ? bytes : left;
    left = there->offset + there->bytes - (op->remote + offset);
    bytes = bytes < left ? bytes : left;
    bytes = bytes < net->most_bytes ? bytes : net->most_bytes;
    whole = offset + bytes == op->bytes && op->kind != TERN_OP_PUT_SIGNAL;
    sge.length = (uint32_t)bytes;
    unsigned flags = offset == 0 ? fence_flag(d, op) : 0;
    struct verbs_request request = {.op = op, .what = whole ? VERBS_LAST : VERBS_PART, .waits = get};
    struct ibv_send_wr *wr =
        list_add(d, l, request, get ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, whole && (get || op->answer));
    *wr->sg_list = sge;
    wr->send_flags |= flags;
    wr->wr.rdma.remote_addr = there->base + op->remote + offset;
    wr->wr.rdma.rkey = there->rkey;
    if (get)
        read_count(d, op);
    OP_BYTES(op) += bytes;
    return true;
}

/* A word that the request carries: of a p, or a signal. */
static void word_add(struct verbs_dest *d, struct list *l, struct tern_op *op, uint64_t offset, unsigned bytes,
                     unsigned flags)
{
    struct verbs_net *net = d->t->px->net;
    struct verbs_chunk *there = verbs_chunk_find(&net->peers[d->dest->pe], offset);
    struct verbs_request request = {.op = op, .what = VERBS_LAST};
    struct ibv_send_wr *wr = list_add(d, l, request, IBV_WR_RDMA_WRITE, op->answer || op->kind == TERN_OP_PUT_SIGNAL);

    *wr->sg_list = (struct ibv_sge){(uint64_t)(uintptr_t)&op->value, bytes, 0};
    wr->send_flags |= IBV_SEND_INLINE | flags;
    wr->wr.rdma.remote_addr = there->base + offset;
    wr->wr.rdma.rkey = there->rkey;
}

/* g, and atomics of the NIC: a result comes back. */
static void fetch_add(struct verbs_dest *d, struct list *l, struct tern_op *op, uint16_t slot)
{
    struct verbs_net *net = d->t->px->net;
    struct verbs_thread *vt = d->t->net;
    struct verbs_chunk *there = verbs_chunk_find(&net->peers[d->dest->pe], op->remote);
    unsigned flags = fence_flag(d, op);
    struct verbs_request request = {.op = op, .what = VERBS_LAST, .waits = true, .slot = slot};
    enum ibv_wr_opcode opcode = op->kind == TERN_OP_G     ? IBV_WR_RDMA_READ
                                : op->amo == TERN_AMO_cas ? IBV_WR_ATOMIC_CMP_AND_SWP
                                                          : IBV_WR_ATOMIC_FETCH_AND_ADD;
    struct ibv_send_wr *wr = list_add(d, l, request, opcode, true);

    read_count(d, op);
    wr->send_flags |= flags;
    *wr->sg_list =
        (struct ibv_sge){(uint64_t)(uintptr_t)&vt->results[slot - 1], (uint32_t)op->bytes, vt->results_mr->lkey};
    if (op->kind == TERN_OP_G) {
        wr->wr.rdma.remote_addr = there->base + op->remote;
        wr->wr.rdma.rkey = there->rkey;
        return;
    }
    wr->wr.atomic.remote_addr = there->base + op->remote;
    wr->wr.atomic.rkey = there->rkey;
    wr->wr.atomic.compare_add = op->amo == TERN_AMO_cas ? op->compare : op->value;
    wr->wr.atomic.swap = op->value;
}

/* Its memory at the target is there: what lies between first and last byte is, since chunks follow each other. */
static bool op_has_memory(struct verbs_dest *d, const struct tern_op *op)
{
    struct verbs_net *net = d->t->px->net;
    struct verbs_peer *peer = &net->peers[d->dest->pe];
    bool there =
        (!op->bytes || (verbs_chunk_find(peer, op->remote) && verbs_chunk_find(peer, op->remote + op->bytes - 1))) &&
        (op->kind != TERN_OP_PUT_SIGNAL || verbs_chunk_find(peer, op->signal));
    if (!there)
        tern_error(TERN_ERR_INVALID, "offset %#llx of PE %d lies beyond its heap; pass symmetric memory",
                   (unsigned long long)op->remote, d->dest->pe);
    return there;
}

static enum tern_post copy_post(struct verbs_dest *d, struct tern_op *op)
{
    struct verbs_thread *vt = d->t->net;
    struct list l = {.count = 0};

    while (OP_BYTES(op) < op->bytes) {
        if (room(d) <= RESERVE + 1 || !may_signal(vt)) {
            list_post(d, &l);
            return TERN_POST_BUSY;
        }
        if (!piece_add(d, &l, op)) {
            tern_error(TERN_ERR_INVALID,
                       "an operation to PE %d goes beyond memory; pass symmetric or registered memory", d->dest->pe);
            list_post(d, &l);
            return TERN_POST_FAILED;
        }
        if (l.count >= VERBS_LIST - 1 && !list_post(d, &l))
            return TERN_POST_BUSY;
    }
    if (op->kind == TERN_OP_PUT_SIGNAL)
        word_add(d, &l, op, op->signal, 8, op->bytes ? 0 : fence_flag(d, op));
    list_post(d, &l); /* a failure is found in a later turn */
    return TERN_POSTED;
}

static enum tern_post word_post(struct verbs_dest *d, struct tern_op *op)
{
    struct verbs_thread *vt = d->t->net;
    struct list l = {.count = 0};

    if (op->kind == TERN_OP_WORD) {
        word_add(d, &l, op, op->remote, (unsigned)op->bytes, fence_flag(d, op));
    } else {
        uint16_t slot = slot_take(vt);
        if (!slot)
            return TERN_POST_BUSY;
        fetch_add(d, &l, op, slot);
    }
    list_post(d, &l);
    return TERN_POSTED;
}

enum tern_post verbs_post(struct tern_proxy_thread *t, struct tern_op *op)
{
    struct verbs_dest *d = verbs_dest_of(t, op->dest);

    if (d->lost_ms)
        return TERN_POST_BUSY;
    if (!verbs_connect(d))
        return TERN_POST_FAILED;
    if (!d->ready || room(d) <= RESERVE + 1 || !may_signal(t->net))
        return TERN_POST_BUSY;
    if (OP_BEGUN(op) != op->number) {
        if (!op_has_memory(d, op))
            return TERN_POST_FAILED;
        OP_BEGUN(op) = op->number;
        OP_BYTES(op) = 0;
    }
    return op->kind <= TERN_OP_GET || op->kind == TERN_OP_PUT_SIGNAL ? copy_post(d, op) : word_post(d, op);
}

/* ---- flush ------------------------------------------------------------------------------------------------------- */

static bool flush_post(struct verbs_dest *d)
{
    struct verbs_net *net = d->t->px->net;
    struct verbs_thread *vt = d->t->net;
    struct verbs_chunk *there = NULL;
    struct list l = {.count = 0};

    if (!d->qp || d->lost_ms || d->flushed >= d->flush_wanted)
        return true;
    if (room(d) < RESERVE || !may_signal(vt))
        return false;
    for (int i = 0; i < TERN_NET_CHUNKS && !there; i++)
        there = atomic_load_explicit(&net->peers[d->dest->pe].chunks[i], memory_order_acquire);
    struct verbs_request request = {.number = d->flush_wanted, .what = VERBS_FLUSH};
    struct ibv_send_wr *wr = list_add(d, &l, request, IBV_WR_RDMA_READ, true);
    *wr->sg_list = (struct ibv_sge){(uint64_t)(uintptr_t)&vt->results[VERBS_FLUSHED], 1, vt->results_mr->lkey};
    wr->wr.rdma.remote_addr = there->base + there->offset;
    wr->wr.rdma.rkey = there->rkey;
    d->flushed = d->flush_wanted;
    list_post(d, &l);
    return true;
}

void verbs_flush(struct tern_proxy_thread *t, struct tern_dest *dest)
{
    struct verbs_thread *vt = t->net;
    struct verbs_dest *d = verbs_dest_of(t, dest);

    if (dest->flushed > d->flush_wanted)
        d->flush_wanted = dest->flushed;
    if (flush_post(d) || d->flush_pending)
        return;
    d->flush_pending = true;
    d->flush_next = vt->flushes;
    vt->flushes = d;
}

/* ---- completion -------------------------------------------------------------------------------------------------- */

/* A read of `bytes` of the own span through the NIC, an inline write, or an atomic: done on return. */
static tern_status_t self_do(struct tern_proxy_thread *t, enum ibv_wr_opcode opcode, uint64_t offset, unsigned bytes,
                             uint64_t first, uint64_t second, uint64_t *old)
{
    struct verbs_net *net = t->px->net;
    struct verbs_thread *vt = t->net;
    struct verbs_chunk *chunk = verbs_chunk_find(&net->own, offset);
    bool atomic = opcode == IBV_WR_ATOMIC_CMP_AND_SWP, write = opcode == IBV_WR_RDMA_WRITE;
    struct ibv_sge sge = {(uint64_t)(uintptr_t)&vt->results[VERBS_OWN], bytes, vt->results_mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED}, *bad;
    struct ibv_wc wc;
    uint64_t begin = now_ms();
    int n = 0;

    if (!chunk)
        return TERN_ERR_INVALID;
    if (atomic) {
        wr.wr.atomic.remote_addr = chunk->base + offset;
        wr.wr.atomic.rkey = chunk->rkey;
        wr.wr.atomic.compare_add = first;
        wr.wr.atomic.swap = second;
    } else {
        wr.wr.rdma.remote_addr = chunk->base + offset;
        wr.wr.rdma.rkey = chunk->rkey;
    }
    if (write) {
        sge = (struct ibv_sge){(uint64_t)(uintptr_t)&first, bytes, 0};
        wr.send_flags |= IBV_SEND_INLINE;
    }
    vt->results[VERBS_OWN] = 0;
    if (vt->self->context->ops.post_send(vt->self, &wr, &bad) != 0)
        return TERN_ERR_TRANSPORT;
    while ((n = vt->self_cq->context->ops.poll_cq(vt->self_cq, 1, &wc)) == 0 && now_ms() - begin < SELF_MS)
        sched_yield();
    if (n != 1 || wc.status != IBV_WC_SUCCESS) {
        tern_log(TERN_LOG_ERROR, "verbs: an atomic on own memory through %s failed: %s", net->nic.device,
                 n == 1 ? verbs.ibv_wc_status_str(wc.status) : "no completion");
        return TERN_ERR_TRANSPORT;
    }
    *old = vt->results[VERBS_OWN];
    return TERN_OK;
}

/* What reads have placed in GPU memory is visible there when a read behind them has come back: completions go another
 * way. */
static void gets_visible(struct tern_proxy_thread *t, struct tern_op **gets, int count)
{
#ifdef TERN_DEVICE_CUDA
    const struct verbs_net *net = t->px->net;
    struct verbs_chunk *chunk = atomic_load(&net->own.chunks[0]);
    uint64_t unused;
    tern_status_t status = count ? self_do(t, IBV_WR_RDMA_READ, chunk->offset, 1, 0, 0, &unused) : TERN_OK;
#else
    tern_status_t status = TERN_OK;
#endif
    for (int i = 0; i < count; i++)
        tern_op_done(t, gets[i], status);
}

/* Puts up to `number` are complete at the target. */
static void flush_over(struct verbs_dest *d, uint64_t number)
{
    struct tern_op *op = d->dest->first, *next;

    for (; op && op != d->dest->pending && op->number <= number; op = next) {
        next = op->next;
        if (!op->rpc && !op_reads(op))
            tern_op_done(d->t, op, TERN_OK);
    }
}

/* Completed gets wait in `gets` for their visibility. */
static void request_over(struct verbs_dest *d, const struct verbs_request *request, struct tern_op **gets, int *count)
{
    struct verbs_thread *vt = d->t->net;
    struct tern_op *op = request->op;

    if (request->waits)
        d->reads--;
    if (request->what == VERBS_FLUSH) {
        flush_over(d, request->number);
    } else if (request->what == VERBS_LAST && op->kind == TERN_OP_GET) {
        gets[(*count)++] = op;
    } else if (request->what == VERBS_LAST && op_reads(op)) {
        op->value = 0;
        memcpy(&op->value, &vt->results[request->slot - 1], op->bytes);
        slot_free(vt, request->slot);
        tern_op_done(d->t, op, TERN_OK);
    } else if (request->what == VERBS_LAST && op->state == TERN_OP_POSTED) {
        tern_op_sent(d->t, op);
    }
}

static void completed(struct tern_proxy_thread *t, const struct ibv_wc *wc, struct tern_op **gets, int *count)
{
    struct verbs_thread *vt = t->net;
    struct verbs_dest *d = &vt->dests[wc->wr_id >> REQUEST_BITS];
    uint64_t last;

    if (d->lost_ms || d->failed != TERN_OK)
        return;
    if (wc->status != IBV_WC_SUCCESS) {
        verbs_lost(d, verbs.ibv_wc_status_str(wc->status));
        return;
    }
    d->signals--;
    vt->signals--;
    last = d->tail + ((wc->wr_id - d->tail) & ((1ull << REQUEST_BITS) - 1));
    while (d->tail <= last) {
        struct verbs_request request = *request_at(d, d->tail++);
        request_over(d, &request, gets, count);
    }
    if (d->dest->pending)
        tern_dest_activate(t, d->dest);
}

static void lost_look(struct tern_proxy_thread *t)
{
    struct verbs_thread *vt = t->net;
    struct verbs_dest **link = &vt->lost, *d;

    while ((d = *link)) {
        if (d->failed == TERN_OK && t->now_ms - d->lost_ms > VERDICT_MS)
            tern_dest_fail(t, d->dest, TERN_ERR_TRANSPORT, d->dest->first, d->why);
        if (d->failed == TERN_OK)
            link = &d->lost_next;
        else
            *link = d->lost_next;
    }
}

static void flushes_look(struct verbs_thread *vt)
{
    struct verbs_dest *d = vt->flushes, *next;

    vt->flushes = NULL;
    for (; d; d = next) {
        next = d->flush_next;
        d->flush_pending = !flush_post(d);
        if (d->flush_pending) {
            d->flush_next = vt->flushes;
            vt->flushes = d;
        }
    }
}

bool verbs_poll(struct tern_proxy_thread *t)
{
    struct verbs_thread *vt = t->net;
    struct ibv_wc wc[POLL_MOST];
    struct tern_op *gets[POLL_MOST]; /* one a completion at most: their last requests are signaled */
    int n = vt->cq->context->ops.poll_cq(vt->cq, POLL_MOST, wc), count = 0;

    for (int i = 0; i < n; i++)
        completed(t, &wc[i], gets, &count);
    gets_visible(t, gets, count);
    if (vt->flushes)
        flushes_look(vt);
    if (vt->lost)
        lost_look(t);
    return n > 0;
}

/* The queue pair goes first: no memory is read or written behind the program's back. */
void verbs_dest_fail(struct tern_proxy_thread *t, struct tern_dest *dest, tern_status_t status)
{
    struct verbs_thread *vt = t->net;
    struct verbs_dest *d = verbs_dest_of(t, dest);
    struct tern_op *op = dest->first, *next;

    d->failed = status;
    verbs_disconnect(d);
    vt->signals -= d->signals;
    d->signals = 0;
    for (; d->tail < d->head; d->tail++)
        slot_free(vt, request_at(d, d->tail)->slot);
    for (; op && op != dest->pending; op = next) {
        next = op->next;
        if (!op->rpc && op->state != TERN_OP_PENDING)
            tern_op_done(t, op, status);
    }
}

/* ---- own words, for atomics by the owner --------------------------------------------------------------------------
 */

tern_status_t verbs_word_load(struct tern_proxy_thread *t, uint64_t offset, unsigned size, uint64_t *value)
{
    return self_do(t, IBV_WR_RDMA_READ, offset, size, 0, 0, value);
}

tern_status_t verbs_word_store(struct tern_proxy_thread *t, uint64_t offset, unsigned size, uint64_t value)
{
    uint64_t unused;
    return self_do(t, IBV_WR_RDMA_WRITE, offset, size, value, 0, &unused);
}

tern_status_t verbs_word_swap(struct tern_proxy_thread *t, uint64_t offset, uint64_t compare, uint64_t value,
                              uint64_t *seen)
{
    return self_do(t, IBV_WR_ATOMIC_CMP_AND_SWP, offset, 8, compare, value, seen);
}
