/* tern/detail/signal.h - bodies of put_signal, signal_op, signal_fetch, and of fence and quiet. */
#ifndef TERN_DETAIL_SIGNAL_H
#define TERN_DETAIL_SIGNAL_H

#include <tern/detail/rma.h>

/* ADD goes to the word's atomics home: the GPU memory that holds it, or the proxy of its owner. */
TERN_DEV bool tern_add_proxied(tern_ctx_t ctx, int op, int pe)
{
    return tern_is_far(ctx, pe) || (op == TERN_SIGNAL_ADD && !(ctx.flags & TERN_CTX_AMO_DIRECT));
}

/* SET and ADD to a far PE; ADD to a near one whose words its owner's proxy updates: complete when it returns. */
TERN_DEV void tern_via_signal_op(tern_ctx_t ctx, uint64_t *sig, uint64_t value, int op, int pe)
{
    if (tern_is_far(ctx, pe))
        tern_via_signal(tern_via_of(ctx), sig, value, op == TERN_SIGNAL_ADD, pe);
    else
        tern_via_amo(tern_via_of(ctx), sig, TERN_AMO_add, 8, value, 0, false, true, pe);
}

/* put_signal where something of it goes through the proxy: all, or the ADD behind a copy by load/store. */
TERN_DEV_SLOW void tern_via_put_signal_scope(tern_ctx_t ctx, int scope, void *dst, const void *src, size_t bytes,
                                             uint64_t *sig, uint64_t value, int op, int pe, unsigned how)
{
    bool far = tern_is_far(ctx, pe);
    tern_order_scope_entry(scope);
    if (!far)
        tern_copy(ctx, scope, tern_peer_addr(ctx, dst, pe), (const char *)src, bytes);
    tern_order_put_signal_join(scope);
    if (tern_scope_rank(scope) == 0) {
        if (far)
            tern_via_copy(tern_via_of(ctx),
                          how | TERN_VIA_SIGNAL | (op == TERN_SIGNAL_ADD ? (unsigned)TERN_VIA_ADD : 0u), dst, src,
                          bytes, sig, value, pe);
        else
            tern_via_signal_op(ctx, sig, value, op, pe);
    }
    tern_order_scope_exit(scope);
}

TERN_DEV void tern_put_signal_scope(tern_ctx_t ctx, int scope, void *dst, const void *src, size_t bytes, uint64_t *sig,
                                    uint64_t value, int op, int pe, unsigned how)
{
    int64_t away = (int64_t)(pe - ctx.my_pe) * (int64_t)ctx.stride;
    char *word = (char *)sig + away, *to = (char *)dst + away;
    if (__builtin_expect(ctx.flags & TERN_CTX_SLOW, 0)) {
        if (!tern_check(ctx, TERN_CALL_put_signal, 8, sig, 8, pe) ||
            !tern_check(ctx, TERN_CALL_put_signal, 1, dst, bytes, pe) ||
            !tern_check_op(ctx, TERN_CALL_put_signal, op, TERN_SIGNAL_ADD, sig))
            return;
        if (ctx.flags & TERN_CTX_PROXY && tern_add_proxied(ctx, op, pe)) {
            tern_via_put_signal_scope(ctx, scope, dst, src, bytes, sig, value, op, pe, how);
            return;
        }
        word = tern_peer_addr(ctx, sig, pe);
        to = tern_peer_addr(ctx, dst, pe);
    }
    tern_order_scope_entry(scope);
    tern_copy(ctx, scope, to, (const char *)src, bytes);
    tern_order_put_signal_join(scope);
    if (tern_scope_rank(scope) == 0) {
        if (op == TERN_SIGNAL_ADD) {
            tern_order_put_signal_fence();
            tern_order_signal_add((uint64_t *)word, value);
        } else {
            tern_order_put_signal_release((uint64_t *)word, value);
        }
    }
    tern_order_scope_exit(scope);
}

#define TERN_PUT_SIGNAL_BODIES(suffix, scope)                                                                          \
    TERN_DEV void tern_put_signal##suffix(tern_ctx_t ctx, void *dst, const void *src, size_t bytes, uint64_t *sig,     \
                                          uint64_t val, int op, int pe)                                                \
    {                                                                                                                  \
        tern_put_signal_scope(ctx, scope, dst, src, bytes, sig, val, op, pe, TERN_VIA_WAIT);                           \
    }                                                                                                                  \
    TERN_DEV void tern_put_signal_nbi##suffix(tern_ctx_t ctx, void *dst, const void *src, size_t bytes, uint64_t *sig, \
                                              uint64_t val, int op, int pe)                                            \
    {                                                                                                                  \
        tern_put_signal_scope(ctx, scope, dst, src, bytes, sig, val, op, pe, 0);                                       \
    }
TERN_PUT_SIGNAL_BODIES(, TERN_SCOPE_THREAD)
TERN_PUT_SIGNAL_BODIES(_warp, TERN_SCOPE_WARP)
TERN_PUT_SIGNAL_BODIES(_block, TERN_SCOPE_BLOCK)
#undef TERN_PUT_SIGNAL_BODIES

TERN_DEV void tern_signal_near(char *word, uint64_t val, int op)
{
    if (op == TERN_SIGNAL_ADD)
        tern_order_signal_add((uint64_t *)word, val);
    else
        tern_order_signal_set((uint64_t *)word, val);
}

