/*
 * tern/detail/cpu_runtime.h - the part of CUDA's runtime API that sources need, for the CPU device: inline wrappers over
 * the library's tern_cpu_* functions, so that no cuda* symbol is exported. Semantics are CUDA's:
 *
 *   Kernels, copies and fills with a stream run behind the caller, in the stream's order; streams run beside each other.
 *   The default stream (NULL) is the legacy one: it waits for all that was given before to streams made without
 *   cudaStreamNonBlocking, and they wait for it. cudaMemcpy, cudaMemset and cudaFree wait for it; cudaFree for all streams.
 *   Host and device share one memory. The errors of kernels are sticky and come back from the next call that waits.
 *   A captured graph runs its operations one after another, in the order of the capture.
 */
#ifndef TERN_DETAIL_CPU_RUNTIME_H
#define TERN_DETAIL_CPU_RUNTIME_H

#include <stddef.h>
#include <stdint.h>
#include <tern/types.h>
#include <tern/detail/cpu_abi.h>
#include <tern/detail/cpu_api.h>
#include <tern/detail/cpu_types.h>

typedef enum cudaError {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInvalidDeviceFunction = 98,
    cudaErrorInvalidDevice = 101,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorNotReady = 600,
    cudaErrorLaunchOutOfResources = 701,
    cudaErrorLaunchFailure = 719,
    cudaErrorStreamCaptureUnsupported = 900,
    cudaErrorStreamCaptureInvalidated = 901,
    cudaErrorStreamCaptureUnmatched = 903,
    cudaErrorStreamCaptureUnjoined = 904,
    cudaErrorUnknown = 999
} cudaError_t;

typedef struct tern_cpu_stream *cudaStream_t;
typedef struct tern_cpu_event *cudaEvent_t;
typedef struct tern_cpu_graph *cudaGraph_t;
typedef struct tern_cpu_graph *cudaGraphExec_t;

enum cudaMemcpyKind {
    cudaMemcpyHostToHost,
    cudaMemcpyHostToDevice,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice,
    cudaMemcpyDefault
};
enum cudaDeviceAttr {
    cudaDevAttrMaxThreadsPerBlock = 1,
    cudaDevAttrMaxSharedMemoryPerBlock = 8,
    cudaDevAttrWarpSize = 10,
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrMaxThreadsPerMultiProcessor = 39,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97
};
enum cudaFuncAttribute {
    cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
    cudaFuncAttributePreferredSharedMemoryCarveout = 9
};
enum cudaStreamCaptureMode {
    cudaStreamCaptureModeGlobal,
    cudaStreamCaptureModeThreadLocal,
    cudaStreamCaptureModeRelaxed
};
enum cudaStreamCaptureStatus {
    cudaStreamCaptureStatusNone,
    cudaStreamCaptureStatusActive,
    cudaStreamCaptureStatusInvalidated
};
#define cudaStreamDefault 0u
#define cudaStreamNonBlocking 1u
#define cudaStreamLegacy ((cudaStream_t)0x1)
#define cudaEventDefault 0u
#define cudaEventBlockingSync 1u
#define cudaEventDisableTiming 2u
#define cudaHostAllocDefault 0u
#define cudaHostAllocPortable 1u
#define cudaHostAllocMapped 2u

/* ---- memory ---------------------------------------------------------------------------------------------------------- */

template <class T> static inline cudaError_t cudaMalloc(T **p, size_t bytes)
{
    return (cudaError_t)tern_cpu_malloc((void **)p, bytes);
}
static inline cudaError_t cudaFree(void *p)
{
    return (cudaError_t)tern_cpu_free(p);
}
template <class T> static inline cudaError_t cudaMallocHost(T **p, size_t bytes, unsigned flags = 0)
{
    (void)flags;
    return (cudaError_t)tern_cpu_malloc((void **)p, bytes);
}
template <class T> static inline cudaError_t cudaHostAlloc(T **p, size_t bytes, unsigned flags)
{
    (void)flags;
    return (cudaError_t)tern_cpu_malloc((void **)p, bytes);
}
template <class T> static inline cudaError_t cudaHostGetDevicePointer(T **device, void *host, unsigned flags)
{
    (void)flags;
    *device = (T *)host;
    return cudaSuccess;
}
static inline cudaError_t cudaFreeHost(void *p)
{
    return (cudaError_t)tern_cpu_free_host(p);
}
static inline cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind)
{
    (void)kind;
    return (cudaError_t)tern_cpu_memcpy(dst, src, bytes, nullptr, 1);
}
static inline cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind,
                                          cudaStream_t stream = nullptr)
{
    (void)kind;
    return (cudaError_t)tern_cpu_memcpy(dst, src, bytes, stream, 0);
}
static inline cudaError_t cudaMemset(void *dst, int value, size_t bytes)
{
    return (cudaError_t)tern_cpu_memset(dst, value, bytes, nullptr, 1);
}
static inline cudaError_t cudaMemsetAsync(void *dst, int value, size_t bytes, cudaStream_t stream = nullptr)
{
    return (cudaError_t)tern_cpu_memset(dst, value, bytes, stream, 0);
}

