/*
 * ucx_post.c - data path of the UCX transport: one thread, its worker, its endpoints.
 *
 * A put of UCX completes locally only; a flush of the endpoint completes, at the target, what was posted before it.
 * Wire operations to a destination are counted, a flush notes the count at its start, and when it ends every operation
 * whose last wire operation lies below is complete. A put_signal posts its data, and its signal when a flush has
 * covered the data; others go on meanwhile. Memory that UCX has not allocated itself is written by the target's
 * progress, so poll() is called all the time.
 */
#include "proxy/ucx.h"

#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define UCX_MOST_POSTED 1024u /* operations to one destination, of which a flush begins by itself at half */
#define UCX_CLOSE_MS 2000u    /* bound of closing all endpoints */
#define UCX_VERDICT_MS 1000u  /* after which a broken connection without a death is a failure of its own */

static void flush_begin(struct ucx_dest *d);

static uint64_t now_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static struct ucx_dest *dest_net(struct tern_proxy_thread *t, struct tern_dest *dest)
{
    struct ucx_thread *ut = t->net;
    return &ut->dests[dest - t->dests];
}

/* The connection of `d` broke. Its PE may be dying, which the control plane is about to learn: wait for that a while.
 */
static void lost(struct ucx_dest *d, ucs_status_t status)
{
    struct ucx_thread *ut = d->t->net;
    if (d->lost_ms || d->failed != TERN_OK)
        return;
    snprintf(d->why, sizeof d->why, "UCX: %s", ucx.ucs_status_string(status));
    d->lost_ms = d->t->now_ms ? d->t->now_ms : 1;
    d->lost_next = ut->lost;
    ut->lost = d;
}

static void error_handler(void *arg, ucp_ep_h ep, ucs_status_t status)
{
    (void)ep;
    lost(arg, status);
}

/* ---- endpoint and keys
 * ------------------------------------------------------------------------------------------------- */

/* Shared memory cannot tell of failures: then deaths are found by the control plane only, and end the job. */
static bool dest_connect(struct ucx_dest *d)
{
    struct tern_proxy *px = d->t->px;
    struct ucx_thread *ut = d->t->net;
    const struct tern_net_address *address = &px->addresses[d->dest->pe];
    ucp_ep_params_t params = {
        .field_mask =
            UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = (const ucp_address_t *)address->data,
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {error_handler, d},
    };
    ucs_status_t status = ucx.ucp_ep_create(ut->worker, &params, &d->ep);
    if (status == UCS_ERR_UNREACHABLE) {
        params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
        status = ucx.ucp_ep_create(ut->worker, &params, &d->ep);
        d->unguarded = status == UCS_OK;
        if (d->unguarded)
            tern_log(TERN_LOG_INFO, "UCX reaches PE %d by a transport that does not report failures", d->dest->pe);
    }
    if (status == UCS_OK)
        return true;
    d->ep = NULL;
    tern_error(TERN_ERR_TRANSPORT, "UCX cannot connect to PE %d: %s; see UCX_TLS, UCX_NET_DEVICES", d->dest->pe,
               ucx.ucs_status_string(status));
    return false;
}

/* The chunk that holds `offset`, with its key for this endpoint; NULL: tern_error. */
static struct ucx_chunk *chunk_find(struct ucx_dest *d, uint64_t offset, ucp_rkey_h *rkey)
{
    struct ucx_net *net = d->t->px->net;
    struct ucx_peer *peer = &net->peers[d->dest->pe];

    for (int i = 0; i < TERN_NET_CHUNKS; i++) {
        struct ucx_chunk *chunk = atomic_load_explicit(&peer->chunks[i], memory_order_acquire);
        if (!chunk || offset - chunk->offset >= chunk->bytes)
            continue;
        if (!d->rkeys[i]) {
            ucs_status_t status = ucx.ucp_ep_rkey_unpack(d->ep, chunk->key.data + sizeof(uint64_t), &d->rkeys[i]);
            if (status != UCS_OK) {
                d->rkeys[i] = NULL;
                tern_error(TERN_ERR_TRANSPORT, "UCX cannot use the key of PE %d's memory: %s", d->dest->pe,
                           ucx.ucs_status_string(status));
                return NULL;
            }
        }
        *rkey = d->rkeys[i];
        return chunk;
    }
    tern_error(TERN_ERR_INVALID, "offset %#llx of PE %d lies beyond its heap; pass symmetric memory",
               (unsigned long long)offset, d->dest->pe);
    return NULL;
}

