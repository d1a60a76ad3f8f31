/*
 * memory.c - GPU memory: chunks of the symmetric heap (virtual memory management), memory of the runtime itself, pinned
 * host memory, and copies. No copy is a kernel (host memory at the other end, pinned), so none waits for spinning ones.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/cuda/driver.h"

/* Memory given out by tern_device_alloc, for the count. */
struct tern_cuda_block {
    struct tern_cuda_block *next;
    CUdeviceptr dev;
    uint64_t bytes;
};

static CUdeviceptr dev_ptr(const void *p)
{
    return (CUdeviceptr)(uintptr_t)p;
}

/* ---- chunks ------------------------------------------------------------------------------------------------------ */

void tern_cuda_chunk_properties(const struct tern_device *d, CUmemAllocationProp *prop)
{
    memset(prop, 0, sizeof(*prop));
    prop->type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop->requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    prop->location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop->location.id = d->device;
    prop->allocFlags.gpuDirectRDMACapable = d->rdma;
}

tern_status_t tern_device_reserve(struct tern_rt *rt, uint64_t bytes, void **base)
{
    struct tern_cuda_scope scope;
    CUdeviceptr at = 0;
    tern_status_t status = tern_cuda_enter(rt->device, &scope);

    if (status != TERN_OK)
        return status;
    status = tern_cuda_check(tern_cuda.cuMemAddressReserve(&at, bytes, 0, 0, 0),
                             "reserve %llu bytes of GPU address space", (unsigned long long)bytes);
    tern_cuda_leave(&scope);
    *base = (void *)(uintptr_t)at;
    return status;
}

void tern_device_unreserve(struct tern_rt *rt, void *base, uint64_t bytes)
{
    struct tern_cuda_scope scope;

    if (tern_cuda_enter(rt->device, &scope) != TERN_OK)
        return;
    tern_cuda_note(tern_cuda.cuMemAddressFree(dev_ptr(base), bytes), "free address space");
    tern_cuda_leave(&scope);
}

tern_status_t tern_device_chunk_create(struct tern_rt *rt, uint64_t bytes, struct tern_chunk *chunk)
{
    struct tern_device *d = rt->device;
    struct tern_cuda_scope scope;
    CUmemAllocationProp prop;
    CUmemGenericAllocationHandle handle = 0;
    tern_status_t status = tern_cuda_enter(d, &scope);

    if (status != TERN_OK)
        return status;
    tern_cuda_chunk_properties(d, &prop);
    status = tern_cuda_check(tern_cuda.cuMemCreate(&handle, bytes, &prop, 0), "allocate %llu bytes of GPU %d",
                             (unsigned long long)bytes, d->ordinal);
    tern_cuda_leave(&scope);
    if (status == TERN_OK)
        *chunk = (struct tern_chunk){.bytes = bytes, .handle = handle};
    return status;
}

