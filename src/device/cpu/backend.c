/*
 * backend.c - the CPU device as backend.h asks for it: chunks of the heap are memfds, which peers on the node map. Every PE
 * is a device of its own, and all of the node's PEs reach each other by load and store.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "device/cpu/device.h"
#include "host/rt.h"

#define CHUNK_BYTES (2ull << 20)
#define HEAP_BYTES (1ull << 32)
#define INTERNAL_SPAN (1ull << 28)

struct tern_device {
    _Atomic uint64_t bytes;             /* memory of the runtime itself */
};

/* What alloc and host_alloc give is preceded by its size. */
struct allocation {
    uint64_t bytes;
    uint64_t pad[31];
};
_Static_assert(sizeof(struct allocation) == 256, "memory behind it is aligned to 256 bytes");

static uint64_t physical_memory(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    return pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : HEAP_BYTES;
}

tern_status_t tern_device_open(struct tern_rt *rt, int gpu)
{
    if (gpu > 0)
        return tern_error(TERN_ERR_NO_DEVICE, "device %d: the CPU device has only number 0; leave TERN_GPU out", gpu);
    rt->device = calloc(1, sizeof *rt->device);
    if (!rt->device)
        return tern_error(TERN_ERR_NO_MEMORY, "no memory for the device's record");
    struct tern_device_id *id = &rt->device_id;
    memset(id, 0, sizeof *id);
    snprintf(id->name, sizeof id->name, "CPU device");
    if (getrandom(id->uuid, sizeof id->uuid, 0) != (ssize_t)sizeof id->uuid) {
        free(rt->device);
        rt->device = NULL;
        return tern_error(TERN_ERR_SYSTEM, "getrandom: %s", strerror(errno));
    }
    id->memory = physical_memory();
    id->flags = TERN_DEVICE_MPS;
    id->sms = cpu_device_open();
    return TERN_OK;
}

void tern_device_close(struct tern_rt *rt)
{
    free(rt->device);
    rt->device = NULL;
}

void tern_device_peer(struct tern_rt *rt, const struct tern_device_id *peer, bool *load_store, bool *atomics,
                      const char **why)
{
    (void)rt;
    (void)peer;
    *load_store = *atomics = true;
    *why = "CPU device: memory of a PE on this node";
}

uint64_t tern_device_granularity(struct tern_rt *rt)
{
    (void)rt;
    return CHUNK_BYTES;
}

uint64_t tern_device_heap_limit(struct tern_rt *rt)
{
    return rt->env.heap_max ? rt->env.heap_max : HEAP_BYTES;
}

uint64_t tern_device_internal_span(struct tern_rt *rt)
{
    (void)rt;
    return INTERNAL_SPAN;
}

/* ---- address space and chunks ------------------------------------------------------------------------------------------- */

tern_status_t tern_device_reserve(struct tern_rt *rt, uint64_t bytes, void **base)
{
    (void)rt;
    void *p = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return tern_error(TERN_ERR_NO_MEMORY, "cannot reserve %llu MiB of address space: %s; lower TERN_HEAP_MAX, or raise "
                          "the limit (ulimit -v)", (unsigned long long)(bytes >> 20), strerror(errno));
    *base = p;
    return TERN_OK;
}

void tern_device_unreserve(struct tern_rt *rt, void *base, uint64_t bytes)
{
    (void)rt;
    munmap(base, bytes);
}

tern_status_t tern_device_chunk_create(struct tern_rt *rt, uint64_t bytes, struct tern_chunk *chunk)
{
    (void)rt;
    int fd = memfd_create("tern-heap", MFD_CLOEXEC);
    if (fd < 0)
        return tern_error(TERN_ERR_SYSTEM, "memfd_create: %s; raise the limit of open files (ulimit -n)", strerror(errno));
    if (ftruncate(fd, (off_t)bytes)) {
        int error = errno;
        close(fd);
        return tern_error(TERN_ERR_NO_MEMORY, "no %llu MiB for the heap: %s", (unsigned long long)(bytes >> 20),
                          strerror(error));
    }
    *chunk = (struct tern_chunk){.bytes = bytes, .handle = (uint64_t)fd};
    return TERN_OK;
}

tern_status_t tern_device_chunk_export(struct tern_rt *rt, const struct tern_chunk *chunk, int *fd)
{
    (void)rt;
    *fd = fcntl((int)chunk->handle, F_DUPFD_CLOEXEC, 0);
    if (*fd < 0)
        return tern_error(TERN_ERR_SYSTEM, "cannot duplicate a heap's descriptor: %s; raise the limit of open files "
                          "(ulimit -n)", strerror(errno));
    return TERN_OK;
}

