/*
 * tern/detail/cpu_abi.h - what compiled kernels and the CPU device (src/device/cpu/) share: layout of a running thread's
 * record, and the functions that the inline words of cpu.h call. Private.
 */
#ifndef TERN_DETAIL_CPU_ABI_H
#define TERN_DETAIL_CPU_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TERN_CPU_API __attribute__((visibility("default")))

typedef struct tern_cpu_dim {
    unsigned x, y, z;
} tern_cpu_dim_t;

/* A running block, as far as kernels look into it. */
typedef struct tern_cpu_block {
    tern_cpu_dim_t block_idx, block_dim, grid_dim;
} tern_cpu_block_t;

/* A thread of a running block. */
typedef struct tern_cpu_thread {
    tern_cpu_dim_t thread_idx;
    unsigned linear, lane;
    unsigned turns;                     /* operations since a turn was given to others; see tern_cpu_turn() */
    tern_cpu_block_t *block;
} tern_cpu_thread_t;

/*
 * The thread that runs now on this OS thread; NULL outside of kernels. A fiber never changes its OS thread, so the address
 * of these variables may be kept over a switch.
 */
extern TERN_CPU_API __thread tern_cpu_thread_t *tern_cpu_self __attribute__((tls_model("initial-exec")));
/* Where this OS thread last stored by a primitive that others may wait for: what tells a wait from progress. */
extern TERN_CPU_API __thread const volatile void *tern_cpu_stored __attribute__((tls_model("initial-exec")));
static inline void tern_cpu_note_store(const volatile void *p)
{
    __atomic_store_n(&tern_cpu_stored, p, __ATOMIC_RELAXED);    /* atomic for TSAN: the threads of a block share it */
}

enum { TERN_CPU_BARRIER, TERN_CPU_BARRIER_OR, TERN_CPU_BARRIER_AND, TERN_CPU_BARRIER_COUNT };
TERN_CPU_API int tern_cpu_barrier(int kind, int predicate);
enum { TERN_CPU_WARP_SYNC, TERN_CPU_WARP_SHFL, TERN_CPU_WARP_BALLOT, TERN_CPU_WARP_MATCH };
TERN_CPU_API uint64_t tern_cpu_warp(int kind, unsigned mask, uint64_t value, unsigned source);
TERN_CPU_API unsigned tern_cpu_activemask(void);
/* One turn of a spin loop: runs the block's next thread; after a vain round of all of them, other OS threads. */
TERN_CPU_API void tern_cpu_pause(void);
TERN_CPU_API uint64_t tern_cpu_clock_ns(void);

/* Weak builds: the way of a kernel's stores and loads through its block's buffer. */
TERN_CPU_API void tern_cpu_weak_store(void *p, uint64_t value, unsigned bytes);
TERN_CPU_API uint64_t tern_cpu_weak_load(const void *p, unsigned bytes);
/* Before a direct access of `bytes` at p: stores to it that are still on their way arrive. */
TERN_CPU_API void tern_cpu_weak_settle(const void *p, size_t bytes);
TERN_CPU_API void tern_cpu_weak_release(int system_scope);

/* TSAN builds: the tool does not know fences. These tell what one orders: relaxed loads before it, relaxed stores behind. */
TERN_CPU_API void tern_cpu_tsan_fence(void);
TERN_CPU_API void tern_cpu_tsan_store(const volatile void *p);
TERN_CPU_API void tern_cpu_tsan_load(const volatile void *p);

/* Shared memory. A site is a static __shared__ variable in the source. */
typedef struct tern_cpu_site {
    unsigned id;
} tern_cpu_site_t;
TERN_CPU_API void *tern_cpu_shared_static(tern_cpu_site_t *site, size_t bytes, size_t alignment);
TERN_CPU_API void *tern_cpu_shared_dynamic(void);
TERN_CPU_API bool tern_cpu_is_shared(const void *p);

/* A __global__ function, registered when its program or shared object is loaded. */
#define TERN_CPU_DYNAMIC_DEFAULT 49152u /* bytes of dynamic shared memory without cudaFuncSetAttribute */
#define TERN_CPU_SHARED_MAX 232448u     /* bytes of shared memory of a block, static and dynamic */
typedef struct tern_cpu_kernel {
    const void *function;
    const char *name;
    unsigned count;                     /* of arguments */
    const unsigned *sizes;              /* of each */
    void (*call)(const void *function, void **args);
    unsigned dynamic_max;               /* dynamic shared memory that a launch may ask for */
    struct tern_cpu_kernel *next;
} tern_cpu_kernel_t;
TERN_CPU_API void tern_cpu_kernel_register(tern_cpu_kernel_t *kernel);
TERN_CPU_API void tern_cpu_kernel_unregister(tern_cpu_kernel_t *kernel);

/* Spin loops over atomics or clocks that never pause would starve their block: every so often an operation is a turn. */
static inline void tern_cpu_turn(void)
{
    if (tern_cpu_self && ++tern_cpu_self->turns >= 64) {
        tern_cpu_self->turns = 0;
        tern_cpu_pause();
    }
}

#ifdef __cplusplus
}
#endif
#endif
