/* device.c - the GPU of a PE: choice, context, identity, and which other GPUs it reaches. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/driver.h"
#include "device/stream_ops.h"

/* ---- choice ------------------------------------------------------------------------------------------------------ */

/* Ordinal of the device of the thread's current context, -1: none. */
static int current_ordinal(int count)
{
    CUcontext context = NULL;
    CUdevice device, candidate;

    if (tern_cuda.cuCtxGetCurrent(&context) != CUDA_SUCCESS || !context ||
        tern_cuda.cuCtxGetDevice(&device) != CUDA_SUCCESS)
        return -1;
    for (int i = 0; i < count; i++)
        if (tern_cuda.cuDeviceGet(&candidate, i) == CUDA_SUCCESS && candidate == device)
            return i;
    return -1;
}

static tern_status_t choose(struct tern_rt *rt, int gpu, int *ordinal, bool *current)
{
    int count = 0, from_env = (int)rt->env.gpu;
    tern_status_t status = tern_cuda_check(tern_cuda.cuDeviceGetCount(&count), "count GPUs");

    if (status != TERN_OK)
        return status;
    if (count == 0)
        return tern_error(TERN_ERR_NO_DEVICE,
                          "no GPU is visible; see nvidia-smi and CUDA_VISIBLE_DEVICES, or use a build for the "
                          "CPU device (-Ddevice=cpu)");
    *ordinal = current_ordinal(count);
    *current = *ordinal >= 0 && (gpu < 0 || gpu == *ordinal);
    if (gpu >= 0)
        *ordinal = gpu;
    else if (*ordinal < 0)
        *ordinal = from_env >= 0 ? from_env : rt->node_pe % count;
    if (*ordinal >= count)
        return tern_error(TERN_ERR_NO_DEVICE,
                          "GPU %d (%s) is not there: %d visible, numbered from 0; correct it, or "
                          "CUDA_VISIBLE_DEVICES",
                          *ordinal, gpu >= 0 ? "asked for by tern_init_attr" : "TERN_GPU", count);
    return TERN_OK;
}

/* ---- open -------------------------------------------------------------------------------------------------------- */

static tern_status_t attribute(CUdevice device, CUdevice_attribute which, const char *name, int *value)
{
    return tern_cuda_check(tern_cuda.cuDeviceGetAttribute(value, which, device), "ask GPU for %s", name);
}

/* What the heap cannot do without, and what it would like. */
static tern_status_t check_abilities(struct tern_device *d)
{
    static const struct {
        CUdevice_attribute which;
        const char *name;
    } needed[] = {
        {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, "virtual memory management"},
        {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, "memory handles as file descriptors"},
        {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, "unified addressing"},
        {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, "mapped host memory"},
    };
    int value = 0;

    for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++) {
        tern_status_t status = attribute(d->device, needed[i].which, needed[i].name, &value);

        if (status != TERN_OK)
            return status;
        if (!value)
            return tern_error(TERN_ERR_NO_DEVICE,
                              "GPU %d or its driver has no %s, which the symmetric heap needs; choose "
                              "another GPU (TERN_GPU)",
                              d->ordinal, needed[i].name);
    }
    d->rdma = tern_cuda.cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
                                             d->device) == CUDA_SUCCESS &&
              value;
    return TERN_OK;
}

static tern_status_t identify(struct tern_device *d, struct tern_device_id *id)
{
    CUuuid uuid;
    size_t memory = 0;
    int sms = 0;
    tern_status_t status;

    memset(id, 0, sizeof(*id));
    status =
        tern_cuda_check(tern_cuda.cuDeviceGetName(id->name, (int)sizeof(id->name), d->device), "ask GPU for its name");
    if (status == TERN_OK)
        status = tern_cuda_check(tern_cuda.cuDeviceGetUuid(&uuid, d->device), "ask GPU for its UUID");
    if (status == TERN_OK)
        status = tern_cuda_check(tern_cuda.cuDeviceTotalMem(&memory, d->device), "ask GPU for its memory");
    if (status == TERN_OK)
        status = tern_cuda_check(tern_cuda.cuDeviceGetPCIBusId(d->bus_id, (int)sizeof(d->bus_id), d->device),
                                 "ask GPU for its PCI address");
    if (status == TERN_OK)
        status = attribute(d->device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, "its multiprocessors", &sms);
    if (status == TERN_OK)
        status = tern_cuda_check(tern_cuda.cuDriverGetVersion(&d->driver_version), "ask the driver for its version");
    if (status != TERN_OK)
        return status;
    memcpy(id->uuid, uuid.bytes, sizeof(id->uuid));
    id->ordinal = d->ordinal;
    id->sms = sms;
    id->memory = memory;
    id->flags = tern_cuda_mps(d->device) ? TERN_DEVICE_MPS : 0;
    return TERN_OK;
}

