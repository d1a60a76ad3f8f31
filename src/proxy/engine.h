/*
 * engine.h - inside of the proxy: what a thread keeps of its rings, destinations and operations.
 *
 * A thread owns the destinations pe % threads, and one ring of every channel. Everything here is touched by its thread only,
 * but for what is marked atomic. An operation taken from a ring gets the thread's next number and stands, until it is
 * complete at the target, in two lists in that order: its destination's and the thread's. So "all operations up to number n
 * are complete" is a look at the head of a list, whatever the order in which they complete.
 */
#ifndef TERN_PROXY_ENGINE_H
#define TERN_PROXY_ENGINE_H

#include <stdatomic.h>
#include <tern/detail/ring.h>

#include "proxy/proxy.h"

enum tern_op_kind { TERN_OP_PUT, TERN_OP_GET, TERN_OP_WORD, TERN_OP_PUT_SIGNAL, TERN_OP_G, TERN_OP_AMO };
enum tern_op_state {
    TERN_OP_FREE,
    TERN_OP_PENDING, /* taken, not posted */
    TERN_OP_POSTED,
    TERN_OP_SENT     /* a put whose source is reusable, or that has been answered */
};

struct tern_op {
    struct tern_op *prev, *next;         /* in the destination's list; free list by next */
    struct tern_op *all_prev, *all_next; /* in the thread's list */
    struct tern_dest *dest;
    uint64_t number;                     /* from 1 */
    uint64_t after;                      /* follows, at the target, what is unordered up to this number; 0: nothing */
    uint64_t remote;                     /* offset in the target's span */
    uint64_t local;                      /* offset in `segment` */
    uint64_t bytes;                      /* put, get; word, g, amo: 1, 2, 4, 8 */
    uint64_t value, compare;             /* of word, signal, amo; g, fetching amo: the result */
    uint64_t signal;                     /* put_signal (SET): offset of the word */
    uint64_t ticket;                     /* of the entry to be answered */
    uint64_t taken_ms;                   /* thread's clock when it was taken */
    uint16_t ring, segment;              /* channel; 0: own span, else buffer + 1 */
    uint8_t kind, state, amo, slot;
    bool answer;                         /* a reply slot waits: get, g, amo: for the end; put: for the source */
    bool fetch;
    bool rpc;                            /* carried by the control plane */
    uint64_t net[3];                     /* the transport's */
};

/* A quiet that waits: for all numbers up to `number` of one destination, or (dest NULL) of the thread. */
struct tern_quiet {
    struct tern_quiet *next;
    struct tern_dest *dest;
    uint64_t number, ticket;
    uint16_t ring;
    uint8_t slot;
    bool host;                           /* of tern_proxy_quiet: no slot */
};
struct tern_quiets {
    struct tern_quiet *first, **tail;
};

struct tern_dest {
    int pe;
    struct tern_op *first, *last;        /* incomplete, by number */
    struct tern_op *pending;             /* the first that is not posted yet; all behind it are not either */
    uint32_t pending_count, posted_count;
    uint64_t flush_want, flushed;        /* complete up to a number is wanted; flush() was called when all up to it were posted */
    struct tern_quiets quiets;
    struct tern_dest *active_next;       /* in the thread's list of those with pending operations or wants */
    bool active;
    bool rpc_busy;                       /* an RPC is on its way: nothing is posted */
    _Atomic bool dead;                   /* told by the control thread */
    tern_status_t failed;                /* operations to it are answered with this, and no longer posted */
    bool failed_now;                     /* those that are under way have not been ended yet */
    uint64_t failed_first, failed_last;  /* numbers of operations that failed; 0: none has */
    uint64_t ops, bytes;                 /* statistics: posted */
    uint64_t last_number, last_bytes;    /* of the one posted last, for the dump */
    uint8_t last_kind;
    void *net;                           /* the transport's */
};

/* The operation of a ring's newest entry, for the REPLY that may follow; if it is complete by now, how it ended. */
struct tern_last {
    struct tern_op *op;                  /* has another number by then, or is free */
    uint64_t number;
    tern_status_t status;
};

