/*
 * ucx.c - the UCX transport's life: context, one worker for each proxy thread, registered memory and keys. The data
 * path is in ucx_post.c. Peers connect to the first thread's worker: software RMA (TCP) is executed by its progress.
 */
#include "proxy/ucx.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/log.h"

#define ABORT_GRACE_US 50000u

static tern_status_t failed(const char *what, ucs_status_t status)
{
    return tern_error(TERN_ERR_TRANSPORT, "UCX: %s: %s; UCX_LOG_LEVEL=info tells more", what,
                      ucx.ucs_status_string(status));
}

static bool reaches(struct tern_rt *rt, int pe, const char **why)
{
    const char *missing = ucx_load();
    (void)rt;
    (void)pe;
    *why = missing ? missing : "UCX";
    return !missing;
}

/* Does this UCX know the memory that heaps are made of? */
static tern_status_t check_memory(struct ucx_net *net)
{
#ifdef TERN_DEVICE_CUDA
    ucp_context_attr_t attr = {.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES};
    ucs_status_t status = ucx.ucp_context_query(net->context, &attr);
    if (status != UCS_OK)
        return failed("query of the context", status);
    if (!(attr.memory_types & UCS_BIT(UCS_MEMORY_TYPE_CUDA)))
        return tern_error(TERN_ERR_UNREACHABLE,
                          "UCX %s was built without CUDA and cannot reach GPU memory; use one with CUDA (-Ducx_root, "
                          "LD_LIBRARY_PATH), or another TERN_TRANSPORT",
                          ucx.ucp_get_version_string());
#else
    (void)net;
#endif
    return TERN_OK;
}

static tern_status_t context_open(struct ucx_net *net, int n_pes)
{
    ucp_config_t *config;
    ucp_params_t params = {
        .field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS,
        .features = UCP_FEATURE_RMA | UCP_FEATURE_WAKEUP,
        .mt_workers_shared = 1,
        .estimated_num_eps = (size_t)n_pes,
    };
    ucs_status_t status = ucx.ucp_config_read(NULL, NULL, &config);
    if (status != UCS_OK)
        return failed("configuration", status);
    status = ucx.ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &net->context);
    ucx.ucp_config_release(config);
    return status == UCS_OK ? TERN_OK : failed("context", status);
}

static tern_status_t worker_open(struct tern_proxy_thread *t, struct ucx_net *net)
{
    struct ucx_thread *ut = &net->threads[t->index];
    const ucp_worker_params_t params = {
        .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
        .thread_mode = UCS_THREAD_MODE_SERIALIZED, /* made here, then used by the proxy thread */
    };
    size_t count = t->dest_count ? (size_t)t->dest_count : 1;
    ucs_status_t status;

    t->net = ut;
    ut->dests = calloc(count, sizeof *ut->dests);
    ut->closing_most = (int)count;
    ut->closing = calloc(count, sizeof *ut->closing);
    if (!ut->dests || !ut->closing)
        return tern_error(TERN_ERR_NO_MEMORY, "no host memory for %zu endpoints of UCX", count);
    for (int i = 0; i < t->dest_count; i++) {
        ut->dests[i].t = t;
        ut->dests[i].dest = &t->dests[i];
        t->dests[i].net = &ut->dests[i];
    }
    status = ucx.ucp_worker_create(net->context, &params, &ut->worker);
    if (status != UCS_OK) {
        ut->worker = NULL;
        return failed("worker", status);
    }
    status = ucx.ucp_worker_get_efd(ut->worker, &ut->efd);
    return status == UCS_OK ? TERN_OK : failed("event descriptor", status);
}

