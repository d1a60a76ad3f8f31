/*
 * exchange.cu - what the example is about: tokens travel to their experts and back inside kernels, by put-with-signal.
 *
 *   plan       which of its tokens does this PE send to whom (each token once per PE, in token order)
 *   dispatch   each row is put into the slot [source][i] of its destination, and the slot's flag is set behind it;
 *              one word per source tells how many rows come. Then wait for the rows of all others.
 *   index      which of the rows that came are for which of the own experts
 *   combine    each result is put into the slot [token][k] of the token's PE, with its flag; there the results of a token
 *              are awaited and summed, weighted, in fp32, in the order of k: the same bits in every run.
 *
 * A flag holds the number of the forward pass (epoch), so it never has to be cleared. A slot is written again only after
 * the barrier before the next dispatch, which no PE reaches before it has used what it received.
 *
 * dispatch and combine send everything before they wait for anything; with all their blocks resident at once (the host
 * sees to that) no PE can wait for a row that nobody is going to send.
 */
#include <tern/device.h>

#include "moe.h"

/* ---- failures and time ----------------------------------------------------------------------------------------------------- */

/* Keep the first failure; the host reads it when the pass is over. */
static __device__ bool moe_ok(const struct moe_buffers *b, tern_status_t status, int phase, int pe, int row)
{
    if (status == TERN_OK)
        return true;
    if (atomicCAS(&b->trouble->claimed, 0u, 1u) == 0u) {
        b->trouble->status = (int32_t)status;
        b->trouble->phase = phase;
        b->trouble->pe = pe;
        b->trouble->row = row;
    }
    return false;
}

/* After a failure the rest of the pass is not worth waiting for. */
static __device__ bool moe_failed(const struct moe_buffers *b)
{
    return *(volatile uint32_t *)&b->trouble->claimed != 0;
}

static __device__ void moe_clock(const struct moe_buffers *b, int phase, int end)
{
    if (threadIdx.x == 0)
        b->clocks[((size_t)phase * MOE_MAX_BLOCKS + blockIdx.x) * 2 + (size_t)end] = tern_prim_clock_ns();
}

/* ---- plan -------------------------------------------------------------------------------------------------------------------- */

static __device__ bool moe_goes_to(const struct moe_layer *m, const struct moe_head *head, int pe)
{
    for (int k = 0; k < m->topk; k++) {
        if (moe_owner(m, head->expert[k]) == pe)
            return true;
    }
    return false;
}

/* A warp takes a destination and walks over the tokens, 32 at a time; the votes tell each lane its place in the list. */
static __global__ void moe_plan_kernel(struct moe_layer m, struct moe_buffers b)
{
    int lane = (int)threadIdx.x % 32, warp = (int)(blockIdx.x * blockDim.x + threadIdx.x) / 32;
    int warps = (int)(gridDim.x * blockDim.x) / 32;

    for (int pe = warp; pe < m.n_pes; pe += warps) {
        int count = 0;
        for (int first = 0; first < m.my_tokens; first += 32) {
            int t = first + lane;
            bool goes = t < m.my_tokens && moe_goes_to(&m, moe_row(b.out_rows, (size_t)t, &m), pe);
            unsigned votes = __ballot_sync(0xffffffffu, goes);
            if (goes)
                b.list[(size_t)pe * (size_t)m.max_tokens + (size_t)(count + __popc(votes & ((1u << lane) - 1)))] = t;
            count += __popc(votes);
        }
        if (lane == 0)
            b.list_count[pe] = count;
    }
}

/* ---- dispatch ------------------------------------------------------------------------------------------------------------------ */

/* --inject flip: the row as it would look if one bit of it had turned on its way. All threads of the block. */
static __device__ const char *moe_spoil(const struct moe_layer *m, const struct moe_buffers *b, const char *row)
{
    char *spoiled = b->out_rows + (size_t)m->max_tokens * m->row_bytes;

    __syncthreads();
    for (uint32_t i = threadIdx.x; i < m->row_bytes; i += blockDim.x)
        spoiled[i] = (char)(row[i] ^ (i == m->row_bytes - 1 ? 1 : 0));
    __syncthreads();
    return spoiled;
}

/* The row that --inject spoils: the first one that leaves the PE of the first token for the first of its experts. */
static __device__ bool moe_is_victim(const struct moe_layer *m, const struct moe_buffers *b, int pe, int i)
{
    if (m->fault == MOE_FAULT_NONE || m->first_token != 0 || m->my_tokens == 0 || i != 0)
        return false;
    return pe == moe_owner(m, moe_row(b->out_rows, 0, m)->expert[0]);
}