/* ---- completion
 * ---------------------------------------------------------------------------------------------------------- */

static bool dest_well(const struct ucx_dest *d)
{
    return d->failed == TERN_OK && !d->lost_ms;
}

static bool is_get(const struct tern_op *op)
{
    return op->kind == TERN_OP_GET || op->kind == TERN_OP_G;
}

/* The last piece under way has ended. */
static void pieces_over(struct ucx_dest *d, struct tern_op *op)
{
    if (d->failed != TERN_OK)
        tern_op_done(d->t, op, d->failed);
    else if (is_get(op))
        tern_op_done(d->t, op, TERN_OK);
    else if (UCX_STAGE(op) == UCX_STAGE_DATA && op->state == TERN_OP_POSTED)
        tern_op_sent(d->t, op);
}

static void piece_done(void *request, ucs_status_t status, void *user)
{
    struct tern_op *op = user;
    struct ucx_dest *d = op->dest->net;
    ucx.ucp_request_free(request);
    d->wired |= status == UCS_OK;
    if (status != UCS_OK)
        lost(d, status);
    if (--UCX_PIECES(op) == 0 && (dest_well(d) || d->failed != TERN_OK))
        pieces_over(d, op);
}

/* Post `bytes` between `local` and the target's `offset`, which is known to lie in its heap, cut at chunk edges. */
static void pieces_post(struct ucx_dest *d, struct tern_op *op, char *local, uint64_t offset, uint64_t bytes, bool get)
{
    const ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
        .cb.send = piece_done,
        .user_data = op,
    };

    UCX_PIECES(op)++; /* held until all are posted */
    while (bytes) {
        ucp_rkey_h rkey;
        struct ucx_chunk *chunk = chunk_find(d, offset, &rkey);
        if (!chunk)
            break;
        uint64_t left = chunk->offset + chunk->bytes - offset, part = bytes < left ? bytes : left;
        uint64_t there = ucx_chunk_base(chunk) + offset;
        ucs_status_ptr_t request = get ? ucx.ucp_get_nbx(d->ep, local, part, there, rkey, &param)
                                       : ucx.ucp_put_nbx(d->ep, local, part, there, rkey, &param);
        d->posts++;
        if (UCS_PTR_IS_ERR(request)) {
            lost(d, UCS_PTR_STATUS(request));
            break;
        }
        UCX_PIECES(op) += request != NULL;
        local += part, offset += part, bytes -= part;
    }
    UCX_POST(op) = d->posts;
    UCX_PIECES(op)--;
}

/* After a flush that covered it: the operation is complete, or its signal's turn has come. */
static void covered(struct ucx_dest *d, struct tern_op *op)
{
    if (op->kind != TERN_OP_PUT_SIGNAL || UCX_STAGE(op) == UCX_STAGE_SIGNAL) {
        tern_op_done(d->t, op, TERN_OK);
        return;
    }
    UCX_STAGE(op) = UCX_STAGE_SIGNAL;
    pieces_post(d, op, (char *)&op->value, op->signal, 8, false);
}

/* Still `flushing` while it runs: a flush that is wanted meanwhile comes afterwards. */
static void flush_over(struct ucx_dest *d)
{
    struct tern_op *op = d->dest->first, *next;
    uint64_t posts = d->flush_posts;

    for (; op && op != d->dest->pending && dest_well(d); op = next) {
        next = op->next;
        if (op->rpc || is_get(op))
            continue;
        if (UCX_POST(op) <= posts && UCX_PIECES(op) == 0) { /* or its own callback is still to come */
            bool signal = op->kind == TERN_OP_PUT_SIGNAL && UCX_STAGE(op) == UCX_STAGE_DATA;
            uint64_t number = op->number;
            covered(d, op);
            d->flush_again |= signal && number <= d->asked;
        } else {
            d->flush_again |=
                op->number <= d->asked || (op->kind == TERN_OP_PUT_SIGNAL && UCX_STAGE(op) == UCX_STAGE_DATA);
        }
    }
    d->flushing = false;
    if (dest_well(d) && d->flush_again) {
        d->flush_again = false;
        flush_begin(d);
    }
}

