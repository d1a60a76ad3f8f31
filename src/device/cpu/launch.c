/* launch.c - registered kernels, launches, memory, and the device's attributes and errors. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tern/tern.h>

#include "device/cpu/device.h"
#include "host/log.h"

#include <tern/detail/cpu_api.h>

/* ---- kernels ------------------------------------------------------------------------------------------------------------- */

#define KERNEL_BUCKETS 256u
static tern_cpu_kernel_t *kernels[KERNEL_BUCKETS];
static pthread_mutex_t kernels_lock = PTHREAD_MUTEX_INITIALIZER;

static tern_cpu_kernel_t **kernel_bucket(const void *function)
{
    return &kernels[((uintptr_t)function >> 4) * 2654435761u >> 16 & (KERNEL_BUCKETS - 1)];
}

void tern_cpu_kernel_register(tern_cpu_kernel_t *kernel)
{
    tern_cpu_kernel_t **bucket = kernel_bucket(kernel->function);
    pthread_mutex_lock(&kernels_lock);
    kernel->next = *bucket;
    *bucket = kernel;
    pthread_mutex_unlock(&kernels_lock);
}

void tern_cpu_kernel_unregister(tern_cpu_kernel_t *kernel)
{
    pthread_mutex_lock(&kernels_lock);
    tern_cpu_kernel_t **link = kernel_bucket(kernel->function);
    while (*link && *link != kernel)
        link = &(*link)->next;
    if (*link)
        *link = kernel->next;
    pthread_mutex_unlock(&kernels_lock);
}

static tern_cpu_kernel_t *kernel_find(const void *function)
{
    pthread_mutex_lock(&kernels_lock);
    tern_cpu_kernel_t *kernel = *kernel_bucket(function);
    while (kernel && kernel->function != function)
        kernel = kernel->next;
    pthread_mutex_unlock(&kernels_lock);
    return kernel;
}

/* ---- launches ------------------------------------------------------------------------------------------------------------ */

/* Why a launch cannot be; the sentence is for tern_launch. */
static int launch_check(const tern_cpu_kernel_t *kernel, tern_cpu_dim_t grid, tern_cpu_dim_t block, size_t smem,
                        char *why, size_t bytes)
{
    why[0] = '\0';
    if (!kernel) {
        snprintf(why, bytes, "not a registered __global__ function; compile its source with this build's tern-cc");
        return CPU_INVALID_FUNCTION;
    }
    uint64_t threads = (uint64_t)block.x * block.y * block.z;
    if (!threads || threads > TERN_CPU_MAX_THREADS || block.x > 1024 || block.y > 1024 || block.z > 64) {
        snprintf(why, bytes, "block of %u x %u x %u threads; it has 1 to %u (z to 64)", block.x, block.y, block.z,
                 TERN_CPU_MAX_THREADS);
        return CPU_INVALID_CONFIGURATION;
    }
    if (!grid.x || !grid.y || !grid.z || grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535) {
        snprintf(why, bytes, "grid of %u x %u x %u blocks; x is 1 to 2^31 - 1, y and z are 1 to 65535", grid.x, grid.y,
                 grid.z);
        return CPU_INVALID_CONFIGURATION;
    }
    if (smem > kernel->dynamic_max) {
        snprintf(why, bytes, "%zu bytes of dynamic shared memory; %s", smem,
                 smem > TERN_CPU_SHARED_MAX ? "the device has at most 232448"
                                            : "beyond 49152 bytes it takes cudaFuncSetAttribute(kernel, "
                                              "cudaFuncAttributeMaxDynamicSharedMemorySize, bytes)");
        return CPU_INVALID_VALUE;
    }
    return CPU_OK;
}