/* Row `i` of those for PE `pe`, then its flag. All threads of the block. */
static __device__ void moe_send_row(tern_ctx_t ctx, const struct moe_layer *m, const struct moe_buffers *b, int pe, int i,
                                    uint64_t epoch)
{
    size_t slot = (size_t)m->pe * (size_t)m->max_tokens + (size_t)i; /* at the destination */
    int token = b->list[(size_t)pe * (size_t)m->max_tokens + (size_t)i];
    const char *row = b->out_rows + (size_t)token * m->row_bytes;

    if (moe_is_victim(m, b, pe, i)) {
        if (m->fault == MOE_FAULT_DROP)
            return;
        row = moe_spoil(m, b, row);
    }
    tern_put_signal_nbi_block(ctx, b->in_rows + slot * m->row_bytes, row, m->row_bytes, &b->in_flags[slot], epoch,
                              TERN_SIGNAL_SET, pe);
    if (threadIdx.x == 0)
        atomicAdd(&b->sent[pe], 1ull);
}

/* How many rows come from `pe` in this pass; 0 on failure. The number is in the signal itself. Each thread for itself. */
static __device__ int moe_await_count(tern_ctx_t ctx, const struct moe_buffers *b, int pe, uint64_t epoch)
{
    tern_status_t status = tern_signal_wait_until(ctx, &b->in_count[pe], TERN_CMP_GE, epoch << 32);
    return moe_ok(b, status, MOE_DISPATCH, pe, -1) ? (int)(uint32_t)tern_signal_fetch(ctx, &b->in_count[pe]) : 0;
}

static __global__ void __launch_bounds__(MOE_THREADS) moe_dispatch_kernel(tern_ctx_t ctx, struct moe_layer m, struct moe_buffers b, uint64_t epoch)
{
    int thread = (int)(blockIdx.x * blockDim.x + threadIdx.x), threads = (int)(gridDim.x * blockDim.x);

    ctx = tern_ctx_timeout(ctx, m.timeout_ms);
    moe_clock(&b, MOE_DISPATCH, 0);
    for (int pe = thread; pe < m.n_pes; pe += threads)
        tern_signal_op(ctx, &b.in_count[m.pe], epoch << 32 | (uint32_t)b.list_count[pe], TERN_SIGNAL_SET, pe);

    for (int n = 0; n < m.n_pes; n++) { /* every PE starts with another destination */
        int pe = (m.pe + n) % m.n_pes;
        for (int i = (int)blockIdx.x; i < b.list_count[pe]; i += (int)gridDim.x)
            moe_send_row(ctx, &m, &b, pe, i, epoch);
    }

    for (int n = 0; n < m.n_pes && !moe_failed(&b); n++) { /* the rows' flags are shared out among all threads */
        int pe = (m.pe + n) % m.n_pes, rows = moe_await_count(ctx, &b, pe, epoch);
        for (int i = thread; i < rows && !moe_failed(&b); i += threads) {
            uint64_t *flag = &b.in_flags[(size_t)pe * (size_t)m.max_tokens + (size_t)i];
            moe_ok(&b, tern_signal_wait_until(ctx, flag, TERN_CMP_EQ, epoch), MOE_DISPATCH, pe, i);
        }
    }
    __syncthreads();
    moe_clock(&b, MOE_DISPATCH, 1);
}

/* ---- index --------------------------------------------------------------------------------------------------------------------- */

/* Which of the token's choices is this expert? -1: none. */
static __device__ int moe_choice(const struct moe_layer *m, const struct moe_head *head, int expert)
{
    for (int k = 0; k < m->topk; k++) {
        if (head->expert[k] == expert)
            return k;
    }
    return -1;
}

/* A warp takes one of the own experts and walks over the rows that came, in the order of source and token. */
static __global__ void moe_index_kernel(struct moe_layer m, struct moe_buffers b)
{
    int lane = (int)threadIdx.x % 32, warp = (int)(blockIdx.x * blockDim.x + threadIdx.x) / 32;
    int warps = (int)(gridDim.x * blockDim.x) / 32;

    for (int e = warp; e < m.my_experts; e += warps) {
        int count = 0;
        for (int pe = 0; pe < m.n_pes && !moe_failed(&b); pe++) {
            int rows = (int)(uint32_t)b.in_count[pe];
            for (int first = 0; first < rows; first += 32) {
                size_t row = (size_t)pe * (size_t)m.max_tokens + (size_t)(first + lane);
                int k = first + lane < rows ? moe_choice(&m, moe_row(b.in_rows, row, &m), m.first_expert + e) : -1;
                unsigned votes = __ballot_sync(0xffffffffu, k >= 0);
                size_t place = (size_t)e * (size_t)m.tokens + (size_t)(count + __popc(votes & ((1u << lane) - 1)));
                if (k >= 0)
                    b.pairs[place] = (int32_t)row * m.topk + k;
                count += __popc(votes);
            }
        }
        if (lane == 0)
            b.pair_count[e] = count;
    }
}

