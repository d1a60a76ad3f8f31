/* loopback.h - what the loopback transport's parts share: loopback.c executes, loopback_faults.c decides when and
 * whether. */
#ifndef TERN_PROXY_LOOPBACK_H
#define TERN_PROXY_LOOPBACK_H

#include "proxy/engine.h"

/* TERN_LOOPBACK_FAULTS; 0 = none of it. */
struct loopback_faults {
    bool any;
    uint32_t delay_low_us, delay_high_us;
    double reorder;   /* share of operations that others may overtake, as far as the contract allows */
    uint32_t credits; /* operations under way to one destination */
    uint64_t fail_at; /* number, from 1, of the operation of one ring and destination that fails; */
    int fail_pe;      /* to this PE only, -1: to any */
    int kill_pe;      /* this PE ends itself */
    uint64_t kill_at; /* at this operation of its */
    uint64_t seed;
};

/* False: `what` is the part that does not parse. */
bool tern_loopback_parse(const char *text, struct loopback_faults *f, char *what, size_t bytes);

/* An operation that waits for its time. */
struct loopback_late {
    uint64_t due_ns, order;
    struct tern_op *op;
};

/* Of a proxy thread. */
struct loopback_thread {
    struct tern_copier *copier;
    struct loopback_late *late; /* a heap, the earliest first: [pool_ops] */
    uint32_t late_count;
    uint64_t order, random, posts;
    uint64_t *counts;    /* [channels * dest_count]: operations of a ring to a destination */
    uint64_t *due_last;  /* [dest_count]: when the last one is due that nothing may overtake */
    uint32_t *under_way; /* [dest_count] */
};

tern_status_t tern_loopback_faults_open(struct tern_proxy_thread *t, struct loopback_thread *lt, uint64_t seed);
void tern_loopback_faults_close(struct loopback_thread *lt);
/* What is to become of an operation that is posted: POSTED (it waits), BUSY or FAILED (tern_error). */
enum tern_post tern_loopback_hold(struct tern_proxy_thread *t, const struct loopback_faults *f, struct tern_op *op);
/* The next operation whose time has come, or NULL. */
struct tern_op *tern_loopback_next(struct loopback_thread *lt);
/* Take back what waits for a destination: the next such operation, or NULL. */
struct tern_op *tern_loopback_drop(struct loopback_thread *lt, const struct tern_dest *dest);

#endif
