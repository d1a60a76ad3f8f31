/*
 * fake.h - what unit tests of the heap put in the place of control plane, device and proxy: PEs are threads of one
 * process, chunks are memfds, and any device operation can be made to fail on one PE.
 */
#ifndef TEST_HEAP_FAKE_H
#define TEST_HEAP_FAKE_H

#include "host/rt.h"

#define FAKE_MAX_PES 8

enum fake_op {
    FAKE_RESERVE,
    FAKE_CREATE,
    FAKE_EXPORT,
    FAKE_IMPORT,
    FAKE_MAP,
    FAKE_ZERO,
    FAKE_ALLOC,
    FAKE_REGISTER, /* with a proxy: an own chunk; */
    FAKE_KEY,      /* a far PE's chunk */
    FAKE_OPS
};

/* PE p is on node p % fake_nodes; PEs of other nodes are far, the proxy's. 0: all are on one node and mapped, but
 * hidden. */
extern int fake_nodes;

/* Device limits, equal on all PEs. */
extern uint64_t fake_granularity, fake_internal_span, fake_heap_limit;
extern uint64_t fake_reserve_limit; /* larger reservations fail; 0: none does */

extern uint64_t fake_chunk_limit; /* larger chunks cannot be had on the last PE; 0: all can */

/* The calling PE's next operation of this kind but `after` fails with `status`; it is disarmed by fake_heal. */
void fake_fail(enum fake_op op, int after, tern_status_t status);
/* Disarm; true if the armed operation has failed. */
bool fake_heal(void);

/* Things alive in the process: reservations, mappings, chunks, exported and sent descriptors, allocations. */
int fake_alive(void);
/* With a proxy: bytes of a far PE's internal or user heap for which this PE has keys; of the own one that are
 * registered. */
uint64_t fake_keyed(struct tern_rt *rt, int pe, bool user);
/* Number of times that the state was published by the calling PE. */
int fake_published(void);

/* Run `body` on `n` threads, each with a runtime whose peers are made and all near; joins them. */
void fake_run(int n, void (*body)(struct tern_rt *rt, void *arg), void *arg);

#endif