static void flush_done(void *request, ucs_status_t status, void *user)
{
    struct ucx_dest *d = user;
    ucx.ucp_request_free(request);
    if (status != UCS_OK) {
        d->flushing = false;
        lost(d, status);
        return;
    }
    d->wired = true;
    flush_over(d);
}

/* Where UCX has nothing to flush it says so at once; that turn ends in poll(), since this may be inside of a post. */
static void flush_begin(struct ucx_dest *d)
{
    struct ucx_thread *ut = d->t->net;
    const ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
        .cb.send = flush_done,
        .user_data = d,
    };
    if (d->flushing) {
        d->flush_again = true;
        return;
    }
    if (!d->ep || !dest_well(d))
        return;
    d->flushing = true;
    d->flush_posts = d->posts;
    ucs_status_ptr_t request = ucx.ucp_ep_flush_nbx(d->ep, &param);
    if (UCS_PTR_IS_ERR(request)) {
        d->flushing = false;
        lost(d, UCS_PTR_STATUS(request));
    } else if (!request) {
        d->flushed_next = ut->flushed;
        ut->flushed = d;
    }
}

void ucx_flush(struct tern_proxy_thread *t, struct tern_dest *dest)
{
    struct ucx_dest *d = dest_net(t, dest);
    if (dest->flush_want > d->asked)
        d->asked = dest->flush_want;
    flush_begin(d);
}

/* ---- posting
 * ------------------------------------------------------------------------------------------------------------- */

enum tern_post ucx_post(struct tern_proxy_thread *t, struct tern_op *op)
{
    struct ucx_dest *d = dest_net(t, op->dest);
    bool word = op->kind == TERN_OP_WORD || op->kind == TERN_OP_G;
    ucp_rkey_h rkey;

    if (d->lost_ms || op->dest->posted_count >= UCX_MOST_POSTED)
        return TERN_POST_BUSY;
    if (!d->ep && !dest_connect(d))
        return TERN_POST_FAILED;
    if (op->bytes && (!chunk_find(d, op->remote, &rkey) || !chunk_find(d, op->remote + op->bytes - 1, &rkey)))
        return TERN_POST_FAILED;
    if (op->kind == TERN_OP_PUT_SIGNAL && !chunk_find(d, op->signal, &rkey))
        return TERN_POST_FAILED;
    bool signal = op->kind == TERN_OP_PUT_SIGNAL;
    UCX_PIECES(op) = 0;
    UCX_STAGE(op) = UCX_STAGE_DATA;
    pieces_post(d, op, word ? (char *)&op->value : tern_op_local(t, op), op->remote, op->bytes, is_get(op));
    if (UCX_PIECES(op) == 0 && dest_well(d))
        pieces_over(d, op);
    if (d->dest->posted_count >= UCX_MOST_POSTED / 2)
        d->asked = t->number;
    if (signal || d->asked == t->number)
        flush_begin(d);
    return TERN_POSTED;
}

/* ---- failure and progress
 * ------------------------------------------------------------------------------------------------ */

void ucx_dest_fail(struct tern_proxy_thread *t, struct tern_dest *dest, tern_status_t status)
{
    struct ucx_dest *d = dest_net(t, dest);
    struct tern_op *op = dest->first, *next;

    d->failed = status;
    if (d->unguarded) { /* what is under way can neither end nor be taken back */
        tern_control_abort(t->px->rt, status, dest->pe,
                           "PE %d was lost, and UCX reaches it by a transport that cannot go on then; set UCX_TLS=tcp",
                           dest->pe);
        return;
    }
    d->close_wanted = d->ep != NULL; /* not here: this may be a callback of the endpoint */
    for (; op && op != dest->pending; op = next) {
        next = op->next;
        if (!op->rpc && op->state != TERN_OP_PENDING && UCX_PIECES(op) == 0)
            tern_op_done(t, op, status);
    }
}