tern_status_t tern_device_chunk_import(struct tern_rt *rt, int fd, uint64_t bytes, struct tern_chunk *chunk)
{
    (void)rt;
    struct stat st;
    if (fstat(fd, &st) || (uint64_t)st.st_size < bytes)
        return tern_error(TERN_ERR_SYSTEM, "a peer's heap chunk has %lld bytes instead of %llu",
                          (long long)st.st_size, (unsigned long long)bytes);
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (own < 0)
        return tern_error(TERN_ERR_SYSTEM, "cannot duplicate a heap's descriptor: %s; raise the limit of open files "
                          "(ulimit -n)", strerror(errno));
    *chunk = (struct tern_chunk){.bytes = bytes, .handle = (uint64_t)own, .imported = true};
    return TERN_OK;
}

tern_status_t tern_device_chunk_map(struct tern_rt *rt, const struct tern_chunk *chunk, void *addr)
{
    (void)rt;
    if (mmap(addr, chunk->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, (int)chunk->handle, 0) == MAP_FAILED)
        return tern_error(TERN_ERR_NO_MEMORY, "cannot map %llu MiB of heap: %s", (unsigned long long)(chunk->bytes >> 20),
                          strerror(errno));
    return TERN_OK;
}

void tern_device_chunk_unmap(struct tern_rt *rt, const struct tern_chunk *chunk, void *addr)
{
    (void)rt;
    if (mmap(addr, chunk->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
        tern_log(TERN_LOG_WARN, "cannot unmap heap memory: %s", strerror(errno));
}

void tern_device_chunk_destroy(struct tern_rt *rt, struct tern_chunk *chunk)
{
    (void)rt;
    close((int)chunk->handle);
    *chunk = (struct tern_chunk){0};
}

/* ---- memory of the runtime ------------------------------------------------------------------------------------------------ */

static void *allocate(uint64_t bytes)
{
    void *p;
    if (bytes > SIZE_MAX - sizeof(struct allocation) || posix_memalign(&p, 256, sizeof(struct allocation) + bytes))
        return NULL;
    memset(p, 0, sizeof(struct allocation) + bytes);
    struct allocation *a = p;
    a->bytes = bytes;
    return a + 1;
}

tern_status_t tern_device_alloc(struct tern_rt *rt, uint64_t bytes, void **dev)
{
    *dev = allocate(bytes);
    if (!*dev)
        return tern_error(TERN_ERR_NO_MEMORY, "no %llu bytes for the runtime", (unsigned long long)bytes);
    rt->device->bytes += bytes;
    return TERN_OK;
}

void tern_device_free(struct tern_rt *rt, void *dev)
{
    if (!dev)
        return;
    struct allocation *a = (struct allocation *)dev - 1;
    rt->device->bytes -= a->bytes;
    free(a);
}

tern_status_t tern_device_host_alloc(struct tern_rt *rt, uint64_t bytes, void **host, void **dev)
{
    (void)rt;
    *host = allocate(bytes);
    if (!*host)
        return tern_error(TERN_ERR_NO_MEMORY, "no %llu bytes for the runtime", (unsigned long long)bytes);
    if (dev)
        *dev = *host;
    return TERN_OK;
}

void tern_device_host_free(struct tern_rt *rt, void *host)
{
    (void)rt;
    if (host)
        free((struct allocation *)host - 1);
}

/*
 * Kernels may poll what is written here: words go by relaxed atomic stores, and all that came before is visible to who
 * reads them with acquire.
 */
tern_status_t tern_device_write(struct tern_rt *rt, void *dev, const void *host, uint64_t bytes)
{
    (void)rt;
    char *to = dev;
    const char *from = host;
    if (((uintptr_t)to & 7u) == 0)
        for (; bytes >= 8; bytes -= 8, to += 8, from += 8) {
            uint64_t word;
            memcpy(&word, from, 8);
            __atomic_store_n((uint64_t *)(void *)to, word, __ATOMIC_RELEASE);
        }
    memcpy(to, from, bytes);
    return TERN_OK;
}

tern_status_t tern_device_zero(struct tern_rt *rt, void *dev, uint64_t bytes)
{
    (void)rt;
    memset(dev, 0, bytes);
    return TERN_OK;
}

uint64_t tern_device_runtime_bytes(struct tern_rt *rt)
{
    return rt->device->bytes;
}

size_t tern_device_describe(struct tern_rt *rt, char *buf, size_t bytes)
{
    (void)rt;
    int n = snprintf(buf, bytes, "CPU device: %u multiprocessors of %u threads, blocks are OS threads, their threads fibers%s",
                     cpu_device.sms, CPU_THREADS_PER_SM,
#ifdef TERN_CPU_WEAK
                     "; weak memory build"
#else
                     ""
#endif
    );
    return n < 0 ? 0 : (size_t)n;
}