static void close_all(struct tern_proxy *px)
{
    struct ucx_net *net = px->net;
    bool abandoned = false;

    if (!net)
        return;
    for (int i = 0; net->threads && i < px->threads; i++) {
        struct ucx_thread *ut = &net->threads[i];
        if (ut->worker)
            ucx_thread_close(&px->thread[i], atomic_load(&px->rt->abort) != 0);
        abandoned |= ut->abandoned;
        if (ut->worker && !ut->abandoned)
            ucx.ucp_worker_destroy(ut->worker);
        free(ut->dests);
        free(ut->closing);
    }
    if (net->context && !abandoned)
        ucx.ucp_cleanup(net->context);
    for (int pe = 0; net->peers && pe < px->rt->n_pes; pe++) {
        for (int c = 0; c < TERN_NET_CHUNKS; c++)
            free(atomic_load(&net->peers[pe].chunks[c]));
    }
    free(net->peers);
    free(net->threads);
    free(net);
    px->net = NULL;
}

static tern_status_t open_all(struct tern_proxy *px)
{
    const char *missing = ucx_load();
    struct ucx_net *net;
    tern_status_t status;

    if (missing)
        return tern_error(TERN_ERR_UNREACHABLE, "%s; install UCX or name another TERN_TRANSPORT", missing);
    px->net = net = calloc(1, sizeof *net);
    if (!net)
        return tern_error(TERN_ERR_NO_MEMORY, "no host memory for the UCX transport");
    net->threads = calloc((size_t)px->threads, sizeof *net->threads);
    net->peers = calloc((size_t)px->rt->n_pes, sizeof *net->peers);
    status = net->threads && net->peers ? context_open(net, px->rt->n_pes)
                                        : tern_error(TERN_ERR_NO_MEMORY, "no host memory for the UCX transport");
    if (status == TERN_OK)
        status = check_memory(net);
    for (int i = 0; i < px->threads && status == TERN_OK; i++)
        status = worker_open(&px->thread[i], net);
    if (status != TERN_OK)
        close_all(px);
    return status;
}

/* The first worker's address. That of the span comes with the keys, since there is no heap yet. */
static tern_status_t address(struct tern_proxy *px, struct tern_net_address *own)
{
    struct ucx_net *net = px->net;
    ucp_address_t *worker;
    size_t bytes;
    tern_status_t status = TERN_OK;
    ucs_status_t got = ucx.ucp_worker_get_address(net->threads[0].worker, &worker, &bytes);

    if (got != UCS_OK)
        return failed("worker's address", got);
    if (bytes > sizeof own->data)
        status =
            tern_error(TERN_ERR_UNSUPPORTED,
                       "UCX's address of this PE has %zu bytes, at most %zu are carried; restrict it by UCX_TLS or "
                       "UCX_NET_DEVICES",
                       bytes, sizeof own->data);
    else
        memcpy(own->data, worker, own->bytes = (uint32_t)bytes);
    ucx.ucp_worker_release_address(net->threads[0].worker, worker);
    return status;
}

/* ---- memory
 * ---------------------------------------------------------------------------------------------------------------- */

static tern_status_t map(struct ucx_net *net, void *addr, uint64_t bytes, ucp_mem_h *mem)
{
    const ucp_mem_map_params_t params = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH,
        .address = addr,
        .length = bytes,
    };
    ucs_status_t status = ucx.ucp_mem_map(net->context, &params, mem);
    if (status == UCS_OK)
        return TERN_OK;
    *mem = NULL;
    return tern_error(TERN_ERR_TRANSPORT,
                      "UCX cannot register %llu bytes at %p: %s; is the limit of locked memory (ulimit -l) too low?",
                      (unsigned long long)bytes, addr, ucx.ucs_status_string(status));
}

