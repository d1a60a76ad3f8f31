/*
 * weak.c - weak memory, in builds with -Dweak=true and runs with TERN_CPU_WEAK=SEED: what kernels store by the primitives
 * of prim.h goes to a buffer of their block, and arrives in memory late and out of order, as a GPU's stores may. It makes
 * a missing release or fence show at once, which x86 alone would hide. It does not show a missing acquire, and stores that
 * do not go through the primitives are not delayed: TSAN is for these.
 *
 * An entry is visible to its own thread, and to threads that a barrier orders behind it: loads of these take it from the
 * buffer. A release, or a fence, of a thread first lets arrive all entries that are visible to it, as cumulativity asks;
 * at GPU scope only those to memory of the own PE: the others become visible to the PE (`wide`), and arrive with the next
 * system-scope release of any of its blocks, which may have synchronised with this one.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/block.h"
#include "host/rt.h"
#include <tern/detail/prim.h>

#define ENTRIES 512u

struct entry {
    char *address;
    uint64_t value;
    unsigned bytes, thread;
    unsigned generation;                /* barriers of the block before it */
    uint32_t epoch;                     /* __syncwarps of its warp before it */
};

struct weak_buffer {
    unsigned count;
    unsigned rate;                      /* of 256: chance that an operation lets an entry arrive */
    uint64_t random;
    struct entry entries[ENTRIES];
};

static uint64_t weak_seed;

/* Released at GPU scope, still on their way to other PEs; oldest first. */
static struct {
    pthread_mutex_t lock;
    _Atomic unsigned count;
    struct entry entries[ENTRIES];
} wide = {.lock = PTHREAD_MUTEX_INITIALIZER};

__attribute__((constructor)) static void weak_open(void)
{
    const char *text = getenv("TERN_CPU_WEAK");
    weak_seed = text ? strtoull(text, NULL, 0) : 0;
}

static uint64_t next_random(struct weak_buffer *w)
{
    uint64_t x = w->random;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return w->random = x;
}

static bool overlap(const struct entry *e, const char *address, size_t bytes)
{
    return e->address < address + bytes && address < e->address + e->bytes;
}

static void arrive_now(const struct entry *e)
{
    switch (e->bytes) {
    case 8:
        __atomic_store_n((uint64_t *)(void *)e->address, e->value, __ATOMIC_RELAXED);
        break;
    case 4:
        __atomic_store_n((uint32_t *)(void *)e->address, (uint32_t)e->value, __ATOMIC_RELAXED);
        break;
    case 2:
        __atomic_store_n((uint16_t *)(void *)e->address, (uint16_t)e->value, __ATOMIC_RELAXED);
        break;
    default:
        __atomic_store_n((uint8_t *)e->address, (uint8_t)e->value, __ATOMIC_RELAXED);
    }
}

/* Entries of `wide` that overlap the range arrive, and older ones to the same addresses: all, for simplicity. */
static void wide_settle(const char *address, size_t bytes)
{
    bool hit = false;
    if (!wide.count)
        return;
    pthread_mutex_lock(&wide.lock);
    for (unsigned i = 0; i < wide.count; i++)
        hit = hit || overlap(&wide.entries[i], address, bytes);
    for (unsigned i = 0; hit && i < wide.count; i++)
        arrive_now(&wide.entries[i]);
    if (hit)
        wide.count = 0;
    pthread_mutex_unlock(&wide.lock);
}

static void wide_arrive(void)
{
    if (!wide.count)
        return;
    pthread_mutex_lock(&wide.lock);
    for (unsigned i = 0; i < wide.count; i++)
        arrive_now(&wide.entries[i]);
    wide.count = 0;
    pthread_mutex_unlock(&wide.lock);
}

static void arrive(const struct entry *e)
{
    wide_settle(e->address, e->bytes);
    arrive_now(e);
}

/* Let all entries arrive that `chosen` names, and older ones to the same addresses before them. */
static void drain(struct weak_buffer *w, bool (*chosen)(const struct entry *e, const void *arg), const void *arg)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < w->count; i++) {
        struct entry e = w->entries[i];
        if (!chosen(&e, arg)) {
            w->entries[kept++] = e;
            continue;
        }
        unsigned stay = 0;
        for (unsigned k = 0; k < kept; k++) {
            if (overlap(&w->entries[k], e.address, e.bytes))
                arrive(&w->entries[k]);
            else
                w->entries[stay++] = w->entries[k];
        }
        kept = stay;
        arrive(&e);
    }
    w->count = kept;
}

static void drain_one(struct weak_buffer *w)
{
    unsigned i = (unsigned)(next_random(w) % w->count);
    for (unsigned j = 0; j < i; j++)    /* the order of stores to one address is kept */
        if (overlap(&w->entries[j], w->entries[i].address, w->entries[i].bytes))
            i = j;
    arrive(&w->entries[i]);
    memmove(&w->entries[i], &w->entries[i + 1], (w->count - i - 1) * sizeof w->entries[0]);
    w->count--;
}

static void turn(struct weak_buffer *w)
{
    if (wide.count && (next_random(w) & 255u) < w->rate / 8)
        wide_arrive();
    while (w->count && (next_random(w) & 255u) < w->rate)
        drain_one(w);
}

/* The buffer of the calling thread's block, NULL where stores are not delayed. */
static struct weak_buffer *buffer(void)
{
    return ((struct fiber *)tern_cpu_self)->block->weak;
}

