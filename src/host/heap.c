/*
 * heap.c - the symmetric heap: collective allocation of offsets that are equal on all PEs, growth of the memory behind
 * them (heap_span.c), and the public calls.
 */
#include "host/heap.h"
#include "host/range.h"

#include <stdlib.h>
#include <string.h>

#define ALIGNMENT_LEAST 256u

static uint64_t min64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t max64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* The sizes are read by any thread (tern_ptr, tern_get_info). */
static void note_backed(struct tern_rt *rt)
{
    const struct tern_span *own = &rt->heap->spans[rt->heap->own];

    __atomic_store_n(&rt->user_backed, own->parts[TERN_PART_USER].bytes, __ATOMIC_RELAXED);
    __atomic_store_n(&rt->internal_backed, own->parts[TERN_PART_INTERNAL].bytes, __ATOMIC_RELAXED);
}

/* Tell kernels; a device that refuses an ordinary copy of some bytes is lost. */
static tern_status_t publish(struct tern_rt *rt)
{
    tern_status_t status = rt->state_dev ? tern_state_publish(rt) : TERN_OK;

    if (status != TERN_OK)
        tern_control_abort(rt, status, rt->pe, "cannot tell the device the size of the heap: %s", tern_last_error());
    return status;
}

/* ---- growth ------------------------------------------------------------------------------------------------------ */

/* Back at least `need` more bytes of the user heap: a third more than there is; if that cannot be had, just that. */
static tern_status_t grow_user(struct tern_rt *rt, uint64_t need)
{
    struct tern_heap *heap = rt->heap;
    uint64_t backed = rt->user_backed, left = heap->limit[TERN_PART_USER] - backed;
    uint64_t least = tern_round_up(need, heap->granularity);
    uint64_t wanted = tern_round_up(max64(max64(need, backed / 3), TERN_CHUNK_LEAST), heap->granularity);
    tern_status_t status;

    wanted = min64(wanted, left);
    status = tern_span_grow(rt, heap, NULL, TERN_PART_USER, wanted);
    if (status == TERN_ERR_NO_MEMORY && wanted > least)
        status = tern_span_grow(rt, heap, NULL, TERN_PART_USER, wanted = least);
    if (status != TERN_OK)
        return status;
    pthread_mutex_lock(&heap->lock);
    tern_alloc_grow(heap->alloc, wanted);
    pthread_mutex_unlock(&heap->lock);
    note_backed(rt);
    tern_log(TERN_LOG_INFO, "heap: grew by %llu to %llu bytes", (unsigned long long)wanted,
             (unsigned long long)rt->user_backed);
    return publish(rt);
}

tern_status_t tern_heap_internal(struct tern_rt *rt, const struct tern_group *group, uint64_t bytes)
{
    struct tern_heap *heap = rt->heap;
    const struct tern_extent *e = &heap->spans[heap->own].parts[TERN_PART_INTERNAL];
    uint64_t more = 0;
    tern_status_t status;

    if (bytes > heap->limit[TERN_PART_INTERNAL])
        return tern_error(TERN_ERR_NO_MEMORY,
                          "the runtime's own segment ends at %llu bytes, %llu were asked for",
                          (unsigned long long)heap->limit[TERN_PART_INTERNAL], (unsigned long long)bytes);
    if (bytes > e->bytes)
        more = min64(tern_round_up(max64(max64(bytes - e->bytes, e->bytes), TERN_CHUNK_LEAST), heap->granularity),
                     heap->limit[TERN_PART_INTERNAL] - e->bytes);
    status = tern_span_grow(rt, heap, group, TERN_PART_INTERNAL, more);
    if (status != TERN_OK)
        return status;
    note_backed(rt);
    return more ? publish(rt) : TERN_OK;
}

/* ---- life cycle -------------------------------------------------------------------------------------------------- */

static tern_status_t heap_make(struct tern_rt *rt)
{
    struct tern_heap *heap = calloc(1, sizeof(*heap));

    if (!heap)
        goto err;
    heap->alloc = tern_alloc_new(ALIGNMENT_LEAST);
    if (!heap->alloc)
        goto err_heap;
    pthread_mutex_init(&heap->lock, NULL);
    rt->heap = heap;
    return TERN_OK;

err_heap:
    free(heap);
err:
    return tern_error(TERN_ERR_NO_MEMORY, "no host memory for the heap's tables");
}

