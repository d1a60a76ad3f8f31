/*
 * proxy.c - life of the proxy: choice of the transport, rings, threads, and what the application's thread asks of them.
 * The threads' work is in engine.c.
 */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proxy/engine.h"

#define POOL_DESTS 8 /* destinations that may owe all they can at once, with room in the thread's pool for others */
#define POOL_OTHERS 4096
#define POLL_US 50      /* between looks at something that a thread does */
#define DUMP_POLLS 4000 /* then its thread is not going to */

/* ---- transport -------------------------------------------------------------------------------------------------- */

/* By TERN_TRANSPORT's value; auto tries them in this order. */
static const struct tern_transport *const named[] = {NULL, &tern_transport_null, &tern_transport_loopback,
                                                     &tern_transport_ucx, &tern_transport_verbs};
static const struct tern_transport *const preferred[] = {&tern_transport_verbs, &tern_transport_ucx};

/* The first far PE that the transport does not reach, or -1. */
static int unreached(struct tern_rt *rt, const struct tern_transport *transport, const char **why)
{
    for (int pe = 0; pe < rt->n_pes; pe++) {
        if (!rt->peers[pe].near && !transport->reaches(rt, pe, why))
            return pe;
    }
    return -1;
}

/* Does it reach every far PE from every PE? The same answer on all. */
static tern_status_t try_transport(struct tern_rt *rt, const struct tern_transport *transport, char *reasons,
                                   size_t bytes, bool *reaches)
{
    static const enum tern_reduce op = TERN_REDUCE_MIN;
    const char *why = "";
    int pe = unreached(rt, transport, &why);
    uint64_t word = pe < 0;
    size_t at = strlen(reasons);

    if (pe >= 0)
        snprintf(reasons + at, bytes - at, "%s%s: PE %d: %s", at ? "; " : "", transport->name, pe, why);
    tern_status_t status = tern_control_allreduce(rt, NULL, &word, 1, &op);
    *reaches = word;
    return status;
}

static tern_status_t none_reaches(const struct tern_rt *rt, const char *reasons)
{
    return tern_error(
        TERN_ERR_UNREACHABLE,
        "no transport from PE %d to all PEs that it cannot load from and store to (%s); %s, or run all PEs "
        "on one node; TERN_TRANSPORT=loopback does for tests there",
        rt->pe, reasons, named[rt->env.transport] ? "set TERN_TRANSPORT=auto" : "build with UCX");
}

static tern_status_t choose(struct tern_proxy *px)
{
    static const enum tern_reduce op = TERN_REDUCE_MAX;
    struct tern_rt *rt = px->rt;
    const struct tern_transport *only = named[rt->env.transport];
    char reasons[400] = "";
    uint64_t far = 0;
    tern_status_t status;

    for (int pe = 0; pe < rt->n_pes; pe++)
        far |= !rt->peers[pe].near;
    status = tern_control_allreduce(rt, NULL, &far, 1, &op);
    if (status != TERN_OK || (!far && !only))
        return status;
    for (size_t i = 0; i < (only ? 1 : sizeof preferred / sizeof preferred[0]); i++) {
        const struct tern_transport *transport = only ? only : preferred[i];
        bool reaches;
        status = try_transport(rt, transport, reasons, sizeof reasons, &reaches);
        if (status != TERN_OK)
            return status;
        if (reaches) {
            px->transport = transport;
            px->caps = transport->caps;
            px->why = only ? "named by TERN_TRANSPORT" : "the first that reaches all PEs";
            return TERN_OK;
        }
    }
    /* some PE has a reason for each transport that was tried */
    return tern_agree_status(rt, NULL, reasons[0] ? none_reaches(rt, reasons) : TERN_OK);
}

/* ---- memory ----------------------------------------------------------------------------------------------------- */

static tern_status_t no_memory(void)
{
    return tern_error(TERN_ERR_NO_MEMORY, "no host memory for the proxy; free some, or lower TERN_PROXY_PENDING");
}

