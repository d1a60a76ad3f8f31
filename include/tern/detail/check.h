/*
 * tern/detail/check.h - argument checks of device calls (TERN_CHECK=1), and the report that a failed check or a late wait
 * of the library leaves in pinned host memory. The control thread reads it and aborts the job with its sentence. All of it
 * is out of line: a call without the flag pays one test of a constant.
 */
#ifndef TERN_DETAIL_CHECK_H
#define TERN_DETAIL_CHECK_H

#include <tern/detail/order.h>
#include <tern/detail/state.h>

/* First come, first reported: one report a runtime. `kind` is stored last, with release. */
TERN_DEV_SLOW void tern_report_file(const struct tern_state_dev *state, uint32_t kind, uint32_t call, uint32_t why,
                                    uint64_t address, uint64_t bytes, int pe, uint64_t value)
{
    struct tern_report *r = &state->host->report;
    if (tern_order_report_claim(&r->claim, 0, 1) != 0)
        return;
    tern_prim_st_relaxed_u16(&r->call, (uint16_t)call);
    tern_prim_st_relaxed_u16(&r->why, (uint16_t)why);
    tern_prim_st_relaxed_u32((uint32_t *)&r->pe, (uint32_t)pe);
    tern_prim_st_relaxed_u64(&r->address, address);
    tern_prim_st_relaxed_u64(&r->bytes, bytes);
    tern_prim_st_relaxed_u32(&r->block, blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z));
    tern_prim_st_relaxed_u32(&r->thread, tern_block_rank());
    tern_prim_st_relaxed_u64(&r->value, value);
    tern_order_report_publish(&r->kind, kind);
}

TERN_DEV void tern_report_check(const struct tern_state_dev *state, uint32_t call, uint32_t why, const void *addr,
                                uint64_t bytes, int pe, uint64_t value)
{
    tern_report_file(state, TERN_REPORT_CHECK, call, why, (uint64_t)(uintptr_t)addr, bytes, pe, value);
}

/* What is wrong with an access of `bytes` bytes at `addr` of PE `pe`, aligned to `align`. */
TERN_DEV uint32_t tern_check_why(const struct tern_state_dev *state, uint32_t generation, uint32_t align,
                                 const void *addr, uint64_t bytes, int pe)
{
    uint64_t offset = (uint64_t)((const char *)addr - state->heap) - state->user_offset;
    uint64_t user_bytes = tern_prim_ld_relaxed_u64(&state->user_bytes);
    if (tern_prim_ld_relaxed_u32(&state->generation) != generation)
        return TERN_WHY_STALE;
    if ((unsigned)pe >= state->n_pes)
        return TERN_WHY_PE;
    if (bytes && (offset >= user_bytes || bytes > user_bytes - offset))
        return TERN_WHY_ADDRESS;
    return (uintptr_t)addr % align ? TERN_WHY_ALIGN : TERN_WHY_NONE;
}

TERN_DEV_SLOW int tern_check_slow(const struct tern_state_dev *state, uint32_t generation, uint32_t call,
                                  uint32_t align, const void *addr, uint64_t bytes, int pe)
{
    uint32_t why = tern_check_why(state, generation, align, addr, bytes, pe);
    if (why != TERN_WHY_NONE)
        tern_report_check(state, call, why, addr, bytes, pe, align);
    return why == TERN_WHY_NONE;
}

/* 1: go on. 0: the call has been reported and must do nothing. (int: a bool costs conversions on the fast path.) */
TERN_DEV int tern_check(tern_ctx_t ctx, uint32_t call, uint32_t align, const void *addr, uint64_t bytes, int pe)
{
    if (__builtin_expect(!(ctx.flags & TERN_CTX_CHECK), 1))
        return 1;
    return tern_check_slow(ctx.state, ctx.generation, call, align, addr, bytes, pe);
}

/* The same for an operator or comparison: 0 … last. */
TERN_DEV bool tern_check_op(tern_ctx_t ctx, uint32_t call, int op, int last, const void *addr)
{
    if (__builtin_expect(!(ctx.flags & TERN_CTX_CHECK) || (unsigned)op <= (unsigned)last, 1))
        return true;
    tern_report_check(ctx.state, call, TERN_WHY_OP, addr, 0, ctx.my_pe, (uint64_t)(int64_t)op);
    return false;
}

#endif
