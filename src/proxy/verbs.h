/*
 * verbs.h - inside of the verbs transport: what verbs.c (device, memory), verbs_lib.c (loading), verbs_conn.c (queue
 * pairs) and verbs_post.c (data path) share.
 *
 * One reliable queue pair for each destination, made when it is first needed; one completion queue a thread. A queue
 * pair executes in order, so work requests are numbered and a completion ends all requests up to its own.
 */
#ifndef TERN_PROXY_VERBS_H
#define TERN_PROXY_VERBS_H

#include <infiniband/verbs.h>

#include "proxy/engine.h"
#include "proxy/nic.h"

/* The library's functions, not the header's macros around them. */
#undef ibv_reg_mr
#undef ibv_query_port

/* libibverbs is loaded when a job first needs it. X(function). The data path needs none: it goes through the device's
 * table. */
#define VERBS_TABLE(X)                                                                                                 \
    X(ibv_get_device_list)                                                                                             \
    X(ibv_free_device_list)                                                                                            \
    X(ibv_get_device_name)                                                                                             \
    X(ibv_open_device)                                                                                                 \
    X(ibv_close_device)                                                                                                \
    X(ibv_query_device)                                                                                                \
    X(ibv_query_port) X(ibv_query_gid) X(ibv_alloc_pd) X(ibv_dealloc_pd) X(ibv_reg_mr) X(ibv_reg_dmabuf_mr)            \
        X(ibv_dereg_mr) X(ibv_create_cq) X(ibv_destroy_cq) X(ibv_create_qp) X(ibv_modify_qp) X(ibv_destroy_qp)         \
            X(ibv_wc_status_str)

struct verbs_lib {
#define VERBS_FIELD(name) __typeof__(name) *name;
    VERBS_TABLE(VERBS_FIELD)
#undef VERBS_FIELD
};
extern struct verbs_lib verbs;
/* Load once; NULL, or why it cannot be: static text. Any thread. */
const char *verbs_load(void);

#define VERBS_DEPTH_MOST                                                                                               \
    2048u /* work requests of a queue pair that are under way: a power of two, less where PEs are many */
#define VERBS_DEPTH_LEAST 128u
#define VERBS_REQUESTS 131072u /* of all queue pairs of a PE together, as far as the bounds above allow */
#define VERBS_SIGNAL_EVERY 32u /* requests, of which the last is signaled */
#define VERBS_LIST 16u         /* requests of one doorbell */
#define VERBS_READS 16u        /* reads and atomics under way, as far as the device bears them */

/* What a PE tells of its port. Travels. */
struct verbs_address {
    uint16_t lid;
    uint8_t mtu, ethernet;
    uint32_t gid_index;
    uint8_t gid[16];
};

/* A message about a queue pair: ready, when the sender's can receive. Travels. */
struct verbs_hello {
    uint32_t qp, psn, ready, pad;
};

/* Memory of a chunk, own or a far PE's. The latter are published by a pointer stored with release: the heap grows. */
struct verbs_chunk {
    uint64_t offset, bytes;
    uint64_t base;       /* address of `offset` 0 there */
    uint32_t lkey, rkey; /* of a far PE's: only the latter */
};
struct verbs_peer {
    _Atomic(struct verbs_chunk *) chunks[TERN_NET_CHUNKS];
};

enum verbs_what {
    VERBS_PART, /* of a put or get, not the last */
    VERBS_LAST, /* the last of an operation */
    VERBS_FLUSH /* a read behind what is to be complete */
};

/* A work request under way. */
struct verbs_request {
    struct tern_op *op;
    uint64_t number; /* flush: of the operation up to which it completes */
    uint16_t slot;   /* of the thread's results, + 1; 0: none */
    uint8_t what;
    bool waits; /* read or atomic: a fence waits for it */
};

enum verbs_state { VERBS_NONE, VERBS_ASKED, VERBS_CONNECTED, VERBS_BROKEN };

/* Of a destination; owned by its thread. */
struct verbs_dest {
    struct tern_proxy_thread *t;
    struct tern_dest *dest;
    struct ibv_qp *qp;
    enum verbs_state state;
    bool ready; /* the other side receives */
    uint32_t psn;
    uint64_t head, tail;            /* requests posted, and completed */
    uint64_t signaled;              /* requests below this one have a signaled one at or behind them */
    uint32_t signals;               /* signaled ones under way */
    uint32_t reads;                 /* reads and atomics under way, */
    uint64_t reads_first;           /* and the operation that the first of them is of */
    uint64_t flush_wanted, flushed; /* operations up to here are to be made complete; a flush covers those up to here */
    bool flush_pending;             /* in the thread's list */
    struct verbs_dest *flush_next;
    struct verbs_request *requests; /* [net->depth] */
    tern_status_t failed;
    uint64_t lost_ms; /* broke at this time: is the PE dead, or only out of reach? 0: neither */
    struct verbs_dest *lost_next;
    char why[96];
};