static tern_status_t thread_open(struct tern_proxy *px, int index)
{
    struct tern_proxy_thread *t = &px->thread[index];
    int n = px->rt->n_pes;

    t->px = px;
    t->index = index;
    tern_rpc_open(t);
    t->quiets.tail = &t->quiets.first;
    t->dest_count = index < n ? (n - index + px->threads - 1) / px->threads : 0;
    t->rings = calloc((size_t)px->channels, sizeof *t->rings);
    t->dests = calloc((size_t)t->dest_count + 1, sizeof *t->dests);
    t->pool = calloc(px->pool_ops, sizeof *t->pool);
    if (!t->rings || !t->dests || !t->pool)
        return no_memory();
    for (int i = 0; i < t->dest_count; i++) {
        t->dests[i].pe = index + i * px->threads;
        t->dests[i].quiets.tail = &t->dests[i].quiets.first;
    }
    t->free_count = px->pool_ops; /* taken from the pool as need be, so that what is never needed costs no memory */
    for (int c = 0; c < px->channels; c++) {
        char *host = px->rings_host +
                     TERN_RING_INDEX((size_t)px->channels, (size_t)index, (size_t)c) * TERN_RING_HOST_BYTES(px->units);
        t->rings[c].host = (struct tern_ring_host *)host;
        t->rings[c].units = (tern_unit_t *)(host + sizeof(struct tern_ring_host));
    }
    return TERN_OK;
}

/* Rings start empty: heads 0, reply slots free and never answered. */
static tern_status_t rings_open(struct tern_proxy *px)
{
    size_t count = (size_t)px->threads * (size_t)px->channels + TERN_RINGS_AT_ONCE;
    struct tern_ring_dev *image = calloc(count, sizeof *image);
    void *host = NULL, *host_dev = NULL, *dev = NULL;
    tern_status_t status = image ? TERN_OK : no_memory();

    if (status == TERN_OK)
        status = tern_device_host_alloc(px->rt, count * TERN_RING_HOST_BYTES(px->units), &host, &host_dev);
    px->rings_host = host;
    px->rings_host_dev = host_dev;
    if (status == TERN_OK)
        status = tern_device_alloc(px->rt, count * sizeof *image, &dev);
    px->rings_dev = dev;
    for (size_t i = 0; i < count && status == TERN_OK; i++) {
        struct tern_ring_host *ring = (struct tern_ring_host *)(px->rings_host + i * TERN_RING_HOST_BYTES(px->units));
        image[i].slots = ~0ull;
        for (unsigned s = 0; s < TERN_RING_REPLIES; s++)
            ring->replies[s].word = TERN_REPLY_NONE;
    }
    if (status == TERN_OK)
        status = tern_device_write(px->rt, dev, image, count * sizeof *image);
    dev = NULL;
    if (status == TERN_OK)
        status = tern_device_alloc(px->rt, sizeof px->buffers, &dev);
    px->buffers_dev = dev;
    free(image);
    return status;
}

static tern_status_t addresses_open(struct tern_proxy *px)
{
    struct tern_net_address own;
    const struct tern_transport *transport = px->transport;
    tern_status_t status = TERN_OK;

    if (!transport || !transport->address)
        return TERN_OK;
    memset(&own, 0, sizeof own);
    px->addresses = calloc((size_t)px->rt->n_pes, sizeof own);
    status = px->addresses ? transport->address(px, &own) : no_memory();
    status = tern_agree_status(px->rt, NULL, status);
    if (status == TERN_OK)
        status = tern_control_allgather(px->rt, NULL, &own, sizeof own, px->addresses);
    if (status == TERN_OK && transport->connect)
        status = tern_agree_status(px->rt, NULL, transport->connect(px, px->addresses));
    return status;
}

static tern_status_t memory_open(struct tern_proxy *px)
{
    tern_status_t status = px->thread ? rings_open(px) : no_memory();

    for (int i = 0; i < px->threads && status == TERN_OK; i++)
        status = thread_open(px, i);
    if (status == TERN_OK && px->transport && px->transport->open)
        status = px->transport->open(px);
    return status;
}