tern_status_t tern_heap_open(struct tern_rt *rt)
{
    uint64_t first = (uint64_t)rt->n_pes * TERN_INTERNAL_LINE + TERN_INTERNAL_SYNC;
    struct tern_heap *heap;
    tern_status_t status = tern_agree_status(rt, NULL, heap_make(rt));

    if (status != TERN_OK)
        goto err_heap;
    heap = rt->heap;
    status = tern_span_open(rt, heap);
    if (status != TERN_OK)
        goto err_heap;
    rt->stride = heap->stride;
    rt->user_offset = heap->start[TERN_PART_USER];
    rt->user_max = heap->limit[TERN_PART_USER];
    rt->span = heap->spans[heap->own].base;
    rt->window = heap->base;

    status = tern_heap_internal(rt, NULL, first);
    if (status == TERN_OK && rt->env.heap_size > rt->user_max)
        status = tern_error(TERN_ERR_CONFIG,
                            "TERN_HEAP_SIZE=%llu is beyond the limit of the heap, %llu bytes (least of all PEs); "
                            "lower it, or raise TERN_HEAP_MAX",
                            (unsigned long long)rt->env.heap_size, (unsigned long long)rt->user_max);
    if (status == TERN_OK && rt->env.heap_size)
        status = grow_user(rt, rt->env.heap_size);
    if (status != TERN_OK)
        goto err_heap;
    return TERN_OK;

err_heap:
    tern_heap_close(rt);
    return status;
}

void tern_heap_close(struct tern_rt *rt)
{
    struct tern_heap *heap = rt->heap;
    struct tern_alloc_stats stats;

    if (!heap)
        return;
    tern_alloc_get_stats(heap->alloc, &stats);
    if (stats.live)
        tern_log(TERN_LOG_INFO, "heap: %llu allocations with %llu bytes were not freed", (unsigned long long)stats.live,
                 (unsigned long long)stats.used);
    tern_span_close(rt, heap);
    tern_alloc_delete(heap->alloc);
    pthread_mutex_destroy(&heap->lock);
    free(heap);
    rt->heap = NULL;
    rt->span = rt->window = NULL;
    rt->user_backed = rt->internal_backed = 0;
}

void tern_heap_stats(struct tern_rt *rt, tern_info_t *info)
{
    struct tern_alloc_stats stats;

    pthread_mutex_lock(&rt->heap->lock);
    tern_alloc_get_stats(rt->heap->alloc, &stats);
    pthread_mutex_unlock(&rt->heap->lock);
    info->heap_bytes = stats.bytes;
    info->heap_used = stats.used;
    info->heap_max = rt->user_max;
}

/* ---- allocation -------------------------------------------------------------------------------------------------- */

static tern_status_t exhausted(struct tern_rt *rt, size_t bytes)
{
    struct tern_alloc_stats stats;

    tern_alloc_get_stats(rt->heap->alloc, &stats);
    return tern_error(TERN_ERR_NO_MEMORY,
                      "%zu bytes do not fit into the symmetric heap: limit %llu, used %llu, largest free "
                      "block %llu bytes; free some, or raise TERN_HEAP_MAX on all PEs",
                      bytes, (unsigned long long)rt->user_max, (unsigned long long)stats.used,
                      (unsigned long long)max64(stats.largest, rt->user_max - stats.bytes));
}

/* Collective: zero the block on all PEs, visible to all on return; on failure it is given back. */
static tern_status_t zero_block(struct tern_rt *rt, uint64_t offset, size_t bytes)
{
    tern_status_t status = tern_device_zero(rt, rt->span + rt->user_offset + offset, bytes);

    status = tern_agree_status(rt, NULL, status);
    if (status != TERN_OK) {
        pthread_mutex_lock(&rt->heap->lock);
        tern_alloc_give(rt->heap->alloc, offset);
        pthread_mutex_unlock(&rt->heap->lock);
    }
    return status;
}

