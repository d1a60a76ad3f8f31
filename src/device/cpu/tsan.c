/*
 * tsan.c - what TSAN has to be told about fences, which it does not understand. Compiled without instrumentation.
 *
 * C11: a relaxed store behind a fence releases what came before the fence, not what came after it; a fence acquires what
 * the relaxed loads before it have read. Both need a clock of their own, beside the thread's: each thread that fences has
 * two helper fibers in TSAN's eyes, which never run anything.
 *   release: has the thread's clock of its last fence. A relaxed store adds the helper's clock to its address.
 *   acquire: gathers the clocks of the addresses that relaxed loads have read. A fence adds it to the thread's.
 * So correct code is quiet, and a fence that is missing, or stands before the stores that it should order, is reported.
 */
#include "device/cpu/block.h"

#include <tern/detail/prim.h>

#include "device/cpu/annotate.h"

static __thread struct fence_state host_state;

static struct fence_state *state(void)
{
    struct fiber *f = (struct fiber *)tern_cpu_self;
    return f ? &f->fences : &host_state;
}

static void *current(void)
{
    struct fiber *f = (struct fiber *)tern_cpu_self;
    return f ? f->tsan : __tsan_get_current_fiber();
}

/* As the helper: take and give the clocks of the two objects. */
static void helper_exchange(void **helper, void *acquired, void *released)
{
    void *self = current();
    if (!*helper)
        *helper = __tsan_create_fiber(0);
    __tsan_switch_to_fiber(*helper, ANNOTATE_NO_SYNC);
    if (acquired)
        __tsan_acquire(acquired);
    if (released)
        __tsan_release(released);
    __tsan_switch_to_fiber(self, ANNOTATE_NO_SYNC);
}

void tern_cpu_tsan_fence(void)
{
    struct fence_state *s = state();
    __atomic_thread_fence(__ATOMIC_ACQ_REL);
    if (s->acquire) {
        helper_exchange(&s->acquire, NULL, &s->acquired);
        __tsan_acquire(&s->acquired);
    }
    __tsan_release(&s->released);
    helper_exchange(&s->release, &s->released, NULL);
    s->fenced = true;
}

void tern_cpu_tsan_store(const volatile void *p)
{
    struct fence_state *s = state();
    if (s->fenced)
        helper_exchange(&s->release, NULL, (void *)p);
}

void tern_cpu_tsan_load(const volatile void *p)
{
    helper_exchange(&state()->acquire, (void *)p, NULL);
}
