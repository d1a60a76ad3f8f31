/*
 * tern/detail/atomic.h - bodies of the atomics. The words' home is the GPU memory that holds them: every PE updates them by
 * relaxed read-modify-write operations at system scope, the owner too.
 */
#ifndef TERN_DETAIL_ATOMIC_H
#define TERN_DETAIL_ATOMIC_H

#include <tern/detail/rma.h>

/* One operator on 4 and 8 byte words; the size is a constant. */
#define TERN_AMO_WORD(op)                                                                                              \
    TERN_DEV uint64_t tern_amo_fetch_##op(void *p, uint64_t v, unsigned size)                                          \
    {                                                                                                                  \
        return size == 4 ? tern_prim_rmw_##op##_u32((uint32_t *)p, (uint32_t)v)                                        \
                         : tern_prim_rmw_##op##_u64((uint64_t *)p, v);                                                 \
    }
#define TERN_AMO_WORD_RED(op)                                                                                          \
    TERN_AMO_WORD(op)                                                                                                  \
    TERN_DEV void tern_amo_##op(void *p, uint64_t v, unsigned size)                                                    \
    {                                                                                                                  \
        if (size == 4)                                                                                                 \
            tern_prim_red_##op##_u32((uint32_t *)p, (uint32_t)v);                                                      \
        else                                                                                                           \
            tern_prim_red_##op##_u64((uint64_t *)p, v);                                                                \
    }
TERN_AMO_WORD_RED(add)
TERN_AMO_WORD_RED(and)
TERN_AMO_WORD_RED(or)
TERN_AMO_WORD_RED(xor)
TERN_AMO_WORD(swap)
#undef TERN_AMO_WORD
#undef TERN_AMO_WORD_RED

TERN_DEV uint64_t tern_amo_cas(void *p, uint64_t compare, uint64_t value, unsigned size)
{
    return size == 4 ? tern_prim_rmw_cas_u32((uint32_t *)p, (uint32_t)compare, (uint32_t)value)
                     : tern_prim_rmw_cas_u64((uint64_t *)p, compare, value);
}

/* Check, then the word's address; NULL: the call has been reported. */
TERN_DEV void *tern_amo_addr(tern_ctx_t ctx, const void *addr, unsigned size, int pe)
{
    TERN_ACCESS(p, ctx, TERN_CALL_atomic, addr, size, pe, NULL)
    return p;
}

/* All types: fetch, set, swap. A set is a store: every atomic comes before or after it, none sees half of it. */
#define TERN_ATOMIC_BODIES(name, T)                                                                                    \
    TERN_DEV T tern_##name##_atomic_fetch(tern_ctx_t ctx, const T *src, int pe)                                        \
    {                                                                                                                  \
        const void *p = tern_amo_addr(ctx, src, sizeof(T), pe);                                                        \
        return p ? tern_##name##_of(tern_word_load(p, sizeof(T))) : (T)0;                                              \
    }                                                                                                                  \
    TERN_DEV T tern_##name##_atomic_swap(tern_ctx_t ctx, T *dst, T value, int pe)                                      \
    {                                                                                                                  \
        void *p = tern_amo_addr(ctx, dst, sizeof(T), pe);                                                              \
        return p ? tern_##name##_of(tern_amo_fetch_swap(p, tern_##name##_word(value), sizeof(T))) : (T)0;              \
    }                                                                                                                  \
    TERN_DEV void tern_##name##_atomic_set(tern_ctx_t ctx, T *dst, T value, int pe)                                    \
    {                                                                                                                  \
        void *p = tern_amo_addr(ctx, dst, sizeof(T), pe);                                                              \
        if (p)                                                                                                         \
            tern_word_store(p, tern_##name##_word(value), sizeof(T));                                                  \
    }
TERN_INT_TYPES(TERN_ATOMIC_BODIES)
TERN_FLOAT_TYPES(TERN_ATOMIC_BODIES)
#undef TERN_ATOMIC_BODIES

#define TERN_ATOMIC_OP(name, T, op)                                                                                    \
    TERN_DEV T tern_##name##_atomic_fetch_##op(tern_ctx_t ctx, T *dst, T value, int pe)                                \
    {                                                                                                                  \
        void *p = tern_amo_addr(ctx, dst, sizeof(T), pe);                                                              \
        return p ? tern_##name##_of(tern_amo_fetch_##op(p, tern_##name##_word(value), sizeof(T))) : (T)0;              \
    }                                                                                                                  \
    TERN_DEV void tern_##name##_atomic_##op(tern_ctx_t ctx, T *dst, T value, int pe)                                   \
    {                                                                                                                  \
        void *p = tern_amo_addr(ctx, dst, sizeof(T), pe);                                                              \
        if (p)                                                                                                         \
            tern_amo_##op(p, tern_##name##_word(value), sizeof(T));                                                    \
    }
#define TERN_ATOMIC_INT_BODIES(name, T)                                                                                \
    TERN_DEV T tern_##name##_atomic_compare_swap(tern_ctx_t ctx, T *dst, T compare, T value, int pe)                   \
    {                                                                                                                  \
        void *p = tern_amo_addr(ctx, dst, sizeof(T), pe);                                                              \
        return p ? (T)tern_amo_cas(p, (uint64_t)compare, (uint64_t)value, sizeof(T)) : (T)0;                           \
    }                                                                                                                  \
    TERN_ATOMIC_OP(name, T, add)                                                                                       \
    TERN_ATOMIC_OP(name, T, and)                                                                                       \
    TERN_ATOMIC_OP(name, T, or)                                                                                        \
    TERN_ATOMIC_OP(name, T, xor)                                                                                       \
    TERN_DEV T tern_##name##_atomic_fetch_inc(tern_ctx_t ctx, T *dst, int pe)                                          \
    {                                                                                                                  \
        return tern_##name##_atomic_fetch_add(ctx, dst, 1, pe);                                                        \
    }                                                                                                                  \
    TERN_DEV void tern_##name##_atomic_inc(tern_ctx_t ctx, T *dst, int pe)                                             \
    {                                                                                                                  \
        tern_##name##_atomic_add(ctx, dst, 1, pe);                                                                     \
    }
TERN_INT_TYPES(TERN_ATOMIC_INT_BODIES)
#undef TERN_ATOMIC_INT_BODIES
#undef TERN_ATOMIC_OP

#define TERN_ATOMIC_FLOAT_BODIES(name, T, bits)                                                                        \
    TERN_DEV T tern_##name##_atomic_fetch_add(tern_ctx_t ctx, T *dst, T value, int pe)                                 \
    {                                                                                                                  \
        void *p = tern_amo_addr(ctx, dst, sizeof(T), pe);                                                              \
        return p ? tern_prim_rmw_add_f##bits((T *)p, value) : (T)0;                                                    \
    }                                                                                                                  \
    TERN_DEV void tern_##name##_atomic_add(tern_ctx_t ctx, T *dst, T value, int pe)                                    \
    {                                                                                                                  \
        (void)tern_##name##_atomic_fetch_add(ctx, dst, value, pe);                                                     \
    }
TERN_ATOMIC_FLOAT_BODIES(float, float, 32)
TERN_ATOMIC_FLOAT_BODIES(double, double, 64)
#undef TERN_ATOMIC_FLOAT_BODIES

#endif