static tern_status_t chunk_add(struct tern_proxy *px, const struct tern_net_chunk *chunk, struct tern_net_key *key)
{
    struct ucx_net *net = px->net;
    uint64_t base = (uint64_t)(uintptr_t)chunk->addr - chunk->offset;
    void *packed;
    size_t bytes;
    tern_status_t status = map(net, chunk->addr, chunk->bytes, &net->chunks[chunk->number]);
    ucs_status_t got;

    if (status != TERN_OK)
        return status;
    got = ucx.ucp_rkey_pack(net->context, net->chunks[chunk->number], &packed, &bytes);
    if (got != UCS_OK) {
        status = failed("key of the heap", got);
        goto err_map;
    }
    if (sizeof base + bytes > sizeof key->data) {
        status = tern_error(
            TERN_ERR_UNSUPPORTED,
            "UCX's key of the heap has %zu bytes, at most %zu are carried; use fewer devices by UCX_NET_DEVICES", bytes,
            sizeof key->data - sizeof base);
        goto err_key;
    }
    memcpy(key->data, &base, sizeof base);
    memcpy(key->data + sizeof base, packed, bytes);
    key->bytes = (uint32_t)(sizeof base + bytes);
    ucx.ucp_rkey_buffer_release(packed);
    return TERN_OK;
err_key:
    ucx.ucp_rkey_buffer_release(packed);
err_map:
    ucx.ucp_mem_unmap(net->context, net->chunks[chunk->number]);
    net->chunks[chunk->number] = NULL;
    return status;
}

static void unmap(struct ucx_net *net, ucp_mem_h *mem)
{
    if (*mem)
        ucx.ucp_mem_unmap(net->context, *mem);
    *mem = NULL;
}

static void chunk_drop(struct tern_proxy *px, const struct tern_net_chunk *chunk)
{
    struct ucx_net *net = px->net;
    unmap(net, &net->chunks[chunk->number]);
}

static tern_status_t peer_chunk_add(struct tern_proxy *px, int pe, const struct tern_net_chunk *chunk,
                                    const struct tern_net_key *key)
{
    struct ucx_net *net = px->net;
    struct ucx_chunk *copy = malloc(sizeof *copy);

    if (!copy)
        return tern_error(TERN_ERR_NO_MEMORY, "no host memory for a key of PE %d's heap", pe);
    *copy = (struct ucx_chunk){chunk->offset, chunk->bytes, *key};
    atomic_store_explicit(&net->peers[pe].chunks[chunk->number], copy, memory_order_release);
    return TERN_OK;
}

/* Nobody has used it: the growth that brought it has failed. */
static void peer_chunk_drop(struct tern_proxy *px, int pe, const struct tern_net_chunk *chunk)
{
    struct ucx_net *net = px->net;
    free(atomic_exchange(&net->peers[pe].chunks[chunk->number], NULL));
}

static tern_status_t buffer_add(struct tern_proxy *px, unsigned segment, void *addr, uint64_t bytes)
{
    struct ucx_net *net = px->net;
    return map(net, addr, bytes, &net->buffers[segment]);
}

static void buffer_drop(struct tern_proxy *px, unsigned segment)
{
    struct ucx_net *net = px->net;
    unmap(net, &net->buffers[segment]);
}

/*
 * UCX 1.13 ends a process whose peer closes an endpoint by force while a put of it is on its way in. In an aborted job all
 * threads stop; the others shall have done so before.
 */
static void thread_stop(struct tern_proxy_thread *t)
{
    bool aborted = atomic_load(&t->px->rt->abort) != 0;
    if (aborted && t->index == 0)
        usleep(ABORT_GRACE_US);
    ucx_thread_close(t, aborted);
}

const struct tern_transport tern_transport_ucx = {
    .name = "ucx",
    .reaches = reaches,
    .open = open_all,
    .address = address,
    .close = close_all,
    .chunk_add = chunk_add,
    .chunk_drop = chunk_drop,
    .peer_chunk_add = peer_chunk_add,
    .peer_chunk_drop = peer_chunk_drop,
    .buffer_add = buffer_add,
    .buffer_drop = buffer_drop,
    .thread_stop = thread_stop,
    .post = ucx_post,
    .flush = ucx_flush,
    .poll = ucx_poll,
    .wait = ucx_wait,
    .dest_fail = ucx_dest_fail,
};
