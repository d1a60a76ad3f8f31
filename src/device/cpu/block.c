/*
 * block.c - a block at work: its run queue, barriers, warp operations, spinning, and the certain deadlocks of these.
 * Compiled without sanitizers; what orders threads is told to TSAN by precise objects, never by the switches.
 */
#include "device/cpu/block.h"

#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "device/cpu/annotate.h"

#define NAP_AFTER_NS 10000000u          /* a block that has waited so long naps instead of only yielding */
#define NAP_NS 50000
#define UNDEFINED_VALUE 0xcdcdcdcdcdcdcdcdu

static void queue_put(struct fiber_queue *q, struct fiber *f)
{
    f->next = NULL;
    if (q->tail)
        q->tail->next = f;
    else
        q->head = f;
    q->tail = f;
}

static struct fiber *queue_take(struct fiber_queue *q)
{
    struct fiber *f = q->head;
    if (f) {
        q->head = f->next;
        if (!q->head)
            q->tail = NULL;
    }
    return f;
}

static void queue_append(struct fiber_queue *to, struct fiber_queue *from)
{
    if (!from->head)
        return;
    if (to->tail)
        to->tail->next = from->head;
    else
        to->head = from->head;
    to->tail = from->tail;
    from->head = from->tail = NULL;
}

static struct fiber *self(void)
{
    return (struct fiber *)tern_cpu_self;
}

static void happened(struct block *b)
{
    b->spun = 0;
    atomic_store_explicit(&b->vain_since, 0, memory_order_relaxed);
}

void tern_cpu_block_fail(struct block *b, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(b->fault, sizeof b->fault, format, list);
    va_end(list);
    tern_cpu_fiber_switch(self(), &b->main);
    abort();                            /* not reached: block_run forgets this fiber */
}

static const char *const warp_names[] = {"__syncwarp", "a shuffle", "a vote", "__match_any_sync"};

/* Nobody can run, and some have not ended. */
static void deadlock(struct block *b)
{
    unsigned in_warp = 0;
    const struct fiber *first = NULL;
    for (unsigned i = 0; i < b->threads; i++)
        if (b->fibers[i]->busy && b->fibers[i]->wait == FIBER_IN_WARP) {
            in_warp++;
            first = first ? first : b->fibers[i];
        }
    char warp[96] = "";
    if (first)
        snprintf(warp, sizeof warp, "; %u in warp operations, the first is thread %u in %s with mask 0x%08x", in_warp,
                 first->thread.linear, warp_names[first->kind], first->mask);
    tern_cpu_block_fail(b, "deadlock: no thread of it can go on: %u of %u have ended, %u wait at __syncthreads%s",
                        b->threads - b->live, b->threads, b->arrived, warp);
}

/* The calling fiber is in no run queue (or has ended): run another. */
static void run_next(struct block *b, struct fiber *f)
{
    struct fiber *next = queue_take(&b->run);
    if (!next) {
        if (b->live)
            deadlock(b);
        next = &b->main;
    }
    tern_cpu_fiber_switch(f, next);
}

static void wait_here(struct block *b, struct fiber *f, enum fiber_wait where)
{
    b->waiting++;
    f->wait = where;
    run_next(b, f);
    f->wait = FIBER_RUNS;
    b->waiting--;
}

/* ---- barrier ------------------------------------------------------------------------------------------------------------ */

static void barrier_complete(struct block *b)
{
    unsigned parity = b->generation & 1u;
    b->result_count[parity] = b->count;
    b->result_threads[parity] = b->arrived;
    b->count = b->arrived = 0;
    b->generation++;
    queue_append(&b->run, &b->barrier);
}

int tern_cpu_barrier(int kind, int predicate)
{
    struct fiber *f = self();
    struct block *b = f->block;
    unsigned parity = b->generation & 1u;
    annotate_release(&b->tsan_barrier[parity]);
    happened(b);
    b->count += predicate != 0;
    if (++b->arrived == b->live) {
        barrier_complete(b);
    } else {
        queue_put(&b->barrier, f);
        wait_here(b, f, FIBER_IN_BARRIER);
    }
    annotate_acquire(&b->tsan_barrier[parity]);
    if (kind == TERN_CPU_BARRIER_OR)
        return b->result_count[parity] != 0;
    if (kind == TERN_CPU_BARRIER_AND)
        return b->result_count[parity] == b->result_threads[parity];
    return (int)b->result_count[parity];
}

/* ---- warps -------------------------------------------------------------------------------------------------------------- */

