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
TERN_DEV_SLOW uint32_t tern_slot_find(const uint8_t *slots, int pe)
{
    return slots[pe];
}

/* Span of a load/store peer, as this PE maps it. */
TERN_DEV char *tern_peer_span(tern_ctx_t ctx, int pe)
{
    uint64_t slot = __builtin_expect(ctx.slots != NULL, 0) ? tern_slot_find(ctx.slots, pe) : (uint32_t)(pe - ctx.near_first);
    return ctx.window + slot * ctx.stride;
}

/* Where a load/store peer has what is `addr` here. */
TERN_DEV char *tern_peer_addr(tern_ctx_t ctx, const void *addr, int pe)
{
    return tern_peer_span(ctx, pe) + ((const char *)addr - ctx.heap);
}

TERN_DEV void *tern_ptr(tern_ctx_t ctx, const void *addr, int pe)
{
    if ((unsigned)pe >= (unsigned)ctx.n_pes || (uint64_t)((const char *)addr - ctx.heap) >= ctx.stride)
        return NULL;
    if (ctx.slots ? ctx.slots[pe] == TERN_SLOT_NONE : (unsigned)(pe - ctx.near_first) >= (unsigned)ctx.near_count)
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
    if (!usable && (ctx.flags & TERN_CTX_CHECK))
        tern_report_check(ctx.state, TERN_CALL_ctx_stage, TERN_WHY_STAGE, smem, bytes, ctx.my_pe);
    ctx.stage = usable ? smem : NULL;
    ctx.stage_bytes = usable ? (uint32_t)(bytes < TERN_STAGE_MAX ? bytes : TERN_STAGE_MAX) : 0;
    return ctx;
}

#endif
