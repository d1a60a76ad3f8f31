/* heap.h - what heap.c (allocation) and heap_span.c (memory behind the window) share. */
#ifndef TERN_HOST_HEAP_H
#define TERN_HOST_HEAP_H

#include "host/alloc.h"
#include "host/rt.h"

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

struct tern_heap {
    pthread_mutex_t lock;     /* the allocator, against readers of the statistics */
    struct tern_alloc *alloc; /* offsets within the user heap */
    char *base;               /* window: slots * stride */
    void *reserved;           /* what was reserved for it: the window and room to align it */
    int slots, own;           /* own: own slot */
    uint64_t stride, granularity;
    uint64_t start[TERN_PARTS], limit[TERN_PARTS]; /* of a part within a span */
    struct tern_span *spans;                       /* [slots] */
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

#endif
