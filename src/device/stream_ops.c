/*
 * stream_ops.c - the stream-ordered operations of tern.h: arguments are checked here, on the host, whatever TERN_CHECK says;
 * the kernels are in stream_ops.cu.
 */
#include "device/stream_ops.h"
#include "host/rt.h"
#include "host/range.h"
#include "proxy/proxy.h"

tern_status_t tern_launch_failed(const char *name, const char *text)
{
    return tern_error(TERN_ERR_DEVICE, "kernel launch failed: %s (%s); check grid, block, shared memory and stream", name,
                      text);
}

/* The runtime and its context, for one call; NULL and *status otherwise. */
static struct tern_rt *stream_enter(const char *call, tern_ctx_t *ctx, tern_status_t *status)
{
    struct tern_rt *rt = tern_rt_enter(call, status);
    if (!rt)
        return NULL;
    *status = tern_ctx(ctx);
    return *status == TERN_OK ? rt : NULL;
}

static tern_status_t stream_check_pe(const struct tern_rt *rt, const char *call, int pe)
{
    if (pe >= 0 && pe < rt->n_pes)
        return TERN_OK;
    return tern_error(TERN_ERR_INVALID, "%s: PE %d is out of range; this job has PEs 0 to %d", call, pe, rt->n_pes - 1);
}

/* `bytes` at `addr` lie in the user heap. */
static tern_status_t stream_check_range(const struct tern_rt *rt, const char *call, const char *what, const void *addr,
                                        size_t bytes)
{
    const char *heap = rt->span + rt->user_offset;
    uint64_t offset = (uint64_t)((const char *)addr - heap);
    if (bytes == 0)
        return TERN_OK;
    if (offset >= rt->user_backed)
        return tern_error(TERN_ERR_INVALID, "%s: %s %p is not a symmetric address; pass memory from tern_malloc", call,
                          what, addr);
    if (bytes > rt->user_backed - offset)
        return tern_error(TERN_ERR_INVALID,
                          "%s: %zu bytes at %s %p go %llu bytes beyond the end of the symmetric heap; pass at most the "
                          "size that was allocated",
                          call, bytes, what, addr, (unsigned long long)(bytes - (rt->user_backed - offset)));
    return TERN_OK;
}

static tern_status_t stream_check_signal(const struct tern_rt *rt, const char *call, const uint64_t *sig)
{
    tern_status_t status = stream_check_range(rt, call, "signal", sig, sizeof *sig);
    if (status == TERN_OK && (uintptr_t)sig % sizeof *sig)
        status = tern_error(TERN_ERR_INVALID, "%s: signal %p is not aligned to 8 bytes; declare it as uint64_t", call,
                            (const void *)sig);
    return status;
}

static tern_status_t stream_check_signal_op(const struct tern_rt *rt, const char *call, const uint64_t *sig, int op)
{
    tern_status_t status = stream_check_signal(rt, call, sig);
    if (status == TERN_OK && op != TERN_SIGNAL_SET && op != TERN_SIGNAL_ADD)
        status = tern_error(TERN_ERR_INVALID, "%s: signal operation %d is unknown; pass TERN_SIGNAL_SET or _ADD", call, op);
    return status;
}

/* The proxy needs to know local memory; but values of a word travel in the order itself. */
static tern_status_t stream_check_local(struct tern_rt *rt, const char *call, bool put, const void *remote,
                                        const void *local, size_t bytes, int pe)
{
    bool word = bytes <= 8 && !(bytes & (bytes - 1)) && (uintptr_t)remote % bytes == 0;
    if (rt->peers[pe].near || word || tern_proxy_local_ok(rt, local, bytes))
        return TERN_OK;
    return tern_error(TERN_ERR_INVALID,
                      "%s: %s %p (%zu bytes) is neither symmetric nor registered, and PE %d is reached through the proxy; "
                      "register it by tern_buffer_register, or pass memory from tern_malloc",
                      call, put ? "source" : "destination", local, bytes, pe);
}

/* A copy between `bytes` at symmetric `remote` of PE `pe` and local memory. */
static tern_status_t stream_check_copy(struct tern_rt *rt, const char *call, bool put, const void *remote,
                                       const void *local, size_t bytes, int pe)
{
    tern_status_t status = stream_check_pe(rt, call, pe);
    if (status == TERN_OK)
        status = stream_check_range(rt, call, put ? "destination" : "source", remote, bytes);
    if (status == TERN_OK && !local && bytes)
        status = tern_error(TERN_ERR_INVALID, "%s: %s is NULL; pass device memory of %zu bytes", call,
                            put ? "source" : "destination", bytes);
    if (status == TERN_OK && bytes)
        status = stream_check_local(rt, call, put, remote, local, bytes, pe);
    return status;
}

/*
 * Blocks that one PE's kernel may take for a copy: the multiprocessors of the device, shared by the PEs on it; none where
 * the proxy copies.
 */