struct tern_ring_in {
    struct tern_ring_host *host;
    tern_unit_t *units;
    uint64_t next;                       /* ticket of the next entry */
    uint64_t fence;                      /* thread's number at its last FENCE */
    struct tern_last last;
    uint64_t quiet_number;               /* failures up to it have been told, by a quiet of all PEs */
    struct tern_quiet quiets[TERN_RING_REPLIES];
    uint64_t entries, stalls;            /* statistics */
};

struct tern_rpc_mail;                    /* rpc.c */

struct tern_proxy_thread {
    _Alignas(128) struct tern_proxy *px; /* threads share no lines */
    int index;
    pthread_t thread;
    bool running;
    struct tern_ring_in *rings;          /* [channels] */
    struct tern_dest *dests;             /* [dest_count]: PE index + i * threads */
    int dest_count;
    uint64_t number;                     /* of the last operation taken */
    struct tern_op *all_first, *all_last;
    struct tern_dest *active;
    struct tern_quiets quiets;           /* of all destinations */
    struct tern_op *pool, *free_ops;     /* the free ones that have been used before, */
    uint32_t pool_used, free_count;      /* how many have, and how many are free in all */
    uint64_t now_ms;                     /* refreshed every so many turns */
    uint32_t turns;
    uint64_t watched_ms;                 /* last look for operations that take too long */
    int failures;                        /* operations that failed, or destinations */
    struct tern_quiet host_quiet;
    int host_ring;                       /* tern_proxy_quiet: rings below it have been seen empty; -1: its quiet waits */
    uint64_t host_number;                /* failures up to it have been told to the host */
    _Atomic uint32_t host_quiet_asked, host_quiet_done; /* equal: nothing is asked */
    int host_quiet_status;               /* written before `done` */
    _Atomic uint32_t deaths_told;
    uint32_t deaths_seen;
    _Atomic uint32_t dump_asked, dump_done;
    _Atomic uint32_t mail_count;         /* RPC messages in the box: a look without the lock */
    pthread_mutex_t mail_lock;
    struct tern_rpc_mail *mail, **mail_tail;
    uint64_t polls, naps, busy;          /* statistics: turns, naps, turns in which something happened */
    uint64_t checksum;                   /* of the null transport, for tests */
    void *net;                           /* the transport's */
};

struct tern_proxy {
    struct tern_rt *rt;
    const char *why;                     /* reason of the choice of transport, static text */
    const struct tern_transport *transport; /* NULL: there are no far PEs, only atomics come here */
    unsigned caps;                       /* TERN_NET_*: of the transport, as it is set up */
    int threads, channels;
    uint32_t units, pending_most, pool_ops;
    _Atomic(const char *) dump_why;      /* static text */
    struct tern_proxy_thread *thread;    /* [threads] */
    struct tern_ring_dev *rings_dev;     /* device address */
    char *rings_host, *rings_host_dev;   /* host halves, by both addresses */
    struct tern_net_address *addresses;  /* [n_pes] */
    struct tern_net_chunk own_chunks[TERN_NET_CHUNKS];
    struct tern_buffer_dev buffers[TERN_MAX_BUFFERS], *buffers_dev;
    int n_buffers;
    pthread_mutex_t lock;                /* buffers, dump */
    pthread_mutex_t quiet_lock;          /* one host quiet at a time; the control thread, which it may need, never takes it */
    bool few_cores;                      /* an empty poll gives the core away */
    int pin_first;                       /* CPU of the first thread, the others' lie below it; -1: none is pinned */
    _Atomic bool stop;
    void *net;                           /* the transport's */
};

/* Statistics of an operation that has been posted. */
static inline void tern_dest_count(struct tern_dest *dest, uint64_t number, uint64_t bytes, uint8_t kind)
{
    dest->last_number = number;
    dest->last_bytes = bytes;
    dest->last_kind = kind;
    dest->ops++;
    dest->bytes += bytes;
}

/* ---- intake.c: rings to operations ------------------------------------------------------------------------------------- */
/*
 * Take what is there, at most `most` entries, from one ring; publishes `taken` if there were any. @return entries taken; -1:
 * none, though one is there: its destination has no room.
 */
