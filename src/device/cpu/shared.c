/*
 * shared.c - shared memory: one arena per block, static variables one after another with gaps, dynamic memory with exactly
 * the bytes of the launch. Filled with 0xcd, and gaps and tails are poisoned for ASAN. Compiled without sanitizers.
 */
#include "device/cpu/block.h"

#include <sys/mman.h>

#include "device/cpu/annotate.h"

#define STATIC_BYTES (1024u * 1024u)    /* of address space: gaps need more than the variables */
#define DYNAMIC_BYTES (256u * 1024u)
#define SITES 65536u                    /* static variables of a program */
#define GAP_BYTES 64u
#define STATIC_MAX 49152u               /* as nvcc has it */

/* Everything that a block needs is there before its threads run: for TSAN, memory that one of them got would be its own. */
bool tern_cpu_shared_open(struct block *b)
{
    size_t tables = SITES * (sizeof *b->sites + sizeof *b->sites_used);
    char *arena = mmap(NULL, STATIC_BYTES + DYNAMIC_BYTES + tables, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (arena == MAP_FAILED)
        return false;
    b->arena = arena;
    b->sites = (void **)(void *)(arena + STATIC_BYTES + DYNAMIC_BYTES);
    b->sites_used = (unsigned *)(void *)(b->sites + SITES);
    annotate_poison(arena, STATIC_BYTES + DYNAMIC_BYTES);
    return true;
}

/* Not memset: the sanitizers would take it for an access of the running thread. */
static void fill(char *p, size_t bytes)
{
    volatile uint64_t *words = (volatile uint64_t *)(void *)p;
    size_t i;
    for (i = 0; i < bytes / 8; i++)
        words[i] = 0xcdcdcdcdcdcdcdcdu;
    for (i *= 8; i < bytes; i++)
        ((volatile char *)p)[i] = (char)0xcd;
}

static char *dynamic_memory(struct block *b)
{
    return b->arena + STATIC_BYTES;
}

void tern_cpu_shared_begin(struct block *b, size_t dynamic_bytes)
{
    annotate_poison(b->arena, b->arena_used);
    annotate_poison(dynamic_memory(b), b->dynamic_bytes);
    annotate_unpoison(dynamic_memory(b), dynamic_bytes);
    fill(dynamic_memory(b), dynamic_bytes);
    for (unsigned i = 0; i < b->sites_used_count; i++)
        b->sites[b->sites_used[i]] = NULL;
    b->sites_used_count = 0;
    b->arena_used = 0;
    b->dynamic_bytes = dynamic_bytes;
}

static unsigned site_id(tern_cpu_site_t *site)
{
    static unsigned last;
    unsigned id = __atomic_load_n(&site->id, __ATOMIC_ACQUIRE);
    if (!id) {
        unsigned mine = __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
        if (__atomic_compare_exchange_n(&site->id, &id, mine, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            id = mine;
    }
    return id;
}

void *tern_cpu_shared_static(tern_cpu_site_t *site, size_t bytes, size_t alignment)
{
    struct block *b = ((struct fiber *)tern_cpu_self)->block;
    unsigned id = site_id(site);
    if (id >= SITES)
        tern_cpu_block_fail(b, "more than %u static __shared__ variables in the program", SITES - 1);
    if (b->sites[id])
        return b->sites[id];
    alignment = alignment < 16 ? 16 : alignment;
    size_t at = (b->arena_used + GAP_BYTES + alignment - 1) / alignment * alignment;
    if (bytes > STATIC_MAX || at + bytes > STATIC_BYTES)
        tern_cpu_block_fail(b, "a static __shared__ variable of %zu bytes; all of them take at most %u", bytes, STATIC_MAX);
    char *p = b->arena + at;
    annotate_unpoison(p, bytes);
    fill(p, bytes);
    b->arena_used = at + bytes;
    b->sites[id] = p;
    b->sites_used[b->sites_used_count++] = id;
    return p;
}

void *tern_cpu_shared_dynamic(void)
{
    return dynamic_memory(((struct fiber *)tern_cpu_self)->block);
}

bool tern_cpu_is_shared(const void *p)
{
    if (!tern_cpu_self)
        return false;
    const struct block *b = ((struct fiber *)tern_cpu_self)->block;
    return (const char *)p >= b->arena && (const char *)p < b->arena + STATIC_BYTES + DYNAMIC_BYTES;
}