tern_status_t tern_proxy_open(struct tern_rt *rt)
{
    struct tern_proxy *px;
    tern_status_t status;

    if (!rt->needs_proxy)
        return TERN_OK;
    rt->proxy = px = calloc(1, sizeof *px);
    status = tern_agree_status(rt, NULL, px ? TERN_OK : no_memory());
    if (status != TERN_OK || !px)
        return status;
    px->rt = rt;
    px->threads = (int)rt->env.proxy_threads;
    px->channels = (int)rt->env.channels;
    px->units = TERN_RING_UNITS;
    px->pending_most = (uint32_t)rt->env.proxy_pending;
    px->pool_ops = 2 * px->pending_most * (uint32_t)(rt->n_pes < POOL_DESTS ? rt->n_pes : POOL_DESTS) + POOL_OTHERS;
    pthread_mutex_init(&px->lock, NULL);
    pthread_mutex_init(&px->quiet_lock, NULL);
    status = choose(px);
    if (status == TERN_OK)
        status = tern_proxy_cores(px);
    if (status != TERN_OK)
        return status;
    px->thread = aligned_alloc(_Alignof(struct tern_proxy_thread), (size_t)px->threads * sizeof *px->thread);
    if (px->thread)
        memset(px->thread, 0, (size_t)px->threads * sizeof *px->thread);
    status = tern_agree_status(rt, NULL, memory_open(px));
    if (status == TERN_OK)
        status = addresses_open(px);
    if (status == TERN_OK)
        tern_log(TERN_LOG_INFO, "proxy: %s (%s), %d threads, %d channels%s",
                 px->transport ? px->transport->name : "atomics only",
                 px->transport ? px->why : "all PEs are load/store peers", px->threads, px->channels,
                 px->few_cores ? ", few cores: an empty poll gives its core away" : "");
    return status;
}

tern_status_t tern_proxy_start(struct tern_rt *rt)
{
    struct tern_proxy *px = rt->proxy;

    for (int i = 0; px && i < px->threads; i++) {
        struct tern_proxy_thread *t = &px->thread[i];
        tern_status_t status = px->transport && px->transport->thread_start ? px->transport->thread_start(t) : TERN_OK;
        if (status != TERN_OK)
            return status;
        int error = pthread_create(&t->thread, NULL, tern_engine_run, t);
        if (error)
            return tern_error(TERN_ERR_SYSTEM, "cannot start thread %d of the proxy: %s; raise the limit on threads", i,
                              strerror(error));
        t->running = true;
    }
    return TERN_OK;
}

void tern_proxy_stop(struct tern_rt *rt)
{
    struct tern_proxy *px = rt->proxy;

    if (!px)
        return;
    atomic_store_explicit(&px->stop, true, memory_order_release);
    for (int i = 0; px->thread && i < px->threads; i++) {
        struct tern_proxy_thread *t = &px->thread[i];
        if (!t->running)
            continue;
        pthread_join(t->thread, NULL);
        t->running = false;
        if (px->transport && px->transport->thread_stop)
            px->transport->thread_stop(t);
    }
}

void tern_proxy_close(struct tern_rt *rt)
{
    struct tern_proxy *px = rt->proxy;

    if (!px)
        return;
    if (px->transport && px->transport->close)
        px->transport->close(px);
    for (int i = 0; px->thread && i < px->threads; i++) {
        struct tern_proxy_thread *t = &px->thread[i];
        if (t->px)
            tern_rpc_close(t);
        free(t->rings);
        free(t->dests);
        free(t->pool);
    }
    if (px->buffers_dev)
        tern_device_free(rt, px->buffers_dev);
    if (px->rings_dev)
        tern_device_free(rt, px->rings_dev);
    if (px->rings_host)
        tern_device_host_free(rt, px->rings_host);
    pthread_mutex_destroy(&px->quiet_lock);
    pthread_mutex_destroy(&px->lock);
    free(px->thread);
    free(px->addresses);
    free(px);
    rt->proxy = NULL;
}

/* ---- for kernels ------------------------------------------------------------------------------------------------ */

void tern_proxy_ctx(struct tern_rt *rt, tern_ctx_t *ctx)
{
    const struct tern_proxy *px = rt->proxy;

    ctx->flags |= TERN_CTX_PROXY | (rt->env.strict_release ? TERN_CTX_STRICT : 0);
    ctx->rings = px->rings_dev;
    ctx->rings_host = px->rings_host_dev;
    ctx->channels = (uint16_t)px->channels;
    ctx->proxy_threads = (uint16_t)px->threads;
    ctx->ring_units = px->units;
}

