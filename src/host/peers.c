/*
 * peers.c - which PEs a PE reaches by load/store, with native atomics or not, and in which slot of the window each span
 * lies. Decided from the blobs and the device, then agreed job-wide: a path exists only where both ends see it. All other
 * PEs are far: the proxy's.
 */
#include "host/peers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool bit(const uint64_t *words, int i)
{
    return words[i / 64] >> (i % 64) & 1;
}

static void set_bit(uint64_t *words, int i)
{
    words[i / 64] |= (uint64_t)1 << (i % 64);
}

void tern_peers_meet(struct tern_peer *peers, int pe, const int *node_pes, int node_n,
                     const struct tern_peer_view *views)
{
    int limit = node_n < TERN_MAX_NEAR ? node_n : TERN_MAX_NEAR, self = 0;

    while (node_pes[self] != pe)
        self++;
    for (int i = 0; i < node_n; i++) {
        struct tern_peer *peer = &peers[node_pes[i]];
        const struct tern_peer_view *mine = &views[pe], *theirs = &views[node_pes[i]];

        peer->same_node = true;
        peer->near = i == self || (i < limit && self < limit && bit(mine->near, i) && bit(theirs->near, self));
        peer->mapped = peer->near;
        peer->atomics = peer->near && (i == self || (bit(mine->atomics, i) && bit(theirs->atomics, self)));
        if (!peer->near && i < limit && self < limit && bit(mine->near, i))
            peer->why = "the other PE does not reach this one by load/store";
        else if (!peer->near && (i >= limit || self >= limit))
            peer->why = "more than 255 PEs on the node";
    }
}

bool tern_peers_place(struct tern_peer *peers, int n_pes, int *first, int *count, uint8_t *slots)
{
    int slot = 0, near = 0, lowest = -1, highest = -1;

    for (int p = 0; p < n_pes; p++) {
        peers[p].slot = peers[p].mapped ? (uint8_t)slot++ : TERN_SLOT_NONE;
        slots[p] = peers[p].near ? peers[p].slot : TERN_SLOT_NONE;
        if (!peers[p].near)
            continue;
        near++;
        highest = p;
        if (lowest < 0)
            lowest = p;
    }
    *first = lowest;
    *count = near;
    return highest - lowest + 1 == near; /* near PEs are mapped, so their slots follow each other, too */
}

/* How this PE sees the PEs of its node; fills `why` of the peers. */
static tern_status_t look(struct tern_rt *rt, struct tern_peer_view *view)
{
    const struct tern_device_id *own = &rt->device_id;

    view->sharers = 0;
    view->refused = -1;
    for (int i = 0; i < rt->node_n_pes; i++) {
        int p = rt->node_pes[i];
        const struct tern_blob *blob = p == rt->pe ? &rt->blob : tern_control_blob(rt, p);
        bool load_store = true, atomics = true, shared;
        const char *why = "this PE";

        if (!blob)
            return TERN_ERR_BOOTSTRAP;
        if (p != rt->pe)
            tern_device_peer(rt, &blob->device, &load_store, &atomics, &why);
        rt->peers[p].why = why;
        if (i < TERN_MAX_NEAR && load_store)
            set_bit(view->near, i);
        if (i < TERN_MAX_NEAR && load_store && atomics)
            set_bit(view->atomics, i);
        shared = !memcmp(blob->device.uuid, own->uuid, sizeof(own->uuid));
        view->sharers += shared;
        if (p != rt->pe && shared && view->refused < 0 && !rt->env.allow_timeslice &&
            !(own->flags & blob->device.flags & TERN_DEVICE_MPS)) {
            view->refused = p;
            snprintf(view->why, sizeof(view->why), "GPU %d, %s", own->ordinal, own->name);
        }
    }
    return TERN_OK;
}

/* Every PE has the same views, so all fail alike. */
static tern_status_t verdict(struct tern_rt *rt, const struct tern_peer_view *views)
{
    for (int p = 0; p < rt->n_pes; p++) {
        if (views[p].refused >= 0)
            return tern_error(
                TERN_ERR_NO_DEVICE,
                "PEs %d and %d share a device without MPS (%s): their kernels would take turns of milliseconds, "
                "and one that waits for the other blocks it; give each PE its own GPU, start MPS "
                "(nvidia-cuda-mps-control -d) before the job, or accept it by TERN_ALLOW_TIMESLICE=1",
                p, views[p].refused, views[p].why);
    }
    return TERN_OK;
}