#define VERBS_SELF_CQE 16 /* of the completion queue for own words */
#define VERBS_RESULTS 1024u
#define VERBS_FLUSHED VERBS_RESULTS    /* behind them: where flushes read to, */
#define VERBS_OWN (VERBS_RESULTS + 1u) /* and atomics on own words, which flushes may run beside */

struct verbs_thread {
    struct ibv_cq *cq;
    struct verbs_dest *dests; /* as t->dests */
    struct verbs_dest *lost, *flushes;
    uint32_t signals, signals_most; /* signaled requests under way: what the completion queue can hold */
    uint64_t *results;              /* of g and atomics: [VERBS_OWN + 1] */
    struct ibv_mr *results_mr;
    uint16_t free_slots[VERBS_RESULTS];
    uint32_t free_count;
    /* own words, for atomics by the owner: a queue pair connected to itself */
    struct ibv_cq *self_cq;
    struct ibv_qp *self;
};

struct verbs_net {
    struct tern_nic nic;
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct verbs_address address;
    uint64_t most_bytes; /* of one request */
    uint32_t depth;      /* requests of a queue pair */
    uint32_t reads;      /* reads and atomics under way on a queue pair */
    uint32_t inline_bytes;
    struct verbs_thread *threads;
    struct verbs_peer *peers; /* [n_pes] */
    struct ibv_mr *chunks[TERN_NET_CHUNKS], *buffers[TERN_MAX_BUFFERS + 1];
    struct verbs_peer own; /* chunks by local key */
};

static inline struct verbs_dest *verbs_dest_of(struct tern_proxy_thread *t, struct tern_dest *dest)
{
    struct verbs_thread *vt = t->net;
    return &vt->dests[dest - t->dests];
}

/* A power of two. */
static inline uint32_t verbs_depth(int n_pes)
{
    uint32_t depth = VERBS_DEPTH_MOST;
    while (depth > VERBS_DEPTH_LEAST && depth > VERBS_REQUESTS / (uint32_t)n_pes)
        depth /= 2;
    return depth;
}

/* The chunk of a PE (or of the own span) that holds `offset`; NULL: none does. */
static inline struct verbs_chunk *verbs_chunk_find(struct verbs_peer *peer, uint64_t offset)
{
    for (int i = 0; i < TERN_NET_CHUNKS; i++) {
        struct verbs_chunk *chunk = atomic_load_explicit(&peer->chunks[i], memory_order_acquire);
        if (chunk && offset - chunk->offset < chunk->bytes)
            return chunk;
    }
    return NULL;
}

/* ---- verbs_conn.c ------------------------------------------------------------------------------------------------ */
/* Ask for a connection, if none is there or asked for. False: tern_error. */
bool verbs_connect(struct verbs_dest *d);
void verbs_message(struct tern_proxy_thread *t, int from, const void *body, size_t bytes);
tern_status_t verbs_self_open(struct tern_proxy_thread *t);
/* No more work on the queue pair; what was posted ends nowhere. */
void verbs_disconnect(struct verbs_dest *d);
/* Move a queue pair to where it sends and receives. */
int verbs_qp_connect(struct verbs_net *net, struct ibv_qp *qp, uint32_t own_psn, const struct verbs_address *to,
                     uint32_t to_qp, uint32_t to_psn);

/* ---- verbs_post.c ------------------------------------------------------------------------------------------------ */
enum tern_post verbs_post(struct tern_proxy_thread *t, struct tern_op *op);
void verbs_flush(struct tern_proxy_thread *t, struct tern_dest *dest);
bool verbs_poll(struct tern_proxy_thread *t);
void verbs_dest_fail(struct tern_proxy_thread *t, struct tern_dest *dest, tern_status_t status);
/* The connection broke; its PE may be dying, which the control plane is about to learn: wait for that a while. */
void verbs_lost(struct verbs_dest *d, const char *what);
tern_status_t verbs_word_load(struct tern_proxy_thread *t, uint64_t offset, unsigned size, uint64_t *value);
tern_status_t verbs_word_store(struct tern_proxy_thread *t, uint64_t offset, unsigned size, uint64_t value);
tern_status_t verbs_word_swap(struct tern_proxy_thread *t, uint64_t offset, uint64_t compare, uint64_t value,
                              uint64_t *seen);

#endif