void tern_proxy_state(struct tern_rt *rt, struct tern_state_dev *image)
{
    image->buffers = rt->proxy->buffers_dev;
    image->n_buffers = TERN_MAX_BUFFERS;
}

/* ---- quiet of the host ------------------------------------------------------------------------------------------ */

/* All threads work on it at once; the calling thread looks now and then. */
tern_status_t tern_proxy_quiet(struct tern_rt *rt)
{
    struct tern_proxy *px = rt->proxy;
    tern_status_t status = TERN_OK;

    pthread_mutex_lock(&px->quiet_lock);
    for (int i = 0; i < px->threads; i++)
        atomic_fetch_add_explicit(&px->thread[i].host_quiet_asked, 1, memory_order_release);
    for (int i = 0; i < px->threads; i++) {
        struct tern_proxy_thread *t = &px->thread[i];
        uint32_t asked = atomic_load_explicit(&t->host_quiet_asked, memory_order_relaxed);
        for (int polls = 0; atomic_load_explicit(&t->host_quiet_done, memory_order_acquire) != asked; polls++) {
            if (atomic_load(&rt->abort)) {
                pthread_mutex_unlock(&px->quiet_lock);
                return tern_error(tern_abort_status(rt), "%s ended, for the job was aborted: %s; call tern_finalize",
                                  tern_call_name ? tern_call_name : "quiet", rt->abort_reason);
            }
            if (polls < 200)
                sched_yield();
            else
                usleep(POLL_US);
        }
        if (status == TERN_OK)
            status = (tern_status_t)t->host_quiet_status;
    }
    pthread_mutex_unlock(&px->quiet_lock);
    if (status != TERN_OK)
        return tern_error(status, "%s: operations to a PE were lost (%s); the log tells which",
                          tern_call_name ? tern_call_name : "quiet", tern_status_text(status));
    return TERN_OK;
}

/* ---- memory of operations --------------------------------------------------------------------------------------- */

tern_status_t tern_proxy_chunk_add(struct tern_rt *rt, const struct tern_net_chunk *chunk, struct tern_net_key *key)
{
    struct tern_proxy *px = rt->proxy;
    memset(key, 0, sizeof *key);
    return px->transport && px->transport->chunk_add ? px->transport->chunk_add(px, chunk, key) : TERN_OK;
}

void tern_proxy_chunk_drop(struct tern_rt *rt, const struct tern_net_chunk *chunk)
{
    struct tern_proxy *px = rt->proxy;
    if (px->transport && px->transport->chunk_drop)
        px->transport->chunk_drop(px, chunk);
}

tern_status_t tern_proxy_peer_chunk_add(struct tern_rt *rt, int pe, const struct tern_net_chunk *chunk,
                                        const struct tern_net_key *key)
{
    struct tern_proxy *px = rt->proxy;
    if (!px->transport || !px->transport->peer_chunk_add)
        return TERN_OK;
    return px->transport->peer_chunk_add(px, pe, chunk, key);
}

void tern_proxy_peer_chunk_drop(struct tern_rt *rt, int pe, const struct tern_net_chunk *chunk)
{
    struct tern_proxy *px = rt->proxy;
    if (px->transport && px->transport->peer_chunk_drop)
        px->transport->peer_chunk_drop(px, pe, chunk);
}

/* Threads read base and bytes when an entry names the segment, which kernels do only after the table here has it. */
static tern_status_t buffer_store(struct tern_proxy *px, int i, uint64_t base, uint64_t bytes)
{
    const struct tern_buffer_dev entry = {base, bytes};
    __atomic_store_n(&px->buffers[i].base, base, __ATOMIC_RELAXED);
    __atomic_store_n(&px->buffers[i].bytes, bytes, __ATOMIC_RELEASE);
    return tern_device_write(px->rt, px->buffers_dev + i, &entry, sizeof entry);
}