int tern_intake_ring(struct tern_proxy_thread *t, int channel, int most);
/* Have the cache load what comes `ahead` units behind the next entry of a ring. */
static inline void tern_intake_prefetch(const struct tern_proxy_thread *t, int channel, unsigned ahead)
{
    const struct tern_ring_in *ring = &t->rings[channel];
    __builtin_prefetch(&ring->units[(ring->next + ahead) & (t->px->units - 1)]);
}
/* A ring's answer. */
void tern_reply_store(struct tern_proxy_thread *t, int channel, unsigned slot, uint64_t ticket, uint64_t value,
                      tern_status_t status);

/* ---- dest.c: operations on their way ------------------------------------------------------------------------------------ */
/* Room for `count` more operations to this destination? If not, it is made. */
bool tern_dest_room(struct tern_proxy_thread *t, struct tern_dest *dest, uint32_t count);
struct tern_dest *tern_dest_of(struct tern_proxy_thread *t, int pe);
/* The free operation that tern_op_add will take (there is room), to be filled before. */
struct tern_op *tern_op_next(struct tern_proxy_thread *t);
/* It goes to the end of both lists, with the next number. A failed destination: it ends at once. False: that. */
bool tern_op_add(struct tern_proxy_thread *t, struct tern_dest *dest, int channel);
/* Post what can be posted, flush what is to be flushed. True if something was. */
bool tern_dest_pump(struct tern_proxy_thread *t, struct tern_dest *dest);
bool tern_dests_pump(struct tern_proxy_thread *t); /* all active ones */
void tern_dest_activate(struct tern_proxy_thread *t, struct tern_dest *dest);
void tern_dest_want_all(struct tern_proxy_thread *t, struct tern_dest *dest); /* complete at the target, sooner or later */
void tern_quiet_begin(struct tern_proxy_thread *t, struct tern_quiet *quiet);
/* Called by transports. sent: the source of a put may be reused. done: complete at the target, or failed; the op is gone. */
void tern_op_sent(struct tern_proxy_thread *t, struct tern_op *op);
void tern_op_done(struct tern_proxy_thread *t, struct tern_op *op, tern_status_t status);
/* The destination is lost: everything to it, now and later, ends with this. `op`: what found it out, or NULL. */
void tern_dest_fail(struct tern_proxy_thread *t, struct tern_dest *dest, tern_status_t status, const struct tern_op *op,
                    const char *why);
/* "put of 4096 bytes to PE 3 (proxy thread 0, ring 5)". */
void tern_op_text(const struct tern_proxy_thread *t, const struct tern_op *op, char *buf, size_t bytes);
/* Address of the local side. */
void *tern_op_local(const struct tern_proxy_thread *t, const struct tern_op *op);

/* ---- rpc.c: atomics executed by the owner -------------------------------------------------------------------------------- */
/* Send the RPCs at the head of the destination's pending list, all earlier operations being complete. False: try later. */
bool tern_rpc_send(struct tern_proxy_thread *t, struct tern_dest *dest);
/* Requests and answers that have come in. True if there were some. */
bool tern_rpc_poll(struct tern_proxy_thread *t);
/* A transport's message to the transport of another PE, to its thread for this one. Any thread. */
#define TERN_NET_MESSAGE 64u /* bytes at most */
tern_status_t tern_proxy_net_send(struct tern_rt *rt, int pe, const void *body, size_t bytes);
void tern_rpc_open(struct tern_proxy_thread *t); /* before messages may come; close: after they may */
void tern_rpc_close(struct tern_proxy_thread *t);

/* ---- cores.c: cores of the threads ------------------------------------------------------------------------------------- */
tern_status_t tern_proxy_cores(struct tern_proxy *px); /* collective; sets few_cores and pin_first */
void tern_proxy_pin(struct tern_proxy_thread *t);      /* by itself */

/* ---- engine.c -------------------------------------------------------------------------------------------------------------- */
void *tern_engine_run(void *thread); /* body of a proxy thread */
void tern_engine_dump(struct tern_proxy_thread *t, const char *why); /* by its own thread, or when that has ended */
/* One turn, for tests that have no thread. True if something happened. */
bool tern_engine_turn(struct tern_proxy_thread *t);

#endif
