/*
 * heap_span.c - the memory behind the window: the address range with one span per mapped PE, the chunks of the own
 * span, and the peers' chunks, whose fds come over the control plane. Growth is all or nothing on all PEs that take
 * part. What the proxy must know of it is in heap_far.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/heap.h"

/* A span cannot shrink below this when address space is short. */
#define SPAN_LEAST ((uint64_t)64 << 20)

static const int max_chunks[TERN_PARTS] = {TERN_INTERNAL_CHUNKS, TERN_USER_CHUNKS};

/* Span and limits that suit all PEs: the largest internal segment, the least memory. */
static tern_status_t agree_geometry(struct tern_rt *rt, struct tern_heap *heap)
{
    static const enum tern_reduce ops[] = {TERN_REDUCE_MAX, TERN_REDUCE_MAX, TERN_REDUCE_MIN};
    uint64_t words[3] = {tern_device_granularity(rt), tern_device_internal_span(rt),
                         rt->env.heap_max ? rt->env.heap_max : tern_device_heap_limit(rt)};
    tern_status_t status = tern_control_allreduce(rt, NULL, words, 3, ops);

    heap->granularity = words[0];
    heap->start[TERN_PART_INTERNAL] = 0;
    heap->start[TERN_PART_USER] = heap->limit[TERN_PART_INTERNAL] = tern_round_up(words[1], TERN_SPAN_ALIGN);
    heap->limit[TERN_PART_USER] = tern_round_up(words[2] < (uint64_t)1 << 46 ? words[2] : (uint64_t)1 << 46, words[0]);
    return status;
}

static uint64_t reservation(const struct tern_heap *heap)
{
    return heap->stride * (uint64_t)heap->slots + TERN_SPAN_ALIGN;
}

static void unreserve(struct tern_rt *rt, struct tern_heap *heap)
{
    if (heap->reserved)
        tern_device_unreserve(rt, heap->reserved, reservation(heap));
    heap->reserved = NULL;
    heap->base = NULL;
}

/* Reserve the window on all PEs; where address space does not suffice, on all a smaller one. */
static tern_status_t reserve(struct tern_rt *rt, struct tern_heap *heap)
{
    static const enum tern_reduce op = TERN_REDUCE_MIN;
    uint64_t wanted = heap->limit[TERN_PART_USER];

    for (;;) {
        tern_status_t status, agreed;
        uint64_t ok;

        heap->stride = tern_round_up(heap->start[TERN_PART_USER] + heap->limit[TERN_PART_USER], TERN_SPAN_ALIGN);
        status = tern_device_reserve(rt, reservation(heap), &heap->reserved);
        ok = status == TERN_OK;
        if (ok)
            heap->base = (char *)tern_round_up((uintptr_t)heap->reserved, TERN_SPAN_ALIGN);
        else
            heap->reserved = NULL;
        agreed = tern_control_allreduce(rt, NULL, &ok, 1, &op);
        if (agreed == TERN_OK && ok) {
            if (heap->limit[TERN_PART_USER] < wanted)
                tern_log(TERN_LOG_WARN,
                         "there is no address space for %d spans: the heap's limit is %llu instead of %llu bytes",
                         heap->slots, (unsigned long long)heap->limit[TERN_PART_USER], (unsigned long long)wanted);
            return TERN_OK;
        }
        unreserve(rt, heap);
        if (agreed != TERN_OK)
            return agreed;
        if (heap->limit[TERN_PART_USER] / 2 < SPAN_LEAST)
            return tern_agree_status(rt, NULL, status);
        heap->limit[TERN_PART_USER] = tern_round_up(heap->limit[TERN_PART_USER] / 2, heap->granularity);
    }
}

tern_status_t tern_span_open(struct tern_rt *rt, struct tern_heap *heap)
{
    tern_status_t status = agree_geometry(rt, heap);

    if (status != TERN_OK)
        return status;
    for (int p = 0; p < rt->n_pes; p++)
        heap->slots += rt->peers[p].mapped;
    heap->spans = calloc((size_t)heap->slots, sizeof(*heap->spans));
    if (!heap->spans)
        status = tern_error(TERN_ERR_NO_MEMORY, "no host memory for the tables of %d spans", heap->slots);
    else
        status = tern_far_open(rt, heap);
    status = tern_agree_status(rt, NULL, status);
    if (status == TERN_OK)
        status = reserve(rt, heap);
    if (status != TERN_OK) {
        tern_far_close(rt, heap);
        free(heap->spans);
        heap->spans = NULL;
        return status;
    }
    for (int p = 0; p < rt->n_pes; p++) {
        if (!rt->peers[p].mapped)
            continue;
        heap->spans[rt->peers[p].slot].pe = p;
        heap->spans[rt->peers[p].slot].base = heap->base + rt->peers[p].slot * heap->stride;
    }
    heap->own = rt->peers[rt->pe].slot;
    return TERN_OK;
}

static void note_mapped(struct tern_heap *heap, enum tern_part part)
{
    __atomic_store_n(&heap->mapped[part], heap->spans[heap->own].parts[part].bytes, __ATOMIC_RELEASE);
}

