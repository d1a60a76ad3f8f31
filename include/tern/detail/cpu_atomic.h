/*
 * tern/detail/cpu_atomic.h - CUDA's atomics and fences for the CPU device: relaxed, as CUDA's are. They go through the
 * primitives of prim.h where the memory model matters (weak mode, TSAN).
 */
#ifndef TERN_DETAIL_CPU_ATOMIC_H
#define TERN_DETAIL_CPU_ATOMIC_H

#include <string.h>
#include <tern/detail/prim.h>

/* Word that holds a T, and T of a word. */
template <size_t N> struct tern_cpu_word;
template <> struct tern_cpu_word<4> {
    typedef uint32_t type;
};
template <> struct tern_cpu_word<8> {
    typedef uint64_t type;
};

static inline uint32_t tern_cpu_rmw_cas(uint32_t *p, uint32_t compare, uint32_t value)
{
    return tern_prim_rmw_cas_u32(p, compare, value);
}
static inline uint64_t tern_cpu_rmw_cas(uint64_t *p, uint64_t compare, uint64_t value)
{
    return tern_prim_rmw_cas_u64(p, compare, value);
}

/* Any update by compare-and-swap: F maps the old value to the new one. */
template <class T, class F> static inline T tern_cpu_update(T *p, F f)
{
    typedef typename tern_cpu_word<sizeof(T)>::type word;
    tern_cpu_turn();
    word *w = (word *)p;
    word old = tern_cpu_rmw_cas(w, 0, 0);
    for (;;) {
        T value, next;
        memcpy(&value, &old, sizeof value);
        next = f(value);
        word bits;
        memcpy(&bits, &next, sizeof bits);
        word seen = tern_cpu_rmw_cas(w, old, bits);
        if (seen == old) {
            if (bits != old)
                tern_cpu_note_store(p);
            return value;
        }
        old = seen;
    }
}

#define TERN_CPU_ATOMIC(name, type, expression)                                                                        \
    static inline type name(type *p, type value)                                                                       \
    {                                                                                                                  \
        return tern_cpu_update(p, [value](type old) -> type { return (expression); });                                 \
    }
#define TERN_CPU_ATOMIC_INT(X, name, expression)                                                                       \
    X(name, int, expression) X(name, unsigned, expression) X(name, unsigned long long, expression)                     \
        X(name, unsigned long, expression)
TERN_CPU_ATOMIC_INT(TERN_CPU_ATOMIC, atomicAdd, old + value)
TERN_CPU_ATOMIC(atomicAdd, float, old + value)
TERN_CPU_ATOMIC(atomicAdd, double, old + value)
TERN_CPU_ATOMIC(atomicSub, int, old - value)
TERN_CPU_ATOMIC(atomicSub, unsigned, old - value)
TERN_CPU_ATOMIC_INT(TERN_CPU_ATOMIC, atomicAnd, old & value)
TERN_CPU_ATOMIC_INT(TERN_CPU_ATOMIC, atomicOr, old | value)
TERN_CPU_ATOMIC_INT(TERN_CPU_ATOMIC, atomicXor, old ^ value)
TERN_CPU_ATOMIC_INT(TERN_CPU_ATOMIC, atomicExch, ((void)old, value))
TERN_CPU_ATOMIC(atomicExch, float, ((void)old, value))
TERN_CPU_ATOMIC_INT(TERN_CPU_ATOMIC, atomicMin, old < value ? old : value)
TERN_CPU_ATOMIC_INT(TERN_CPU_ATOMIC, atomicMax, old > value ? old : value)
TERN_CPU_ATOMIC(atomicMin, long long, old < value ? old : value)
TERN_CPU_ATOMIC(atomicMax, long long, old > value ? old : value)
TERN_CPU_ATOMIC(atomicInc, unsigned, old >= value ? 0 : old + 1)
TERN_CPU_ATOMIC(atomicDec, unsigned, old == 0 || old > value ? value : old - 1)
#undef TERN_CPU_ATOMIC_INT
#undef TERN_CPU_ATOMIC

#define TERN_CPU_CAS(T)                                                                                                \
    static inline T atomicCAS(T *p, T compare, T value)                                                                \
    {                                                                                                                  \
        typedef tern_cpu_word<sizeof(T)>::type word;                                                                   \
        tern_cpu_turn();                                                                                               \
        word seen = tern_cpu_rmw_cas((word *)p, (word)compare, (word)value);                                           \
        if (seen == (word)compare)                                                                                     \
            tern_cpu_note_store(p);                                                                                       \
        return (T)seen;                                                                                                \
    }
TERN_CPU_CAS(int)
TERN_CPU_CAS(unsigned)
TERN_CPU_CAS(unsigned long)
TERN_CPU_CAS(unsigned long long)
#undef TERN_CPU_CAS

/* _block and _system forms: one memory system serves all scopes here. */
#define atomicAdd_block atomicAdd
#define atomicAdd_system atomicAdd
#define atomicCAS_block atomicCAS
#define atomicCAS_system atomicCAS
#define atomicExch_block atomicExch
#define atomicExch_system atomicExch
#define atomicOr_system atomicOr
#define atomicAnd_system atomicAnd
#define atomicXor_system atomicXor
#define atomicMin_system atomicMin
#define atomicMax_system atomicMax

/* CUDA's fences are sequentially consistent. */
static inline void tern_cpu_fence_sc(void)
{
#ifndef TERN_CPU_TSAN
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}
static inline void __threadfence_block(void)
{
    tern_prim_fence_gpu();
    tern_cpu_fence_sc();
}
static inline void __threadfence(void)
{
    tern_prim_fence_gpu();
    tern_cpu_fence_sc();
}
static inline void __threadfence_system(void)
{
    tern_prim_fence_sys();
    tern_cpu_fence_sc();
}

#endif