tern_status_t tern_device_chunk_export(struct tern_rt *rt, const struct tern_chunk *chunk, int *fd)
{
    struct tern_cuda_scope scope;
    int out = -1;
    tern_status_t status = tern_cuda_enter(rt->device, &scope);

    if (status != TERN_OK)
        return status;
    status = tern_cuda_check(
        tern_cuda.cuMemExportToShareableHandle(&out, chunk->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
        "export %llu bytes of GPU memory as a file descriptor", (unsigned long long)chunk->bytes);
    tern_cuda_leave(&scope);
    if (status != TERN_OK)
        return status;
    if (fcntl(out, F_SETFD, FD_CLOEXEC) != 0) {
        status = tern_error(TERN_ERR_SYSTEM, "cannot mark an exported handle close-on-exec: %s", strerror(errno));
        close(out);
        return status;
    }
    *fd = out;
    return TERN_OK;
}

tern_status_t tern_device_chunk_import(struct tern_rt *rt, int fd, uint64_t bytes, struct tern_chunk *chunk)
{
    struct tern_cuda_scope scope;
    CUmemGenericAllocationHandle handle = 0;
    tern_status_t status = tern_cuda_enter(rt->device, &scope);

    if (status != TERN_OK)
        return status;
    status = tern_cuda_check(tern_cuda.cuMemImportFromShareableHandle(&handle, (void *)(uintptr_t)fd,
                                                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                             "import %llu bytes of another PE's GPU memory", (unsigned long long)bytes);
    tern_cuda_leave(&scope);
    if (status == TERN_OK)
        *chunk = (struct tern_chunk){.bytes = bytes, .handle = handle, .imported = true};
    return status;
}

tern_status_t tern_device_chunk_map(struct tern_rt *rt, const struct tern_chunk *chunk, void *addr)
{
    struct tern_device *d = rt->device;
    struct tern_cuda_scope scope;
    CUmemAccessDesc access;
    tern_status_t status = tern_cuda_enter(d, &scope);

    if (status != TERN_OK)
        return status;
    status = tern_cuda_check(tern_cuda.cuMemMap(dev_ptr(addr), chunk->bytes, 0, chunk->handle, 0),
                             "map %llu bytes of GPU memory", (unsigned long long)chunk->bytes);
    if (status == TERN_OK) {
        /* access of the own GPU, wherever the memory is: range by range, so no other mapping pays for it */
        memset(&access, 0, sizeof(access));
        access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        access.location.id = d->device;
        access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        status = tern_cuda_check(tern_cuda.cuMemSetAccess(dev_ptr(addr), chunk->bytes, &access, 1),
                                 "let GPU %d access %llu bytes%s", d->ordinal, (unsigned long long)chunk->bytes,
                                 chunk->imported ? " of another PE" : "");
        if (status != TERN_OK)
            tern_cuda_note(tern_cuda.cuMemUnmap(dev_ptr(addr), chunk->bytes), "unmap memory");
    }
    tern_cuda_leave(&scope);
    return status;
}

void tern_device_chunk_unmap(struct tern_rt *rt, const struct tern_chunk *chunk, void *addr)
{
    struct tern_cuda_scope scope;

    if (tern_cuda_enter(rt->device, &scope) != TERN_OK)
        return;
    tern_cuda_note(tern_cuda.cuMemUnmap(dev_ptr(addr), chunk->bytes), "unmap memory");
    tern_cuda_leave(&scope);
}

void tern_device_chunk_destroy(struct tern_rt *rt, struct tern_chunk *chunk)
{
    struct tern_cuda_scope scope;

    if (tern_cuda_enter(rt->device, &scope) == TERN_OK) {
        tern_cuda_note(tern_cuda.cuMemRelease(chunk->handle), "release memory");
        tern_cuda_leave(&scope);
    }
    memset(chunk, 0, sizeof(*chunk));
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

static tern_status_t finish(struct tern_device *d, const char *what)
{
    return tern_cuda_check(tern_cuda.cuStreamSynchronize(d->stream), "%s", what);
}

/* The context is current and the lock held. */
static tern_status_t write_locked(struct tern_device *d, CUdeviceptr dev, const char *host, uint64_t bytes)
{
    tern_status_t status = TERN_OK;

    while (bytes && status == TERN_OK) {
        uint64_t n = bytes < TERN_CUDA_BOUNCE_BYTES ? bytes : TERN_CUDA_BOUNCE_BYTES;

        memcpy(d->bounce, host, n);
        status = tern_cuda_check(tern_cuda.cuMemcpyHtoDAsync(dev, d->bounce, n, d->stream), "copy to the GPU");
        if (status == TERN_OK)
            status = finish(d, "copy to the GPU");
        dev += n, host += n, bytes -= n;
    }
    return status;
}

tern_status_t tern_device_write(struct tern_rt *rt, void *dev, const void *host, uint64_t bytes)
{
    struct tern_cuda_scope scope;
    tern_status_t status = tern_cuda_enter(rt->device, &scope);

    if (status != TERN_OK)
        return status;
    pthread_mutex_lock(&rt->device->lock);
    status = write_locked(rt->device, dev_ptr(dev), host, bytes);
    pthread_mutex_unlock(&rt->device->lock);
    tern_cuda_leave(&scope);
    return status;
}

/* Copies of zeroes: a memset is a kernel, which would wait for kernels that wait for this call's end on another PE. */
tern_status_t tern_device_zero(struct tern_rt *rt, void *dev, uint64_t bytes)
{
    struct tern_device *d = rt->device;
    struct tern_cuda_scope scope;
    tern_status_t status = tern_cuda_enter(d, &scope), synced;
    CUdeviceptr at = dev_ptr(dev);

    if (status != TERN_OK)
        return status;
    while (bytes && status == TERN_OK) {
        uint64_t n = bytes < TERN_CUDA_BOUNCE_BYTES ? bytes : TERN_CUDA_BOUNCE_BYTES;

        status = tern_cuda_check(tern_cuda.cuMemcpyHtoDAsync(at, d->zeroes, n, d->stream), "zero GPU memory");
        at += n, bytes -= n;
    }
    synced = finish(d, "zero GPU memory");
    tern_cuda_leave(&scope);
    return status != TERN_OK ? status : synced;
}

/* ---- memory of the runtime --------------------------------------------------------------------------------------- */

tern_status_t tern_device_alloc(struct tern_rt *rt, uint64_t bytes, void **dev)
{
    struct tern_device *d = rt->device;
    struct tern_cuda_block *block = malloc(sizeof(*block));
    struct tern_cuda_scope scope;
    tern_status_t status;

    if (!block)
        return tern_error(TERN_ERR_NO_MEMORY, "no host memory to note an allocation");
    status = tern_cuda_enter(d, &scope);
    if (status == TERN_OK) {
        status = tern_cuda_check(tern_cuda.cuMemAlloc(&block->dev, bytes), "allocate %llu bytes of GPU %d",
                                 (unsigned long long)bytes, d->ordinal);
        tern_cuda_leave(&scope);
    }
    if (status != TERN_OK) {
        free(block);
        return status;
    }
    block->bytes = bytes;
    pthread_mutex_lock(&d->lock);
    block->next = d->blocks;
    d->blocks = block;
    pthread_mutex_unlock(&d->lock);
    __atomic_add_fetch(&d->runtime_bytes, bytes, __ATOMIC_RELAXED);
    *dev = (void *)(uintptr_t)block->dev;
    status = tern_device_zero(rt, *dev, bytes);
    if (status != TERN_OK)
        tern_device_free(rt, *dev);
    return status;
}

void tern_device_free(struct tern_rt *rt, void *dev)
{
    struct tern_device *d = rt->device;
    struct tern_cuda_block **link, *block;
    struct tern_cuda_scope scope;

    if (!dev)
        return;
    pthread_mutex_lock(&d->lock);
    for (link = &d->blocks; *link && (*link)->dev != dev_ptr(dev);)
        link = &(*link)->next;
    block = *link;
    if (block)
        *link = block->next;
    pthread_mutex_unlock(&d->lock);
    if (!block)
        return;
    if (tern_cuda_enter(d, &scope) == TERN_OK) {
        tern_cuda_note(tern_cuda.cuMemFree(block->dev), "free memory");
        tern_cuda_leave(&scope);
    }
    __atomic_sub_fetch(&d->runtime_bytes, block->bytes, __ATOMIC_RELAXED);
    free(block);
}

void tern_cuda_forget_blocks(struct tern_device *device)
{
    while (device->blocks) {
        struct tern_cuda_block *block = device->blocks;

        device->blocks = block->next;
        free(block);
    }
}

uint64_t tern_device_runtime_bytes(struct tern_rt *rt)
{
    return __atomic_load_n(&rt->device->runtime_bytes, __ATOMIC_RELAXED);
}

tern_status_t tern_device_host_alloc(struct tern_rt *rt, uint64_t bytes, void **host, void **dev)
{
    struct tern_cuda_scope scope;
    CUdeviceptr mapped = 0;
    void *memory = NULL;
    tern_status_t status = tern_cuda_enter(rt->device, &scope);

    if (status != TERN_OK)
        return status;
    status =
        tern_cuda_check(tern_cuda.cuMemHostAlloc(&memory, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP),
                        "allocate %llu bytes of pinned host memory", (unsigned long long)bytes);
    if (status == TERN_OK) {
        status = tern_cuda_check(tern_cuda.cuMemHostGetDevicePointer(&mapped, memory, 0),
                                 "map pinned host memory into the GPU");
        if (status != TERN_OK)
            tern_cuda.cuMemFreeHost(memory);
    }
    tern_cuda_leave(&scope);
    if (status != TERN_OK)
        return status;
    memset(memory, 0, bytes);
    *host = memory;
    *dev = (void *)(uintptr_t)mapped;
    return TERN_OK;
}

void tern_device_host_free(struct tern_rt *rt, void *host)
{
    struct tern_cuda_scope scope;

    if (!host || tern_cuda_enter(rt->device, &scope) != TERN_OK)
        return;
    tern_cuda_note(tern_cuda.cuMemFreeHost(host), "free pinned host memory");
    tern_cuda_leave(&scope);
}
