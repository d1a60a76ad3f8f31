/* stream_ops.h - the kernels of the stream-ordered operations, as stream_ops.c launches them: arguments are checked. */
#ifndef TERN_DEVICE_STREAM_OPS_H
#define TERN_DEVICE_STREAM_OPS_H

#include <tern/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a put, get or put_signal moves: `sig` NULL for those without a signal. */
struct tern_stream_copy {
    void *dst;
    const void *src;
    size_t bytes;
    int pe;
    uint64_t *sig;
    uint64_t value;
    int op;
};

/*
 * CUDA device: have the driver load all kernels now. Loading waits for kernels that run, with a lock of the driver, and
 * those may wait for what this launch, or a transport's call of the driver, would bring. The GPU's context is current.
 * NULL, or what went wrong.
 */
const char *tern_stream_load(void);

/*
 * Blocks: as many as the caller allows, fewer for small copies; 0: the proxy copies, one warp hands it over. A
 * put_signal of several blocks is two kernels.
 */
tern_status_t tern_stream_put(const tern_ctx_t *ctx, const struct tern_stream_copy *copy, int blocks,
                              tern_stream_t stream);
tern_status_t tern_stream_get(const tern_ctx_t *ctx, const struct tern_stream_copy *copy, int blocks,
                              tern_stream_t stream);
tern_status_t tern_stream_signal(const tern_ctx_t *ctx, uint64_t *sig, uint64_t value, int op, int pe,
                                 tern_stream_t stream);
tern_status_t tern_stream_wait(const tern_ctx_t *ctx, uint64_t *sig, int cmp, uint64_t value, tern_stream_t stream);
tern_status_t tern_stream_quiet(const tern_ctx_t *ctx, tern_stream_t stream);
tern_status_t tern_stream_barrier(const tern_ctx_t *ctx, tern_stream_t stream);
tern_status_t tern_stream_sync(const tern_ctx_t *ctx, tern_stream_t stream);

#ifdef __cplusplus
}
#endif
#endif
