/* tern/detail/rma.h - bodies of put, get, p, g, iput, iget. */
#ifndef TERN_DETAIL_RMA_H
#define TERN_DETAIL_RMA_H

#include <tern/detail/addr.h>
#include <tern/detail/check.h>
#include <tern/detail/copy.h>
#include <tern/detail/proxy.h>

/* A value travels as the unsigned word of its size. */
TERN_DEV uint64_t tern_word_load(const void *p, unsigned size)
{
    if (size == 1)
        return tern_prim_ld_relaxed_u8((const uint8_t *)p);
    if (size == 2)
        return tern_prim_ld_relaxed_u16((const uint16_t *)p);
    return size == 4 ? tern_prim_ld_relaxed_u32((const uint32_t *)p) : tern_prim_ld_relaxed_u64((const uint64_t *)p);
}

TERN_DEV void tern_word_store(void *p, uint64_t word, unsigned size)
{
    if (size == 1)
        tern_prim_st_relaxed_u8((uint8_t *)p, (uint8_t)word);
    else if (size == 2)
        tern_prim_st_relaxed_u16((uint16_t *)p, (uint16_t)word);
    else if (size == 4)
        tern_prim_st_relaxed_u32((uint32_t *)p, (uint32_t)word);
    else
        tern_prim_st_relaxed_u64((uint64_t *)p, word);
}

/* 1, 2, 4 or 8 bytes, aligned on both sides: the value goes in the entry, and so from any memory. */
TERN_DEV bool tern_is_word(const void *a, const void *b, size_t bytes)
{
    return (bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8) && (((uintptr_t)a | (uintptr_t)b) & (bytes - 1)) == 0;
}

/* A put or get of a scope, through the proxy. */
TERN_DEV_SLOW void tern_via_put_scope(tern_ctx_t ctx, int scope, void *dst, const void *src, size_t bytes, int pe,
                                      unsigned how)
{
    tern_order_scope_entry(scope);
    if (tern_scope_rank(scope) == 0) {
        if (tern_is_word(dst, src, bytes))
            tern_via_word(tern_via_of(ctx), dst, tern_word_load(src, (unsigned)bytes), (unsigned)bytes, pe);
        else
            tern_via_copy(tern_via_of(ctx), how, dst, src, bytes, NULL, 0, pe);
    }
    tern_order_scope_exit(scope);
}

TERN_DEV_SLOW void tern_via_get_scope(tern_ctx_t ctx, int scope, void *dst, const void *src, size_t bytes, int pe,
                                      unsigned how)
{
    tern_order_scope_entry(scope);
    if (tern_scope_rank(scope) == 0) {
        if ((how & TERN_VIA_WAIT) && tern_is_word(dst, src, bytes))
            tern_word_store(dst, tern_via_g(tern_via_of(ctx), src, (unsigned)bytes, pe), (unsigned)bytes);
        else
            tern_via_copy(tern_via_of(ctx), how | TERN_VIA_GET, (void *)src, dst, bytes, NULL, 0, pe);
        tern_prim_landed(dst, bytes);
    }
    tern_order_scope_exit(scope);
}

TERN_DEV void tern_put_scope(tern_ctx_t ctx, int scope, void *dst, const void *src, size_t bytes, int pe, unsigned how)
{
    char *to = (char *)dst + (int64_t)(pe - ctx.my_pe) * (int64_t)ctx.stride;
    if (__builtin_expect(ctx.flags & TERN_CTX_SLOW, 0)) {
        if (!tern_check(ctx, TERN_CALL_put, 1, dst, bytes, pe))
            return;
        if (ctx.flags & TERN_CTX_PROXY && tern_is_far(ctx, pe)) {
            tern_via_put_scope(ctx, scope, dst, src, bytes, pe, how);
            return;
        }
        to = tern_peer_addr(ctx, dst, pe);
    }
    tern_order_scope_entry(scope);
    tern_copy(ctx, scope, to, (const char *)src, bytes);
    tern_order_scope_exit(scope);
}

TERN_DEV void tern_get_scope(tern_ctx_t ctx, int scope, void *dst, const void *src, size_t bytes, int pe, unsigned how)
{
    const char *from = (const char *)src + (int64_t)(pe - ctx.my_pe) * (int64_t)ctx.stride;
    if (__builtin_expect(ctx.flags & TERN_CTX_SLOW, 0)) {
        if (!tern_check(ctx, TERN_CALL_get, 1, src, bytes, pe))
            return;
        if (ctx.flags & TERN_CTX_PROXY && tern_is_far(ctx, pe)) {
            tern_via_get_scope(ctx, scope, dst, src, bytes, pe, how);
            return;
        }
        from = tern_peer_addr(ctx, src, pe);
    }
    tern_order_scope_entry(scope);
    tern_copy(ctx, scope, (char *)dst, from, bytes);
    tern_prim_landed(dst, bytes);
    tern_order_scope_exit(scope);
}

