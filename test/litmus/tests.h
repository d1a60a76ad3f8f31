/*
 * tests.h - the litmus tests, one for each sentence of the contract in tern/device.h. A test is one iteration: each party
 * sends to the one after it and receives from the one before (or: everybody to everybody), so all are both.
 */
#ifndef TEST_LITMUS_TESTS_H
#define TEST_LITMUS_TESTS_H

#include "litmus/lit.h"

/* Where the tests can be played: by the blocks of one PE too, or by PEs only, or by two blocks of each PE. */
enum { LIT_ANY, LIT_PES, LIT_GRID };

/* X(name, where, sentence) */
/* clang-format off */
#define LIT_TABLE(X)                                                                                                    \
    X(put_signal_thread, LIT_ANY, "put_signal makes its data visible before its signal: one thread")                    \
    X(put_signal_warp, LIT_ANY, "put_signal: a warp; any lane may have written the source, every lane may read the data") \
    X(put_signal_block, LIT_ANY, "put_signal: a block; any thread may have written the source, every thread may read")  \
    X(put_signal_add, LIT_ANY, "put_signal with ADD: thread and block")                                                 \
    X(put_signal_stage, LIT_ANY, "put_signal through a stage, after ordinary stores to the source")                     \
    X(put_fence_signal, LIT_ANY, "put, fence, signal_op by one thread")                                                 \
    X(all_put_fence, LIT_ANY, "all threads put, block barrier, one thread fences and signals")                          \
    X(fence_block, LIT_ANY, "all threads put, fence_block, any thread signals")                                         \
    X(quiet_block, LIT_ANY, "all threads put, quiet_block, any thread signals")                                         \
    X(put_block_reuse, LIT_ANY, "after put_block any thread may overwrite any part of the source")                      \
    X(grid_fence, LIT_GRID, "all blocks put, grid barrier, one thread fences and signals")                              \
    X(p_fence_p, LIT_ANY, "p, fence, p")                                                                                \
    X(put_fence_set, LIT_ANY, "put, fence, atomic_set of the flag")                                                     \
    X(or_fence_put, LIT_ANY, "atomic_or, fence, put of the flag")                                                       \
    X(wait32, LIT_ANY, "put, fence, 32-bit p; wait on it")                                                              \
    X(wait_all, LIT_ANY, "wait_until_all acquires for every word")                                                      \
    X(test_any, LIT_ANY, "test_any that finds a word acquires")                                                         \
    X(signal_fetch, LIT_ANY, "signal_fetch acquires")                                                                   \
    X(quiet_third, LIT_ANY, "put to B, quiet, signal C; C signals B: B reads the data")                                 \
    X(chain, LIT_ANY, "put to C, fence (far PEs: quiet), signal B; B signals C: C reads the data")                                       \
    X(signal_add_all, LIT_ANY, "all put_signal with ADD to one word: its sum says that all data is there")              \
    X(get_signal, LIT_ANY, "own stores, fence, signal; then a get by the other reads them")                             \
    X(atomic_sums, LIT_ANY, "atomics are atomic whoever issues them, the owner included")                               \
    X(tickets, LIT_ANY, "fetch-add tickets are unique")                                                                 \
    X(barrier_puts, LIT_PES, "barrier: after puts by all threads, every thread reads them; thread, warp and block")     \
    X(sync_own, LIT_PES, "sync makes the PE's own earlier stores visible")                                              \
    X(sync_released, LIT_PES, "all threads put and fence, sync with TERN_RELEASED")
/* clang-format on */

/* ---- put_signal ---------------------------------------------------------------------------------------------------------- */

TERN_DEV void lit_put_signal_thread(struct lit *p)
{
    int to = lit_next(p, 1), from = lit_before(p, 1), at = 16 * (int)threadIdx.x;
    struct lit_region *mine = lit_mine(p), *theirs = lit_of(p, to);
    lit_fill(p, mine->row);
    if (p->it % 2)
        tern_put_signal(p->ctx, theirs->data[p->me] + at, mine->row + at, 16, &theirs->lane_flag[threadIdx.x], p->it,
                        TERN_SIGNAL_SET, lit_pe(p, to));
    else
        tern_put_signal_nbi(p->ctx, theirs->data[p->me] + at, mine->row + at, 16, &theirs->lane_flag[threadIdx.x],
                            p->it, TERN_SIGNAL_SET, lit_pe(p, to));
    tern_status_t status = tern_signal_wait_until(p->ctx, &mine->lane_flag[threadIdx.x], TERN_CMP_EQ, p->it);
    lit_check_at(p, mine->data[from], from, threadIdx.x);
    lit_status(p, status);
    lit_turn(p, from, to);
}

