/*
 * heap_far.c - the heap's chunks as the proxy needs them: own ones are registered with the transport, their keys go to
 * the far PEs of the group that grows, and theirs come here. One chunk, one key; only what somebody lacks travels.
 */
#include <stdlib.h>
#include <string.h>

#include "host/heap.h"
#include "proxy/proxy.h"

tern_status_t tern_far_open(struct tern_rt *rt, struct tern_heap *heap)
{
    if (!rt->proxy)
        return TERN_OK;
    heap->far = calloc((size_t)rt->n_pes, sizeof *heap->far);
    if (!heap->far)
        return tern_error(TERN_ERR_NO_MEMORY, "no host memory for the heaps of %d PEs", rt->n_pes);
    return TERN_OK;
}

static struct tern_net_chunk chunk_of(const struct tern_heap *heap, enum tern_part part, int index, uint64_t offset,
                                      uint64_t bytes)
{
    int number = part == TERN_PART_INTERNAL ? index : TERN_INTERNAL_CHUNKS + index;

    return (struct tern_net_chunk){number, heap->start[part] + offset, bytes, NULL};
}

/* ---- own chunks -------------------------------------------------------------------------------------------------- */

static struct tern_net_chunk own_chunk(const struct tern_heap *heap, enum tern_part part, int index)
{
    const struct tern_span *own = &heap->spans[heap->own];
    struct tern_net_chunk chunk;
    uint64_t offset = 0;

    for (int c = 0; c < index; c++)
        offset += own->parts[part].chunks[c].bytes;
    chunk = chunk_of(heap, part, index, offset, own->parts[part].chunks[index].bytes);
    chunk.addr = own->base + chunk.offset;
    return chunk;
}

tern_status_t tern_far_register(struct tern_rt *rt, struct tern_heap *heap, enum tern_part part)
{
    struct tern_net_chunk chunk;
    tern_status_t status;

    if (!rt->proxy)
        return TERN_OK;
    chunk = own_chunk(heap, part, heap->keyed[part]);
    memset(&heap->keys[part][heap->keyed[part]], 0, sizeof(struct tern_net_key));
    status = tern_proxy_chunk_add(rt, &chunk, &heap->keys[part][heap->keyed[part]]);
    heap->keyed[part] += status == TERN_OK;
    return status;
}

void tern_far_unregister(struct tern_rt *rt, struct tern_heap *heap, enum tern_part part, int count)
{
    while (heap->keyed[part] > count) {
        struct tern_net_chunk chunk = own_chunk(heap, part, --heap->keyed[part]);

        tern_proxy_chunk_drop(rt, &chunk);
    }
}

/* ---- chunks of far PEs ------------------------------------------------------------------------------------------- */

static void far_cut(struct tern_rt *rt, struct tern_heap *heap, int pe, enum tern_part part, int count)
{
    struct tern_far *far = &heap->far[pe];

    while (far->parts[part].count > count) {
        int index = --far->parts[part].count;
        struct tern_net_chunk chunk;

        far->parts[part].sum -= far->parts[part].bytes[index];
        chunk = chunk_of(heap, part, index, far->parts[part].sum, far->parts[part].bytes[index]);
        tern_proxy_peer_chunk_drop(rt, pe, &chunk);
    }
}

void tern_far_close(struct tern_rt *rt, struct tern_heap *heap)
{
    for (int pe = 0; heap->far && pe < rt->n_pes; pe++) {
        far_cut(rt, heap, pe, TERN_PART_USER, 0);
        far_cut(rt, heap, pe, TERN_PART_INTERNAL, 0);
    }
    free(heap->far);
    heap->far = NULL;
}

/* ---- growth ------------------------------------------------------------------------------------------------------ */

static int member_count(const struct tern_rt *rt, const struct tern_group *group)
{
    return group ? group->count : rt->n_pes;
}

/* The i-th member if it is far, else -1. */
static int member_far(const struct tern_rt *rt, const struct tern_group *group, int i)
{
    int pe = group ? group->pes[i] : i;

    return rt->peers[pe].near ? -1 : pe;
}

