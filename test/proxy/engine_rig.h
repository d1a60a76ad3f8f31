/*
 * engine_rig.h - a proxy without a job: control plane and device of one process, PEs that do not exist, a host producer
 * in the place of kernels, and a transport that does what a test tells it to.
 */
#ifndef TEST_PROXY_ENGINE_RIG_H
#define TEST_PROXY_ENGINE_RIG_H

#include "common/check.h"
#include "proxy/engine.h"

#define RIG_SPAN (1ull << 30)
#define RIG_PE 1 /* whose proxy it is */

struct rig {
    struct tern_rt rt;
    struct tern_proxy *px;
    struct tern_proxy_thread *t; /* the first */
    struct tern_peer *peers;
    _Atomic uint64_t *heads; /* by TERN_RING_INDEX */
};

/* Job aborts so far, and the last one. */
extern _Atomic int rig_aborts;
extern tern_status_t rig_abort_status;
extern int rig_abort_pe;
extern char rig_abort_text[512];
/* Messages to other PEs are kept (the newest one only) until rig_message_deliver. */
extern bool rig_hold_messages;
void rig_message_deliver(struct rig *rig);

struct rig_config {
    int n_pes, threads, channels, pending;
    bool mask; /* TERN_ON_DEATH=mask */
    int timeout_ms;
    const struct tern_transport *transport; /* NULL: null */
    const char *sysfs;                      /* verbs in its place, on this description of a machine */
};
void rig_open(struct rig *rig, const struct rig_config *config);
/* Every operation is back in its pool and no answer is missing; release. */
void rig_close(struct rig *rig);
/* Turns until nothing happens any more. */
void rig_settle(struct rig *rig);
/* Operations that are not complete, over all threads. */
uint32_t rig_incomplete(const struct rig *rig);

/* ---- the producer --------------------------------------------------------------------------------------------------
 */

/* Units that could be pushed now. */
uint32_t rig_space(const struct rig *rig, int thread, int channel);
/* Push an entry of `count` units; yields while the ring is full. @return its first ticket */
uint64_t rig_push(struct rig *rig, int thread, int channel, const tern_unit_t *u, unsigned count);
/* Only draw the tickets, or only store a unit, or only one of its words. */
uint64_t rig_draw(struct rig *rig, int thread, int channel, unsigned count);
void rig_store(struct rig *rig, int thread, int channel, uint64_t ticket, tern_unit_t u);
void rig_store_word(struct rig *rig, int thread, int channel, uint64_t ticket, tern_unit_t u, int word);
/* One entry of one unit to the first thread that is concerned. */
uint64_t rig_put(struct rig *rig, int channel, int pe, uint64_t offset, uint64_t bytes); /* PUT_S */
uint64_t rig_word(struct rig *rig, int channel, int pe, uint64_t offset, uint64_t value);
uint64_t rig_plain(struct rig *rig, int channel, unsigned op, int pe, unsigned slot);
uint64_t rig_amo(struct rig *rig, int channel, int pe, uint64_t offset, unsigned amo, uint64_t value, unsigned fetch,
                 unsigned slot);

/* The answer to `ticket` in a slot: its status, or -1 if there is none yet. */
int rig_reply(const struct rig *rig, int thread, int channel, unsigned slot, uint64_t ticket, uint64_t *value);

/* ---- a transport that obeys ------------------------------------------------------------------------------------- */

#define RIG_POSTS 65536

/* What was posted, in order; `op` until it has ended. */
struct rig_post {
    struct tern_op copy, *op;
    int pe;
};
struct rig_net {
    struct rig_post *posts; /* [RIG_POSTS] */
    int count, open;
    int credits[16];           /* posts that a PE takes before it is BUSY; -1: no bound */
    int fail_at;               /* this post (from 0) is refused; -1: none */
    bool at_once;              /* complete at post */
    int flushes[16];           /* calls of flush by PE */
    uint64_t flush_number[16]; /* and the last number posted when it was called */
    uint64_t loads[4];
};
extern struct rig_net rig_net;
extern const struct tern_transport rig_ordered, rig_unordered, rig_amo_ordered;
void rig_net_reset(void);
void rig_sent(struct rig *rig, int post);
void rig_done(struct rig *rig, int post, tern_status_t status);
/* End everything that is open, in random order, turn by turn, until nothing is left. */
void rig_drain(struct rig *rig, uint64_t *random);
/* The first post that is open, or -1. */
int rig_first_open(void);

#endif
