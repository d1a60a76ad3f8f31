/*
 * transport.h - the table of functions that a transport gives to the engine. One transport carries all far PEs of a job.
 * Functions above the line are called by the application's thread (collective where the heap's growth is), those below it
 * by the proxy thread to which the destination belongs, and by no other.
 */
#ifndef TERN_PROXY_TRANSPORT_H
#define TERN_PROXY_TRANSPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <tern/tern.h>

struct tern_proxy;
struct tern_proxy_thread;
struct tern_dest;
struct tern_op;

/* What a PE tells the others at init, and of each chunk of its heap. Fixed size: they travel by allgather. */
struct tern_net_address {
    uint32_t bytes;
    unsigned char data[1020];
};
struct tern_net_key {
    uint32_t bytes;
    unsigned char data[124];
};

/* Memory of a span that is registered as one. */
struct tern_net_chunk {
    int number;                 /* of the PE, counting over both parts: unique among its chunks, below TERN_NET_CHUNKS */
    uint64_t offset, bytes;     /* in the span */
    void *addr;                 /* own chunks: where it is mapped */
};
#define TERN_NET_CHUNKS 64

/* Abilities. */
#define TERN_NET_ORDERED 0x1u   /* puts, signals and words reach a PE in the order of their posts */
#define TERN_NET_AMO 0x2u       /* the transport executes all atomics and ADD signals itself; else they are RPCs */
#define TERN_NET_AMO64 0x4u     /* the same for 8-byte add and compare-swap on far PEs' words only; others by word_swap there */
#define TERN_NET_LAZY 0x8u      /* puts are told sent when somebody waits for that as they are posted, or with what comes later */

enum tern_post { TERN_POSTED, TERN_POST_BUSY, TERN_POST_FAILED };

struct tern_transport {
    const char *name;
    unsigned caps;                                                /* px->caps begins as this; open() may take away */
    /* Can it carry operations to PE `pe` of this job? Static text why (not). */
    bool (*reaches)(struct tern_rt *rt, int pe, const char **why);
    tern_status_t (*open)(struct tern_proxy *px);                 /* before addresses are exchanged */
    tern_status_t (*address)(struct tern_proxy *px, struct tern_net_address *own);
    tern_status_t (*connect)(struct tern_proxy *px, const struct tern_net_address *all); /* [n_pes]; kept by the engine */
    void (*close)(struct tern_proxy *px);                         /* threads have ended */
    tern_status_t (*chunk_add)(struct tern_proxy *px, const struct tern_net_chunk *chunk, struct tern_net_key *key);
    void (*chunk_drop)(struct tern_proxy *px, const struct tern_net_chunk *chunk);
    tern_status_t (*peer_chunk_add)(struct tern_proxy *px, int pe, const struct tern_net_chunk *chunk,
                                    const struct tern_net_key *key);
    void (*peer_chunk_drop)(struct tern_proxy *px, int pe, const struct tern_net_chunk *chunk);
    tern_status_t (*buffer_add)(struct tern_proxy *px, unsigned segment, void *addr, uint64_t bytes);
    void (*buffer_drop)(struct tern_proxy *px, unsigned segment);

    /* ---- proxy thread ------------------------------------------------------------------------------------------------ */
    tern_status_t (*thread_start)(struct tern_proxy_thread *t);   /* may be NULL, as thread_stop */
    void (*thread_stop)(struct tern_proxy_thread *t);
    /*
     * Start an operation (put, get, word, put_signal, g; amo where caps say so). BUSY: no room, offered again later.
     * FAILED: tern_error has been called; the engine fails the operation. May complete it before it returns.
     */
    enum tern_post (*post)(struct tern_proxy_thread *t, struct tern_op *op);
    /* Make everything posted to `dest` so far complete at the target, sooner or later; may be NULL. */
    void (*flush)(struct tern_proxy_thread *t, struct tern_dest *dest);
    /* Progress; calls tern_op_sent and tern_op_done. True if something happened. */
    bool (*poll)(struct tern_proxy_thread *t);
    /* Sleep until something may have happened, at most `us`; NULL: the engine naps. */
    void (*wait)(struct tern_proxy_thread *t, unsigned us);
    /* The PE is dead: end every operation posted to it, with that status, now or in later polls. */
    void (*dest_fail)(struct tern_proxy_thread *t, struct tern_dest *dest, tern_status_t status);
    /* An aligned word of 4 or 8 bytes of the own heap, for RPC atomics. NULL: the CPU reaches it at rt->span. */
    tern_status_t (*word_load)(struct tern_proxy_thread *t, uint64_t offset, unsigned size, uint64_t *value);
    tern_status_t (*word_store)(struct tern_proxy_thread *t, uint64_t offset, unsigned size, uint64_t value);
    /* TERN_NET_AMO64: compare-swap of 8 bytes, atomic against the transport's own atomics from other PEs. */
    tern_status_t (*word_swap)(struct tern_proxy_thread *t, uint64_t offset, uint64_t compare, uint64_t value,
                               uint64_t *seen);
    /* What the transport of another PE sent by tern_proxy_net_send to the thread of its PE. */
    void (*message)(struct tern_proxy_thread *t, int from, const void *body, size_t bytes);
};

/* In the order of preference for TERN_TRANSPORT=auto; TERN_TRANSPORT's values but auto. A table without `post`: not built. */
extern const struct tern_transport tern_transport_null, tern_transport_loopback, tern_transport_ucx, tern_transport_verbs;

#endif