void tern_far_begin(struct tern_rt *rt, struct tern_heap *heap, const struct tern_group *group, enum tern_part part,
                    struct tern_offer *own)
{
    own->far_first = own->count;
    for (int i = 0; heap->far && i < member_count(rt, group); i++) {
        int pe = member_far(rt, group, i);

        if (pe < 0)
            continue;
        heap->far[pe].parts[part].before = heap->far[pe].parts[part].count;
        if ((uint64_t)heap->far[pe].parts[part].sent < own->far_first)
            own->far_first = (uint64_t)heap->far[pe].parts[part].sent;
    }
}

/* Keys of each member in the gathered table: all members have the same offers. */
static uint64_t keys_each(const struct tern_offer *offers, int members)
{
    uint64_t most = 0;

    for (int i = 0; i < members; i++) {
        if (offers[i].count - offers[i].far_first > most)
            most = offers[i].count - offers[i].far_first;
    }
    return most;
}

tern_status_t tern_far_gather(struct tern_rt *rt, struct tern_heap *heap, const struct tern_group *group,
                              enum tern_part part, const struct tern_offer *offers, struct tern_net_key **keys)
{
    int members = member_count(rt, group), self = 0;
    uint64_t each = keys_each(offers, members);
    struct tern_net_key own[TERN_USER_CHUNKS];
    tern_status_t status;

    *keys = NULL;
    if (!heap->far || each == 0)
        return TERN_OK;
    while ((group ? group->pes[self] : self) != rt->pe)
        self++;
    memset(own, 0, sizeof own);
    memcpy(own, &heap->keys[part][offers[self].far_first],
           sizeof *own * (size_t)(offers[self].count - offers[self].far_first));
    *keys = malloc(sizeof *own * (size_t)each * (size_t)members);
    if (!*keys) { /* the others must not wait for this PE */
        status = tern_error(TERN_ERR_NO_MEMORY, "no host memory for the keys of %d heaps; free some", members);
        tern_control_abort(rt, status, rt->pe, "PE %d: %s", rt->pe, tern_last_error());
        return status;
    }
    return tern_control_allgather(rt, group, own, sizeof *own * (size_t)each, *keys);
}

static tern_status_t far_add(struct tern_rt *rt, struct tern_heap *heap, int pe, enum tern_part part,
                             const struct tern_offer *offer, const struct tern_net_key *keys)
{
    struct tern_far *far = &heap->far[pe];
    tern_status_t status = TERN_OK;

    while (status == TERN_OK && (uint64_t)far->parts[part].count < offer->count) {
        int index = far->parts[part].count;
        struct tern_net_chunk chunk = chunk_of(heap, part, index, far->parts[part].sum, offer->bytes[index]);

        status = tern_proxy_peer_chunk_add(rt, pe, &chunk, &keys[(uint64_t)index - offer->far_first]);
        if (status != TERN_OK)
            break;
        far->parts[part].bytes[index] = chunk.bytes;
        far->parts[part].sum += chunk.bytes;
        far->parts[part].count++;
    }
    return status;
}

tern_status_t tern_far_add(struct tern_rt *rt, struct tern_heap *heap, const struct tern_group *group,
                           enum tern_part part, const struct tern_offer *offers, const struct tern_net_key *keys)
{
    int members = member_count(rt, group);
    uint64_t each = keys_each(offers, members);
    tern_status_t status = TERN_OK;

    for (int i = 0; keys && i < members && status == TERN_OK; i++) {
        int pe = member_far(rt, group, i);

        if (pe >= 0)
            status = far_add(rt, heap, pe, part, &offers[i], keys + (uint64_t)i * each);
    }
    return status;
}

void tern_far_finish(struct tern_rt *rt, struct tern_heap *heap, const struct tern_group *group, enum tern_part part,
                     bool keep)
{
    for (int i = 0; heap->far && i < member_count(rt, group); i++) {
        int pe = member_far(rt, group, i);

        if (pe >= 0 && keep)
            heap->far[pe].parts[part].sent = heap->spans[heap->own].parts[part].count;
        else if (pe >= 0)
            far_cut(rt, heap, pe, part, heap->far[pe].parts[part].before);
    }
}