TERN_DEV void lit_put_signal_warp(struct lit *p)
{
    int to = lit_next(p, 1), from = lit_before(p, 1), warp = (int)threadIdx.x / 32, at = 512 * warp;
    unsigned lanes = blockDim.x - 32 * warp < 32 ? blockDim.x - 32 * warp : 32;
    unsigned other = 32 * warp + lanes - 1 - threadIdx.x % 32;
    struct lit_region *mine = lit_mine(p), *theirs = lit_of(p, to);
    lit_fill_at(p, mine->row, other);
    tern_put_signal_warp(p->ctx, theirs->data[p->me] + at, mine->row + at, 16 * lanes, &theirs->lane_flag[warp], p->it,
                         TERN_SIGNAL_SET, lit_pe(p, to));
    tern_status_t status = tern_signal_wait_until_warp(p->ctx, &mine->lane_flag[warp], TERN_CMP_EQ, p->it);
    lit_check_at(p, mine->data[from], from, other);
    lit_status(p, status);
    lit_turn(p, from, to);
}

TERN_DEV void lit_put_signal_block(struct lit *p)
{
    int to = lit_next(p, 1), from = lit_before(p, 1);
    struct lit_region *mine = lit_mine(p), *theirs = lit_of(p, to);
    lit_fill_other(p, mine->row);
    lit_jitter(p, 1);
    if (p->it % 2)
        tern_put_signal_block(p->ctx, theirs->data[p->me], mine->row, 16 * blockDim.x, &theirs->flag[p->me][0], p->it,
                              TERN_SIGNAL_SET, lit_pe(p, to));
    else
        tern_put_signal_nbi_block(p->ctx, theirs->data[p->me], mine->row, 16 * blockDim.x, &theirs->flag[p->me][0],
                                  p->it, TERN_SIGNAL_SET, lit_pe(p, to));
    tern_status_t status = tern_signal_wait_until_block(p->ctx, &mine->flag[from][0], TERN_CMP_EQ, p->it);
    lit_check(p, mine->data[from], from);
    lit_status(p, status);
    lit_turn(p, from, to);
}

/* Copies by one thread and, where it is large enough for the stage, by the block. */
TERN_DEV void lit_put_signal_stage(struct lit *p)
{
    __shared__ char stage[LIT_STAGE] __attribute__((aligned(128)));
    int to = lit_next(p, 1), from = lit_before(p, 1);
    struct lit_region *mine = lit_mine(p), *theirs = lit_of(p, to);
    tern_ctx_t staged = tern_ctx_stage(p->ctx, stage, sizeof stage);
    lit_fill_other(p, mine->row);
    if (p->it % 2)
        tern_put_signal_block(staged, theirs->data[p->me], mine->row, 16 * blockDim.x, &theirs->flag[p->me][0], p->it,
                              TERN_SIGNAL_SET, lit_pe(p, to));
    else {
        __syncthreads();
        if (threadIdx.x == 0)
            tern_put_signal(staged, theirs->data[p->me], mine->row, 16 * blockDim.x, &theirs->flag[p->me][0], p->it,
                            TERN_SIGNAL_SET, lit_pe(p, to));
    }
    lit_await(p, &mine->flag[from][0], p->it);
    lit_check(p, mine->data[from], from);
    lit_turn(p, from, to);
}