tern_status_t tern_proxy_buffer_add(struct tern_rt *rt, void *addr, uint64_t bytes)
{
    struct tern_proxy *px = rt->proxy;
    tern_status_t status = TERN_OK;
    int i = 0;

    pthread_mutex_lock(&px->lock);
    while (i < (int)TERN_MAX_BUFFERS && px->buffers[i].bytes)
        i++;
    if (i == (int)TERN_MAX_BUFFERS)
        status = tern_error(TERN_ERR_NO_MEMORY, "tern_buffer_register: all %u buffers are in use; unregister one",
                            TERN_MAX_BUFFERS);
    else if (px->transport && px->transport->buffer_add)
        status = px->transport->buffer_add(px, (unsigned)i + 1, addr, bytes);
    if (status == TERN_OK) {
        status = buffer_store(px, i, (uint64_t)(uintptr_t)addr, bytes);
        if (status != TERN_OK && px->transport && px->transport->buffer_drop)
            px->transport->buffer_drop(px, (unsigned)i + 1);
        if (status != TERN_OK)
            px->buffers[i].bytes = 0;
    }
    pthread_mutex_unlock(&px->lock);
    return status;
}

tern_status_t tern_proxy_buffer_drop(struct tern_rt *rt, void *addr)
{
    struct tern_proxy *px = rt->proxy;
    tern_status_t status = TERN_OK;

    pthread_mutex_lock(&px->lock);
    for (int i = 0; i < (int)TERN_MAX_BUFFERS; i++) {
        if (!px->buffers[i].bytes || px->buffers[i].base != (uint64_t)(uintptr_t)addr)
            continue;
        status = buffer_store(px, i, 0, 0);
        if (px->transport && px->transport->buffer_drop)
            px->transport->buffer_drop(px, (unsigned)i + 1);
        break;
    }
    pthread_mutex_unlock(&px->lock);
    return status;
}

bool tern_proxy_local_ok(struct tern_rt *rt, const void *addr, uint64_t bytes)
{
    struct tern_proxy *px = rt->proxy;
    uint64_t at = (uint64_t)(uintptr_t)addr, span = (uint64_t)(uintptr_t)rt->span;
    bool ok = at - span < rt->stride && bytes <= rt->stride - (at - span);

    pthread_mutex_lock(&px->lock);
    for (int i = 0; i < (int)TERN_MAX_BUFFERS && !ok; i++)
        ok = at - px->buffers[i].base < px->buffers[i].bytes &&
             bytes <= px->buffers[i].bytes - (at - px->buffers[i].base);
    pthread_mutex_unlock(&px->lock);
    return ok;
}

/* ---- other threads, people -------------------------------------------------------------------------------------- */

void tern_proxy_dead(struct tern_rt *rt, int pe)
{
    struct tern_proxy_thread *t = &rt->proxy->thread[pe % rt->proxy->threads];
    atomic_store(&t->dests[pe / rt->proxy->threads].dead, true);
    atomic_fetch_add_explicit(&t->deaths_told, 1, memory_order_release);
}

const char *tern_proxy_transport(struct tern_rt *rt, int pe, const char **why)
{
    const struct tern_proxy *px = rt->proxy;
    (void)pe;
    *why = px->why;
    return px->transport ? px->transport->name : NULL;
}

/* A thread writes its own lines. One that does not come to it (a transport that hangs) is passed over. */
void tern_proxy_dump(struct tern_rt *rt, const char *why)
{
    struct tern_proxy *px = rt->proxy;

    pthread_mutex_lock(&px->lock);
    atomic_store(&px->dump_why, why);
    for (int i = 0; i < px->threads; i++) {
        struct tern_proxy_thread *t = &px->thread[i];
        if (!t->running) {
            tern_engine_dump(t, why);
            continue;
        }
        uint32_t asked = atomic_fetch_add_explicit(&t->dump_asked, 1, memory_order_release) + 1;
        int polls = 0;
        while (atomic_load_explicit(&t->dump_done, memory_order_acquire) != asked && polls++ < DUMP_POLLS)
            usleep(POLL_US);
        if (polls > DUMP_POLLS)
            tern_log(TERN_LOG_WARN, "dump (%s): proxy thread %d does not answer", why, i);
    }
    pthread_mutex_unlock(&px->lock);
}