static void warp_results(struct warp *w, int kind, unsigned lanes)
{
    unsigned votes = 0;
    for (unsigned m = lanes; m; m &= m - 1) {
        struct fiber *f = w->fibers[__builtin_ctz(m)];
        if (f->value)
            votes |= 1u << f->thread.lane;
    }
    for (unsigned m = lanes; m; m &= m - 1) {
        struct fiber *f = w->fibers[__builtin_ctz(m)];
        f->result = kind == TERN_CPU_WARP_BALLOT ? votes : 0;
        if (kind == TERN_CPU_WARP_SHFL)         /* a lane that takes no part has no value: give one that shows */
            f->result = lanes >> f->source & 1u ? w->fibers[f->source]->value : UNDEFINED_VALUE;
        if (kind == TERN_CPU_WARP_MATCH)
            for (unsigned n = lanes; n; n &= n - 1)
                if (w->fibers[__builtin_ctz(n)]->value == f->value)
                    f->result |= n & -n;
    }
}

/*
 * Have all lanes of `mask` that live come, to the same operation? Then give each its result and let all but `f` run again.
 * Lanes wait in other operations, with other masks, at the same time.
 */
static bool warp_try(struct block *b, struct warp *w, int kind, unsigned mask, const struct fiber *f)
{
    unsigned lanes = mask & w->live;
    if ((w->arrived & lanes) != lanes)
        return false;
    for (unsigned m = lanes; m; m &= m - 1) {
        const struct fiber *other = w->fibers[__builtin_ctz(m)];
        if (other->mask != mask || other->kind != kind)
            return false;
    }
    w->arrived &= ~lanes;
    warp_results(w, kind, lanes);
    if (kind == TERN_CPU_WARP_SYNC) {
        w->epoch++;
        for (unsigned m = lanes; m; m &= m - 1)
            annotate_acquire(&w->fibers[__builtin_ctz(m)]->tsan_in);
        for (unsigned m = lanes; m; m &= m - 1)
            annotate_release(&w->fibers[__builtin_ctz(m)]->tsan_out);
    }
    for (unsigned m = lanes; m; m &= m - 1)
        if (w->fibers[__builtin_ctz(m)] != f)
            queue_put(&b->run, w->fibers[__builtin_ctz(m)]);
    return true;
}

uint64_t tern_cpu_warp(int kind, unsigned mask, uint64_t value, unsigned source)
{
    struct fiber *f = self();
    struct block *b = f->block;
    if (!(mask >> f->thread.lane & 1u))
        tern_cpu_block_fail(b, "thread %u calls %s with mask 0x%08x, which leaves its own lane %u out",
                            f->thread.linear, warp_names[kind], mask, f->thread.lane);
    f->kind = kind;
    f->mask = mask;
    f->value = value;
    f->source = source & 31u;
    f->warp->arrived |= 1u << f->thread.lane;
    happened(b);
    if (kind == TERN_CPU_WARP_SYNC)
        annotate_release(&f->tsan_in);
    if (!warp_try(b, f->warp, kind, mask, f))
        wait_here(b, f, FIBER_IN_WARP);
    if (kind == TERN_CPU_WARP_SYNC)
        annotate_acquire(&f->tsan_out);
    return f->result;
}

/* Which lanes run together is this device's choice: a fiber runs alone. */
unsigned tern_cpu_activemask(void)
{
    return 1u << tern_cpu_self->lane;
}

/* ---- spinning ----------------------------------------------------------------------------------------------------------- */

uint64_t tern_cpu_clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* All runnable threads have paused, and none has arrived anywhere in between: let other OS threads run. */
static void vain_round(struct block *b)
{
    uint64_t now = tern_cpu_clock_ns(), since = atomic_load_explicit(&b->vain_since, memory_order_relaxed);
    b->spun = 0;
    if (atomic_load_explicit(&tern_cpu_failed, memory_order_relaxed))
        tern_cpu_block_fail(b, "ended because the device has failed");
    if (!since)
        tern_cpu_waits();
    if (!since || tern_cpu_is_progress(tern_cpu_stored)) {
        since = now;
        b->vain_next = now + tern_cpu_patience_ns;
        atomic_store_explicit(&b->vain_since, now, memory_order_relaxed);
    }
    tern_cpu_stored = NULL;
    if (now >= b->vain_next) {
        b->vain_next = now + tern_cpu_patience_ns / 10;
        tern_cpu_starving(now);
    }
    if (now - since > NAP_AFTER_NS)
        nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    else
        sched_yield();
}