/* ---- streams, events, launches ---------------------------------------------------------------------------------------- */

static inline cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    return (cudaError_t)tern_cpu_stream_create(stream, cudaStreamDefault);
}
static inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    return (cudaError_t)tern_cpu_stream_create(stream, flags);
}
static inline cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    return (cudaError_t)tern_cpu_stream_destroy(stream);
}
static inline cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    return (cudaError_t)tern_cpu_stream_synchronize(stream);
}
static inline cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    return (cudaError_t)tern_cpu_stream_query(stream);
}
static inline cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0)
{
    (void)flags;
    return (cudaError_t)tern_cpu_stream_wait_event(stream, event);
}
static inline cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return (cudaError_t)tern_cpu_event_create(event);
}
static inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    (void)flags;
    return (cudaError_t)tern_cpu_event_create(event);
}
static inline cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    return (cudaError_t)tern_cpu_event_destroy(event);
}
static inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = nullptr)
{
    return (cudaError_t)tern_cpu_event_record(event, stream);
}
static inline cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    return (cudaError_t)tern_cpu_event_synchronize(event);
}
static inline cudaError_t cudaEventQuery(cudaEvent_t event)
{
    return (cudaError_t)tern_cpu_event_query(event);
}
static inline cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    return (cudaError_t)tern_cpu_event_elapsed(ms, start, end);
}
static inline cudaError_t cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **args, size_t smem,
                                           cudaStream_t stream)
{
    return (cudaError_t)tern_cpu_launch(kernel, {grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, args, smem,
                                        stream);
}
template <class F> static inline cudaError_t cudaFuncSetAttribute(F *kernel, enum cudaFuncAttribute attribute, int value)
{
    return (cudaError_t)tern_cpu_function_set((const void *)kernel, (int)attribute, value);
}

/* ---- device and errors ------------------------------------------------------------------------------------------------ */

static inline cudaError_t cudaDeviceSynchronize(void)
{
    return (cudaError_t)tern_cpu_synchronize();
}
static inline cudaError_t cudaGetLastError(void)
{
    return (cudaError_t)tern_cpu_last_error(1);
}
static inline cudaError_t cudaPeekAtLastError(void)
{
    return (cudaError_t)tern_cpu_last_error(0);
}
static inline const char *cudaGetErrorString(cudaError_t error)
{
    return tern_cpu_error_string((int)error);
}
static inline cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 1;
    return cudaSuccess;
}
static inline cudaError_t cudaGetDevice(int *device)
{
    *device = 0;
    return cudaSuccess;
}
static inline cudaError_t cudaSetDevice(int device)
{
    return (cudaError_t)tern_cpu_set_device(device);
}
static inline cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    (void)device;
    return (cudaError_t)tern_cpu_attribute(value, (int)attribute);
}

/* ---- graphs -------------------------------------------------------------------------------------------------------------- */

static inline cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    (void)mode;
    return (cudaError_t)tern_cpu_capture_begin(stream);
}
static inline cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    return (cudaError_t)tern_cpu_capture_end(stream, graph);
}
static inline cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    int value = 0;
    int error = tern_cpu_capture_status(stream, &value);
    *status = (enum cudaStreamCaptureStatus)value;
    return (cudaError_t)error;
}
static inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags = 0)
{
    (void)flags;
    return (cudaError_t)tern_cpu_graph_instantiate(exec, graph);
}
static inline cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    return (cudaError_t)tern_cpu_graph_launch(exec, stream);
}
static inline cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    return (cudaError_t)tern_cpu_graph_destroy(exec);
}
static inline cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    return (cudaError_t)tern_cpu_graph_destroy(graph);
}

#endif