TERN_DEV void lit_put_signal_add(struct lit *p)
{
    int to = lit_next(p, 1), from = lit_before(p, 1), at = 16 * (int)threadIdx.x;
    struct lit_region *mine = lit_mine(p), *theirs = lit_of(p, to);
    uint64_t *flag = &theirs->flag[p->me][0];
    uint64_t full = blockDim.x * (uint64_t)(p->it / 2) + (p->it + 1) / 2; /* odd iterations add 1, even ones one a thread */
    lit_fill(p, mine->row);
    if (p->it % 2)
        tern_put_signal_block(p->ctx, theirs->data[p->me], mine->row, 16 * blockDim.x, flag, 1, TERN_SIGNAL_ADD,
                              lit_pe(p, to));
    else
        tern_put_signal(p->ctx, theirs->data[p->me] + at, mine->row + at, 16, flag, 1, TERN_SIGNAL_ADD, lit_pe(p, to));
    lit_await(p, &mine->flag[from][0], full);
    p->bad += tern_signal_fetch(p->ctx, &mine->flag[from][0]) != full;
    lit_check(p, mine->data[from], from);
    lit_turn(p, from, to);
}

/* ---- fence, quiet -------------------------------------------------------------------------------------------------------- */

TERN_DEV void lit_put_fence_signal(struct lit *p)
{
    int to = lit_next(p, 1), from = lit_before(p, 1);
    struct lit_region *mine = lit_mine(p), *theirs = lit_of(p, to);
    lit_fill(p, mine->row);
    __syncthreads();
    lit_jitter(p, 1);
    if (threadIdx.x == 0) {
        tern_put_nbi(p->ctx, theirs->data[p->me], mine->row, 16 * blockDim.x, lit_pe(p, to));
        tern_fence(p->ctx);
        tern_signal_op(p->ctx, &theirs->flag[p->me][0], p->it, TERN_SIGNAL_SET, lit_pe(p, to));
    }
    lit_await(p, &mine->flag[from][0], p->it);
    lit_check(p, mine->data[from], from);
    lit_turn(p, from, to);
}

TERN_DEV void lit_all_put_fence(struct lit *p)
{
    int to = lit_next(p, 1), from = lit_before(p, 1), at = 16 * (int)threadIdx.x;
    struct lit_region *mine = lit_mine(p), *theirs = lit_of(p, to);
    lit_fill(p, mine->row);
    tern_put_nbi(p->ctx, theirs->data[p->me] + at, mine->row + at, 16, lit_pe(p, to));
    __syncthreads();
    if (threadIdx.x == 0) {
        tern_fence(p->ctx);
        tern_signal_op(p->ctx, &theirs->flag[p->me][0], 1, TERN_SIGNAL_ADD, lit_pe(p, to));
    }
    lit_await(p, &mine->flag[from][0], p->it);
    lit_check(p, mine->data[from], from);
    lit_turn(p, from, to);
}

/* Thread t waits for the flag of another thread than the one whose data it reads. */
TERN_DEV void lit_block_form(struct lit *p, bool quiet)
{
    int to = lit_next(p, 1), from = lit_before(p, 1), at = 16 * (int)threadIdx.x;
    struct lit_region *mine = lit_mine(p), *theirs = lit_of(p, to);
    lit_fill(p, mine->row);
    tern_put_nbi(p->ctx, theirs->data[p->me] + at, mine->row + at, 16, lit_pe(p, to));
    if (threadIdx.x < p->it % blockDim.x) /* the others arrive first, and on the CPU device leave first */
        tern_prim_pause();
    if (quiet)
        p->bad += (p->it % 2 ? tern_quiet_block(p->ctx) : tern_quiet_pe_block(p->ctx, lit_pe(p, to))) != TERN_OK;
    else
        tern_fence_block(p->ctx);
    tern_signal_op(p->ctx, &theirs->lane_flag[threadIdx.x], p->it, TERN_SIGNAL_SET, lit_pe(p, to));
    tern_status_t status = tern_signal_wait_until(p->ctx, &mine->lane_flag[threadIdx.x], TERN_CMP_EQ, p->it);
    lit_check(p, mine->data[from], from);
    lit_status(p, status);
    lit_turn(p, from, to);
}

TERN_DEV void lit_fence_block(struct lit *p)
{
    lit_block_form(p, false);
}

TERN_DEV void lit_quiet_block(struct lit *p)
{
    lit_block_form(p, true);
}