/* By load/store the source is reusable, and the data there, when the copy loop ends: nbi has nothing to leave for
 * later. */
#define TERN_RMA_BODIES(suffix, scope)                                                                                 \
    TERN_DEV void tern_put##suffix(tern_ctx_t ctx, void *dst, const void *src, size_t bytes, int pe)                   \
    {                                                                                                                  \
        tern_put_scope(ctx, scope, dst, src, bytes, pe, TERN_VIA_WAIT);                                                \
    }                                                                                                                  \
    TERN_DEV void tern_put_nbi##suffix(tern_ctx_t ctx, void *dst, const void *src, size_t bytes, int pe)               \
    {                                                                                                                  \
        tern_put_scope(ctx, scope, dst, src, bytes, pe, 0);                                                            \
    }                                                                                                                  \
    TERN_DEV void tern_get##suffix(tern_ctx_t ctx, void *dst, const void *src, size_t bytes, int pe)                   \
    {                                                                                                                  \
        tern_get_scope(ctx, scope, dst, src, bytes, pe, TERN_VIA_WAIT);                                                \
    }                                                                                                                  \
    TERN_DEV void tern_get_nbi##suffix(tern_ctx_t ctx, void *dst, const void *src, size_t bytes, int pe)               \
    {                                                                                                                  \
        tern_get_scope(ctx, scope, dst, src, bytes, pe, 0);                                                            \
    }
TERN_RMA_BODIES(, TERN_SCOPE_THREAD)
TERN_RMA_BODIES(_warp, TERN_SCOPE_WARP)
TERN_RMA_BODIES(_block, TERN_SCOPE_BLOCK)
#undef TERN_RMA_BODIES

/* ---- scalars
 * ------------------------------------------------------------------------------------------------------------ */

/* tern_NAME_word(value), tern_NAME_of(word) for each type of TERN_SCALAR_TYPES. */
#define TERN_WORD_INT(name, T)                                                                                         \
    TERN_DEV uint64_t tern_##name##_word(T value)                                                                      \
    {                                                                                                                  \
        return (uint64_t)value;                                                                                        \
    }                                                                                                                  \
    TERN_DEV T tern_##name##_of(uint64_t word)                                                                         \
    {                                                                                                                  \
        return (T)word;                                                                                                \
    }
TERN_INT_TYPES_SMALL(TERN_WORD_INT)
TERN_INT_TYPES(TERN_WORD_INT)
#undef TERN_WORD_INT

TERN_DEV uint64_t tern_float_word(float value)
{
    return __float_as_uint(value);
}

TERN_DEV float tern_float_of(uint64_t word)
{
    return __uint_as_float((uint32_t)word);
}

TERN_DEV uint64_t tern_double_word(double value)
{
    return (uint64_t)__double_as_longlong(value);
}

TERN_DEV double tern_double_of(uint64_t word)
{
    return __longlong_as_double((long long)word);
}

/* Highest address of a strided run decides whether it is inside the heap; its lowest is where it starts. */
TERN_DEV bool tern_check_strided(tern_ctx_t ctx, uint32_t call, unsigned size, const void *addr, ptrdiff_t stride,
                                 size_t count, int pe)
{
    ptrdiff_t last = count ? (ptrdiff_t)(count - 1) * stride : 0;
    const char *low = (const char *)addr + (last < 0 ? last * (ptrdiff_t)size : 0);
    uint64_t bytes = count ? ((uint64_t)(last < 0 ? -last : last) + 1) * size : 0;
    return tern_check(ctx, call, size, low, bytes, pe);
}

/* Element by element: what is put goes in the entries. */
TERN_DEV_SLOW void tern_via_iput(tern_via_t v, char *dst, const char *src, unsigned size, ptrdiff_t dst_stride,
                                 ptrdiff_t src_stride, size_t count, unsigned rank, unsigned threads, int pe)
{
    for (size_t i = rank; i < count; i += threads)
        tern_via_word(v, dst + (ptrdiff_t)i * dst_stride * (ptrdiff_t)size,
                      tern_word_load(src + (ptrdiff_t)i * src_stride * (ptrdiff_t)size, size), size, pe);
}

/* Gets of all threads of a scope, which is in one channel; then its leader's quiet (tern_via_iget_end). */
TERN_DEV_SLOW void tern_via_iget(tern_via_t v, char *dst, const char *src, unsigned size, ptrdiff_t dst_stride,
                                 ptrdiff_t src_stride, size_t count, unsigned rank, unsigned threads, int pe)
{
    for (size_t i = rank; i < count; i += threads) {
        tern_via_copy(v, TERN_VIA_GET, (void *)(src + (ptrdiff_t)i * src_stride * (ptrdiff_t)size),
                      dst + (ptrdiff_t)i * dst_stride * (ptrdiff_t)size, size, NULL, 0, pe);
        v.flags |= TERN_RELEASED;
    }
}