/* Stream, pinned buffers, granularity; the context is current. */
static tern_status_t make_resources(struct tern_device *d)
{
    CUmemAllocationProp prop;
    size_t granularity = 0;
    void *bounce = NULL, *zeroes = NULL;
    tern_status_t status;

    tern_cuda_chunk_properties(d, &prop);
    status =
        tern_cuda_check(tern_cuda.cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
                        "ask for the granularity of GPU memory");
    if (status != TERN_OK)
        return status;
    d->granularity = granularity;
    status =
        tern_cuda_check(tern_cuda.cuStreamCreate(&d->stream, CU_STREAM_NON_BLOCKING), "create the runtime's stream");
    if (status != TERN_OK)
        return status;
    status =
        tern_cuda_check(tern_cuda.cuMemHostAlloc(&bounce, TERN_CUDA_BOUNCE_BYTES, 0), "allocate pinned host memory");
    if (status != TERN_OK)
        goto err_stream;
    status =
        tern_cuda_check(tern_cuda.cuMemHostAlloc(&zeroes, TERN_CUDA_BOUNCE_BYTES, 0), "allocate pinned host memory");
    if (status != TERN_OK)
        goto err_bounce;
    memset(zeroes, 0, TERN_CUDA_BOUNCE_BYTES);
    d->bounce = bounce;
    d->zeroes = zeroes;
    return TERN_OK;

err_bounce:
    tern_cuda.cuMemFreeHost(bounce);
err_stream:
    tern_cuda.cuStreamDestroy(d->stream);
    return status;
}

/*
 * The context that the program's CUDA runtime uses, current in this thread if it had none. It is retained once and for
 * the life of the process: kernels may look at the state block of a runtime that has ended.
 */
static tern_status_t open_context(struct tern_device *d, bool current)
{
    static struct kept {
        struct kept *next;
        CUdevice device;
    } * kept_list;
    struct kept *kept = kept_list;
    tern_status_t status =
        tern_cuda_check(tern_cuda.cuDevicePrimaryCtxRetain(&d->context, d->device), "open GPU %d", d->ordinal);

    if (status != TERN_OK)
        return status;
    while (kept && kept->device != d->device)
        kept = kept->next;
    if (kept) {
        tern_cuda.cuDevicePrimaryCtxRelease(d->device);
    } else if ((kept = malloc(sizeof(*kept)))) {
        *kept = (struct kept){kept_list, d->device};
        kept_list = kept;
    }
    return current ? TERN_OK
                   : tern_cuda_check(tern_cuda.cuCtxSetCurrent(d->context), "make GPU %d current", d->ordinal);
}

static tern_status_t load_kernels(const struct tern_device *d)
{
    const char *why = tern_stream_load();
    if (!why)
        return TERN_OK;
    return tern_error(TERN_ERR_DEVICE,
                      "GPU %d does not load the runtime's kernels: %s; build for it: meson setup -Dgpu_archs=...",
                      d->ordinal, why);
}

tern_status_t tern_device_open(struct tern_rt *rt, int gpu)
{
    struct tern_device *d = calloc(1, sizeof(*d));
    struct tern_cuda_scope scope;
    tern_status_t status;
    bool current = false;

    if (!d)
        return tern_error(TERN_ERR_NO_MEMORY, "no host memory for the state of the GPU");
    status = tern_cuda_load();
    if (status == TERN_OK)
        status = choose(rt, gpu, &d->ordinal, &current);
    if (status == TERN_OK)
        status = tern_cuda_check(tern_cuda.cuDeviceGet(&d->device, d->ordinal), "open GPU %d", d->ordinal);
    if (status == TERN_OK)
        status = check_abilities(d);
    if (status == TERN_OK)
        status = identify(d, &rt->device_id);
    if (status == TERN_OK)
        status = open_context(d, current);
    if (status != TERN_OK)
        goto err_free;
    status = tern_cuda_enter(d, &scope);
    if (status != TERN_OK)
        goto err_free;
    status = load_kernels(d);
    if (status == TERN_OK)
        status = make_resources(d);
    tern_cuda_leave(&scope);
    if (status != TERN_OK)
        goto err_free;
    pthread_mutex_init(&d->lock, NULL);
    rt->device = d;
    return TERN_OK;

err_free:
    free(d);
    return status;
}

