/*
 * driver.h - the CUDA driver API, loaded at run time: a CUDA build starts on a machine without a driver and tells so.
 * Versioned names (cuMemAlloc_v2) come from the macros of cuda.h.
 */
#ifndef TERN_DEVICE_CUDA_DRIVER_H
#define TERN_DEVICE_CUDA_DRIVER_H

#include <cuda.h>
#include <pthread.h>

#include "device/backend.h"
#include "host/rt.h"

#define TERN_CUDA_FUNCTIONS(X)                                                                                        \
    X(cuInit)                                                                                                         \
    X(cuDriverGetVersion)                                                                                             \
    X(cuGetErrorName)                                                                                                 \
    X(cuGetErrorString)                                                                                               \
    X(cuDeviceGetCount)                                                                                               \
    X(cuDeviceGet)                                                                                                    \
    X(cuDeviceGetName)                                                                                                \
    X(cuDeviceGetUuid)                                                                                                \
    X(cuDeviceGetPCIBusId)                                                                                            \
    X(cuDeviceGetAttribute)                                                                                           \
    X(cuDeviceGetP2PAttribute)                                                                                        \
    X(cuDeviceCanAccessPeer)                                                                                          \
    X(cuDeviceTotalMem)                                                                                               \
    X(cuDevicePrimaryCtxRetain)                                                                                       \
    X(cuDevicePrimaryCtxRelease)                                                                                      \
    X(cuCtxGetCurrent)                                                                                                \
    X(cuCtxSetCurrent)                                                                                                \
    X(cuCtxPushCurrent)                                                                                               \
    X(cuCtxPopCurrent)                                                                                                \
    X(cuCtxGetDevice)                                                                                                 \
    X(cuThreadExchangeStreamCaptureMode)                                                                              \
    X(cuStreamCreate)                                                                                                 \
    X(cuStreamDestroy)                                                                                                \
    X(cuStreamSynchronize)                                                                                            \
    X(cuStreamQuery)                                                                                                  \
    X(cuMemGetAllocationGranularity)                                                                                  \
    X(cuMemAddressReserve)                                                                                            \
    X(cuMemAddressFree)                                                                                               \
    X(cuMemCreate)                                                                                                    \
    X(cuMemRelease)                                                                                                   \
    X(cuMemMap)                                                                                                       \
    X(cuMemUnmap)                                                                                                     \
    X(cuMemSetAccess)                                                                                                 \
    X(cuMemExportToShareableHandle)                                                                                   \
    X(cuMemImportFromShareableHandle)                                                                                 \
    X(cuMemAlloc)                                                                                                     \
    X(cuMemFree)                                                                                                      \
    X(cuMemGetHandleForAddressRange)                                                                                  \
    X(cuMemHostAlloc)                                                                                                 \
    X(cuMemFreeHost)                                                                                                  \
    X(cuMemHostGetDevicePointer)                                                                                      \
    X(cuMemcpyDtoHAsync)                                                                                              \
    X(cuMemcpyHtoDAsync)

/* tern_cuda.cuMemAlloc(...): the function that cuMemAlloc names in this cuda.h. */
struct tern_cuda_driver {
#define TERN_CUDA_MEMBER(name) __typeof__(&name) name;
    TERN_CUDA_FUNCTIONS(TERN_CUDA_MEMBER)
#undef TERN_CUDA_MEMBER
};
extern struct tern_cuda_driver tern_cuda;

/* Load the driver, once for the life of the process; TERN_ERR_NO_DEVICE explained. */
tern_status_t tern_cuda_load(void);
/* Record what the driver said about `what`: TERN_OK, TERN_ERR_NO_MEMORY or TERN_ERR_DEVICE. */
tern_status_t tern_cuda_check(CUresult result, const char *what, ...) __attribute__((format(printf, 2, 3)));
/* The same of a release, which has nobody to tell: logged. */
void tern_cuda_note(CUresult result, const char *what);
/* 1: the device's contexts run under MPS, 0: they do not. */
int tern_cuda_mps(CUdevice device);

#define TERN_CUDA_BOUNCE_BYTES (1u << 20)

/* rt->device of this build. */
struct tern_device {
    CUdevice device;
    CUcontext context;          /* primary context of the device, retained */
    CUstream stream;            /* non-blocking; all copies of the runtime */
    uint64_t granularity;
    int ordinal;
    bool rdma;                  /* chunks may be registered with a NIC */
    char *bounce;               /* pinned; copies pass through it, so that they use a copy engine, no kernel */
    char *zeroes;               /* pinned, never written */
    uint64_t runtime_bytes;     /* device memory of tern_device_alloc; atomic */
    pthread_mutex_t lock;       /* of `blocks` and `bounce` */
    struct tern_cuda_block *blocks;
    int driver_version;
    char bus_id[32];
};

/* Forget what tern_device_alloc gave out and nobody freed: it stays with the context. */
void tern_cuda_forget_blocks(struct tern_device *device);
/* What chunks of the heap are made of. */
void tern_cuda_chunk_properties(const struct tern_device *device, CUmemAllocationProp *prop);

/*
 * Around driver calls: the device's context becomes current, and a stream capture of the program (in any thread) does
 * not forbid what is called in between, for none of it goes to a captured stream.
 */
struct tern_cuda_scope {
    CUstreamCaptureMode mode;
    bool pushed;
};
tern_status_t tern_cuda_enter(struct tern_device *device, struct tern_cuda_scope *scope);
void tern_cuda_leave(struct tern_cuda_scope *scope);

#endif
