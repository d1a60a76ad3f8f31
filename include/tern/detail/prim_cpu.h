/*
 * tern/detail/prim_cpu.h - the memory primitives of prim.h on the CPU device. Three forms: plain C11 atomics; TSAN builds,
 * where fences are made known to the tool (src/device/cpu/tsan.c); weak builds (TERN_CPU_WEAK), where a kernel's stores
 * take the way through a store buffer (src/device/cpu/weak.c).
 */
#ifndef TERN_DETAIL_PRIM_CPU_H
#define TERN_DETAIL_PRIM_CPU_H

#include <stddef.h>
#include <string.h>
#include <tern/detail/cpu_abi.h>

#if defined(__SANITIZE_THREAD__)
#define TERN_CPU_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TERN_CPU_TSAN 1
#endif
#endif

#ifdef TERN_CPU_WEAK
#define TERN_PRIM_WEAK_LD(p, bits)                                                                                     \
    if (tern_cpu_self)                                                                                                 \
        return (uint##bits##_t)tern_cpu_weak_load(p, bits / 8);
#define TERN_PRIM_WEAK_ST(p, v, bits)                                                                                  \
    if (tern_cpu_self) {                                                                                               \
        tern_cpu_weak_store(p, v, bits / 8);                                                                           \
        return;                                                                                                        \
    }
#define TERN_PRIM_WEAK_SETTLE(p, bytes)                                                                                \
    if (tern_cpu_self)                                                                                                 \
        tern_cpu_weak_settle(p, bytes);
#define TERN_PRIM_WEAK_RELEASE(system_scope)                                                                           \
    if (tern_cpu_self)                                                                                                 \
        tern_cpu_weak_release(system_scope);
#else
#define TERN_PRIM_WEAK_LD(p, bits)
#define TERN_PRIM_WEAK_ST(p, v, bits)
#define TERN_PRIM_WEAK_SETTLE(p, bytes)
#define TERN_PRIM_WEAK_RELEASE(system_scope)
#endif
#ifdef TERN_CPU_TSAN
#define TERN_PRIM_TSAN_ST(p) tern_cpu_tsan_store(p);
#define TERN_PRIM_TSAN_LD(p) tern_cpu_tsan_load(p);
#else
#define TERN_PRIM_TSAN_ST(p)
#define TERN_PRIM_TSAN_LD(p)
#endif

#define TERN_PRIM_LD_RELAXED(bits)                                                                                     \
    static inline uint##bits##_t tern_prim_ld_relaxed_u##bits(const uint##bits##_t *p)                                 \
    {                                                                                                                  \
        TERN_PRIM_WEAK_LD(p, bits)                                                                                     \
        uint##bits##_t v = __atomic_load_n(p, __ATOMIC_RELAXED);                                                       \
        TERN_PRIM_TSAN_LD(p)                                                                                           \
        return v;                                                                                                      \
    }
#define TERN_PRIM_ST_RELAXED(bits)                                                                                     \
    static inline void tern_prim_st_relaxed_u##bits(uint##bits##_t *p, uint##bits##_t v)                               \
    {                                                                                                                  \
        tern_cpu_note_store(p);                                                                                           \
        TERN_PRIM_WEAK_ST(p, v, bits)                                                                                  \
        TERN_PRIM_TSAN_ST(p)                                                                                           \
        __atomic_store_n(p, v, __ATOMIC_RELAXED);                                                                      \
    }
#define TERN_PRIM_LD_ACQUIRE(bits, scope)                                                                              \
    static inline uint##bits##_t tern_prim_ld_acquire##scope##_u##bits(const uint##bits##_t *p)                        \
    {                                                                                                                  \
        TERN_PRIM_WEAK_LD(p, bits)                                                                                     \
        return __atomic_load_n(p, __ATOMIC_ACQUIRE);                                                                   \
    }
#define TERN_PRIM_ST_RELEASE(bits, scope, system_scope)                                                                \
    static inline void tern_prim_st_release##scope##_u##bits(uint##bits##_t *p, uint##bits##_t v)                      \
    {                                                                                                                  \
        tern_cpu_note_store(p);                                                                                           \
        TERN_PRIM_WEAK_RELEASE(system_scope)                                                                           \
        TERN_PRIM_WEAK_SETTLE(p, bits / 8)                                                                             \
        __atomic_store_n(p, v, __ATOMIC_RELEASE);                                                                      \
    }
TERN_PRIM_LD_RELAXED(8)
TERN_PRIM_LD_RELAXED(16)
TERN_PRIM_LD_RELAXED(32)
TERN_PRIM_LD_RELAXED(64)
TERN_PRIM_ST_RELAXED(8)
TERN_PRIM_ST_RELAXED(16)
TERN_PRIM_ST_RELAXED(32)
TERN_PRIM_ST_RELAXED(64)
TERN_PRIM_LD_ACQUIRE(32, )
TERN_PRIM_LD_ACQUIRE(64, )
TERN_PRIM_LD_ACQUIRE(64, _gpu)
TERN_PRIM_ST_RELEASE(32, , 1)
TERN_PRIM_ST_RELEASE(64, , 1)
TERN_PRIM_ST_RELEASE(32, _gpu, 0)

/* Plain accesses: TSAN must see a race on payload. */
static inline tern_v4_t tern_prim_ld_v4(const void *p)
{
    tern_v4_t v;
#ifdef TERN_CPU_WEAK
    if (tern_cpu_self) {
        uint64_t half[2] = {tern_cpu_weak_load(p, 8), tern_cpu_weak_load((const char *)p + 8, 8)};
        memcpy(&v, half, 16);
        return v;
    }
#endif
    memcpy(&v, __builtin_assume_aligned(p, 16), 16);
    return v;
}
static inline void tern_prim_st_v4(void *p, tern_v4_t v)
{
#ifdef TERN_CPU_WEAK
    if (tern_cpu_self) {
        uint64_t half[2];
        memcpy(half, &v, 16);
        tern_cpu_weak_store(p, half[0], 8);
        tern_cpu_weak_store((char *)p + 8, half[1], 8);
        return;
    }
#endif
    memcpy(__builtin_assume_aligned(p, 16), &v, 16);
}

/* Read-modify-writes are relaxed: in weak mode they overtake the stores before them, but those to the same word. */
#define TERN_PRIM_RMW(op, builtin, bits)                                                                               \
    static inline uint##bits##_t tern_prim_rmw_##op##_u##bits(uint##bits##_t *p, uint##bits##_t v)                     \
    {                                                                                                                  \
        tern_cpu_note_store(p);                                                                                           \
        TERN_PRIM_WEAK_SETTLE(p, bits / 8)                                                                             \
        TERN_PRIM_TSAN_ST(p)                                                                                           \
        uint##bits##_t old = builtin(p, v, __ATOMIC_RELAXED);                                                          \
        TERN_PRIM_TSAN_LD(p)                                                                                           \
        return old;                                                                                                    \
    }
#define TERN_PRIM_RED(op, bits)                                                                                        \
    static inline void tern_prim_red_##op##_u##bits(uint##bits##_t *p, uint##bits##_t v)                               \
    {                                                                                                                  \
        (void)tern_prim_rmw_##op##_u##bits(p, v);                                                                      \
    }
#define TERN_PRIM_CAS(bits)                                                                                            \
    static inline uint##bits##_t tern_prim_rmw_cas_u##bits(uint##bits##_t *p, uint##bits##_t compare,                  \
                                                           uint##bits##_t value)                                       \
    {                                                                                                                  \
        TERN_PRIM_WEAK_SETTLE(p, bits / 8)                                                                             \
        TERN_PRIM_TSAN_ST(p)                                                                                           \
        __atomic_compare_exchange_n(p, &compare, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);                    \
        TERN_PRIM_TSAN_LD(p)                                                                                           \
        return compare;                                                                                                \
    }
TERN_PRIM_RMW(add, __atomic_fetch_add, 32)
TERN_PRIM_RMW(add, __atomic_fetch_add, 64)
TERN_PRIM_RMW(and, __atomic_fetch_and, 32)
TERN_PRIM_RMW(and, __atomic_fetch_and, 64)
TERN_PRIM_RMW(or, __atomic_fetch_or, 32)
TERN_PRIM_RMW(or, __atomic_fetch_or, 64)
TERN_PRIM_RMW(xor, __atomic_fetch_xor, 32)
TERN_PRIM_RMW(xor, __atomic_fetch_xor, 64)
TERN_PRIM_RMW(swap, __atomic_exchange_n, 32)
TERN_PRIM_RMW(swap, __atomic_exchange_n, 64)
TERN_PRIM_RED(add, 32)
TERN_PRIM_RED(add, 64)
TERN_PRIM_RED(and, 32)
TERN_PRIM_RED(and, 64)
TERN_PRIM_RED(or, 32)
TERN_PRIM_RED(or, 64)
TERN_PRIM_RED(xor, 32)
TERN_PRIM_RED(xor, 64)
TERN_PRIM_CAS(32)
TERN_PRIM_CAS(64)

static inline void tern_prim_arrived(uint64_t v)
{
    (void)v;
}
static inline void tern_prim_st_unit(uint64_t *p, uint64_t w0, uint64_t w1)
{
    tern_prim_st_relaxed_u64(p, w0);
    tern_prim_st_relaxed_u64(p + 1, w1);
}
/* Launches are few here: the block alone chooses. */
static inline uint32_t tern_prim_grid_id(void)
{
    return 0;
}

#define TERN_PRIM_ADD_FLOAT(suffix, type, bits)                                                                        \
    static inline type tern_prim_rmw_add_##suffix(type *p, type v)                                                     \
    {                                                                                                                  \
        uint##bits##_t *word = (uint##bits##_t *)(void *)p, seen = 0, old, next;                                       \
        tern_cpu_note_store(p);                                                                                           \
        do {                                                                                                           \
            type value;                                                                                                \
            old = seen;                                                                                                \
            memcpy(&value, &old, sizeof value);                                                                        \
            value += v;                                                                                                \
            memcpy(&next, &value, sizeof next);                                                                        \
            seen = tern_prim_rmw_cas_u##bits(word, old, next);                                                         \
        } while (seen != old);                                                                                         \
        type result;                                                                                                   \
        memcpy(&result, &old, sizeof result);                                                                          \
        return result;                                                                                                 \
    }
TERN_PRIM_ADD_FLOAT(f32, float, 32)
TERN_PRIM_ADD_FLOAT(f64, double, 64)

static inline void tern_prim_fence_sys(void)
{
    TERN_PRIM_WEAK_RELEASE(1)
#ifdef TERN_CPU_TSAN
    tern_cpu_tsan_fence();
#else
    __atomic_thread_fence(__ATOMIC_ACQ_REL);
#endif
}
static inline void tern_prim_fence_gpu(void)
{
    TERN_PRIM_WEAK_RELEASE(0)
#ifdef TERN_CPU_TSAN
    tern_cpu_tsan_fence();
#else
    __atomic_thread_fence(__ATOMIC_ACQ_REL);
#endif
}
/* What one thread's fence completes is complete for all; TSAN however knows only what a thread does before its own. */
#ifdef TERN_CPU_TSAN
#define TERN_PRIM_FENCE_EACH 1
#else
#define TERN_PRIM_FENCE_EACH 0
#endif
/* No bulk-async copies here. */
static inline void tern_prim_fence_async(void)
{
}

static inline uint64_t tern_prim_clock_ns(void)
{
    return tern_cpu_clock_ns();
}
static inline void tern_prim_pause(void)
{
    tern_cpu_pause();
}
static inline bool tern_prim_unknown(bool v)
{
    return v;
}
/* C11 knows no completion: to it, a fence orders only stores of its own thread. */
static inline void tern_prim_completed(void)
{
#ifdef TERN_CPU_TSAN
    tern_cpu_tsan_fence();
#endif
}
static inline void tern_prim_landed(const void *p, size_t bytes)
{
    TERN_PRIM_WEAK_SETTLE(p, bytes)
    (void)p;
    (void)bytes;
}
static inline bool tern_prim_is_shared(const void *p)
{
    return tern_cpu_is_shared(p);
}

#undef TERN_PRIM_WEAK_LD
#undef TERN_PRIM_WEAK_ST
#undef TERN_PRIM_WEAK_SETTLE
#undef TERN_PRIM_WEAK_RELEASE
#undef TERN_PRIM_TSAN_ST
#undef TERN_PRIM_TSAN_LD
#undef TERN_PRIM_LD_RELAXED
#undef TERN_PRIM_ST_RELAXED
#undef TERN_PRIM_LD_ACQUIRE
#undef TERN_PRIM_ST_RELEASE
#undef TERN_PRIM_RMW
#undef TERN_PRIM_RED
#undef TERN_PRIM_CAS
#undef TERN_PRIM_ADD_FLOAT

#endif
