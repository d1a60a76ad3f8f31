/*
 * tern/detail/collect.h - sync_all and barrier_all: every PE raises its line at every PE, its own included, to its epoch, and
 * waits for theirs. Epochs only grow, so lines are never reset; a PE can be at most one epoch ahead of another.
 */
#ifndef TERN_DETAIL_COLLECT_H
#define TERN_DETAIL_COLLECT_H

#include <tern/detail/wait.h>

/* Line of PE `from` in the own internal segment. */
TERN_DEV uint64_t *tern_meet_line(tern_ctx_t ctx, int from)
{
    return (uint64_t *)(ctx.heap + TERN_INTERNAL_SYNC + (uint64_t)from * TERN_INTERNAL_LINE);
}

/*
 * Where atomics are direct the line is raised by one, which needs no epoch: its load (150 ns on an H200) then runs beside
 * the flags' way. Else it is set, so that it may go by any path.
 */
TERN_DEV void tern_meet_raise(tern_ctx_t ctx, int pe, uint64_t epoch)
{
    uint64_t *line = (uint64_t *)tern_peer_addr(ctx, tern_meet_line(ctx, ctx.my_pe), pe);
    if (ctx.flags & TERN_CTX_AMO_DIRECT)
        tern_order_meet_add(line, 1);
    else
        tern_order_meet_flag(line, epoch);
}

TERN_DEV tern_status_t tern_meet_wait(tern_ctx_t ctx, uint32_t call, int pe, uint64_t epoch)
{
    const uint64_t *line = tern_meet_line(ctx, pe);
    tern_wait_t w = {0, 0, 0};
    tern_status_t status = TERN_OK;
    while (tern_order_meet_acquire(line) < epoch && status == TERN_OK)
        status = tern_wait_turn_library(ctx, &w, call, pe, epoch);
    return status;
}

/* A thread's one fence serves all its flags, and covers what the others did before the entry barrier. */
TERN_DEV tern_status_t tern_meet_rank(tern_ctx_t ctx, uint32_t call, int rank, int threads, uint64_t epoch)
{
    tern_status_t status = TERN_OK;
    if (call == TERN_CALL_barrier_all)
        tern_order_barrier_fence();
    else if (!(ctx.flags & TERN_RELEASED))
        tern_order_sync_fence();
    for (int pe = rank; pe < ctx.n_pes; pe += threads)
        tern_meet_raise(ctx, pe, epoch);
    if (rank == 0)
        tern_order_epoch_store(&ctx.state->sync_epoch, epoch);
    for (int pe = rank; pe < ctx.n_pes && status == TERN_OK; pe += threads)
        status = tern_meet_wait(ctx, call, pe, epoch);
    return status;
}

/* All threads that raise lines read the epoch before the entry barrier; thread 0 advances it behind that. */
TERN_DEV tern_status_t tern_meet(tern_ctx_t ctx, int scope, uint32_t call)
{
    int rank = (int)tern_scope_rank(scope);
    uint64_t epoch = 0;
    tern_status_t status = TERN_OK;
    if (rank < ctx.n_pes)
        epoch = tern_order_epoch_load(&ctx.state->sync_epoch) + 1;
    tern_order_meet_entry(scope);
    if (rank < ctx.n_pes)
        status = tern_meet_rank(ctx, call, rank, (int)tern_scope_threads(scope), epoch);
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
