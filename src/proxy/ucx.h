/* ucx.h - inside of the UCX transport: what ucx.c (context, memory), ucx_lib.c (loading) and ucx_post.c (data path)
 * share. */
#ifndef TERN_PROXY_UCX_H
#define TERN_PROXY_UCX_H

#include <string.h>
#include <ucp/api/ucp.h>

#include "proxy/engine.h"

/*
 * UCX is loaded when a job first needs it: programs that do not are spared its constructors, signal handlers and memory
 * hooks, and a build with UCX runs where there is none. X(function).
 */
#define UCX_TABLE(X)                                                                                                   \
    X(ucp_init_version)                                                                                                \
    X(ucp_cleanup)                                                                                                     \
    X(ucp_config_read) X(ucp_config_release) X(ucp_context_query) X(ucp_worker_create) X(ucp_worker_destroy)           \
        X(ucp_worker_get_address) X(ucp_worker_release_address) X(ucp_worker_progress) X(ucp_worker_arm)               \
            X(ucp_worker_get_efd) X(ucp_ep_create) X(ucp_ep_close_nbx) X(ucp_ep_flush_nbx) X(ucp_mem_map)              \
                X(ucp_mem_unmap) X(ucp_rkey_pack) X(ucp_rkey_buffer_release) X(ucp_ep_rkey_unpack) X(ucp_rkey_destroy) \
                    X(ucp_put_nbx) X(ucp_get_nbx) X(ucp_request_free) X(ucp_request_check_status)                      \
                        X(ucp_get_version_string) X(ucs_status_string)

struct ucx_lib {
#define UCX_FIELD(name) __typeof__(name) *name;
    UCX_TABLE(UCX_FIELD)
#undef UCX_FIELD
};
extern struct ucx_lib ucx;
/* Load once; NULL, or why it cannot be: static text. Any thread. */
const char *ucx_load(void);

/* A chunk of a far PE's span. Published by a pointer stored with release: the heap grows while threads work. */
struct ucx_chunk {
    uint64_t offset, bytes;
    struct tern_net_key key; /* address of the span there, then UCX's key */
};

static inline uint64_t ucx_chunk_base(const struct ucx_chunk *chunk)
{
    uint64_t base;
    memcpy(&base, chunk->key.data, sizeof base);
    return base;
}

struct ucx_peer {
    _Atomic(struct ucx_chunk *) chunks[TERN_NET_CHUNKS];
};

/* Of a destination; owned by its thread. */
struct ucx_dest {
    struct tern_proxy_thread *t;
    struct tern_dest *dest;
    ucp_ep_h ep;
    ucp_rkey_h rkeys[TERN_NET_CHUNKS];
    uint64_t posts;       /* wire operations so far */
    uint64_t flush_posts; /* those that the flush under way covers */
    bool flushing, flush_again;
    uint64_t asked; /* what is posted up to this number is to be complete, signals of put_signals too */
    struct ucx_dest *flushed_next;
    bool close_wanted;
    bool unguarded;       /* no error handler */
    bool wired;           /* something posted has completed: the connection was there */
    tern_status_t failed; /* posted operations end with this */
    uint64_t lost_ms;     /* the connection broke at this time: is the PE dead, or only out of reach? 0: neither */
    struct ucx_dest *lost_next;
    char why[96];
};

struct ucx_thread {
    ucp_worker_h worker;
    int efd;
    struct ucx_dest *dests; /* as t->dests */
    struct ucx_dest *lost;
    struct ucx_dest *flushed;  /* whose flush had nothing to wait for */
    ucs_status_ptr_t *closing; /* endpoints on their way to be closed */
    int closing_count, closing_most;
    bool abandoned; /* an endpoint was left as it was: so is the worker */
};

struct ucx_net {
    ucp_context_h context;
    struct ucx_thread *threads;
    struct ucx_peer *peers; /* [n_pes] */
    ucp_mem_h chunks[TERN_NET_CHUNKS], buffers[TERN_MAX_BUFFERS + 1];
};

/* An operation's words for the transport: pieces under way, number of its last wire operation, stage of a put_signal.
 */
#define UCX_PIECES(op) ((op)->net[0])
#define UCX_POST(op) ((op)->net[1])
#define UCX_STAGE(op) ((op)->net[2])
enum { UCX_STAGE_DATA, UCX_STAGE_SIGNAL };

/* ucx_post.c */
enum tern_post ucx_post(struct tern_proxy_thread *t, struct tern_op *op);
void ucx_flush(struct tern_proxy_thread *t, struct tern_dest *dest);
bool ucx_poll(struct tern_proxy_thread *t);
void ucx_wait(struct tern_proxy_thread *t, unsigned us);
void ucx_dest_fail(struct tern_proxy_thread *t, struct tern_dest *dest, tern_status_t status);
/* Close every endpoint of a thread: in order, or at once in a job that was aborted. */
void ucx_thread_close(struct tern_proxy_thread *t, bool force);

#endif
