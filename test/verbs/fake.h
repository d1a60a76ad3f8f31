/*
 * fake.h - a verbs library of one process, in the place of libibverbs: one device, queue pairs connected to themselves
 * or to each other, memory regions with bounds and keys, and a log of what was posted. It is as late and as strict as
 * hardware may be: a read or atomic takes effect when its completion is taken, a write at once, unless it has the fence
 * flag; a request's place in the queue is free again when a completion at or behind it has been taken.
 */
#ifndef TEST_VERBS_FAKE_H
#define TEST_VERBS_FAKE_H

#include "proxy/verbs.h"

struct fake_request {
    int doorbell; /* call of post_send, from 0 */
    uint32_t qp;
    enum ibv_wr_opcode opcode;
    unsigned flags;
    uint64_t remote, bytes;
};

#define FAKE_LOG 65536

struct fake {
    struct fake_request log[FAKE_LOG]; /* of queue pairs that are not connected to themselves only for own words */
    int count, doorbells;
    bool hold;               /* no completion is handed out */
    bool elsewhere;          /* what is under way takes effect while own words are worked on */
    int fail_at;             /* this request (of the log) fails; -1: none */
    int reg_error, qp_error; /* errno of registrations, of new queue pairs; 0: they work */
    uint32_t max_msg, max_inline;
    enum ibv_atomic_cap atomics;
    enum ibv_mtu mtu;
    int qps, mrs, cqs, pds, contexts; /* alive */
};
extern struct fake fake;
void fake_reset(void);

#endif
