/* query.c - small public calls on the running runtime: who and where, facts, the context, order of host operations. */
#include <stdio.h>
#include <string.h>

#include "host/rt.h"
#include "host/range.h"
#include "proxy/proxy.h"

int tern_my_pe(void)
{
    return tern_rt_current ? tern_rt_current->pe : -1;
}

int tern_n_pes(void)
{
    return tern_rt_current ? tern_rt_current->n_pes : -1;
}

int tern_node_pe(void)
{
    return tern_rt_current ? tern_rt_current->node_pe : -1;
}

int tern_node_n_pes(void)
{
    return tern_rt_current ? tern_rt_current->node_n_pes : -1;
}

void tern_info_fill(struct tern_rt *rt, tern_info_t *info)
{
    memset(info, 0, sizeof *info);
    info->pe = rt->pe;
    info->n_pes = rt->n_pes;
    info->node_pe = rt->node_pe;
    info->node_n_pes = rt->node_n_pes;
    for (int pe = 0; pe < rt->n_pes; pe++)
        info->near_pes += rt->peers[pe].near;
    info->gpu = rt->device_id.ordinal;
    info->sms = rt->device_id.sms;
    info->sharers = rt->sharers;
    tern_heap_stats(rt, info);
    info->runtime_bytes = tern_device_runtime_bytes(rt);
    snprintf(info->device, sizeof info->device, "%s", rt->device_id.name);
    snprintf(info->bootstrap, sizeof info->bootstrap, "%s", rt->bootstrap->name);
}

tern_status_t tern_get_info(tern_info_t *info)
{
    tern_info_t full;
    struct tern_rt *rt = tern_rt_current;
    size_t size;

    if (!info || info->size < sizeof info->size)
        return tern_error(TERN_ERR_INVALID, "tern_get_info: set `size` to sizeof(tern_info_t) before the call");
    if (!rt)
        return tern_error(TERN_ERR_STATE, "tern_get_info: no runtime is running; call tern_init first");
    tern_info_fill(rt, &full);
    size = full.size = info->size;
    memcpy(info, &full, size < sizeof full ? size : sizeof full);
    return TERN_OK;
}

tern_status_t tern_ctx_fill(tern_ctx_t *ctx, size_t size, uint32_t abi)
{
    tern_status_t status;
    struct tern_rt *rt = tern_rt_enter("tern_ctx", &status);

    if (!rt)
        return status;
    if (!ctx)
        return tern_error(TERN_ERR_INVALID, "tern_ctx: the context is NULL; pass the address of a tern_ctx_t");
    if (size != sizeof *ctx || abi != TERN_ABI_VERSION)
        return tern_error(TERN_ERR_VERSION,
                          "tern_ctx: compiled with headers of ABI %u (%zu bytes), the library has ABI %u (%zu "
                          "bytes); compile with the headers of this library",
                          abi, size, TERN_ABI_VERSION, sizeof *ctx);
    memset(ctx, 0, sizeof *ctx);
    ctx->generation = rt->generation;
    ctx->flags = (rt->env.check ? TERN_CTX_CHECK : 0) | (rt->amo_direct ? TERN_CTX_AMO_DIRECT : 0) |
                 (rt->slots_dev ? TERN_CTX_SLOTS : 0);
    ctx->my_pe = rt->pe;
    ctx->n_pes = rt->n_pes;
    ctx->near_first = rt->near_first;
    ctx->near_count = rt->near_count;
    ctx->heap = rt->span;
    ctx->stride = rt->stride;
    ctx->state = rt->state_dev;
    if (rt->proxy)
        tern_proxy_ctx(rt, ctx);
    return TERN_OK;
}

/*
 * What finished kernels and the host stored is complete once this thread's stores are; what kernels gave to the proxy,
 * once that has completed it.
 */
static tern_status_t quiet(struct tern_rt *rt)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    return rt->proxy ? tern_proxy_quiet(rt) : TERN_OK;
}

tern_status_t tern_quiet(void)
{
    TERN_RANGE("tern_quiet");
    tern_status_t status;
    struct tern_rt *rt = tern_rt_enter("tern_quiet", &status);
    return rt ? quiet(rt) : status;
}

tern_status_t tern_barrier_all(void)
{
    TERN_RANGE("tern_barrier_all");
    tern_status_t status, met;
    struct tern_rt *rt = tern_rt_enter("tern_barrier_all", &status);
    if (!rt)
        return status;
    status = quiet(rt); /* a failure is this PE's own: the others do not wait for it */
    met = tern_agree(rt, true, "tern_barrier_all");
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    return met == TERN_OK ? status : met;
}