static bool visible(const struct entry *e, const struct fiber *f)
{
    const struct block *b = f->block;
    return e->thread == f->thread.linear || e->generation != b->generation ||
           (e->thread / 32 == f->thread.linear / 32 && e->epoch != f->warp->epoch);
}

/* ---- the primitives ------------------------------------------------------------------------------------------------------ */

static void store_now(void *p, uint64_t value, unsigned bytes)
{
    arrive(&(struct entry){.address = p, .value = value, .bytes = bytes});
}

void tern_cpu_weak_store(void *p, uint64_t value, unsigned bytes)
{
    struct weak_buffer *w = buffer();
    struct fiber *f = (struct fiber *)tern_cpu_self;
    if (!w) {
        store_now(p, value, bytes);
        return;
    }
    turn(w);
    if (w->count == ENTRIES)
        drain_one(w);
    w->entries[w->count++] = (struct entry){.address = p,
                                            .value = value,
                                            .bytes = bytes,
                                            .thread = f->thread.linear,
                                            .generation = f->block->generation,
                                            .epoch = f->warp->epoch};
}

struct range {
    const char *address;
    size_t bytes;
};

static bool in_range(const struct entry *e, const void *arg)
{
    const struct range *range = arg;
    return overlap(e, range->address, range->bytes);
}

void tern_cpu_weak_settle(const void *p, size_t bytes)
{
    struct weak_buffer *w = buffer();
    if (!w)
        return;
    turn(w);
    wide_settle(p, bytes);
    drain(w, in_range, &(struct range){p, bytes});
}

static uint64_t load_now(const void *p, unsigned bytes)
{
    switch (bytes) {
    case 8:
        return __atomic_load_n((const uint64_t *)p, __ATOMIC_ACQUIRE);
    case 4:
        return __atomic_load_n((const uint32_t *)p, __ATOMIC_ACQUIRE);
    case 2:
        return __atomic_load_n((const uint16_t *)p, __ATOMIC_ACQUIRE);
    default:
        return __atomic_load_n((const uint8_t *)p, __ATOMIC_ACQUIRE);
    }
}

uint64_t tern_cpu_weak_load(const void *p, unsigned bytes)
{
    struct weak_buffer *w = buffer();
    if (!w)
        return load_now(p, bytes);
    turn(w);
    for (unsigned i = w->count; i-- > 0;) {
        const struct entry *e = &w->entries[i];
        if (!overlap(e, p, bytes) || !visible(e, (struct fiber *)tern_cpu_self))
            continue;
        if (e->address == (const char *)p && e->bytes == bytes)
            return e->value;
        drain(w, in_range, &(struct range){p, bytes});
        break;
    }
    wide_settle(p, bytes);
    return load_now(p, bytes);
}

/* Memory of this PE: all but the spans of others in the window. */
static bool own_memory(const char *p)
{
    const struct tern_rt *rt = tern_rt_current;
    if (!rt || !rt->window || p < rt->window || p >= rt->window + (uint64_t)rt->n_pes * rt->stride)
        return true;
    return (uint64_t)(p - rt->window) / rt->stride == (uint64_t)(rt->span - rt->window) / rt->stride;
}

static bool released_sys(const struct entry *e, const void *arg)
{
    return visible(e, arg);
}

static bool released_gpu(const struct entry *e, const void *arg)
{
    return visible(e, arg) && own_memory(e->address);
}

static bool released_wide(const struct entry *e, const void *arg)
{
    return visible(e, arg) && !own_memory(e->address);
}

/* Entries for other PEs that the thread releases at GPU scope go from the block's buffer to `wide`, in their order. */
static void release_wide(struct weak_buffer *w)
{
    unsigned kept = 0;
    pthread_mutex_lock(&wide.lock);
    for (unsigned i = 0; i < w->count; i++) {
        if (released_wide(&w->entries[i], tern_cpu_self) && wide.count < ENTRIES)
            wide.entries[wide.count++] = w->entries[i];
        else
            w->entries[kept++] = w->entries[i];
    }
    w->count = kept;
    pthread_mutex_unlock(&wide.lock);
    drain(w, released_wide, tern_cpu_self); /* what found no room */
}

void tern_cpu_weak_release(int system_scope)
{
    struct weak_buffer *w = buffer();
    if (!w)
        return;
    if (system_scope)
        wide_arrive();
    drain(w, system_scope ? released_sys : released_gpu, tern_cpu_self);
    if (!system_scope)
        release_wide(w);
}

/* ---- blocks -------------------------------------------------------------------------------------------------------------- */

void tern_cpu_weak_turn(struct block *b)
{
    if (b->weak)
        turn(b->weak);
}

void tern_cpu_weak_begin(struct block *b)
{
    static uint64_t runs;
    if (!weak_seed)
        return;
    if (!b->weak)
        b->weak = malloc(sizeof *b->weak);
    if (!b->weak)
        return;                         /* stores at once: weaker as a test, not wrong */
    uint64_t run = __atomic_add_fetch(&runs, 1, __ATOMIC_RELAXED);
    b->weak->count = 0;
    b->weak->random = (weak_seed * 0x9e3779b97f4a7c15u + run) * 0xbf58476d1ce4e5b9u | 1u;
    b->weak->rate = 8 + (unsigned)(next_random(b->weak) % 57u);
}

void tern_cpu_weak_end(struct block *b)
{
    if (b->weak)
        wide_arrive();
    while (b->weak && b->weak->count)
        drain_one(b->weak);
}