static struct cpu_op *launch_op(const tern_cpu_kernel_t *kernel, tern_cpu_dim_t grid, tern_cpu_dim_t block, void **args,
                                size_t smem)
{
    size_t bytes = (kernel->count * sizeof(void *) + 63) / 64 * 64, at = bytes;
    for (unsigned i = 0; i < kernel->count; i++)
        bytes += (kernel->sizes[i] + 63u) / 64u * 64u;
    struct cpu_op *op = cpu_op_new(CPU_OP_KERNEL, bytes);
    if (!op)
        return NULL;
    char *storage = (char *)op + (sizeof *op + 63) / 64 * 64;
    op->args = (void **)storage;
    for (unsigned i = 0; i < kernel->count; i++) {
        op->args[i] = storage + at;
        memcpy(storage + at, args[i], kernel->sizes[i]);
        at += (kernel->sizes[i] + 63u) / 64u * 64u;
    }
    op->kernel = kernel;
    op->grid = grid;
    op->block = block;
    op->smem = smem;
    op->blocks = (uint64_t)grid.x * grid.y * grid.z;
    return op;
}

static int launch(const void *function, tern_cpu_dim_t grid, tern_cpu_dim_t block, void **args, size_t smem,
                  struct tern_cpu_stream *stream, char *why, size_t bytes)
{
    const tern_cpu_kernel_t *kernel = kernel_find(function);
    int error = launch_check(kernel, grid, block, smem, why, bytes);
    if (error)
        return cpu_remember(error);
    struct cpu_op *op = launch_op(kernel, grid, block, args, smem);
    if (!op)
        return cpu_remember(CPU_NO_MEMORY);
    return cpu_submit(cpu_stream(stream), op);
}

int tern_cpu_launch(const void *function, tern_cpu_dim_t grid, tern_cpu_dim_t block, void **args, size_t smem,
                    struct tern_cpu_stream *stream)
{
    char why[192];
    return launch(function, grid, block, args, smem, stream, why, sizeof why);
}

tern_status_t tern_cpu_launch_status(const void *function, tern_cpu_dim_t grid, tern_cpu_dim_t block, void **args,
                                     size_t smem, tern_stream_t stream)
{
    char why[192];
    int error = launch(function, grid, block, args, smem, stream, why, sizeof why);
    const tern_cpu_kernel_t *kernel = error ? kernel_find(function) : NULL;
    switch (error) {
    case CPU_OK:
        return TERN_OK;
    case CPU_NO_MEMORY:
        return tern_error(TERN_ERR_NO_MEMORY, "launch of %s: no memory", kernel->name);
    case CPU_LAUNCH_FAILURE:
        return tern_error(TERN_ERR_DEVICE, "launch of %s: an earlier kernel has failed: %s", kernel->name, cpu_device.fault);
    default:
        if (!why[0])
            snprintf(why, sizeof why, "%s", tern_cpu_error_string(error));
        return tern_error(TERN_ERR_INVALID, "launch of %s: %s", kernel ? kernel->name : "a function", why);
    }
}

int tern_cpu_function_set(const void *function, int attribute, int value)
{
    tern_cpu_kernel_t *kernel = kernel_find(function);
    if (!kernel)
        return cpu_remember(CPU_INVALID_FUNCTION);
    if (attribute == 8) {               /* cudaFuncAttributeMaxDynamicSharedMemorySize */
        if (value < 0 || (unsigned)value > TERN_CPU_SHARED_MAX)
            return cpu_remember(CPU_INVALID_VALUE);
        cpu_lock();
        kernel->dynamic_max = (unsigned)value;
        cpu_unlock();
    }
    return CPU_OK;
}

/* ---- memory -------------------------------------------------------------------------------------------------------------- */

int tern_cpu_malloc(void **p, size_t bytes)
{
    if (!p)
        return cpu_remember(CPU_INVALID_VALUE);
    *p = NULL;
    if (bytes && posix_memalign(p, 256, bytes))
        return cpu_remember(CPU_NO_MEMORY);
    if (*p)                             /* contents are undefined: let the beginning show that */
        memset(*p, 0xcd, bytes < 4096 ? bytes : 4096);
    return CPU_OK;
}