void *tern_heap_alloc(struct tern_rt *rt, size_t alignment, size_t bytes, bool zero, const char *call)
{
    struct tern_heap *heap = rt->heap;
    uint64_t need, offset;
    bool able, taken;

    pthread_mutex_lock(&heap->lock);
    able = tern_alloc_prepare(heap->alloc);
    pthread_mutex_unlock(&heap->lock);
    /* even for what fails or is nothing: a PE that asks for something else must be told */
    if (tern_agree(rt, able, alignment == ALIGNMENT_LEAST ? "%s of %zu bytes" : "%s of %zu bytes at %zu", call, bytes,
                   alignment) != TERN_OK)
        return NULL;

    /* all PEs have the same arguments and the same allocator: what follows is the same on all */
    if (alignment == 0 || (alignment & (alignment - 1)) != 0 || alignment > TERN_SPAN_ALIGN) {
        tern_error(TERN_ERR_INVALID, "%s: alignment %zu is not a power of two up to %llu", call, alignment,
                   (unsigned long long)TERN_SPAN_ALIGN);
        return NULL;
    }
    if (bytes == 0)
        return NULL;
    need = tern_alloc_shortfall(heap->alloc, alignment, bytes);
    if (need > rt->user_max - rt->user_backed) {
        exhausted(rt, bytes);
        return NULL;
    }
    if (need && grow_user(rt, need) != TERN_OK)
        return NULL;
    pthread_mutex_lock(&heap->lock);
    taken = tern_alloc_take(heap->alloc, alignment, bytes, &offset);
    pthread_mutex_unlock(&heap->lock);
    if (!taken || (zero && zero_block(rt, offset, bytes) != TERN_OK))
        return NULL;
    return rt->span + rt->user_offset + offset;
}

/* Offset of an address within the user heap; false: it lies elsewhere. */
static bool user_offset(struct tern_rt *rt, const void *addr, uint64_t *offset)
{
    *offset = (uint64_t)((uintptr_t)addr - (uintptr_t)(rt->span + rt->user_offset));
    return *offset < __atomic_load_n(&rt->user_backed, __ATOMIC_RELAXED);
}

tern_status_t tern_heap_free(struct tern_rt *rt, void *ptr)
{
    struct tern_heap *heap = rt->heap;
    uint64_t offset;
    tern_status_t status;
    bool given;

    if (!ptr)
        status = tern_agree(rt, true, "tern_free of NULL");
    else if (user_offset(rt, ptr, &offset))
        status = tern_agree(rt, true, "tern_free of offset %llu (%llu bytes)", (unsigned long long)offset,
                            (unsigned long long)tern_alloc_size(heap->alloc, offset));
    else
        status = tern_agree(rt, true, "tern_free of an address outside the heap");
    if (status != TERN_OK || !ptr)
        return status;

    pthread_mutex_lock(&heap->lock);
    given = user_offset(rt, ptr, &offset) && tern_alloc_give(heap->alloc, offset);
    pthread_mutex_unlock(&heap->lock);
    if (!given)
        return tern_error(TERN_ERR_INVALID,
                          "tern_free: %p is not the start of a live allocation of tern_malloc, _calloc or "
                          "_align (freed twice, or another address?)",
                          ptr);
    return TERN_OK;
}

/* ---- public calls ------------------------------------------------------------------------------------------------ */

static void *enter_and_alloc(const char *call, size_t alignment, size_t bytes, bool zero)
{
    tern_status_t status;
    struct tern_rt *rt = tern_rt_enter(call, &status);

    return rt ? tern_heap_alloc(rt, alignment, bytes, zero, call) : NULL;
}

void *tern_malloc(size_t bytes)
{
    TERN_RANGE("tern_malloc");
    return enter_and_alloc("tern_malloc", ALIGNMENT_LEAST, bytes, false);
}

void *tern_calloc(size_t count, size_t bytes)
{
    TERN_RANGE("tern_calloc");
    size_t total;

    /* more than there can be is an ordinary exhaustion */
    if (__builtin_mul_overflow(count, bytes, &total))
        total = SIZE_MAX;
    return enter_and_alloc("tern_calloc", ALIGNMENT_LEAST, total, true);
}

void *tern_align(size_t alignment, size_t bytes)
{
    TERN_RANGE("tern_align");
    return enter_and_alloc("tern_align", alignment, bytes, false);
}

tern_status_t tern_free(void *ptr)
{
    TERN_RANGE("tern_free");
    tern_status_t status;
    struct tern_rt *rt = tern_rt_enter("tern_free", &status);

    return rt ? tern_heap_free(rt, ptr) : status;
}

void *tern_ptr(const void *addr, int pe)
{
    struct tern_rt *rt = tern_rt_current;
    tern_status_t status;
    uint64_t offset;

    if (!rt) {
        tern_rt_enter("tern_ptr", &status);
        return NULL;
    }
    if (pe < 0 || pe >= rt->n_pes) {
        tern_error(TERN_ERR_INVALID, "tern_ptr: PE %d is out of range; there are %d", pe, rt->n_pes);
        return NULL;
    }
    if (!rt->peers[pe].near || !user_offset(rt, addr, &offset))
        return NULL;
    return rt->heap->spans[rt->peers[pe].slot].base + rt->user_offset + offset;
}
