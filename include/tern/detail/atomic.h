/*
 * tern/detail/atomic.h - bodies of the atomics. The words' home is the GPU memory that holds them: every PE updates them by
 * relaxed read-modify-write operations at system scope, the owner too. Where not every PE can, it is the owner's proxy, to
 * which all go, the owner too.
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

/* At home through the proxy? */
TERN_DEV bool tern_amo_proxied(tern_ctx_t ctx, int pe)
{
    return tern_is_far(ctx, pe) || !(ctx.flags & TERN_CTX_AMO_DIRECT);
}

TERN_DEV uint64_t tern_via_atomic(tern_ctx_t ctx, const void *addr, unsigned amo, unsigned size, uint64_t operand,
                                  uint64_t compare, bool fetch, int pe)
{
    return tern_via_amo(tern_via_of(ctx), (void *)addr, amo, size, operand, compare, fetch, !tern_is_far(ctx, pe), pe);
}

/* Declares `p`, the word's address; or returns what the call does at another home. */
#define TERN_AMO_ACCESS(addr, T, failed, convert, amo, operand, compare, fetch)                                        \
    TERN_ACCESS(p, ctx, TERN_CALL_atomic, addr, sizeof(T), pe, failed, tern_amo_proxied(ctx, pe),                      \
                convert(tern_via_atomic(ctx, addr, TERN_AMO_##amo, sizeof(T), operand, compare, fetch, pe)))

/* All types: fetch, set, swap. A set is a store: every atomic comes before or after it, none sees half of it. */
#define TERN_ATOMIC_BODIES(name, T)                                                                                    \
    TERN_DEV T tern_##name##_atomic_fetch(tern_ctx_t ctx, const T *src, int pe)                                        \
    {                                                                                                                  \
        TERN_AMO_ACCESS(src, T, (T)0, tern_##name##_of, fetch, 0, 0, true)                                             \
        return tern_##name##_of(tern_word_load(p, sizeof(T)));                                                         \
    }                                                                                                                  \
    TERN_DEV T tern_##name##_atomic_swap(tern_ctx_t ctx, T *dst, T value, int pe)                                      \
    {                                                                                                                  \
        TERN_AMO_ACCESS(dst, T, (T)0, tern_##name##_of, swap, tern_##name##_word(value), 0, true)                      \
        return tern_##name##_of(tern_amo_fetch_swap(p, tern_##name##_word(value), sizeof(T)));                         \
    }                                                                                                                  \
    TERN_DEV void tern_##name##_atomic_set(tern_ctx_t ctx, T *dst, T value, int pe)                                    \
    {                                                                                                                  \
        TERN_AMO_ACCESS(dst, T, , (void), set, tern_##name##_word(value), 0, false)                                    \
        tern_word_store(p, tern_##name##_word(value), sizeof(T));                                                      \
    }
TERN_INT_TYPES(TERN_ATOMIC_BODIES)
TERN_FLOAT_TYPES(TERN_ATOMIC_BODIES)
#undef TERN_ATOMIC_BODIES

#define TERN_ATOMIC_OP(name, T, op)                                                                                    \
    TERN_DEV T tern_##name##_atomic_fetch_##op(tern_ctx_t ctx, T *dst, T value, int pe)                                \
    {                                                                                                                  \
        TERN_AMO_ACCESS(dst, T, (T)0, tern_##name##_of, op, tern_##name##_word(value), 0, true)                        \
        return tern_##name##_of(tern_amo_fetch_##op(p, tern_##name##_word(value), sizeof(T)));                         \
    }                                                                                                                  \
    TERN_DEV void tern_##name##_atomic_##op(tern_ctx_t ctx, T *dst, T value, int pe)                                   \
    {                                                                                                                  \
        TERN_AMO_ACCESS(dst, T, , (void), op, tern_##name##_word(value), 0, false)                                     \
        tern_amo_##op(p, tern_##name##_word(value), sizeof(T));                                                        \
    }
#define TERN_ATOMIC_INT_BODIES(name, T)                                                                                \
    TERN_DEV T tern_##name##_atomic_compare_swap(tern_ctx_t ctx, T *dst, T compare, T value, int pe)                   \
    {                                                                                                                  \
        TERN_AMO_ACCESS(dst, T, (T)0, (T), cas, (uint64_t)value, (uint64_t)compare, true)                              \
        return (T)tern_amo_cas(p, (uint64_t)compare, (uint64_t)value, sizeof(T));                                      \
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
        TERN_AMO_ACCESS(dst, T, (T)0, tern_##name##_of, add_float, tern_##name##_word(value), 0, true)                 \
        return tern_prim_rmw_add_f##bits((T *)p, value);                                                               \
    }                                                                                                                  \
    TERN_DEV void tern_##name##_atomic_add(tern_ctx_t ctx, T *dst, T value, int pe)                                    \
    {                                                                                                                  \
        TERN_AMO_ACCESS(dst, T, , (void), add_float, tern_##name##_word(value), 0, false)                              \
        (void)tern_prim_rmw_add_f##bits((T *)p, value);                                                                \
    }
TERN_ATOMIC_FLOAT_BODIES(float, float, 32)
TERN_ATOMIC_FLOAT_BODIES(double, double, 64)
#undef TERN_ATOMIC_FLOAT_BODIES

#endif
