/*
 * tern/detail/collect.h - sync_all and barrier_all: every PE writes its epoch into its line at every other PE and waits for
 * theirs. Epochs only grow, so lines are never reset; a PE can be at most one epoch ahead of another.
 */
#ifndef TERN_DETAIL_COLLECT_H
#define TERN_DETAIL_COLLECT_H

#include <tern/detail/wait.h>

/* Line of PE `from` in the internal segment at PE `at`. */
TERN_DEV uint64_t *tern_meet_line(tern_ctx_t ctx, int at, int from)
{
    return (uint64_t *)(tern_peer_span(ctx, at) + TERN_INTERNAL_SYNC + (uint64_t)from * TERN_INTERNAL_LINE);
}

TERN_DEV tern_status_t tern_meet_wait(tern_ctx_t ctx, uint32_t call, int pe, uint64_t epoch)
{
    const uint64_t *line = (const uint64_t *)(ctx.heap + TERN_INTERNAL_SYNC + (uint64_t)pe * TERN_INTERNAL_LINE);
    tern_wait_t w = {0, 0, 0};
    tern_status_t status = TERN_OK;
    while (tern_order_meet_acquire(line) < epoch && status == TERN_OK)
        status = tern_wait_turn_library(ctx, &w, call, pe, epoch);
    return status;
}

/*
 * All threads of the scope read the epoch before the entry barrier, thread 0 advances it behind the flags. A thread's one
 * fence serves all its flags, and covers what the others did before the entry barrier.
 */
TERN_DEV tern_status_t tern_meet(tern_ctx_t ctx, int scope, uint32_t call)
{
    int rank = (int)tern_scope_rank(scope), threads = (int)tern_scope_threads(scope);
    uint64_t epoch = tern_order_epoch_load(&ctx.state->sync_epoch) + 1;
    tern_status_t status = TERN_OK;
    tern_order_meet_entry(scope);
    if (rank < ctx.n_pes) {
        if (call == TERN_CALL_barrier_all)
            tern_order_barrier_fence();
        else if (!(ctx.flags & TERN_RELEASED))
            tern_order_sync_fence();
    }
    for (int pe = rank; pe < ctx.n_pes; pe += threads)
        if (pe != ctx.my_pe)
            tern_order_meet_flag(tern_meet_line(ctx, pe, ctx.my_pe), epoch);
    if (rank == 0)
        tern_order_epoch_store(&ctx.state->sync_epoch, epoch);
    for (int pe = rank; pe < ctx.n_pes && status == TERN_OK; pe += threads)
        if (pe != ctx.my_pe)
            status = tern_meet_wait(ctx, call, pe, epoch);
    return tern_order_meet_exit(scope, status);
}

#define TERN_MEET_BODIES(suffix, scope)                                                                                \
    TERN_DEV tern_status_t tern_sync_all##suffix(tern_ctx_t ctx)                                                       \
    {                                                                                                                  \
        return tern_check(ctx, TERN_CALL_sync_all, 1, NULL, 0, ctx.my_pe) ? tern_meet(ctx, scope, TERN_CALL_sync_all)  \
                                                                          : TERN_ERR_INVALID;                          \
    }                                                                                                                  \
    TERN_DEV tern_status_t tern_barrier_all##suffix(tern_ctx_t ctx)                                                    \
    {                                                                                                                  \
        return tern_check(ctx, TERN_CALL_barrier_all, 1, NULL, 0, ctx.my_pe)                                           \
                   ? tern_meet(ctx, scope, TERN_CALL_barrier_all)                                                      \
                   : TERN_ERR_INVALID;                                                                                 \
    }
TERN_MEET_BODIES(, TERN_SCOPE_THREAD)
TERN_MEET_BODIES(_warp, TERN_SCOPE_WARP)
TERN_MEET_BODIES(_block, TERN_SCOPE_BLOCK)
#undef TERN_MEET_BODIES

#endif