TERN_DEV void lit_put_block_reuse(struct lit *p)
{
    int to = lit_next(p, 1), from = lit_before(p, 1);
    struct lit_region *mine = lit_mine(p), *theirs = lit_of(p, to);
    lit_fill_other(p, mine->row);
    tern_put_block(p->ctx, theirs->data[p->me], mine->row, 16 * blockDim.x, lit_pe(p, to));
    ((uint32_t *)mine->row)[4 * lit_other()] = 0;
    __syncthreads();
    if (threadIdx.x == 0) {
        tern_fence(p->ctx);
        tern_signal_op(p->ctx, &theirs->flag[p->me][0], p->it, TERN_SIGNAL_SET, lit_pe(p, to));
    }
    lit_await(p, &mine->flag[from][0], p->it);
    lit_check(p, mine->data[from], from);
    lit_turn(p, from, to);
}

/*
 * Two blocks of each PE put a row each; the second one arrives by a grid barrier of device-scope atomics, as CUDA's is made;
 * then one thread of the first fences and signals for both.
 */
TERN_DEV void lit_grid_second(struct lit *p, int to)
{
    struct lit_region *mine = lit_mine(p);
    int at = 16 * (int)threadIdx.x;
    lit_fill(p, mine->row2);
    tern_put_nbi(p->ctx, lit_of(p, to)->data2[p->me] + at, mine->row2 + at, 16, lit_pe(p, to));
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd((unsigned long long *)&mine->grid[0], 1);
        while (atomicAdd((unsigned long long *)&mine->chain[0], 0) < p->it && tern_ctx_status(p->ctx) == TERN_OK)
            tern_prim_pause();
    }
    __syncthreads();
}

TERN_DEV void lit_grid_fence(struct lit *p)
{
    int to = lit_next(p, 1), from = lit_before(p, 1), at = 16 * (int)threadIdx.x;
    struct lit_region *mine = lit_mine(p), *theirs = lit_of(p, to);
    if (p->second) {
        lit_grid_second(p, to);
        return;
    }
    lit_fill(p, mine->row);
    tern_put_nbi(p->ctx, theirs->data[p->me] + at, mine->row + at, 16, lit_pe(p, to));
    __syncthreads();
    if (threadIdx.x == 0) {
        while (atomicAdd((unsigned long long *)&mine->grid[0], 0) < p->it && tern_ctx_status(p->ctx) == TERN_OK)
            tern_prim_pause();
        __threadfence();
        tern_fence(p->ctx);
        tern_signal_op(p->ctx, &theirs->flag[p->me][0], p->it, TERN_SIGNAL_SET, lit_pe(p, to));
    }
    lit_await(p, &mine->flag[from][0], p->it);
    lit_check(p, mine->data[from], from);
    lit_check(p, mine->data2[from], from);
    lit_turn(p, from, to);
    if (threadIdx.x == 0)
        atomicAdd((unsigned long long *)&mine->chain[0], 1);
}

/* ---- scalars, waits ------------------------------------------------------------------------------------------------------ */

TERN_DEV void lit_p_fence_p(struct lit *p)
{
    int to = lit_next(p, 1), from = lit_before(p, 1);
    struct lit_region *mine = lit_mine(p), *theirs = lit_of(p, to);
    uint32_t *words = (uint32_t *)theirs->data[p->me] + 4 * threadIdx.x, v = lit_value(p->it, p->me, threadIdx.x);
    for (int i = 0; i < 4; i++)
        tern_uint32_p(p->ctx, words + i, v + (uint32_t)i, lit_pe(p, to));
    tern_fence(p->ctx);
    tern_uint64_p(p->ctx, &theirs->lane_flag[threadIdx.x], p->it, lit_pe(p, to));
    tern_status_t status = tern_uint64_wait_until(p->ctx, &mine->lane_flag[threadIdx.x], TERN_CMP_EQ, p->it);
    lit_check_at(p, mine->data[from], from, threadIdx.x);
    lit_status(p, status);
    lit_turn(p, from, to);
}