/* Those with pieces under way end by the callbacks that closing by force brings. */
static void dest_close(struct ucx_thread *ut, struct ucx_dest *d, bool force)
{
    const ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                       .flags = force && !d->unguarded ? UCP_EP_CLOSE_FLAG_FORCE : 0};
    for (int i = 0; i < TERN_NET_CHUNKS; i++) {
        if (d->rkeys[i])
            ucx.ucp_rkey_destroy(d->rkeys[i]);
        d->rkeys[i] = NULL;
    }
    d->close_wanted = false;
    ucs_status_ptr_t request = ucx.ucp_ep_close_nbx(d->ep, &param);
    d->ep = NULL;
    if (!UCS_PTR_IS_PTR(request))
        return;
    if (ut->closing_count < ut->closing_most)
        ut->closing[ut->closing_count++] = request;
    else
        ucx.ucp_request_free(request); /* UCX ends it by itself */
}

static void closing_reap(struct ucx_thread *ut)
{
    int left = 0;
    for (int i = 0; i < ut->closing_count; i++) {
        if (ucx.ucp_request_check_status(ut->closing[i]) != UCS_INPROGRESS)
            ucx.ucp_request_free(ut->closing[i]);
        else
            ut->closing[left++] = ut->closing[i];
    }
    ut->closing_count = left;
}

static void lost_look(struct tern_proxy_thread *t)
{
    struct ucx_thread *ut = t->net;
    struct ucx_dest **link = &ut->lost, *d;

    while ((d = *link)) {
        if (d->failed == TERN_OK && !d->dest->first && d->ep) { /* nothing was on its way: connect again when need be */
            *link = d->lost_next;
            d->lost_ms = 0;
            dest_close(ut, d, true);
            continue;
        }
        if (d->failed == TERN_OK && t->now_ms - d->lost_ms > UCX_VERDICT_MS)
            tern_dest_fail(t, d->dest, TERN_ERR_TRANSPORT, d->dest->first, d->why);
        if (d->failed == TERN_OK) {
            link = &d->lost_next;
            continue;
        }
        *link = d->lost_next;
        if (d->close_wanted)
            dest_close(ut, d, true);
    }
}

bool ucx_poll(struct tern_proxy_thread *t)
{
    struct ucx_thread *ut = t->net;
    bool any = ucx.ucp_worker_progress(ut->worker) != 0;
    struct ucx_dest *flushed = ut->flushed, *next;
    for (ut->flushed = NULL; flushed; flushed = next, any = true) {
        next = flushed->flushed_next;
        flush_over(flushed);
    }
    if (ut->lost)
        lost_look(t);
    if (ut->closing_count)
        closing_reap(ut);
    return any;
}

void ucx_wait(struct tern_proxy_thread *t, unsigned us)
{
    struct ucx_thread *ut = t->net;
    struct pollfd fd = {.fd = ut->efd, .events = POLLIN};
    const struct timespec span = {us / 1000000, us % 1000000 * 1000l};
    if (ucx.ucp_worker_arm(ut->worker) == UCS_OK)
        ppoll(&fd, 1, &span, NULL);
}

void ucx_thread_close(struct tern_proxy_thread *t, bool force)
{
    struct ucx_thread *ut = t->net;
    for (int i = 0; i < t->dest_count; i++) {
        struct ucx_dest *d = &ut->dests[i];
        if (d->ep && force && !d->wired) /* UCX 1.13 ends the process when it is closed by force in the midst of wiring up */
            ut->abandoned = true;
        else if (d->ep)
            dest_close(ut, d, force || !dest_well(d));
    }
    for (uint64_t begin = now_ms(); ut->closing_count && now_ms() - begin < UCX_CLOSE_MS;) {
        if (!ucx.ucp_worker_progress(ut->worker))
            sched_yield();
        closing_reap(ut);
    }
}