void tern_cpu_pause(void)
{
    struct fiber *f = self();
    if (!f) {
        sched_yield();
        return;
    }
    struct block *b = f->block;
#ifdef TERN_CPU_WEAK
    tern_cpu_weak_turn(b);
#endif
    if (++b->spun >= b->live - b->waiting)
        vain_round(b);
    struct fiber *next = queue_take(&b->run);
    if (next) {
        queue_put(&b->run, f);
        tern_cpu_fiber_switch(f, next);
    }
}

/* ---- begin and end ------------------------------------------------------------------------------------------------------ */

/* A thread that has ended takes part in no barrier any more: perhaps it was the one that others waited for. */
static void thread_ended(struct block *b, struct fiber *f)
{
    struct warp *w = f->warp;
    happened(b);
    f->busy = false;
    b->live--;
    w->live &= ~(1u << f->thread.lane);
    for (unsigned m = w->arrived; m; m &= m - 1) {
        struct fiber *other = w->fibers[__builtin_ctz(m)];
        if (w->arrived >> other->thread.lane & 1u)
            warp_try(b, w, other->kind, other->mask, f);
    }
    if (b->live && b->arrived == b->live)
        barrier_complete(b);
}

void tern_cpu_fiber_begin(struct block *b, struct fiber *f)
{
    f->busy = true;
    annotate_acquire(&b->tsan_start);
    b->kernel->call(b->kernel->function, b->args);
    annotate_release(&b->tsan_end);
    thread_ended(b, f);
    run_next(b, f);
}

struct block *tern_cpu_block_new(void)
{
    struct block *b = calloc(1, sizeof *b);
    if (!b)
        return NULL;
    b->warps = calloc(TERN_CPU_MAX_THREADS / 32, sizeof *b->warps);
    if (!b->warps || !tern_cpu_shared_open(b)) {
        free(b->warps);
        free(b);
        return NULL;
    }
    b->main.block = b;
#ifdef TERN_FIBER_TSAN
    b->main.tsan = __tsan_get_current_fiber();
#endif
    return b;
}

static void threads_prepare(struct block *b, tern_cpu_dim_t dim)
{
    memset(b->warps, 0, (b->threads + 31) / 32 * sizeof *b->warps);
    for (unsigned i = 0; i < b->threads; i++) {
        struct fiber *f = b->fibers[i];
        f->thread.thread_idx = (tern_cpu_dim_t){i % dim.x, i / dim.x % dim.y, i / dim.x / dim.y};
        f->thread.linear = i;
        f->thread.lane = i & 31u;
        f->warp = &b->warps[i / 32];
        f->warp->fibers[f->thread.lane] = f;
        f->warp->live |= 1u << f->thread.lane;
        f->wait = FIBER_RUNS;
        f->fences.fenced = false;
        queue_put(&b->run, f);
    }
}

bool tern_cpu_block_run(struct block *b, const tern_cpu_kernel_t *kernel, void **args, tern_cpu_dim_t grid,
                        tern_cpu_dim_t block, tern_cpu_dim_t index, size_t dynamic_bytes)
{
    b->view = (tern_cpu_block_t){.block_idx = index, .block_dim = block, .grid_dim = grid};
    b->kernel = kernel;
    b->args = args;
    b->threads = b->live = block.x * block.y * block.z;
    b->waiting = b->arrived = b->count = 0;
    b->run = b->barrier = (struct fiber_queue){0};
    b->fault[0] = '\0';
    tern_cpu_stored = NULL;
    happened(b);
    if (!tern_cpu_fiber_pool(b, b->threads)) {
        snprintf(b->fault, sizeof b->fault, "no memory for the stacks of %u threads", b->threads);
        return false;
    }
    tern_cpu_shared_begin(b, dynamic_bytes);
    threads_prepare(b, block);
#ifdef TERN_CPU_WEAK
    tern_cpu_weak_begin(b);
#endif
    annotate_release(&b->tsan_start);
    tern_cpu_fiber_switch(&b->main, queue_take(&b->run));
#ifdef TERN_CPU_WEAK
    tern_cpu_weak_end(b);
#endif
    annotate_acquire(&b->tsan_end);
    if (!b->fault[0])
        return true;
    for (unsigned i = 0; i < b->threads; i++)
        if (b->fibers[i]->busy)
            tern_cpu_fiber_reset(b->fibers[i]);
    return false;
}