static void hide(struct tern_rt *rt)
{
    for (int p = 0; p < rt->n_pes; p++) {
        if (p == rt->pe || !rt->peers[p].near)
            continue;
        rt->peers[p].near = rt->peers[p].atomics = false;
        rt->peers[p].why = "hidden by TERN_DISABLE_P2P=1";
    }
}

/* Where atomics are executed, and whether the job needs proxies: facts of all pairs of PEs, hence equal on all. */
static tern_status_t choose_paths(struct tern_rt *rt)
{
    enum { AUTO, DIRECT, PROXY }; /* choices of TERN_ATOMICS in env.h */
    static const enum tern_reduce ops[] = {TERN_REDUCE_MAX, TERN_REDUCE_MAX};
    uint64_t words[2] = {0, 0}; /* there is a far peer; there is a peer without native atomics by load/store */
    tern_status_t status;

    for (int p = 0; p < rt->n_pes; p++) {
        words[0] |= !rt->peers[p].near;
        words[1] |= !rt->peers[p].atomics;
    }
    status = tern_control_allreduce(rt, NULL, words, 2, ops);
    if (status != TERN_OK)
        return status;
    rt->amo_direct = rt->env.atomics == DIRECT || (rt->env.atomics == AUTO && !words[1]);
    rt->needs_proxy = words[0] || !rt->amo_direct;
    if (rt->env.atomics != AUTO)
        rt->amo_why = rt->env.atomics == DIRECT ? "TERN_ATOMICS=direct" : "TERN_ATOMICS=proxy";
    else if (!words[1])
        rt->amo_why = "all PEs reach each other by load/store with native atomics";
    else
        rt->amo_why = words[0] ? "not all PEs reach each other by load/store"
                               : "not all PEs have native atomics on each other's memory";
    return TERN_OK;
}

static tern_status_t place(struct tern_rt *rt)
{
    uint8_t *slots = malloc((size_t)rt->n_pes);
    tern_status_t status = TERN_OK;
    void *table;

    if (!slots)
        return tern_error(TERN_ERR_NO_MEMORY, "no host memory for the slots of %d PEs", rt->n_pes);
    if (!tern_peers_place(rt->peers, rt->n_pes, &rt->near_first, &rt->near_count, slots)) {
        status = tern_device_alloc(rt, (uint64_t)rt->n_pes, &table);
        if (status == TERN_OK) {
            rt->slots_dev = table;
            status = tern_device_write(rt, table, slots, (uint64_t)rt->n_pes);
        }
    }
    free(slots);
    return status;
}

tern_status_t tern_peers_find(struct tern_rt *rt)
{
    struct tern_peer_view own, *views = calloc((size_t)rt->n_pes, sizeof(*views));
    tern_status_t status = TERN_OK;

    memset(&own, 0, sizeof(own));
    rt->peers = calloc((size_t)rt->n_pes, sizeof(*rt->peers));
    if (!views || !rt->peers)
        status = tern_error(TERN_ERR_NO_MEMORY, "no host memory for what is known of %d PEs", rt->n_pes);
    else
        status = look(rt, &own);
    status = tern_agree_status(rt, NULL, status);
    if (status == TERN_OK)
        status = tern_control_allgather(rt, NULL, &own, sizeof(own), views);
    if (status != TERN_OK)
        goto err_peers;

    for (int p = 0; p < rt->n_pes; p++) {
        rt->peers[p].slot = TERN_SLOT_NONE;
        if (!rt->peers[p].why)
            rt->peers[p].why = "on another node";
    }
    tern_peers_meet(rt->peers, rt->pe, rt->node_pes, rt->node_n_pes, views);
    status = verdict(rt, views);
    if (status != TERN_OK)
        goto err_peers;
    rt->sharers = own.sharers;
    if (rt->env.disable_p2p)
        hide(rt);
    status = choose_paths(rt);
    if (status != TERN_OK)
        goto err_peers;
    status = tern_agree_status(rt, NULL, place(rt));
    if (status != TERN_OK)
        goto err_peers;
    free(views);
    return TERN_OK;

err_peers:
    free(views);
    tern_peers_close(rt);
    return status;
}

const char *tern_peer_why(struct tern_rt *rt, int pe)
{
    const struct tern_blob *blob = rt->peers[pe].same_node ? NULL : tern_control_blob(rt, pe);
    const char *why;

    if (!blob)
        return rt->peers[pe].why;
    return tern_blob_same_node(&rt->blob, blob, &why) ? "on another node, by the launcher's count" : why;
}

void tern_peers_close(struct tern_rt *rt)
{
    if (rt->slots_dev)
        tern_device_free(rt, rt->slots_dev);
    rt->slots_dev = NULL;
    free(rt->peers);
    rt->peers = NULL;
}