/* ---- combine --------------------------------------------------------------------------------------------------------------------- */

/* The result of one (token, expert) goes back into its own slot at the token's PE, then its flag. All threads of the block. */
static __device__ void moe_return_result(tern_ctx_t ctx, const struct moe_layer *m, const struct moe_buffers *b,
                                         int32_t pair, uint64_t epoch)
{
    int row = pair / m->topk, pe = row / m->max_tokens;
    const struct moe_head *head = moe_row(b->in_rows, (size_t)row, m);
    size_t slot = (size_t)head->token * (size_t)m->topk + (size_t)(pair % m->topk); /* at the token's PE */

    tern_put_signal_nbi_block(ctx, b->back_rows + slot * m->value_bytes, b->results + (size_t)pair * m->value_bytes,
                              m->value_bytes, &b->back_flags[slot], epoch, TERN_SIGNAL_SET, pe);
}

static __device__ void moe_await_results(tern_ctx_t ctx, const struct moe_layer *m, const struct moe_buffers *b, int token,
                                         uint64_t epoch)
{
    int k = (int)threadIdx.x;

    if (k < m->topk && !moe_failed(b)) {
        int pe = moe_owner(m, moe_row(b->out_rows, (size_t)token, m)->expert[k]);
        uint64_t *flag = &b->back_flags[(size_t)token * (size_t)m->topk + (size_t)k];
        moe_ok(b, tern_signal_wait_until(ctx, flag, TERN_CMP_EQ, epoch), MOE_COMBINE, pe, token);
    }
    __syncthreads(); /* what one thread has awaited, the block may read */
}

static __device__ void moe_sum_results(const struct moe_layer *m, const struct moe_buffers *b, int token)
{
    const char *rows = b->back_rows + (size_t)token * (size_t)m->topk * m->value_bytes;

    for (int j = (int)threadIdx.x; j < m->hidden; j += (int)blockDim.x) {
        float sum = 0;
        for (int k = 0; k < m->topk; k++) {
            float weight = b->gate_weight[(size_t)token * (size_t)m->topk + (size_t)k];
            sum += weight * moe_load(rows + (size_t)k * m->value_bytes, (size_t)j, m->dtype);
        }
        moe_store(b->output + (size_t)token * m->value_bytes, (size_t)j, sum, m->dtype);
    }
}

static __global__ void __launch_bounds__(MOE_THREADS) moe_combine_kernel(tern_ctx_t ctx, struct moe_layer m, struct moe_buffers b, uint64_t epoch)
{
    ctx = tern_ctx_timeout(ctx, m.timeout_ms);
    moe_clock(&b, MOE_COMBINE, 0);
    for (int e = 0; e < m.my_experts; e++) {
        for (int i = (int)blockIdx.x; i < b.pair_count[e]; i += (int)gridDim.x)
            moe_return_result(ctx, &m, &b, b.pairs[(size_t)e * (size_t)m.tokens + (size_t)i], epoch);
    }
    for (int t = (int)blockIdx.x; t < m.my_tokens; t += (int)gridDim.x) {
        moe_await_results(ctx, &m, &b, t, epoch);
        moe_sum_results(&m, &b, t);
    }
    __syncthreads();
    moe_clock(&b, MOE_COMBINE, 1);
}

/* ---- called by the host part -------------------------------------------------------------------------------------------------------- */

tern_status_t moe_launch_plan(const struct moe_layer *m, const struct moe_buffers *b)
{
    return tern_launch(moe_plan_kernel, dim3(m->blocks), dim3(MOE_THREADS), 0, NULL, *m, *b);
}

tern_status_t moe_launch_dispatch(const tern_ctx_t *ctx, const struct moe_layer *m, const struct moe_buffers *b,
                                  uint64_t epoch)
{
    return tern_launch(moe_dispatch_kernel, dim3(m->blocks), dim3(MOE_THREADS), 0, NULL, *ctx, *m, *b, epoch);
}

tern_status_t moe_launch_index(const struct moe_layer *m, const struct moe_buffers *b)
{
    return tern_launch(moe_index_kernel, dim3(m->blocks), dim3(MOE_THREADS), 0, NULL, *m, *b);
}

tern_status_t moe_launch_combine(const tern_ctx_t *ctx, const struct moe_layer *m, const struct moe_buffers *b,
                                 uint64_t epoch)
{
    return tern_launch(moe_combine_kernel, dim3(m->blocks), dim3(MOE_THREADS), 0, NULL, *ctx, *m, *b, epoch);
}
