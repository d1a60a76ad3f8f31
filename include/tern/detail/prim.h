/*
 * tern/detail/prim.h - memory primitives under the named operations of order.h, once per device with the same names:
 *
 *   uintN_t tern_prim_ld_relaxed_uN(const uintN_t *p)          N = 8 16 32 64, system scope
 *   uintN_t tern_prim_ld_acquire_uN(const uintN_t *p)          N = 32 64, system scope; _gpu_u64: GPU scope
 *   void    tern_prim_st_relaxed_uN(uintN_t *p, uintN_t v)     N = 8 16 32 64, system scope
 *   void    tern_prim_st_release_uN(uintN_t *p, uintN_t v)     N = 32 64, system scope; _gpu_u32: GPU scope
 *   tern_v4_t tern_prim_ld_v4(const void *p)                   16 bytes of data, 16-byte aligned, weak
 *   void    tern_prim_st_v4(void *p, tern_v4_t v)
 *   uintN_t tern_prim_rmw_{add,and,or,xor,swap}_uN(uintN_t *p, uintN_t v)      N = 32 64, relaxed, system scope; old value
 *   uintN_t tern_prim_rmw_cas_uN(uintN_t *p, uintN_t compare, uintN_t value)
 *   void    tern_prim_red_{add,and,or,xor}_uN(uintN_t *p, uintN_t v)           the same without a result
 *   float   tern_prim_rmw_add_f32(float *p, float v), double tern_prim_rmw_add_f64(double *p, double v)
 *   void    tern_prim_arrived(uint64_t v)                      the load of v is over before what follows: a branch depends on it
 *   void    tern_prim_st_unit(uint64_t *p, uint64_t w0, uint64_t w1)           two relaxed 8-byte stores, system scope, 16-byte aligned
 *   uint32_t tern_prim_grid_id(void)                           differs from launch to launch, perhaps
 *   void    tern_prim_fence_sys(void), tern_prim_fence_gpu(void)               acquire-release fences
 *   TERN_PRIM_FENCE_EACH                                       1 where one thread's fence does not do for its block (TSAN)
 *   void    tern_prim_fence_async(void)                        ordinary stores before the thread's bulk-async operations
 *   uint64_t tern_prim_clock_ns(void)                          the device's global nanosecond clock
 *   void    tern_prim_pause(void)                              one turn of a spin loop (CPU device: lets others run)
 *   bool    tern_prim_unknown(bool v)                          v, about which the compiler knows nothing: at the end of a loop's
 *                                                              turn all lanes of the turn have come to it
 *   bool    tern_prim_is_shared(const void *p)                 p points into the calling block's shared memory
 *   void    tern_prim_completed(void)                          what comes before the call is complete at the targets, by a fence
 *                                                              of another thread and a barrier: to be told to TSAN only
 *   void    tern_prim_landed(const void *p, size_t bytes)      what the thread stored there is readable by its ordinary loads
 *                                                              (always so, but in the CPU device's weak mode)
 *
 * Library kernels and headers use order.h, never these directly (but clock and pause). The CPU device's weak mode and its
 * TSAN rules live inside its primitives.
 */
#ifndef TERN_DETAIL_PRIM_H
#define TERN_DETAIL_PRIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* 16 bytes of payload, moved as one. */
typedef struct __attribute__((aligned(16))) tern_v4 {
    uint32_t x, y, z, w;
} tern_v4_t;

#if defined(__CUDACC__)
#include <tern/detail/prim_cuda.h>
#else
#include <tern/detail/prim_cpu.h>
#endif

#endif
