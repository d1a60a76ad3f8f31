/*
 * tern/detail/collect.h - sync_all and barrier_all: every PE raises its line at every PE, its own included, to its
 * epoch, and waits for theirs. Epochs only grow, so lines are never reset; a PE can be at most one epoch ahead of
 * another.
 */
#ifndef TERN_DETAIL_COLLECT_H
#define TERN_DETAIL_COLLECT_H

#include <tern/detail/wait.h>

/* Line of PE `from` in the internal segment of the span at `heap`. */
TERN_DEV uint64_t *tern_meet_line(const char *heap, int from)
{
    return (uint64_t *)(heap + TERN_INTERNAL_SYNC + (uint64_t)from * TERN_INTERNAL_LINE);
}

/*
 * Where atomics are direct a line is raised by one, which needs no epoch: its load (150 ns on an H200) then runs beside
 * the flags' way. Else it is set, so that it may go by any path.
 */
TERN_DEV void tern_meet_raise(uint32_t flags, uint64_t *line, uint64_t before)
{
    if (flags & TERN_CTX_AMO_DIRECT)
        tern_order_meet_add(line, 1);
    else
        tern_order_meet_flag(line, before + 1);
}

TERN_DEV tern_status_t tern_meet_wait(struct tern_state_dev *state, uint32_t call, const uint64_t *line, int pe,
                                      uint64_t before)
{
    tern_wait_t w = {0, 0, 0};
    tern_status_t status = TERN_OK;
    while (tern_order_meet_acquire(line) <= before && status == TERN_OK)
        status = tern_wait_turn_library(state, &w, call, pe, before + 1);
    return status;
}

/* One fence serves all of a thread's flags, and covers what the others did before the entry barrier. */
TERN_DEV void tern_meet_fence(uint32_t flags, uint32_t call)
{
    if (call == TERN_CALL_barrier_all)
        tern_order_barrier_fence();
    else if (!(flags & TERN_RELEASED))
        tern_order_sync_fence();
}

/* Load/store peers in a row: those of a context without a slot table. */
typedef struct tern_near {
    int first, count;
} tern_near_t;

/* A line out of reach is set through the proxy. */
TERN_DEV_SLOW void tern_meet_raise_slow(tern_via_t v, tern_near_t near, uint64_t before, int pe)
{
    const struct tern_state_dev *state = v.state;
    uint64_t *own = tern_meet_line(state->heap, v.my_pe);
    bool slots = v.flags & TERN_CTX_SLOTS;
    if (slots ? state->slots[pe] == TERN_SLOT_NONE : (unsigned)(pe - near.first) >= (unsigned)near.count)
        tern_via_signal(v, own, before + 1, 0, pe);
    else
        tern_meet_raise(v.flags,
                        (uint64_t *)(slots ? tern_slot_addr(state, own, pe)
                                           : (char *)own + (pe - v.my_pe) * (int64_t)state->stride),
                        before);
}

/* More PEs than threads, a slot table, a proxy, or checks. */
TERN_DEV_SLOW tern_status_t tern_meet_slow(tern_via_t v, tern_near_t near, uint32_t generation, uint32_t call, int rank,
                                           int threads, uint64_t before)
{
    struct tern_state_dev *state = v.state;
    int n = (int)state->n_pes;
    tern_status_t status = TERN_OK;
    if ((v.flags & TERN_CTX_CHECK) && !tern_check_slow(state, generation, call, 1, NULL, 0, v.my_pe))
        return TERN_ERR_INVALID;
    tern_meet_fence(v.flags, call);
    for (int pe = rank; pe < n; pe += threads)
        tern_meet_raise_slow(v, near, before, pe);
    if (rank == 0)
        tern_order_epoch_store(&state->sync_epoch, before + 1);
    for (int pe = rank; pe < n && status == TERN_OK; pe += threads)
        status = tern_meet_wait(state, call, tern_meet_line(state->heap, pe), pe, before);
    return status;
}

/* What the whole PE pushed before the meeting is complete at the targets. */
TERN_DEV_SLOW tern_status_t tern_meet_quiet_slow(tern_ctx_t ctx, int scope, uint32_t call, int rank)
{
    tern_status_t status = TERN_OK;
    if (rank == 0 && !tern_check(ctx, call, 1, NULL, 0, ctx.my_pe)) {
        status = TERN_ERR_INVALID;
    } else if (rank == 0) {
        tern_order_barrier_fence();
        status = tern_via_quiet(tern_via_of(ctx), TERN_PE_ALL, false);
    }
    return tern_order_meet_quiet(scope, status);
}

/* All threads that raise lines read the epoch before the entry barrier; thread 0 advances it behind that. */
TERN_DEV tern_status_t tern_meet(tern_ctx_t ctx, int scope, uint32_t call)
{
    int rank = (int)tern_scope_rank(scope), threads = (int)tern_scope_threads(scope), n = ctx.n_pes;
    char *line = (char *)tern_meet_line(ctx.heap, ctx.my_pe) + (rank - ctx.my_pe) * (int64_t)ctx.stride;
    uint64_t before = 0; /* not epoch: the sum would wait for the load ahead of the flags */
    tern_status_t status = TERN_OK;
    if (rank < n)
        before = tern_order_epoch_load(&ctx.state->sync_epoch);
    tern_order_meet_entry(scope);
    if (__builtin_expect(ctx.flags & TERN_CTX_PROXY, 0) && call == TERN_CALL_barrier_all) {
        status = tern_meet_quiet_slow(ctx, scope, call, rank);
        if (status != TERN_OK)
            return status;
    }
    if (rank < n && __builtin_expect(!(ctx.flags & TERN_CTX_SLOW) && n <= threads, 1)) {
        tern_meet_fence(ctx.flags, call);
        tern_meet_raise(ctx.flags, (uint64_t *)line, before);
        if (rank == 0)
            tern_order_epoch_store(&ctx.state->sync_epoch, before + 1);
        status = tern_meet_wait(ctx.state, call, tern_meet_line(ctx.heap, rank), rank, before);
    } else if (rank < n) {
        tern_near_t near = {ctx.near_first, ctx.near_count};
        status = tern_meet_slow(tern_via_of(ctx), near, ctx.generation, call, rank, threads, before);
    }
    return tern_order_meet_exit(scope, status);
}

#define TERN_MEET_BODIES(suffix, scope)                                                                                \
    TERN_DEV tern_status_t tern_sync_all##suffix(tern_ctx_t ctx)                                                       \
    {                                                                                                                  \
        return tern_meet(ctx, scope, TERN_CALL_sync_all);                                                              \
    }                                                                                                                  \
    TERN_DEV tern_status_t tern_barrier_all##suffix(tern_ctx_t ctx)                                                    \
    {                                                                                                                  \
        return tern_meet(ctx, scope, TERN_CALL_barrier_all);                                                           \
    }
TERN_MEET_BODIES(, TERN_SCOPE_THREAD)
TERN_MEET_BODIES(_warp, TERN_SCOPE_WARP)
TERN_MEET_BODIES(_block, TERN_SCOPE_BLOCK)
#undef TERN_MEET_BODIES

#endif
