/*
 * alloc.h - the allocator of the symmetric heap: hands out offsets of a space that grows at its end, and never touches
 * what they stand for. Deterministic: the same sequence of calls yields the same offsets on every PE. Not thread-safe.
 */
#ifndef TERN_HOST_ALLOC_H
#define TERN_HOST_ALLOC_H

#include <stdbool.h>
#include <stdint.h>

struct tern_alloc;

struct tern_alloc_stats {
    uint64_t bytes;   /* of the space */
    uint64_t used;    /* given out, rounded up to the unit */
    uint64_t largest; /* largest free block */
    uint64_t live;    /* allocations */
    uint64_t blocks;  /* free and used */
};

/* An empty space. `unit`: least alignment and size, a power of two. NULL: no host memory. */
struct tern_alloc *tern_alloc_new(uint64_t unit);
void tern_alloc_delete(struct tern_alloc *a);

/* Get the host memory that one later call of take and one of grow may need, so that they cannot fail for want of it. */
bool tern_alloc_prepare(struct tern_alloc *a);

/* Lengthen the space by `bytes` (a multiple of the unit). After tern_alloc_prepare. */
void tern_alloc_grow(struct tern_alloc *a, uint64_t bytes);
/* By how much the space must grow for this allocation to fit; 0: it fits. UINT64_MAX: no space is that large. */
uint64_t tern_alloc_shortfall(const struct tern_alloc *a, uint64_t alignment, uint64_t bytes);

/*
 * The lowest free block that surely fits at the alignment (a power of two); failing that, the lowest that happens to.
 * False: none fits. After tern_alloc_prepare. `bytes` > 0.
 */
bool tern_alloc_take(struct tern_alloc *a, uint64_t alignment, uint64_t bytes, uint64_t *offset);
/* False: `offset` is not the start of an allocation. */
bool tern_alloc_give(struct tern_alloc *a, uint64_t offset);
/* Bytes of the allocation that starts at `offset`, rounded up to the unit; 0: none does. */
uint64_t tern_alloc_size(const struct tern_alloc *a, uint64_t offset);

void tern_alloc_get_stats(const struct tern_alloc *a, struct tern_alloc_stats *stats);

#endif