TERN_DEV void lit_put_fence_set(struct lit *p)
{
    int to = lit_next(p, 1), from = lit_before(p, 1);
    struct lit_region *mine = lit_mine(p), *theirs = lit_of(p, to);
    lit_fill(p, mine->row);
    __syncthreads();
    if (threadIdx.x == 0) {
        tern_put_nbi(p->ctx, theirs->data[p->me], mine->row, 16 * blockDim.x, lit_pe(p, to));
        tern_fence(p->ctx);
        tern_uint64_atomic_set(p->ctx, &theirs->flag[p->me][0], p->it, lit_pe(p, to));
    }
    lit_await(p, &mine->flag[from][0], p->it);
    lit_check(p, mine->data[from], from);
    lit_turn(p, from, to);
}

/*
 * Each iteration sets another bit, so that a late one shows. The flag's put is two words, which it may not carry by value, from
 * and to places aligned differently, so that it goes word by word.
 */
TERN_DEV void lit_or_fence_put(struct lit *p)
{
    int to = lit_next(p, 1), from = lit_before(p, 1);
    struct lit_region *mine = lit_mine(p), *theirs = lit_of(p, to);
    uint32_t *bits = &theirs->word32[p->me][p->it / 32 % 8], bit = 1u << p->it % 32;
    if (threadIdx.x == 0) {
        uint64_t *row = (uint64_t *)mine->row;
        row[0] = p->it, row[1] = p->it;
        tern_uint32_atomic_xor(p->ctx, bits, bit, lit_pe(p, to));
        tern_uint32_atomic_or(p->ctx, &theirs->word32[p->me][8 + p->it % 8], p->it, lit_pe(p, to));
        tern_fence(p->ctx);
        tern_put_nbi(p->ctx, &theirs->lane_flag[1], row, 16, lit_pe(p, to));
    }
    __syncthreads();
    tern_status_t status = tern_uint64_wait_until(p->ctx, &mine->lane_flag[1], TERN_CMP_EQ, p->it);
    uint32_t now = tern_prim_ld_relaxed_u32(&mine->word32[from][p->it / 32 % 8]);
    p->bad += (now >> p->it % 32 & 1) != ((p->it - 1) / 256 % 2 == 0);
    p->bad += (tern_prim_ld_relaxed_u32(&mine->word32[from][8 + p->it % 8]) & p->it) != p->it;
    lit_status(p, status);
    lit_turn(p, from, to);
}

TERN_DEV void lit_wait32(struct lit *p)
{
    int to = lit_next(p, 1), from = lit_before(p, 1);
    struct lit_region *mine = lit_mine(p), *theirs = lit_of(p, to);
    tern_status_t status = TERN_OK;
    lit_fill_other(p, mine->row);
    tern_put_nbi_block(p->ctx, theirs->data[p->me], mine->row, 16 * blockDim.x, lit_pe(p, to));
    if (threadIdx.x == 0) {
        tern_fence(p->ctx);
        tern_uint32_p(p->ctx, &theirs->word32[p->me][0], p->it, lit_pe(p, to));
        status = tern_uint32_wait_until(p->ctx, &mine->word32[from][0], TERN_CMP_EQ, p->it);
    }
    lit_status(p, status);
    lit_check(p, mine->data[from], from);
    lit_turn(p, from, to);
}

/* Every thread sends its part with a signal; thread 0 of the receiver waits for all of them. */
TERN_DEV void lit_send_lanes(struct lit *p, int to)
{
    int at = 16 * (int)threadIdx.x;
    struct lit_region *mine = lit_mine(p), *theirs = lit_of(p, to);
    lit_fill(p, mine->row);
    tern_put_signal(p->ctx, theirs->data[p->me] + at, mine->row + at, 16, &theirs->lane_flag[threadIdx.x], p->it,
                    TERN_SIGNAL_SET, lit_pe(p, to));
}

TERN_DEV void lit_wait_all(struct lit *p)
{
    int to = lit_next(p, 1), from = lit_before(p, 1);
    struct lit_region *mine = lit_mine(p);
    tern_status_t status = TERN_OK;
    lit_send_lanes(p, to);
    if (threadIdx.x == 0)
        status = tern_uint64_wait_until_all(p->ctx, mine->lane_flag, blockDim.x, NULL, TERN_CMP_EQ, p->it);
    lit_status(p, status);
    lit_check(p, mine->data[from], from);
    lit_turn(p, from, to);
}

