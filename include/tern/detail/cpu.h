/*
 * tern/detail/cpu.h - what a .cu source sees on the CPU device: CUDA's words for kernels, threads, warps, atomics and
 * launches, for sources in C style that tern-cc has rewritten (it includes this file first, as nvcc does its own).
 *
 * A block runs on one OS thread, its threads as fibers on it; see src/device/cpu/. A subset of CUDA: what Tern's headers,
 * kernels and examples use.
 */
#ifndef TERN_DETAIL_CPU_H
#define TERN_DETAIL_CPU_H

#if !defined(__cplusplus)
#error "kernels for the CPU device are compiled as C++ (tern-cc does so)"
#endif

#include <math.h>
#include <string.h>
#include <type_traits>
#include <utility>
#include <tern/types.h>
#include <tern/detail/cpu_abi.h>
#include <tern/detail/cpu_types.h>

#define __global__
#define __device__
#define __host__
#define __managed__
#define __constant__ const
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __maxnreg__(...)
#define __grid_constant__
#define __restrict__ __restrict
#define __align__(n) __attribute__((aligned(n)))
/* tern-cc rewrites __shared__; a header that it does not see gets one variable per OS thread, which is one per block. */
#define __shared__ static thread_local

/* ---- threads ------------------------------------------------------------------------------------------------------------ */

#define threadIdx (static_cast<const uint3 &>(tern_cpu_self->thread_idx))
#define blockIdx (static_cast<const uint3 &>(tern_cpu_self->block->block_idx))
#define blockDim (static_cast<const uint3 &>(tern_cpu_self->block->block_dim))
#define gridDim (static_cast<const uint3 &>(tern_cpu_self->block->grid_dim))
#define warpSize 32

static inline void __syncthreads(void)
{
    tern_cpu_barrier(TERN_CPU_BARRIER, 0);
}
static inline int __syncthreads_or(int predicate)
{
    return tern_cpu_barrier(TERN_CPU_BARRIER_OR, predicate != 0);
}
static inline int __syncthreads_and(int predicate)
{
    return tern_cpu_barrier(TERN_CPU_BARRIER_AND, predicate != 0);
}
static inline int __syncthreads_count(int predicate)
{
    return tern_cpu_barrier(TERN_CPU_BARRIER_COUNT, predicate != 0);
}

/* ---- warps -------------------------------------------------------------------------------------------------------------- */

static inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    tern_cpu_warp(TERN_CPU_WARP_SYNC, mask, 0, 0);
}
static inline unsigned __activemask(void)
{
    return tern_cpu_activemask();
}
static inline unsigned __ballot_sync(unsigned mask, int predicate)
{
    return (unsigned)tern_cpu_warp(TERN_CPU_WARP_BALLOT, mask, predicate != 0, 0);
}
static inline int __any_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, predicate) != 0;
}
static inline int __all_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, !predicate) == 0;
}

template <class T> static inline uint64_t tern_cpu_bits(T value)
{
    static_assert(sizeof(T) <= 8, "warp operations move at most 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    return bits;
}
template <class T> static inline T tern_cpu_unbits(uint64_t bits)
{
    T value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
template <class T> static inline unsigned __match_any_sync(unsigned mask, T value)
{
    return (unsigned)tern_cpu_warp(TERN_CPU_WARP_MATCH, mask, tern_cpu_bits(value), 0);
}
template <class T> static inline unsigned __match_all_sync(unsigned mask, T value, int *all)
{
    *all = __match_any_sync(mask, value) == mask;
    return *all ? mask : 0;
}
/* A lane whose source lies outside of its segment of `width` lanes reads its own value. */
template <class T> static inline T tern_cpu_shfl(unsigned mask, T value, int source, int width)
{
    int lane = (int)tern_cpu_self->lane, first = lane & ~(width - 1);
    if (source < first || source >= first + width)
        source = lane;
    return tern_cpu_unbits<T>(tern_cpu_warp(TERN_CPU_WARP_SHFL, mask, tern_cpu_bits(value), (unsigned)source));
}
template <class T> static inline T __shfl_sync(unsigned mask, T value, int source, int width = 32)
{
    int first = (int)tern_cpu_self->lane & ~(width - 1);
    return tern_cpu_shfl(mask, value, first + (source & (width - 1)), width);
}
template <class T> static inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32)
{
    return tern_cpu_shfl(mask, value, (int)tern_cpu_self->lane - (int)delta, width);
}
template <class T> static inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32)
{
    return tern_cpu_shfl(mask, value, (int)tern_cpu_self->lane + (int)delta, width);
}
template <class T> static inline T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32)
{
    return tern_cpu_shfl(mask, value, (int)tern_cpu_self->lane ^ lanes, width);
}

/* ---- integers ------------------------------------------------------------------------------------------------------------ */

static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
static inline int __popcll(unsigned long long x)
{
    return __builtin_popcountll(x);
}
static inline int __clz(int x)
{
    return x ? __builtin_clz((unsigned)x) : 32;
}
static inline int __clzll(long long x)
{
    return x ? __builtin_clzll((unsigned long long)x) : 64;
}
static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
static inline int __ffsll(long long x)
{
    return __builtin_ffsll(x);
}

/* CUDA gives these in the global name space, for all arithmetic types. */
template <class A, class B> static inline constexpr typename std::common_type<A, B>::type min(A a, B b)
{
    typedef typename std::common_type<A, B>::type T;
    return (T)b < (T)a ? (T)b : (T)a;
}
template <class A, class B> static inline constexpr typename std::common_type<A, B>::type max(A a, B b)
{
    typedef typename std::common_type<A, B>::type T;
    return (T)a < (T)b ? (T)b : (T)a;
}

static inline unsigned __float_as_uint(float x)
{
    return tern_cpu_unbits<unsigned>(tern_cpu_bits(x));
}
static inline int __float_as_int(float x)
{
    return tern_cpu_unbits<int>(tern_cpu_bits(x));
}
static inline float __uint_as_float(unsigned x)
{
    return tern_cpu_unbits<float>(x);
}
static inline float __int_as_float(int x)
{
    return tern_cpu_unbits<float>((unsigned)x);
}
static inline long long __double_as_longlong(double x)
{
    return (long long)tern_cpu_bits(x);
}
static inline double __longlong_as_double(long long x)
{
    return tern_cpu_unbits<double>((uint64_t)x);
}
#define __expf(x) expf(x)
#define __fdividef(x, y) ((x) / (y))
#define rsqrtf(x) (1.0f / sqrtf(x))
template <class T> static inline T __ldg(const T *p)
{
    return *p;
}

/* ---- time, fences --------------------------------------------------------------------------------------------------------- */

static inline long long clock64(void)
{
    tern_cpu_turn();
    if (tern_cpu_self)
        tern_cpu_note_store(tern_cpu_self);    /* who looks at the clock waits for time, not only for others */
    return (long long)tern_cpu_clock_ns();
}
static inline void __nanosleep(unsigned ns)
{
    (void)ns;
    tern_cpu_pause();
}

#include <tern/detail/prim.h>
#include <tern/detail/cpu_atomic.h>
#include <tern/detail/cpu_runtime.h>
#include <tern/detail/cpu_launch.h>

#endif
