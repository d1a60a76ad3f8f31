/*
 * peers.c - which PEs a PE reaches by load/store, with native atomics or not, and in which slot of the window each span
 * lies. Decided from the blobs and the device, then agreed job-wide: a path exists only where both ends see it.
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

bool tern_peers_atomics(const struct tern_peer_view *views, int n_pes, int node_n)
{
    if (node_n != n_pes || n_pes > TERN_MAX_NEAR)
        return false;
    for (int p = 0; p < n_pes; p++)
        for (int i = 0; i < n_pes; i++)
            if (p != i && !bit(views[p].atomics, i))
                return false;
    return true;
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
    view->refused = view->unreachable = -1;
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

/* No transport reaches other nodes yet: name the first PE that is out of reach. */
static void find_unreachable(struct tern_rt *rt, struct tern_peer_view *view)
{
    for (int p = 0; p < rt->n_pes && view->refused < 0 && view->unreachable < 0; p++) {
        const struct tern_blob *blob;

        if (rt->peers[p].near)
            continue;
        view->unreachable = p;
        if (!rt->peers[p].same_node && (blob = tern_control_blob(rt, p)) &&
            tern_blob_same_node(&rt->blob, blob, &rt->peers[p].why))
            rt->peers[p].why = "on another node, by the launcher's count";
        snprintf(view->why, sizeof(view->why), "%s", rt->peers[p].why);
    }
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
        if (views[p].unreachable >= 0)
            return tern_error(
                TERN_ERR_UNREACHABLE,
                "PE %d has no path to PE %d: %s; this version reaches load/store peers only: run all PEs on one "
                "node, on GPUs with peer access",
                p, views[p].unreachable, views[p].why);
    }
    return TERN_OK;
}

static tern_status_t choose_atomics(struct tern_rt *rt, bool native)
{
    bool hidden = rt->env.disable_p2p && rt->n_pes > 1;

    /* values as in TERN_ATOMICS=auto|direct|proxy */
    if (rt->env.atomics == 2)
        return tern_error(TERN_ERR_UNSUPPORTED,
                          "TERN_ATOMICS=proxy: this version has no proxy; unset it or say direct");
    rt->amo_direct = !hidden && (native || rt->env.atomics == 1);
    if (!rt->amo_direct)
        tern_log(TERN_LOG_WARN, "atomics are not available: %s",
                 hidden ? "TERN_DISABLE_P2P hides the peers" : "not all peers have native atomics by load/store");
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
    find_unreachable(rt, &own);
    status = tern_control_allgather(rt, NULL, &own, sizeof(own), views);
    if (status != TERN_OK)
        goto err_peers;
    status = verdict(rt, views);
    if (status == TERN_OK)
        status = choose_atomics(rt, tern_peers_atomics(views, rt->n_pes, rt->node_n_pes));
    if (status != TERN_OK)
        goto err_peers;

    rt->sharers = own.sharers;
    for (int p = 0; rt->env.disable_p2p && p < rt->n_pes; p++) {
        if (p != rt->pe && rt->peers[p].near) {
            rt->peers[p].near = rt->peers[p].atomics = false;
            rt->peers[p].why = "hidden by TERN_DISABLE_P2P=1";
        }
    }
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

void tern_peers_close(struct tern_rt *rt)
{
    if (rt->slots_dev)
        tern_device_free(rt, rt->slots_dev);
    rt->slots_dev = NULL;
    free(rt->peers);
    rt->peers = NULL;
}
