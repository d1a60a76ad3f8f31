/* peers.h - the decisions behind tern_peers_find, as pure functions (tested alone). */
#ifndef TERN_HOST_PEERS_H
#define TERN_HOST_PEERS_H

#include "host/rt.h"

/* Slots of a window are bytes, the last of which means "none". */
#define TERN_MAX_NEAR 255
#define TERN_NEAR_WORDS 4 /* bits of the PEs of a node */

/* What each PE sees, exchanged once. Bit i stands for the i-th PE of the node. */
struct tern_peer_view {
    int32_t sharers; /* PEs on this PE's device, itself included */
    int32_t refused; /* a PE with which this one may not share its device; -1: none */
    uint64_t near[TERN_NEAR_WORDS];
    uint64_t atomics[TERN_NEAR_WORDS];
    char why[100];       /* reason of `refused` */
};

/*
 * Make `peers` agree with the views of all PEs: near only where both sides say so, atomics likewise. `node_pes`: the
 * `node_n` PEs of this node, ascending. Sets same_node, near, mapped, atomics; `why` stays where the own view decided.
 */
void tern_peers_meet(struct tern_peer *peers, int pe, const int *node_pes, int node_n,
                     const struct tern_peer_view *views);
/*
 * Give slots to mapped PEs, ascending. True if the near PEs are a range whose slots follow each other: then *first and
 * *count describe them; else they need the table `slots` ([n_pes], filled in either case).
 */
bool tern_peers_place(struct tern_peer *peers, int n_pes, int *first, int *count, uint8_t *slots);

#endif