/* An eighth of the threads' words, found one by one. */
TERN_DEV void lit_test_any(struct lit *p)
{
    int to = lit_next(p, 1), from = lit_before(p, 1);
    struct lit_region *mine = lit_mine(p);
    tern_status_t status = TERN_OK;
    lit_send_lanes(p, to);
    if (threadIdx.x == 0) {
        int seen[LIT_THREADS_MAX];
        unsigned left = 0;
        for (unsigned i = 0; i < blockDim.x; i++)
            left += !(seen[i] = (i ^ p->it) % 8 != 0);
        uint64_t begin = tern_prim_clock_ns();
        while (left && status == TERN_OK) {
            size_t i = tern_uint64_test_any(p->ctx, mine->lane_flag, blockDim.x, seen, TERN_CMP_EQ, p->it);
            if (i != SIZE_MAX) {
                seen[i] = 1;
                left--;
                lit_check_at(p, mine->data[from], from, (unsigned)i);
            } else {
                if (tern_prim_clock_ns() - begin > p->ctx.timeout_ms * 1000000ull)
                    status = TERN_ERR_TIMEOUT;
                tern_prim_pause();
            }
        }
    }
    lit_status(p, status);
    lit_turn(p, from, to);
}

TERN_DEV void lit_signal_fetch(struct lit *p)
{
    int to = lit_next(p, 1), from = lit_before(p, 1);
    struct lit_region *mine = lit_mine(p);
    tern_status_t status = TERN_OK;
    uint64_t begin = tern_prim_clock_ns();
    lit_send_lanes(p, to);
    while (tern_signal_fetch(p->ctx, &mine->lane_flag[threadIdx.x]) != p->it && status == TERN_OK) {
        if (tern_prim_clock_ns() - begin > p->ctx.timeout_ms * 1000000ull)
            status = TERN_ERR_TIMEOUT;
        tern_prim_pause();
    }
    lit_check_at(p, mine->data[from], from, threadIdx.x);
    lit_status(p, status);
    lit_turn(p, from, to);
}

/* ---- three parties ------------------------------------------------------------------------------------------------------- */

TERN_DEV void lit_quiet_third(struct lit *p)
{
    int b = lit_next(p, 1), c = lit_next(p, 2), from = lit_before(p, 1);
    int relay_from = lit_before(p, 2), relay_to = lit_before(p, 1); /* as C: A's flag comes, B is told */
    struct lit_region *mine = lit_mine(p);
    lit_fill_other(p, mine->row);
    tern_put_nbi_block(p->ctx, lit_of(p, b)->data[p->me], mine->row, 16 * blockDim.x, lit_pe(p, b));
    if (threadIdx.x == 0) {
        p->bad += (p->it % 2 ? tern_quiet(p->ctx) : tern_quiet_pe(p->ctx, lit_pe(p, b))) != TERN_OK;
        tern_signal_op(p->ctx, &lit_of(p, c)->flag[p->me][0], p->it, TERN_SIGNAL_SET, lit_pe(p, c));
    }
    lit_await(p, &mine->flag[relay_from][0], p->it);
    if (threadIdx.x == 0) {
        tern_fence(p->ctx);
        tern_signal_op(p->ctx, &lit_of(p, relay_to)->chain[0], p->it, TERN_SIGNAL_SET, lit_pe(p, relay_to));
    }
    lit_await(p, &mine->chain[0], p->it);
    lit_check(p, mine->data[from], from);
    lit_turn_all(p, p->it);
}

