/* heap.h - what heap.c (allocation) and heap_span.c (memory behind the window) share. */
#ifndef TERN_HOST_HEAP_H
#define TERN_HOST_HEAP_H

#include "host/alloc.h"
#include "host/rt.h"
#include "proxy/transport.h"

/*
 * Chunks of a PE per part. The internal segment doubles from 2 MiB to at most 64 GiB: 16. The user heap grows by a
 * third: 48 are enough from 2 MiB to 1 TiB.
 */
enum tern_part { TERN_PART_INTERNAL, TERN_PART_USER, TERN_PARTS };
#define TERN_INTERNAL_CHUNKS 16
#define TERN_USER_CHUNKS 48
#define TERN_CHUNK_LEAST ((uint64_t)2 << 20)
/* Spans and user heaps begin at multiples of this, so that tern_align can promise as much. */
#define TERN_SPAN_ALIGN ((uint64_t)256 << 20)

/* One part of one PE's span, as far as it is mapped here. */
struct tern_extent {
    struct tern_chunk chunks[TERN_USER_CHUNKS];
    int count;
    uint64_t bytes; /* sum of the chunks, which follow each other */
    int sent;       /* peers' extents: how many of the own chunks that PE has mapped */
};

struct tern_span {
    int pe;
    char *base;
    struct tern_extent parts[TERN_PARTS];
};

_Static_assert(TERN_INTERNAL_CHUNKS + TERN_USER_CHUNKS <= TERN_NET_CHUNKS, "chunks are numbered over both parts");

/* What a far PE and this one have of each other's chunks, for the proxy. */
struct tern_far {
    struct {
        uint64_t bytes[TERN_USER_CHUNKS]; /* of that PE's chunks, */
        uint64_t sum;
        int count; /* so many */
        int before; /* growth: so many at its begin */
        int sent;   /* own chunks that the PE has */
    } parts[TERN_PARTS];
};

/* Growth: what a PE tells the others of its chunks in the part. */
struct tern_offer {
    uint64_t count, far_first; /* lowest chunk that a far member lacks */
    uint64_t bytes[TERN_USER_CHUNKS];
};

struct tern_heap {
    pthread_mutex_t lock;     /* the allocator, against readers of the statistics */
    struct tern_alloc *alloc; /* offsets within the user heap */
    char *base;               /* window: slots * stride */
    void *reserved;           /* what was reserved for it: the window and room to align it */
    int slots, own;           /* own: own slot */
    uint64_t stride, granularity;
    uint64_t start[TERN_PARTS], limit[TERN_PARTS]; /* of a part within a span */
    struct tern_span *spans;                       /* [slots] */
    uint64_t mapped[TERN_PARTS];                   /* bytes of the own span; atomic: read by threads of the proxy */
    /* with a proxy only */
    struct tern_far *far;                                   /* [n_pes] */
    struct tern_net_key keys[TERN_PARTS][TERN_USER_CHUNKS]; /* of the own chunks, */
    int keyed[TERN_PARTS];                                  /* of which so many are registered */
};

static inline uint64_t tern_round_up(uint64_t x, uint64_t unit)
{
    return (x + unit - 1) / unit * unit;
}

/* Reserve and release the window; collective (local for close). */
tern_status_t tern_span_open(struct tern_rt *rt, struct tern_heap *heap);
void tern_span_close(struct tern_rt *rt, struct tern_heap *heap);
/*
 * Lengthen the own extent by a chunk of `bytes` (0: none) and map among the members of `group` what they do not have
 * yet of each other. Collective; all or nothing: after a failure, the same on all, every PE has what it had.
 */
tern_status_t tern_span_grow(struct tern_rt *rt, struct tern_heap *heap, const struct tern_group *group,
                             enum tern_part part, uint64_t bytes);

/* ---- heap_far.c: the same chunks for the proxy; nothing happens in a job without one ------------------------------------ */
tern_status_t tern_far_open(struct tern_rt *rt, struct tern_heap *heap);
void tern_far_close(struct tern_rt *rt, struct tern_heap *heap);
/* Register the last own chunk, which is mapped; unregister what lies beyond chunk `count`. */
tern_status_t tern_far_register(struct tern_rt *rt, struct tern_heap *heap, enum tern_part part);
void tern_far_unregister(struct tern_rt *rt, struct tern_heap *heap, enum tern_part part, int count);
/* Growth: note what there is, and which of the own chunks some far member lacks. */
void tern_far_begin(struct tern_rt *rt, struct tern_heap *heap, const struct tern_group *group, enum tern_part part,
                    struct tern_offer *own);
/* Collective: the keys that are lacking, malloc()ed, as many for each member as the neediest lacks. NULL: none is. */
tern_status_t tern_far_gather(struct tern_rt *rt, struct tern_heap *heap, const struct tern_group *group,
                              enum tern_part part, const struct tern_offer *offers, struct tern_net_key **keys);
tern_status_t tern_far_add(struct tern_rt *rt, struct tern_heap *heap, const struct tern_group *group,
                           enum tern_part part, const struct tern_offer *offers, const struct tern_net_key *keys);
/* Keep what was added, or drop it. */
void tern_far_finish(struct tern_rt *rt, struct tern_heap *heap, const struct tern_group *group, enum tern_part part,
                     bool keep);

#endif
