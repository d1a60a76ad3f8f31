/*
 * copier.c - copies of the loopback transport on GPUs: device to pinned host memory and from there to the device, each
 * by a copy engine, on a stream of their own. Some 10 us each.
 */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/driver.h"
#include "host/rt.h"

struct tern_copier {
    struct tern_device *device;
    CUstream stream;
    char *bounce; /* pinned, TERN_CUDA_BOUNCE_BYTES */
};

static CUdeviceptr dev_ptr(const void *p)
{
    return (CUdeviceptr)(uintptr_t)p;
}

tern_status_t tern_device_copier_open(struct tern_rt *rt, struct tern_copier **out)
{
    struct tern_copier *c = calloc(1, sizeof *c);
    struct tern_cuda_scope scope;
    tern_status_t status;

    if (!c)
        return tern_error(TERN_ERR_NO_MEMORY, "no host memory for the loopback transport");
    c->device = rt->device;
    status = tern_cuda_enter(c->device, &scope);
    if (status != TERN_OK)
        goto err_copier;
    status = tern_cuda_check(tern_cuda.cuStreamCreate(&c->stream, CU_STREAM_NON_BLOCKING),
                             "stream of the loopback transport");
    if (status != TERN_OK)
        goto err_scope;
    status = tern_cuda_check(tern_cuda.cuMemHostAlloc((void **)&c->bounce, TERN_CUDA_BOUNCE_BYTES, 0),
                             "pinned memory of the loopback transport");
    if (status != TERN_OK)
        goto err_stream;
    tern_cuda_leave(&scope);
    *out = c;
    return TERN_OK;
err_stream:
    tern_cuda_note(tern_cuda.cuStreamDestroy(c->stream), "stream of the loopback transport");
err_scope:
    tern_cuda_leave(&scope);
err_copier:
    free(c);
    return status;
}

void tern_device_copier_close(struct tern_copier *c)
{
    struct tern_cuda_scope scope;

    if (!c)
        return;
    if (tern_cuda_enter(c->device, &scope) == TERN_OK) {
        tern_cuda_note(tern_cuda.cuStreamDestroy(c->stream), "stream of the loopback transport");
        tern_cuda_note(tern_cuda.cuMemFreeHost(c->bounce), "pinned memory of the loopback transport");
        tern_cuda_leave(&scope);
    }
    free(c);
}

/* Polled: waiting in the driver might hold a lock that the program's threads need. */
static CUresult finish(struct tern_copier *c)
{
    CUresult result;
    while ((result = tern_cuda.cuStreamQuery(c->stream)) == CUDA_ERROR_NOT_READY)
        sched_yield();
    return result;
}

/* One piece through the bounce buffer; either side may be host memory of ours (NULL: what is in the buffer). */
static CUresult piece(struct tern_copier *c, void *dst, const void *src, size_t bytes)
{
    CUresult result = CUDA_SUCCESS;
    if (src)
        result = tern_cuda.cuMemcpyDtoHAsync(c->bounce, dev_ptr(src), bytes, c->stream);
    if (result == CUDA_SUCCESS && dst)
        result = tern_cuda.cuMemcpyHtoDAsync(dev_ptr(dst), c->bounce, bytes, c->stream);
    return result == CUDA_SUCCESS ? finish(c) : result;
}

tern_status_t tern_device_copier_copy(struct tern_copier *c, void *dst, const void *src, uint64_t bytes)
{
    struct tern_cuda_scope scope;
    tern_status_t status = tern_cuda_enter(c->device, &scope);
    CUresult result = CUDA_SUCCESS;

    if (status != TERN_OK)
        return status;
    for (uint64_t at = 0; at < bytes && result == CUDA_SUCCESS; at += TERN_CUDA_BOUNCE_BYTES) {
        uint64_t left = bytes - at;
        result = piece(c, (char *)dst + at, (const char *)src + at,
                       left < TERN_CUDA_BOUNCE_BYTES ? left : TERN_CUDA_BOUNCE_BYTES);
    }
    tern_cuda_leave(&scope);
    return tern_cuda_check(result, "loopback copy of %llu bytes", (unsigned long long)bytes);
}

tern_status_t tern_device_copier_store(struct tern_copier *c, void *dst, uint64_t value, unsigned bytes)
{
    struct tern_cuda_scope scope;
    tern_status_t status = tern_cuda_enter(c->device, &scope);
    CUresult result;

    if (status != TERN_OK)
        return status;
    memcpy(c->bounce, &value, sizeof value); /* little-endian: its first bytes are the word */
    result = piece(c, dst, NULL, bytes);
    tern_cuda_leave(&scope);
    return tern_cuda_check(result, "loopback store");
}

tern_status_t tern_device_copier_load(struct tern_copier *c, const void *src, unsigned bytes, uint64_t *value)
{
    struct tern_cuda_scope scope;
    tern_status_t status = tern_cuda_enter(c->device, &scope);
    CUresult result;

    if (status != TERN_OK)
        return status;
    result = piece(c, NULL, src, bytes);
    *value = 0;
    memcpy(value, c->bounce, bytes);
    tern_cuda_leave(&scope);
    return tern_cuda_check(result, "loopback load");
}