static int stream_blocks_most(const struct tern_rt *rt, int pe)
{
    int blocks = rt->device_id.sms / (rt->sharers > 0 ? rt->sharers : 1);
    if (!rt->peers[pe].near)
        return 0;
    return blocks > 0 ? blocks : 1;
}

/* A put or get without a signal. */
static tern_status_t stream_copy(const char *call, bool put, const struct tern_stream_copy *copy, tern_stream_t stream)
{
    const void *remote = put ? copy->dst : copy->src, *local = put ? copy->src : copy->dst;
    tern_ctx_t ctx;
    tern_status_t status;
    struct tern_rt *rt = stream_enter(call, &ctx, &status);
    if (!rt)
        return status;
    status = stream_check_copy(rt, call, put, remote, local, copy->bytes, copy->pe);
    if (status != TERN_OK || !copy->bytes)
        return status;
    return (put ? tern_stream_put : tern_stream_get)(&ctx, copy, stream_blocks_most(rt, copy->pe), stream);
}

tern_status_t tern_put_on_stream(void *dst, const void *src, size_t bytes, int pe, tern_stream_t stream)
{
    TERN_RANGE("tern_put_on_stream");
    const struct tern_stream_copy copy = {.dst = dst, .src = src, .bytes = bytes, .pe = pe};
    return stream_copy("tern_put_on_stream", true, &copy, stream);
}

tern_status_t tern_get_on_stream(void *dst, const void *src, size_t bytes, int pe, tern_stream_t stream)
{
    TERN_RANGE("tern_get_on_stream");
    const struct tern_stream_copy copy = {.dst = dst, .src = src, .bytes = bytes, .pe = pe};
    return stream_copy("tern_get_on_stream", false, &copy, stream);
}

tern_status_t tern_put_signal_on_stream(void *dst, const void *src, size_t bytes, uint64_t *sig, uint64_t value, int op,
                                        int pe, tern_stream_t stream)
{
    TERN_RANGE("tern_put_signal_on_stream");
    const char *call = "tern_put_signal_on_stream";
    const struct tern_stream_copy copy = {dst, src, bytes, pe, sig, value, op};
    tern_ctx_t ctx;
    tern_status_t status;
    struct tern_rt *rt = stream_enter(call, &ctx, &status);
    if (!rt)
        return status;
    status = stream_check_copy(rt, call, true, dst, src, bytes, pe);
    if (status == TERN_OK)
        status = stream_check_signal_op(rt, call, sig, op);
    if (status == TERN_OK)
        status = tern_stream_put(&ctx, &copy, stream_blocks_most(rt, pe), stream);
    return status;
}

tern_status_t tern_signal_op_on_stream(uint64_t *sig, uint64_t value, int op, int pe, tern_stream_t stream)
{
    TERN_RANGE("tern_signal_op_on_stream");
    const char *call = "tern_signal_op_on_stream";
    tern_ctx_t ctx;
    tern_status_t status;
    struct tern_rt *rt = stream_enter(call, &ctx, &status);
    if (!rt)
        return status;
    status = stream_check_pe(rt, call, pe);
    if (status == TERN_OK)
        status = stream_check_signal_op(rt, call, sig, op);
    if (status == TERN_OK)
        status = tern_stream_signal(&ctx, sig, value, op, pe, stream);
    return status;
}

tern_status_t tern_signal_wait_until_on_stream(uint64_t *sig, int cmp, uint64_t value, tern_stream_t stream)
{
    TERN_RANGE("tern_signal_wait_until_on_stream");
    const char *call = "tern_signal_wait_until_on_stream";
    tern_ctx_t ctx;
    tern_status_t status;
    struct tern_rt *rt = stream_enter(call, &ctx, &status);
    if (!rt)
        return status;
    if (cmp < TERN_CMP_EQ || cmp > TERN_CMP_GE)
        return tern_error(TERN_ERR_INVALID, "%s: comparison %d is unknown; pass one of TERN_CMP_*", call, cmp);
    status = stream_check_signal(rt, call, sig);
    return status == TERN_OK ? tern_stream_wait(&ctx, sig, cmp, value, stream) : status;
}

tern_status_t tern_quiet_on_stream(tern_stream_t stream)
{
    TERN_RANGE("tern_quiet_on_stream");
    tern_ctx_t ctx;
    tern_status_t status;
    return stream_enter("tern_quiet_on_stream", &ctx, &status) ? tern_stream_quiet(&ctx, stream) : status;
}

tern_status_t tern_barrier_all_on_stream(tern_stream_t stream)
{
    TERN_RANGE("tern_barrier_all_on_stream");
    tern_ctx_t ctx;
    tern_status_t status;
    return stream_enter("tern_barrier_all_on_stream", &ctx, &status) ? tern_stream_barrier(&ctx, stream) : status;
}

tern_status_t tern_sync_all_on_stream(tern_stream_t stream)
{
    TERN_RANGE("tern_sync_all_on_stream");
    tern_ctx_t ctx;
    tern_status_t status;
    return stream_enter("tern_sync_all_on_stream", &ctx, &status) ? tern_stream_sync(&ctx, stream) : status;
}