TERN_DEV void lit_chain(struct lit *p)
{
    int b = lit_next(p, 1), c = lit_next(p, 2), from = lit_before(p, 2);
    int relay_from = lit_before(p, 1), relay_to = lit_next(p, 1); /* as B: A's flag comes, C is told */
    struct lit_region *mine = lit_mine(p);
    lit_fill_other(p, mine->row);
    tern_put_nbi_block(p->ctx, lit_of(p, c)->data[p->me], mine->row, 16 * blockDim.x, lit_pe(p, c));
    if (threadIdx.x == 0) {
        if (p->ctx.flags & TERN_CTX_PROXY) /* a fence is for each destination */
            p->bad += tern_quiet(p->ctx) != TERN_OK;
        else
            tern_fence(p->ctx);
        tern_signal_op(p->ctx, &lit_of(p, b)->flag[p->me][0], p->it, TERN_SIGNAL_SET, lit_pe(p, b));
    }
    lit_await(p, &mine->flag[relay_from][0], p->it);
    if (threadIdx.x == 0)
        tern_put_signal(p->ctx, lit_of(p, relay_to)->got, mine->row, 0, &lit_of(p, relay_to)->chain[0], p->it,
                        TERN_SIGNAL_SET, lit_pe(p, relay_to));
    lit_await(p, &mine->chain[0], p->it);
    lit_check(p, mine->data[from], from);
    lit_turn_all(p, p->it);
}

TERN_DEV void lit_signal_add_all(struct lit *p)
{
    struct lit_region *mine = lit_mine(p);
    uint64_t full = (uint64_t)p->n * ((p->it + p->it % 2) / 2);
    lit_fill_other(p, mine->row);
    for (int i = 0; i < p->n; i++) {
        int to = lit_next(p, i);
        tern_put_signal_nbi_block(p->ctx, lit_of(p, to)->data[p->me], mine->row, 16 * blockDim.x,
                                  &lit_of(p, to)->sum[p->it % 2][0], 1, TERN_SIGNAL_ADD, lit_pe(p, to));
    }
    lit_await(p, &mine->sum[p->it % 2][0], full);
    for (int q = 0; q < p->n; q++)
        lit_check(p, mine->data[q], q);
    p->bad += tern_signal_fetch(p->ctx, &mine->sum[p->it % 2][0]) != full;
    lit_turn_all(p, p->it);
}

/* The own row is written through the API, so that the CPU device's weak mode may delay it. */
TERN_DEV void lit_store_own(struct lit *p, char *row)
{
    uint32_t part[4], v = lit_value(p->it, p->me, threadIdx.x);
    for (int i = 0; i < 4; i++)
        part[i] = v + (uint32_t)i;
    tern_put(p->ctx, row + 16 * threadIdx.x, part, 16, p->ctx.my_pe);
}

TERN_DEV void lit_get_signal(struct lit *p)
{
    int to = lit_next(p, 1), from = lit_before(p, 1);
    struct lit_region *mine = lit_mine(p);
    lit_store_own(p, mine->row);
    __syncthreads();
    if (threadIdx.x == 0) {
        tern_fence(p->ctx);
        tern_signal_op(p->ctx, &lit_of(p, to)->flag[p->me][0], p->it, TERN_SIGNAL_SET, lit_pe(p, to));
    }
    lit_await(p, &mine->flag[from][0], p->it);
    tern_get_block(p->ctx, mine->got, lit_of(p, from)->row, 16 * blockDim.x, lit_pe(p, from));
    lit_check(p, mine->got, from);
    lit_turn(p, from, to);
}

/* ---- atomics ------------------------------------------------------------------------------------------------------------- */

TERN_DEV void lit_atomic_sums(struct lit *p)
{
    struct lit_region *mine = lit_mine(p);
    uint64_t all = (uint64_t)p->n * blockDim.x, some = (uint64_t)p->n * ((blockDim.x + 15) / 16);
    for (int i = 0; i < p->n; i++) {
        int q = lit_next(p, i);
        tern_uint64_atomic_inc(p->ctx, &lit_of(p, q)->count[0], lit_pe(p, q));
        uint64_t seen = 0, old; /* a compare_swap loop counts as exactly; of a few threads, since the others make it try again */
        while (threadIdx.x % 16 == 0 &&
               (old = tern_uint64_atomic_compare_swap(p->ctx, &lit_of(p, q)->locked[0], seen, seen + 1, lit_pe(p, q))) !=
               seen) {
            seen = old;
            tern_prim_pause();
        }
    }
    tern_fence(p->ctx);
    lit_turn_all(p, 2 * p->it);
    if (threadIdx.x == 0)
        p->bad += tern_uint64_atomic_fetch(p->ctx, &mine->count[0], p->ctx.my_pe) != p->it * all ||
                  tern_uint64_atomic_fetch(p->ctx, &mine->locked[0], p->ctx.my_pe) != p->it * some;
    lit_turn_all(p, 2 * p->it + 1); /* before anybody counts on */
}

