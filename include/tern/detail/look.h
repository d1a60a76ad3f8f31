/*
 * tern/detail/look.h - what every wait does besides polling: every ~20 us by the clock it looks at the copy of the abort word
 * in device memory. Whoever finds that copy older than 20 us wins it by a CAS on its time stamp and re-reads the word in pinned
 * host memory, so that at most one read per PE and 20 us crosses the bus however many threads wait.
 */
#ifndef TERN_DETAIL_LOOK_H
#define TERN_DETAIL_LOOK_H

#include <tern/detail/check.h>

#define TERN_WAIT_POLLS 16u /* polls between looks at the clock */

TERN_DEV bool tern_warp_first(void)
{
    return (tern_block_rank() & 31u) == (unsigned)__ffs((int)__activemask()) - 1;
}

/* Status of the job: TERN_OK, or why it was aborted. */
TERN_DEV tern_status_t tern_abort_status(struct tern_state_dev *state)
{
    uint64_t now = tern_prim_clock_ns();
    uint64_t stamp = tern_order_abort_look(&state->abort_ns), word = tern_order_abort_look(&state->abort);
    if (now - stamp > TERN_ABORT_STALE_NS && (int64_t)(now - stamp) > 0 && tern_warp_first() &&
        tern_order_abort_claim(&state->abort_ns, stamp, now) == stamp) {
        word = tern_prim_ld_relaxed_u64(&state->host->abort);
        if (word)
            tern_order_abort_store(&state->abort, word);
    }
    if (!word)
        return TERN_OK;
    return TERN_ABORT_STATUS(word) == TERN_ERR_PEER_DEAD ? TERN_ERR_PEER_DEAD : TERN_ERR_ABORTED;
}

/* A wait's times, kept in registers. */
typedef struct tern_wait {
    uint64_t begin, look; /* ns; 0 before the first look */
    uint32_t polls;
} tern_wait_t;

/* True when the wait must look around: seldom. */
TERN_DEV bool tern_wait_due(tern_wait_t *w)
{
    if (++w->polls % TERN_WAIT_POLLS)
        return false;
    uint64_t now = tern_prim_clock_ns();
    if (now < w->look)
        return false;
    if (!w->look)
        w->begin = now;
    w->look = now + TERN_ABORT_STALE_NS;
    return true;
}

TERN_DEV uint64_t tern_wait_ns(const tern_wait_t *w)
{
    return w->look - TERN_ABORT_STALE_NS - w->begin;
}

/* The seldom part of a turn, in one call: what lives across it costs the caller registers. */
TERN_DEV_SLOW tern_status_t tern_wait_look(struct tern_state_dev *state, uint64_t ns, uint32_t timeout_ms)
{
    return timeout_ms && ns > timeout_ms * 1000000ull ? TERN_ERR_TIMEOUT : tern_abort_status(state);
}

TERN_DEV_SLOW tern_status_t tern_wait_look_library(struct tern_state_dev *state, uint64_t ns, uint32_t call, int pe,
                                                   uint64_t value)
{
    if (ns > tern_prim_ld_relaxed_u64(&state->library_timeout_ms) * 1000000ull)
        tern_report_file(state, TERN_REPORT_TIMEOUT, call, TERN_WHY_TIMEOUT, 0, 0, pe, value);
    return tern_abort_status(state);
}

/* One turn of a user's wait that is not satisfied yet. */
TERN_DEV tern_status_t tern_wait_turn(tern_ctx_t ctx, tern_wait_t *w)
{
    tern_prim_pause();
    return tern_wait_due(w) ? tern_wait_look(ctx.state, tern_wait_ns(w), ctx.timeout_ms) : TERN_OK;
}

/* One turn of a wait of the library: past its deadline it is reported once, and ends by the abort that follows. */
TERN_DEV tern_status_t tern_wait_turn_library(struct tern_state_dev *state, tern_wait_t *w, uint32_t call, int pe,
                                              uint64_t value)
{
    tern_prim_pause();
    return tern_wait_due(w) ? tern_wait_look_library(state, tern_wait_ns(w), call, pe, value) : TERN_OK;
}

#endif