bool tern_heap_holds(struct tern_rt *rt, uint64_t offset, uint64_t bytes)
{
    struct tern_heap *heap = rt->heap;
    enum tern_part part = offset < heap->start[TERN_PART_USER] ? TERN_PART_INTERNAL : TERN_PART_USER;
    uint64_t mapped = __atomic_load_n(&heap->mapped[part], __ATOMIC_ACQUIRE), at = offset - heap->start[part];

    return at <= mapped && bytes <= mapped - at;
}

/* Unmap and give up the chunks of an extent from `count` on. */
static void cut(struct tern_rt *rt, struct tern_heap *heap, struct tern_span *span, enum tern_part part, int count)
{
    struct tern_extent *e = &span->parts[part];

    if (span == &heap->spans[heap->own])
        tern_far_unregister(rt, heap, part, count);
    while (e->count > count) {
        struct tern_chunk *chunk = &e->chunks[--e->count];

        e->bytes -= chunk->bytes;
        note_mapped(heap, part);
        tern_device_chunk_unmap(rt, chunk, span->base + heap->start[part] + e->bytes);
        tern_device_chunk_destroy(rt, chunk);
    }
}

/* Map `chunk` behind what the extent has; the chunk is the extent's, or gone. */
static tern_status_t append(struct tern_rt *rt, struct tern_heap *heap, struct tern_span *span, enum tern_part part,
                            struct tern_chunk *chunk)
{
    struct tern_extent *e = &span->parts[part];
    tern_status_t status = tern_device_chunk_map(rt, chunk, span->base + heap->start[part] + e->bytes);

    if (status != TERN_OK) {
        tern_device_chunk_destroy(rt, chunk);
        return status;
    }
    e->chunks[e->count++] = *chunk;
    e->bytes += chunk->bytes;
    note_mapped(heap, part);
    return TERN_OK;
}

void tern_span_close(struct tern_rt *rt, struct tern_heap *heap)
{
    tern_far_close(rt, heap);
    for (int s = 0; heap->spans && s < heap->slots; s++) {
        cut(rt, heap, &heap->spans[s], TERN_PART_USER, 0);
        cut(rt, heap, &heap->spans[s], TERN_PART_INTERNAL, 0);
    }
    free(heap->spans);
    heap->spans = NULL;
    unreserve(rt, heap);
}

/* ---- growth ------------------------------------------------------------------------------------------------------ */

/* One growth call on this PE: what it has to exchange, and what there was before. */
struct growth {
    struct tern_rt *rt;
    struct tern_heap *heap;
    const struct tern_group *group;
    enum tern_part part;
    int own_before;
    int first;                 /* lowest own chunk that a member lacks */
    int fds[TERN_USER_CHUNKS]; /* of the own chunks, -1 below `first` */
    int *before;               /* [slots] chunks of each peer before */
    bool offered;              /* the PEs have told each other what they have */
};

static int member_count(const struct growth *g)
{
    return g->group ? g->group->count : g->rt->n_pes;
}

/* Span of the i-th member if it is a mapped peer other than this PE, else NULL. */
static struct tern_span *member_span(const struct growth *g, int i)
{
    int pe = g->group ? g->group->pes[i] : i;

    return pe == g->rt->pe || !g->rt->peers[pe].mapped ? NULL : &g->heap->spans[g->rt->peers[pe].slot];
}

static uint64_t fd_tag(enum tern_part part, int first)
{
    return (uint64_t)'h' << 56 | (uint64_t)part << 32 | (uint64_t)first;
}

/* Make the own chunk, and fds of all own chunks that a member lacks. */
static tern_status_t prepare(struct growth *g, uint64_t bytes)
{
    struct tern_rt *rt = g->rt;
    struct tern_span *own = &g->heap->spans[g->heap->own];
    struct tern_extent *e = &own->parts[g->part];
    uint64_t at = e->bytes;
    tern_status_t status;

    if (bytes) {
        struct tern_chunk chunk;

        if (e->count == max_chunks[g->part])
            return tern_error(TERN_ERR_NO_MEMORY,
                              "all %d chunks of the %s are in use; back it at once by TERN_HEAP_SIZE", e->count,
                              g->part == TERN_PART_USER ? "heap" : "internal segment");
        status = tern_device_chunk_create(rt, bytes, &chunk);
        if (status == TERN_OK)
            status = append(rt, g->heap, own, g->part, &chunk);
        if (status == TERN_OK && g->part == TERN_PART_INTERNAL)
            status = tern_device_zero(rt, own->base + g->heap->start[g->part] + at, bytes);
        if (status == TERN_OK)
            status = tern_far_register(rt, g->heap, g->part);
        if (status != TERN_OK)
            return status;
    }
    g->first = e->count;
    for (int i = 0; i < member_count(g); i++) {
        struct tern_span *span = member_span(g, i);

        if (span && span->parts[g->part].sent < g->first)
            g->first = span->parts[g->part].sent;
    }
    for (int c = g->first; c < e->count; c++) {
        status = tern_device_chunk_export(rt, &e->chunks[c], &g->fds[c]);
        if (status != TERN_OK)
            return status;
    }
    return TERN_OK;
}