TERN_DEV void lit_tickets(struct lit *p)
{
    struct lit_region *first = lit_of(p, 0);
    uint32_t all = (uint32_t)p->n * blockDim.x;
    uint64_t ticket = tern_uint64_atomic_fetch_inc(p->ctx, &first->count[0], lit_pe(p, 0));
    tern_uint32_atomic_inc(p->ctx, &first->ticket[ticket % all], lit_pe(p, 0));
    tern_fence(p->ctx);
    lit_turn_all(p, 2 * p->it);
    for (uint32_t i = threadIdx.x; p->me == 0 && i < all; i += blockDim.x)
        p->bad += tern_uint32_atomic_fetch(p->ctx, &first->ticket[i], lit_pe(p, 0)) != p->it;
    lit_turn_all(p, 2 * p->it + 1);
}

/* ---- all PEs meet -------------------------------------------------------------------------------------------------------- */

/* A barrier by one thread, one warp or the block of this PE, for the block. */
TERN_DEV void lit_barrier(struct lit *p, uint32_t how)
{
    tern_status_t status = TERN_OK;
    if (how % 3 == 0) {
        status = tern_barrier_all_block(p->ctx);
    } else {
        __syncthreads();
        if (how % 3 == 1 && threadIdx.x < 32)
            status = tern_barrier_all_warp(p->ctx);
        else if (how % 3 == 2 && threadIdx.x == 0)
            status = tern_barrier_all(p->ctx);
        __syncthreads();
    }
    if (status != TERN_OK)
        p->status = status;
}

TERN_DEV void lit_barrier_puts(struct lit *p)
{
    uint32_t flags = p->ctx.flags;
    int to = lit_next(p, 1), from = lit_before(p, 1), at = 16 * (int)threadIdx.x;
    struct lit_region *mine = lit_mine(p);
    if (p->it % 2) /* flags are then set, not raised by one */
        p->ctx.flags &= ~TERN_CTX_AMO_DIRECT;
    lit_fill(p, mine->row);
    lit_jitter(p, 1);
    tern_put_nbi(p->ctx, lit_of(p, to)->data[p->me] + at, mine->row + at, 16, lit_pe(p, to));
    lit_barrier(p, p->it + (uint32_t)p->me);
    p->ctx.flags |= flags & TERN_CTX_AMO_DIRECT;
    lit_check(p, mine->data[from], from);
    lit_barrier(p, p->it / 3);
    lit_status(p, p->status);
}

TERN_DEV void lit_sync_own(struct lit *p)
{
    int from = lit_before(p, 1);
    struct lit_region *mine = lit_mine(p);
    lit_jitter(p, 1);
    lit_store_own(p, mine->row);
    tern_status_t status = tern_sync_all_block(p->ctx);
    tern_get_block(p->ctx, mine->got, lit_of(p, from)->row, 16 * blockDim.x, lit_pe(p, from));
    lit_check(p, mine->got, from);
    if (status == TERN_OK)
        status = tern_sync_all_block(p->ctx);
    lit_status(p, status);
}

TERN_DEV void lit_sync_released(struct lit *p)
{
    int to = lit_next(p, 1), from = lit_before(p, 1), at = 16 * (int)threadIdx.x;
    struct lit_region *mine = lit_mine(p);
    tern_ctx_t released = tern_ctx_flags(p->ctx, TERN_RELEASED);
    lit_fill(p, mine->row);
    lit_jitter(p, 1);
    tern_put_nbi(p->ctx, lit_of(p, to)->data[p->me] + at, mine->row + at, 16, lit_pe(p, to));
    tern_fence(p->ctx);
    tern_status_t status = tern_sync_all_block(released);
    lit_check(p, mine->data[from], from);
    if (status == TERN_OK)
        status = tern_sync_all_block(p->ctx);
    lit_status(p, status);
}

#endif
