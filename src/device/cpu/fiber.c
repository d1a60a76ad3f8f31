/*
 * fiber.c - fibers: their stacks, made once and kept, and the switch between them. Compiled without sanitizers.
 * A fiber never leaves the OS thread that made it.
 */
#include "device/cpu/block.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "device/cpu/annotate.h"

/* Boost.Context's assembly, the only part of it that is used: declared here, since its headers are C++. */
typedef struct transfer {
    void *context, *data;
} transfer_t;
transfer_t jump_fcontext(void *to, void *data);
void *make_fcontext(void *top, size_t bytes, void (*entry)(transfer_t));

#if defined(TERN_FIBER_ASAN) || defined(TERN_FIBER_TSAN)
#define STACK_BYTES (256u * 1024u)
#else
#define STACK_BYTES (128u * 1024u)
#endif
#define SLAB_FIBERS 32u
#define MADV_GUARD 102                  /* MADV_GUARD_INSTALL, Linux 6.13: a guard page that costs no mapping */

__thread tern_cpu_thread_t *tern_cpu_self;
__thread const volatile void *tern_cpu_stored;
static __thread struct fiber *starting;

static void switch_begin(struct fiber *from, struct fiber *to)
{
#ifdef TERN_FIBER_ASAN
    __sanitizer_start_switch_fiber(&from->asan_fake, to->stack, to->stack_bytes);
#else
    (void)from;
#endif
#ifdef TERN_FIBER_TSAN
    __tsan_switch_to_fiber(to->tsan, ANNOTATE_NO_SYNC);
#else
    (void)to;
#endif
}

/* In the fiber that was switched to. */
static void switch_end(transfer_t t, struct fiber *self)
{
    struct fiber *from = t.data;
    from->context = t.context;
#ifdef TERN_FIBER_ASAN
    const void *bottom;
    size_t bytes;
    __sanitizer_finish_switch_fiber(self->asan_fake, &bottom, &bytes);
    if (!from->stack_bytes) {
        from->stack = (char *)bottom;
        from->stack_bytes = bytes;
    }
#else
    (void)self;
#endif
}

void tern_cpu_fiber_switch(struct fiber *from, struct fiber *to)
{
    if (from == to)
        return;
    tern_cpu_self = to == &to->block->main ? NULL : &to->thread;
    starting = to;
    switch_begin(from, to);
    switch_end(jump_fcontext(to->context, from), from);
}

static void fiber_entry(transfer_t t)
{
    struct fiber *self = starting;
    self->asan_fake = NULL;
    switch_end(t, self);
    for (;;)
        tern_cpu_fiber_begin(self->block, self);
}

/* Stacks at equal distances share cache sets: each begins a few lines lower than its neighbour. */
static void fiber_prepare(struct fiber *f, unsigned number)
{
    size_t colour = (number & 31u) * 128u;
    f->context = make_fcontext(f->stack + f->stack_bytes - colour, f->stack_bytes - colour, fiber_entry);
    f->busy = false;
}

void tern_cpu_fiber_reset(struct fiber *f)
{
    annotate_unpoison(f->stack, f->stack_bytes);
#ifdef TERN_FIBER_TSAN
    __tsan_destroy_fiber(f->tsan);
    f->tsan = __tsan_create_fiber(0);
#endif
    fiber_prepare(f, f->thread.linear);
}

/*
 * A guard page below each stack. Where the system gives no more (vm.max_map_count), stacks go without.
 */
static void guard(char *page, size_t bytes)
{
    if (madvise(page, bytes, MADV_GUARD))
        (void)!mprotect(page, bytes, PROT_NONE);
}

static bool slab_add(struct block *b)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), stride = STACK_BYTES + page;
    struct fiber *fibers = calloc(SLAB_FIBERS, sizeof *fibers);
    char *stacks = mmap(NULL, SLAB_FIBERS * stride, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    struct fiber **list = realloc(b->fibers, (b->pool + SLAB_FIBERS) * sizeof *list);
    if (list)
        b->fibers = list;
    if (!fibers || stacks == MAP_FAILED || !list) {
        free(fibers);
        if (stacks != MAP_FAILED)
            munmap(stacks, SLAB_FIBERS * stride);
        return false;
    }
    for (unsigned i = 0; i < SLAB_FIBERS; i++) {
        struct fiber *f = &fibers[i];
        guard(stacks + i * stride, page);
        f->stack = stacks + i * stride + page;
        f->stack_bytes = STACK_BYTES;
        f->block = b;
        f->thread.block = &b->view;
#ifdef TERN_FIBER_TSAN
        f->tsan = __tsan_create_fiber(0);
#endif
        fiber_prepare(f, i);
        b->fibers[b->pool++] = f;
    }
    return true;
}

bool tern_cpu_fiber_pool(struct block *b, unsigned count)
{
    while (b->pool < count)
        if (!slab_add(b))
            return false;
    return true;
}
