/* tern/detail/addr.h - context queries, derived contexts, and the address of symmetric memory at a peer. */
#ifndef TERN_DETAIL_ADDR_H
#define TERN_DETAIL_ADDR_H

#include <tern/detail/check.h>
#include <tern/detail/prim.h>
#include <tern/detail/state.h>

TERN_DEV_HOST int tern_my_pe(tern_ctx_t ctx)
{
    return ctx.my_pe;
}

TERN_DEV_HOST int tern_n_pes(tern_ctx_t ctx)
{
    return ctx.n_pes;
}

/* Out of line: as a predicated load it would sit in the memory pipe of every call, 100 ns behind an acquire (H200). */
TERN_DEV_SLOW char *tern_slot_addr(const struct tern_state_dev *state, const void *addr, int pe)
{
    return state->window + state->slots[pe] * (uint64_t)state->stride + ((const char *)addr - state->heap);
}

/* Where a load/store peer has what is `addr` here: the spans of one PE and the next are a stride apart, the own included. */
TERN_DEV char *tern_peer_addr(tern_ctx_t ctx, const void *addr, int pe)
{
    if (__builtin_expect(ctx.flags & TERN_CTX_SLOTS, 0))
        return tern_slot_addr(ctx.state, addr, pe);
    return (char *)addr + (int64_t)(pe - ctx.my_pe) * (int64_t)ctx.stride;
}

TERN_DEV_SLOW char *tern_access_slow(const struct tern_state_dev *state, uint32_t flags, uint32_t generation,
                                     uint32_t call, const void *addr, uint32_t bytes, int pe, char *regular)
{
    if ((flags & TERN_CTX_CHECK) && !tern_check_slow(state, generation, call, bytes, addr, bytes, pe))
        return NULL;
    return flags & TERN_CTX_SLOTS ? tern_slot_addr(state, addr, pe) : regular;
}

/* Flags of which none is set where a job has only load/store peers, regularly placed, and no checks: the fast path. */
#define TERN_CTX_SLOW (TERN_CTX_CHECK | TERN_CTX_SLOTS | TERN_CTX_PROXY)

/*
 * Declares `p`: where PE `pe` has the aligned word of `bytes` bytes that is `addr` here; a failed check is reported and
 * returns `failed` from the caller (hence a macro: a merged result would cost its test on the fast path). Where the condition
 * `proxied` holds, `via` is returned instead: what goes through the proxy.
 */
#define TERN_ACCESS(p, ctx, call, addr, bytes, pe, failed, proxied, via)                                               \
    char *p = (char *)(addr) + (int64_t)((pe) - (ctx).my_pe) * (int64_t)(ctx).stride;                                  \
    if (__builtin_expect((ctx).flags & TERN_CTX_SLOW, 0)) {                                                            \
        if ((ctx).flags & (TERN_CTX_CHECK | TERN_CTX_SLOTS)) {                                                         \
            p = tern_access_slow((ctx).state, (ctx).flags, (ctx).generation, call, addr, bytes, pe, p);                \
            if (!p)                                                                                                    \
                return failed;                                                                                         \
        }                                                                                                              \
        if ((ctx).flags & TERN_CTX_PROXY && (proxied))                                                                 \
            return via;                                                                                                \
    }

/* Out of reach of loads and stores. */
TERN_DEV bool tern_is_far(tern_ctx_t ctx, int pe)
{
    if (ctx.flags & TERN_CTX_SLOTS)
        return ctx.state->slots[pe] == TERN_SLOT_NONE;
    return (unsigned)(pe - ctx.near_first) >= (unsigned)ctx.near_count;
}

TERN_DEV void *tern_ptr(tern_ctx_t ctx, const void *addr, int pe)
{
    if ((unsigned)pe >= (unsigned)ctx.n_pes || (uint64_t)((const char *)addr - ctx.heap) >= ctx.stride)
        return NULL;
    if (tern_is_far(ctx, pe))
        return NULL;
    return tern_peer_addr(ctx, addr, pe);
}

TERN_DEV_HOST tern_ctx_t tern_ctx_flags(tern_ctx_t ctx, uint32_t flags)
{
    ctx.flags = (ctx.flags & ~TERN_CTX_USER_FLAGS) | (flags & TERN_CTX_USER_FLAGS);
    return ctx;
}

TERN_DEV_HOST tern_ctx_t tern_ctx_timeout(tern_ctx_t ctx, uint32_t ms)
{
    ctx.timeout_ms = ms;
    return ctx;
}

TERN_DEV tern_ctx_t tern_ctx_stage(tern_ctx_t ctx, void *smem, size_t bytes)
{
    bool usable = tern_prim_is_shared(smem) && (uintptr_t)smem % TERN_STAGE_ALIGN == 0 && bytes >= TERN_STAGE_MIN;
    if (!usable && smem && (ctx.flags & TERN_CTX_CHECK))
        tern_report_check(ctx.state, TERN_CALL_ctx_stage, TERN_WHY_STAGE, smem, bytes, ctx.my_pe, 0);
    ctx.stage = usable ? smem : NULL;
    ctx.stage_bytes = usable ? (uint32_t)(bytes < TERN_STAGE_MAX ? bytes : TERN_STAGE_MAX) : 0;
    return ctx;
}

#endif