/* All but a load/store peer in its regular place. Whole and out of line: what a fast call jumps over, it has to fetch.
 */
TERN_DEV_SLOW void tern_signal_op_slow(tern_ctx_t ctx, uint64_t *sig, uint64_t val, int op, int pe)
{
    if (!tern_check(ctx, TERN_CALL_signal_op, 8, sig, 8, pe) ||
        !tern_check_op(ctx, TERN_CALL_signal_op, op, TERN_SIGNAL_ADD, sig))
        return;
    if (ctx.flags & TERN_CTX_PROXY && tern_add_proxied(ctx, op, pe))
        tern_via_signal_op(ctx, sig, val, op, pe);
    else
        tern_signal_near(tern_peer_addr(ctx, sig, pe), val, op);
}

TERN_DEV void tern_signal_op(tern_ctx_t ctx, uint64_t *sig, uint64_t val, int op, int pe)
{
    if (__builtin_expect(ctx.flags & TERN_CTX_SLOW, 0))
        tern_signal_op_slow(ctx, sig, val, op, pe);
    else
        tern_signal_near((char *)sig + (int64_t)(pe - ctx.my_pe) * (int64_t)ctx.stride, val, op);
}

TERN_DEV uint64_t tern_signal_fetch(tern_ctx_t ctx, const uint64_t *sig)
{
    if (!tern_check(ctx, TERN_CALL_signal_fetch, 8, sig, 8, ctx.my_pe))
        return 0;
    return tern_order_signal_fetch_acquire(sig);
}

/* Operations of this context may go through the proxy; with TERN_CHECK=1 it must be of the running runtime. */
TERN_DEV_SLOW void tern_fence_slow(tern_ctx_t ctx, bool block)
{
    if (tern_check(ctx, TERN_CALL_fence, 1, NULL, 0, ctx.my_pe))
        tern_via_fence(tern_via_of(ctx), block);
}

TERN_DEV_SLOW tern_status_t tern_quiet_slow(tern_ctx_t ctx, unsigned pe, bool block)
{
    if (!tern_check(ctx, TERN_CALL_quiet, 1, NULL, 0, ctx.my_pe) || (pe != TERN_PE_ALL && !tern_is_far(ctx, (int)pe)))
        return TERN_OK;
    return tern_via_quiet(tern_via_of(ctx), pe, block);
}

TERN_DEV void tern_fence(tern_ctx_t ctx)
{
    tern_order_fence_fence();
    if (__builtin_expect(ctx.flags & TERN_CTX_PROXY, 0))
        tern_fence_slow(ctx, false);
}

/* Each thread fences, behind a barrier: a fence by one, with another barrier, would not make the others' stores
 * releases. */
TERN_DEV void tern_fence_block(tern_ctx_t ctx)
{
    tern_order_fence_entry(TERN_SCOPE_BLOCK);
    tern_order_fence_fence();
    if (__builtin_expect(ctx.flags & TERN_CTX_PROXY, 0)) {
        if (tern_scope_rank(TERN_SCOPE_BLOCK) == 0)
            tern_fence_slow(ctx, true);
        tern_order_fence_exit(TERN_SCOPE_BLOCK);
    }
}

TERN_DEV tern_status_t tern_quiet(tern_ctx_t ctx)
{
    tern_order_quiet_fence();
    return __builtin_expect(ctx.flags & TERN_CTX_PROXY, 0) ? tern_quiet_slow(ctx, TERN_PE_ALL, false) : TERN_OK;
}

/* One fence completes, at the targets, what the block stored before the entry barrier: fences of all would take 1 us
 * more. */
TERN_DEV tern_status_t tern_quiet_block_of(tern_ctx_t ctx, unsigned pe)
{
    tern_status_t status = TERN_OK;
    tern_order_quiet_entry(TERN_SCOPE_BLOCK);
    if (TERN_PRIM_FENCE_EACH || tern_scope_rank(TERN_SCOPE_BLOCK) == 0)
        tern_order_quiet_fence();
    if (__builtin_expect(ctx.flags & TERN_CTX_PROXY, 0) && tern_scope_rank(TERN_SCOPE_BLOCK) == 0)
        status = tern_quiet_slow(ctx, pe, true);
    status = tern_order_quiet_exit(TERN_SCOPE_BLOCK, status);
    tern_prim_completed();
    return status;
}

TERN_DEV tern_status_t tern_quiet_block(tern_ctx_t ctx)
{
    return tern_quiet_block_of(ctx, TERN_PE_ALL);
}

TERN_DEV tern_status_t tern_quiet_pe(tern_ctx_t ctx, int pe)
{
    if (!tern_check(ctx, TERN_CALL_quiet, 1, NULL, 0, pe))
        return TERN_ERR_INVALID;
    tern_order_quiet_fence();
    return __builtin_expect(ctx.flags & TERN_CTX_PROXY, 0) ? tern_quiet_slow(ctx, (unsigned)pe, false) : TERN_OK;
}

TERN_DEV tern_status_t tern_quiet_pe_block(tern_ctx_t ctx, int pe)
{
    if (!tern_check(ctx, TERN_CALL_quiet, 1, NULL, 0, pe))
        return TERN_ERR_INVALID;
    return tern_quiet_block_of(ctx, (unsigned)pe);
}

TERN_DEV void tern_fence_async(void)
{
    tern_order_async_fence();
}

#endif