int tern_cpu_free_host(void *p)
{
    free(p);
    return CPU_OK;
}

int tern_cpu_free(void *p)
{
    int error = p ? cpu_wait(NULL) : CPU_OK;
    free(p);
    return error;
}

static int submit_and_wait(struct cpu_op *op, struct tern_cpu_stream *stream, int wait)
{
    int error = op ? cpu_submit(stream, op) : cpu_remember(CPU_NO_MEMORY);
    return error || !wait ? error : cpu_wait(stream);
}

int tern_cpu_memcpy(void *dst, const void *src, size_t bytes, struct tern_cpu_stream *stream, int wait)
{
    stream = cpu_stream(stream);
    if (wait && cpu_idle(stream)) {
        memmove(dst, src, bytes);
        return CPU_OK;
    }
    struct cpu_op *op = cpu_op_new(CPU_OP_COPY, 0);
    if (op) {
        op->dst = dst;
        op->src = src;
        op->bytes = bytes;
    }
    return submit_and_wait(op, stream, wait);
}

int tern_cpu_memset(void *dst, int value, size_t bytes, struct tern_cpu_stream *stream, int wait)
{
    stream = cpu_stream(stream);
    if (wait && cpu_idle(stream)) {
        memset(dst, value, bytes);
        return CPU_OK;
    }
    struct cpu_op *op = cpu_op_new(CPU_OP_FILL, 0);
    if (op) {
        op->dst = dst;
        op->value = value;
        op->bytes = bytes;
    }
    return submit_and_wait(op, stream, wait);
}

/* ---- device -------------------------------------------------------------------------------------------------------------- */

/* Numbers of cudaDeviceAttr, see cpu_runtime.h. */
int tern_cpu_attribute(int *value, int attribute)
{
    switch (attribute) {
    case 1: /* MaxThreadsPerBlock */
        *value = TERN_CPU_MAX_THREADS;
        break;
    case 8: /* MaxSharedMemoryPerBlock */
        *value = TERN_CPU_DYNAMIC_DEFAULT;
        break;
    case 10: /* WarpSize */
        *value = 32;
        break;
    case 16: /* MultiProcessorCount */
        *value = (int)cpu_device.sms;
        break;
    case 39: /* MaxThreadsPerMultiProcessor */
        *value = CPU_THREADS_PER_SM;
        break;
    case 97: /* MaxSharedMemoryPerBlockOptin */
        *value = TERN_CPU_SHARED_MAX;
        break;
    default:
        return cpu_remember(CPU_INVALID_VALUE);
    }
    return CPU_OK;
}

int tern_cpu_set_device(int device)
{
    return device ? cpu_remember(CPU_INVALID_DEVICE) : CPU_OK;
}

const char *tern_cpu_error_string(int error)
{
    static const struct {
        int error;
        const char *text;
    } table[] = {
        {CPU_OK, "no error"},
        {CPU_INVALID_VALUE, "invalid argument"},
        {CPU_NO_MEMORY, "out of memory"},
        {CPU_INVALID_CONFIGURATION, "invalid configuration argument"},
        {CPU_INVALID_FUNCTION, "invalid device function: not a __global__ function that tern-cc has compiled"},
        {CPU_INVALID_DEVICE, "invalid device ordinal"},
        {CPU_INVALID_HANDLE, "invalid resource handle"},
        {CPU_NOT_READY, "device not ready"},
        {CPU_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing"},
        {CPU_CAPTURE_INVALIDATED, "operation failed due to a previous error during capture"},
        {CPU_CAPTURE_UNMATCHED, "the stream did not begin this capture, or captures already"},
        {CPU_CAPTURE_UNJOINED, "a capture ended before all its streams were joined to the first"},
    };
    if (error == CPU_LAUNCH_FAILURE)
        return cpu_device.fault[0] ? cpu_device.fault : "unspecified launch failure";
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (table[i].error == error)
            return table[i].text;
    return "unknown error";
}