void tern_device_close(struct tern_rt *rt)
{
    struct tern_device *d = rt->device;
    struct tern_cuda_scope scope;

    if (!d)
        return;
    if (tern_cuda_enter(d, &scope) == TERN_OK) {
        tern_cuda_note(tern_cuda.cuMemFreeHost(d->zeroes), "free pinned host memory");
        tern_cuda_note(tern_cuda.cuMemFreeHost(d->bounce), "free pinned host memory");
        tern_cuda_note(tern_cuda.cuStreamDestroy(d->stream), "destroy the runtime's stream");
        tern_cuda_leave(&scope);
    }
    tern_cuda_forget_blocks(d);
    pthread_mutex_destroy(&d->lock);
    free(d);
    rt->device = NULL;
}

/* ---- peers ------------------------------------------------------------------------------------------------------- */

/* The device of this process with that UUID; false: not visible. */
static bool find_device(const unsigned char *uuid, CUdevice *device)
{
    int count = 0;
    CUuuid candidate;

    if (tern_cuda.cuDeviceGetCount(&count) != CUDA_SUCCESS)
        return false;
    for (int i = 0; i < count; i++)
        if (tern_cuda.cuDeviceGet(device, i) == CUDA_SUCCESS &&
            tern_cuda.cuDeviceGetUuid(&candidate, *device) == CUDA_SUCCESS && !memcmp(candidate.bytes, uuid, 16))
            return true;
    return false;
}

void tern_device_peer(struct tern_rt *rt, const struct tern_device_id *peer, bool *load_store, bool *atomics,
                      const char **why)
{
    struct tern_device *d = rt->device;
    CUdevice other;
    int yes = 0;

    *load_store = *atomics = false;
    if (!memcmp(peer->uuid, rt->device_id.uuid, sizeof(peer->uuid))) {
        *load_store = *atomics = true;
        *why = "same GPU";
        return;
    }
    if (!find_device(peer->uuid, &other)) {
        *why = "its GPU is not visible to this process: let every PE see all GPUs of the node (CUDA_VISIBLE_DEVICES)";
        return;
    }
    if (tern_cuda.cuDeviceCanAccessPeer(&yes, d->device, other) != CUDA_SUCCESS || !yes) {
        *why = "the GPUs have no peer access";
        return;
    }
    *load_store = true;
    if (tern_cuda.cuDeviceGetP2PAttribute(&yes, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, d->device, other) ==
            CUDA_SUCCESS &&
        yes) {
        *atomics = true;
        *why = "peer access with native atomics (NVLink)";
    } else {
        *why = "peer access without native atomics (PCIe)";
    }
}

/* ---- facts ------------------------------------------------------------------------------------------------------- */

uint64_t tern_device_granularity(struct tern_rt *rt)
{
    return rt->device->granularity;
}

uint64_t tern_device_heap_limit(struct tern_rt *rt)
{
    return rt->device_id.memory;
}

uint64_t tern_device_internal_span(struct tern_rt *rt)
{
    (void)rt;
    return (uint64_t)1 << 36;
}

size_t tern_device_describe(struct tern_rt *rt, char *buf, size_t bytes)
{
    struct tern_device *d = rt->device;
    int n = snprintf(buf, bytes, "CUDA driver API %d.%d, PCI %s, MPS %s, GPUDirect RDMA %s", d->driver_version / 1000,
                     d->driver_version % 1000 / 10, d->bus_id, rt->device_id.flags & TERN_DEVICE_MPS ? "yes" : "no",
                     d->rdma ? "yes" : "no");

    return n < 0 ? 0 : (size_t)n;
}
