/*
 * backend.h - what the host part asks of a device. Two implementations, one per build: device/cpu/ and device/cuda/.
 * Unless said otherwise: application's thread only, status with a sentence recorded by tern_error().
 */
#ifndef TERN_DEVICE_BACKEND_H
#define TERN_DEVICE_BACKEND_H

#include <stdbool.h>
#include <stdint.h>
#include <tern/tern.h>

struct tern_rt;

/* Identity of a PE's device, exchanged at bootstrap. */
struct tern_device_id {
    char name[64];
    unsigned char uuid[16];         /* equal = same device */
    int32_t ordinal;
    int32_t sms;
    uint64_t memory;                /* bytes of the device */
    uint32_t flags;                 /* TERN_DEVICE_* */
    uint32_t pad;
};
#define TERN_DEVICE_MPS 0x1u        /* this process is an MPS client (or the device needs none) */

/* Physical memory of one piece of a span. */
struct tern_chunk {
    uint64_t bytes;                 /* multiple of the granularity */
    uint64_t handle;                /* backend's */
    bool imported;
};

/* Choose the device (thread's current, `gpu` >= 0, else node_pe mod visible), fill rt->device, rt->device_id. */
tern_status_t tern_device_open(struct tern_rt *rt, int gpu);
void tern_device_close(struct tern_rt *rt);
/* Can this PE load/store the memory of `peer`, with native atomics? `why`: static text either way. */
void tern_device_peer(struct tern_rt *rt, const struct tern_device_id *peer, bool *load_store, bool *atomics,
                      const char **why);
uint64_t tern_device_granularity(struct tern_rt *rt);
/* Device memory that the heap may take at most, and bytes of the internal segment's address range. */
uint64_t tern_device_heap_limit(struct tern_rt *rt);
uint64_t tern_device_internal_span(struct tern_rt *rt);

tern_status_t tern_device_reserve(struct tern_rt *rt, uint64_t bytes, void **base);   /* address space only */
void tern_device_unreserve(struct tern_rt *rt, void *base, uint64_t bytes);
tern_status_t tern_device_chunk_create(struct tern_rt *rt, uint64_t bytes, struct tern_chunk *chunk);
tern_status_t tern_device_chunk_export(struct tern_rt *rt, const struct tern_chunk *chunk, int *fd);
tern_status_t tern_device_chunk_import(struct tern_rt *rt, int fd, uint64_t bytes, struct tern_chunk *chunk);
tern_status_t tern_device_chunk_map(struct tern_rt *rt, const struct tern_chunk *chunk, void *addr); /* inside a reservation */
void tern_device_chunk_unmap(struct tern_rt *rt, const struct tern_chunk *chunk, void *addr);        /* stays reserved */
void tern_device_chunk_destroy(struct tern_rt *rt, struct tern_chunk *chunk);

/* Device memory of the runtime itself, zeroed; counted in tern_info_t.runtime_bytes. */
tern_status_t tern_device_alloc(struct tern_rt *rt, uint64_t bytes, void **dev);
void tern_device_free(struct tern_rt *rt, void *dev);
/* Pinned host memory, zeroed, with its device address. */
tern_status_t tern_device_host_alloc(struct tern_rt *rt, uint64_t bytes, void **host, void **dev);
void tern_device_host_free(struct tern_rt *rt, void *host);
/* Copies and fills through the runtime's own non-blocking stream, done on return. */
tern_status_t tern_device_write(struct tern_rt *rt, void *dev, const void *host, uint64_t bytes);
tern_status_t tern_device_zero(struct tern_rt *rt, void *dev, uint64_t bytes);
/*
 * Copies between device memory that this process has mapped, by one thread of the proxy while kernels run: with the copy
 * engine, for a copy by a kernel might wait for kernels that wait for it. For tests (the loopback transport). Done on return.
 * Opened and closed by the application's thread.
 */
struct tern_copier;
tern_status_t tern_device_copier_open(struct tern_rt *rt, struct tern_copier **copier);
void tern_device_copier_close(struct tern_copier *copier);
tern_status_t tern_device_copier_copy(struct tern_copier *copier, void *dst, const void *src, uint64_t bytes);
/* An aligned word of 1, 2, 4 or 8 bytes, as a whole; what was copied before is visible to who reads it with acquire. */
tern_status_t tern_device_copier_store(struct tern_copier *copier, void *dst, uint64_t value, unsigned bytes);
tern_status_t tern_device_copier_load(struct tern_copier *copier, const void *src, unsigned bytes, uint64_t *value);
/*
 * PCI address of the device for the choice of a NIC ("" for CPUs). False, and why: NICs may not write its memory, or not in
 * the order of their writes.
 */
#define TERN_PCI_BYTES 32
bool tern_device_rdma(struct tern_rt *rt, char pci[TERN_PCI_BYTES], const char **why);
/* Descriptor of mapped device memory for registration with a NIC, the caller closes it; -1: it has none (host memory). */
int tern_device_dmabuf(struct tern_rt *rt, void *addr, uint64_t bytes);
/* Device memory used by the runtime itself. Any thread. */
uint64_t tern_device_runtime_bytes(struct tern_rt *rt);
/* One line for tern-info: driver, runtime, MPS, how blocks are scheduled, … Written as by snprintf. */
size_t tern_device_describe(struct tern_rt *rt, char *buf, size_t bytes);

#endif