static tern_status_t send_chunks(struct growth *g, struct tern_span *to)
{
    struct tern_extent *own = &g->heap->spans[g->heap->own].parts[g->part], *e = &to->parts[g->part];

    if (e->sent == own->count)
        return TERN_OK;
    return tern_control_fd_send(g->rt, to->pe, fd_tag(g->part, e->sent), g->fds + e->sent, own->count - e->sent);
}

/* Take and map what `from` offers beyond what is mapped. Takes all fds, whether or not they can be used. */
static tern_status_t receive_chunks(struct growth *g, struct tern_span *from, const struct tern_offer *offer)
{
    struct tern_extent *e = &from->parts[g->part];
    int fds[TERN_USER_CHUNKS], first = e->count, n = (int)offer->count - first;
    tern_status_t status;

    if (n <= 0)
        return TERN_OK;
    status = tern_control_fd_recv(g->rt, from->pe, fd_tag(g->part, first), fds, n);
    if (status != TERN_OK)
        return status;
    for (int i = 0; i < n; i++) {
        struct tern_chunk chunk;

        if (status == TERN_OK)
            status = tern_device_chunk_import(g->rt, fds[i], offer->bytes[first + i], &chunk);
        close(fds[i]);
        if (status == TERN_OK)
            status = append(g->rt, g->heap, from, g->part, &chunk);
    }
    return status;
}

static tern_status_t exchange(struct growth *g, const struct tern_offer *offers, const struct tern_net_key *keys)
{
    tern_status_t status = TERN_OK;

    for (int i = 0; i < member_count(g) && status == TERN_OK; i++) {
        struct tern_span *span = member_span(g, i);

        if (span)
            status = send_chunks(g, span);
    }
    for (int i = 0; i < member_count(g); i++) {
        struct tern_span *span = member_span(g, i);
        tern_status_t got = span ? receive_chunks(g, span, &offers[i]) : TERN_OK;

        if (status == TERN_OK)
            status = got;
    }
    return status == TERN_OK ? tern_far_add(g->rt, g->heap, g->group, g->part, offers, keys) : status;
}

static tern_status_t offer_chunks(struct growth *g, struct tern_offer *offers)
{
    struct tern_extent *own = &g->heap->spans[g->heap->own].parts[g->part];
    struct tern_offer offer;

    memset(&offer, 0, sizeof(offer));
    offer.count = (uint64_t)own->count;
    for (int c = 0; c < own->count; c++)
        offer.bytes[c] = own->chunks[c].bytes;
    tern_far_begin(g->rt, g->heap, g->group, g->part, &offer);
    return tern_control_allgather(g->rt, g->group, &offer, sizeof(offer), offers);
}

static void finish(struct growth *g, tern_status_t status)
{
    struct tern_span *own = &g->heap->spans[g->heap->own];

    for (int c = 0; c < TERN_USER_CHUNKS; c++)
        if (g->fds[c] >= 0)
            close(g->fds[c]);
    for (int s = 0; g->before && s < g->heap->slots; s++) {
        if (s != g->heap->own && status != TERN_OK)
            cut(g->rt, g->heap, &g->heap->spans[s], g->part, g->before[s]);
    }
    if (g->offered)
        tern_far_finish(g->rt, g->heap, g->group, g->part, status == TERN_OK);
    if (status != TERN_OK)
        cut(g->rt, g->heap, own, g->part, g->own_before);
    for (int i = 0; i < member_count(g) && status == TERN_OK; i++) {
        struct tern_span *span = member_span(g, i);

        if (span)
            span->parts[g->part].sent = own->parts[g->part].count;
    }
    free(g->before);
}

tern_status_t tern_span_grow(struct tern_rt *rt, struct tern_heap *heap, const struct tern_group *group,
                             enum tern_part part, uint64_t bytes)
{
    struct growth g = {.rt = rt, .heap = heap, .group = group, .part = part};
    struct tern_offer *offers;
    struct tern_net_key *keys = NULL;
    tern_status_t status = TERN_OK;

    for (int c = 0; c < TERN_USER_CHUNKS; c++)
        g.fds[c] = -1;
    g.own_before = heap->spans[heap->own].parts[part].count;
    g.before = malloc((size_t)heap->slots * sizeof(*g.before));
    offers = malloc((size_t)member_count(&g) * sizeof(*offers));
    for (int s = 0; g.before && s < heap->slots; s++)
        g.before[s] = heap->spans[s].parts[part].count;

    status =
        g.before && offers ? prepare(&g, bytes) : tern_error(TERN_ERR_NO_MEMORY, "no host memory to grow the heap");
    status = tern_agree_status(rt, group, status);
    if (status == TERN_OK)
        status = offer_chunks(&g, offers);
    g.offered = status == TERN_OK;
    if (status == TERN_OK)
        status = tern_far_gather(rt, heap, group, part, offers, &keys);
    if (status == TERN_OK)
        status = tern_agree_status(rt, group, exchange(&g, offers, keys));
    finish(&g, status);
    free(keys);
    free(offers);
    return status;
}
