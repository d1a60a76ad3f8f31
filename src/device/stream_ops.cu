/*
 * stream_ops.cu - kernels of the stream-ordered operations: the device API, called by a grid of its own. Launches are plain,
 * so they can be captured in a graph. Few and small blocks: kernels of other PEs on this GPU may wait for these.
 */
#include <tern/device.h>

#include "device/stream_ops.h"

#define STREAM_THREADS 512            /* of a block that copies */
#define STREAM_BYTES_BLOCK (64u << 10) /* a block's least share of a copy: one round of its threads, 8 x 16 bytes each */

/* Share of block `index` of `blocks`: whole 128-byte lines, so that all shares are aligned as the whole is. */
TERN_DEV void stream_share(size_t bytes, size_t index, size_t blocks, size_t *at, size_t *share)
{
    size_t step = ((bytes + blocks - 1) / blocks + 127) & ~(size_t)127;
    *at = index * step < bytes ? index * step : bytes;
    *share = bytes - *at < step ? bytes - *at : step;
}

static __global__ void __launch_bounds__(STREAM_THREADS) stream_put_kernel(tern_ctx_t ctx, struct tern_stream_copy c)
{
    size_t at, share;
    if (c.sig && gridDim.x == 1) {
        tern_put_signal_nbi_block(ctx, c.dst, c.src, c.bytes, c.sig, c.value, c.op, c.pe);
        return;
    }
    stream_share(c.bytes, blockIdx.x, gridDim.x, &at, &share);
    tern_put_nbi_block(ctx, (char *)c.dst + at, (const char *)c.src + at, share, c.pe);
}

static __global__ void __launch_bounds__(STREAM_THREADS) stream_get_kernel(tern_ctx_t ctx, struct tern_stream_copy c)
{
    size_t at, share;
    stream_share(c.bytes, blockIdx.x, gridDim.x, &at, &share);
    tern_get_block(ctx, (char *)c.dst + at, (const char *)c.src + at, share, c.pe);
}

/* What comes before in the stream is complete on this device; the fence makes it so for all PEs before the signal. */
static __global__ void stream_signal_kernel(tern_ctx_t ctx, uint64_t *sig, uint64_t value, int op, int pe)
{
    tern_fence(ctx);
    tern_signal_op(ctx, sig, value, op, pe);
}

static __global__ void stream_wait_kernel(tern_ctx_t ctx, uint64_t *sig, int cmp, uint64_t value)
{
    (void)tern_signal_wait_until(ctx, sig, cmp, value);
}

static __global__ void stream_quiet_kernel(tern_ctx_t ctx)
{
    (void)tern_quiet(ctx);
}

static __global__ void stream_barrier_kernel(tern_ctx_t ctx)
{
    (void)tern_barrier_all_block(ctx);
}

static __global__ void stream_sync_kernel(tern_ctx_t ctx)
{
    (void)tern_sync_all_block(ctx);
}

#ifdef __CUDACC__
const char *tern_stream_load(void)
{
    const void *kernels[] = {(const void *)stream_put_kernel,     (const void *)stream_get_kernel,
                             (const void *)stream_signal_kernel,  (const void *)stream_wait_kernel,
                             (const void *)stream_quiet_kernel,   (const void *)stream_barrier_kernel,
                             (const void *)stream_sync_kernel};
    for (const void *kernel : kernels) {
        struct cudaFuncAttributes unused;
        cudaError_t error = cudaFuncGetAttributes(&unused, kernel);
        if (error != cudaSuccess)
            return cudaGetErrorString(error);
    }
    return NULL;
}
#endif

static unsigned stream_blocks(size_t bytes, int most)
{
    size_t blocks = (bytes + STREAM_BYTES_BLOCK - 1) / STREAM_BYTES_BLOCK;
    if (blocks > (size_t)most)
        blocks = (size_t)most;
    return blocks ? (unsigned)blocks : 1;
}

/* Threads of a block: a warp for what one round of a warp copies, and for what the proxy copies. */
static unsigned stream_threads(size_t bytes, int most)
{
    unsigned threads = 32;
    while (most && threads < STREAM_THREADS && (size_t)threads * 16 < bytes)
        threads *= 2;
    return threads;
}

/* One thread a PE, in whole warps. */
static unsigned stream_meet_threads(int n_pes)
{
    return n_pes < STREAM_THREADS ? ((unsigned)n_pes + 31) & ~31u : STREAM_THREADS;
}

tern_status_t tern_stream_put(const tern_ctx_t *ctx, const struct tern_stream_copy *copy, int blocks,
                              tern_stream_t stream)
{
    unsigned grid = stream_blocks(copy->bytes, blocks);
    tern_status_t status =
        tern_launch(stream_put_kernel, grid, stream_threads(copy->bytes, blocks), 0, stream, *ctx, *copy);
    if (status == TERN_OK && copy->sig && grid > 1)
        status = tern_stream_signal(ctx, copy->sig, copy->value, copy->op, copy->pe, stream);
    return status;
}

tern_status_t tern_stream_get(const tern_ctx_t *ctx, const struct tern_stream_copy *copy, int blocks,
                              tern_stream_t stream)
{
    return tern_launch(stream_get_kernel, stream_blocks(copy->bytes, blocks), stream_threads(copy->bytes, blocks), 0, stream,
                       *ctx, *copy);
}

tern_status_t tern_stream_signal(const tern_ctx_t *ctx, uint64_t *sig, uint64_t value, int op, int pe,
                                 tern_stream_t stream)
{
    return tern_launch(stream_signal_kernel, 1, 1, 0, stream, *ctx, sig, value, op, pe);
}

tern_status_t tern_stream_wait(const tern_ctx_t *ctx, uint64_t *sig, int cmp, uint64_t value, tern_stream_t stream)
{
    return tern_launch(stream_wait_kernel, 1, 1, 0, stream, *ctx, sig, cmp, value);
}

tern_status_t tern_stream_quiet(const tern_ctx_t *ctx, tern_stream_t stream)
{
    return tern_launch(stream_quiet_kernel, 1, 1, 0, stream, *ctx);
}

tern_status_t tern_stream_barrier(const tern_ctx_t *ctx, tern_stream_t stream)
{
    return tern_launch(stream_barrier_kernel, 1, stream_meet_threads(ctx->n_pes), 0, stream, *ctx);
}

tern_status_t tern_stream_sync(const tern_ctx_t *ctx, tern_stream_t stream)
{
    return tern_launch(stream_sync_kernel, 1, stream_meet_threads(ctx->n_pes), 0, stream, *ctx);
}
