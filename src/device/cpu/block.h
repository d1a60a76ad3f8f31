/*
 * block.h - a block of a kernel on one OS thread: its threads are fibers. Shared by block.c, fiber.c, shared.c (compiled
 * without sanitizers, whose annotations they make themselves), weak.c and the scheduler of streams (stream.c).
 */
#ifndef TERN_CPU_BLOCK_H
#define TERN_CPU_BLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tern/detail/cpu_abi.h>

#define TERN_CPU_MAX_THREADS 1024u

struct fiber;
struct fiber_queue {
    struct fiber *head, *tail;
};

/* What a thread is waiting at. */
enum fiber_wait { FIBER_RUNS, FIBER_IN_BARRIER, FIBER_IN_WARP };

/* What TSAN must be told about a thread's fences: tsan.c. */
struct fence_state {
    void *release, *acquire;
    char released, acquired;
    bool fenced;
};

struct fiber {
    tern_cpu_thread_t thread;           /* first: what kernels see */
    struct block *block;
    struct warp *warp;
    struct fiber *next;
    void *context;                      /* fcontext of a fiber that does not run */
    char *stack;
    size_t stack_bytes;                 /* 0: an OS thread's own stack, not known yet */
    void *asan_fake, *tsan;
    bool busy;                          /* between the begin and the end of a kernel's thread */
    enum fiber_wait wait;
    int kind;                           /* warp operation: kind, lanes, value given, lane read, result */
    unsigned mask, source;
    uint64_t value, result;
    char tsan_in, tsan_out;             /* objects of __syncwarp's order */
    struct fence_state fences;
};

struct warp {
    unsigned live, arrived;             /* lanes that have not ended; lanes in a warp operation */
    uint32_t epoch;                     /* __syncwarps so far (weak mode) */
    struct fiber *fibers[32];
};

/* One per OS thread that runs blocks; reused for block after block. */
struct block {
    tern_cpu_block_t view;              /* first: what kernels see */
    const tern_cpu_kernel_t *kernel;
    void **args;
    unsigned threads, live, waiting;    /* in all; not ended; in a barrier or warp operation */
    struct fiber_queue run, barrier;
    unsigned arrived, generation;       /* of the barrier */
    unsigned count, result_count[2], result_threads[2];
    struct fiber **fibers;              /* pool */
    unsigned pool;
    struct warp *warps;                 /* [TERN_CPU_MAX_THREADS / 32] */
    struct fiber main;                  /* the OS thread's own context */

    unsigned spun;                      /* pauses since something happened */
    _Atomic uint64_t vain_since;        /* ns; all threads have only paused since then; 0 = something happened */
    uint64_t vain_next;                 /* when to look at starvation again */

    char *arena;                        /* shared memory */
    size_t arena_used, dynamic_bytes;
    void **sites;                       /* by site id: address in the arena */
    unsigned *sites_used, sites_used_count;

    struct weak_buffer *weak;
    char tsan_start, tsan_end, tsan_barrier[2];
    char fault[256];                    /* why the block failed; "" if it did not */
};

/* block.c */
struct block *tern_cpu_block_new(void);
/* Run one block to its end. False: it failed, b->fault says why, and its threads are gone. */
bool tern_cpu_block_run(struct block *b, const tern_cpu_kernel_t *kernel, void **args, tern_cpu_dim_t grid,
                        tern_cpu_dim_t block, tern_cpu_dim_t index, size_t dynamic_bytes);
/* From a thread of the block: end the whole block with a reason. Does not return. */
void tern_cpu_block_fail(struct block *b, const char *format, ...) __attribute__((format(printf, 2, 3), noreturn));

/* fiber.c */
bool tern_cpu_fiber_pool(struct block *b, unsigned count);      /* at least so many; false: no memory */
void tern_cpu_fiber_reset(struct fiber *f);                     /* a fiber that was left in the middle starts anew */
void tern_cpu_fiber_switch(struct fiber *from, struct fiber *to);
void tern_cpu_fiber_begin(struct block *b, struct fiber *f);    /* body of a kernel's thread; in block.c */

/* shared.c */
bool tern_cpu_shared_open(struct block *b);
void tern_cpu_shared_begin(struct block *b, size_t dynamic_bytes);

/* weak.c: only in weak builds */
void tern_cpu_weak_begin(struct block *b);
void tern_cpu_weak_turn(struct block *b);                       /* some stores may arrive */
void tern_cpu_weak_end(struct block *b);                        /* all stores arrive */

/* worker.c, called by a pausing block: did the device fail, and are all resident blocks waiting for those that queue? */
extern _Atomic bool tern_cpu_failed;
void tern_cpu_starving(uint64_t now);
/* A block begins to wait: it may be for one that has not started. */
void tern_cpu_waits(void);
/* Does a store to `p` show that its thread does more than wait? */
bool tern_cpu_is_progress(const volatile void *p);
/* How long all resident blocks may wait while others queue, ns. */
extern uint64_t tern_cpu_patience_ns;

#endif