TERN_DEV void tern_via_iget_end(tern_ctx_t ctx, int scope, int pe)
{
    tern_order_strided_join(scope);
    if (tern_scope_rank(scope) == 0)
        tern_via_quiet(tern_via_of(ctx), (unsigned)pe, true);
}

#define TERN_STRIDED_BODY(name, T, suffix, scope)                                                                      \
    TERN_DEV void tern_##name##_iput##suffix(tern_ctx_t ctx, T *dst, const T *src, ptrdiff_t dst_stride,               \
                                             ptrdiff_t src_stride, size_t count, int pe)                               \
    {                                                                                                                  \
        if (!tern_check_strided(ctx, TERN_CALL_iput, sizeof(T), dst, dst_stride, count, pe))                           \
            return;                                                                                                    \
        tern_order_scope_entry(scope);                                                                                 \
        if (__builtin_expect(ctx.flags & TERN_CTX_PROXY, 0) && tern_is_far(ctx, pe))                                   \
            tern_via_iput(tern_via_of(ctx), (char *)dst, (const char *)src, sizeof(T), dst_stride, src_stride, count,  \
                          tern_scope_rank(scope), tern_scope_threads(scope), pe);                                      \
        else                                                                                                           \
            tern_copy_strided(scope, sizeof(T), tern_peer_addr(ctx, dst, pe), (const char *)src, dst_stride,           \
                              src_stride, count);                                                                      \
        tern_order_scope_exit(scope);                                                                                  \
    }                                                                                                                  \
    TERN_DEV void tern_##name##_iget##suffix(tern_ctx_t ctx, T *dst, const T *src, ptrdiff_t dst_stride,               \
                                             ptrdiff_t src_stride, size_t count, int pe)                               \
    {                                                                                                                  \
        if (!tern_check_strided(ctx, TERN_CALL_iget, sizeof(T), src, src_stride, count, pe))                           \
            return;                                                                                                    \
        tern_order_scope_entry(scope);                                                                                 \
        if (__builtin_expect(ctx.flags & TERN_CTX_PROXY, 0) && tern_is_far(ctx, pe)) {                                 \
            tern_via_iget(tern_via_of(ctx), (char *)dst, (const char *)src, sizeof(T), dst_stride, src_stride, count,  \
                          tern_scope_rank(scope), tern_scope_threads(scope), pe);                                      \
            tern_via_iget_end(ctx, scope, pe);                                                                         \
        } else {                                                                                                       \
            tern_copy_strided(scope, sizeof(T), (char *)dst, tern_peer_addr(ctx, src, pe), dst_stride, src_stride,     \
                              count);                                                                                  \
        }                                                                                                              \
        if (count)                                                                                                     \
            tern_prim_landed(dst_stride < 0 ? dst + dst_stride * (ptrdiff_t)(count - 1) : dst,                         \
                             ((size_t)(dst_stride < 0 ? -dst_stride : dst_stride) * (count - 1) + 1) * sizeof(T));     \
        tern_order_scope_exit(scope);                                                                                  \
    }

#define TERN_SCALAR_BODIES(name, T)                                                                                    \
    TERN_DEV void tern_##name##_p(tern_ctx_t ctx, T *dst, T value, int pe)                                             \
    {                                                                                                                  \
        TERN_ACCESS(p, ctx, TERN_CALL_p, dst, sizeof(T), pe, , tern_is_far(ctx, pe),                                   \
                    tern_via_word(tern_via_of(ctx), dst, tern_##name##_word(value), sizeof(T), pe))                    \
        tern_word_store(p, tern_##name##_word(value), sizeof(T));                                                      \
    }                                                                                                                  \
    TERN_DEV T tern_##name##_g(tern_ctx_t ctx, const T *src, int pe)                                                   \
    {                                                                                                                  \
        TERN_ACCESS(p, ctx, TERN_CALL_g, src, sizeof(T), pe, 0, tern_is_far(ctx, pe),                                  \
                    tern_##name##_of(tern_via_g(tern_via_of(ctx), src, sizeof(T), pe)))                                \
        return tern_##name##_of(tern_word_load(p, sizeof(T)));                                                         \
    }                                                                                                                  \
    TERN_STRIDED_BODY(name, T, , TERN_SCOPE_THREAD)                                                                    \
    TERN_STRIDED_BODY(name, T, _warp, TERN_SCOPE_WARP)                                                                 \
    TERN_STRIDED_BODY(name, T, _block, TERN_SCOPE_BLOCK)
TERN_SCALAR_TYPES(TERN_SCALAR_BODIES)
#undef TERN_SCALAR_BODIES
#undef TERN_STRIDED_BODY

#endif
