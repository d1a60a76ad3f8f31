/* rdma.c - the CPU device and NICs: its memory is host memory. */
#include "host/rt.h"

bool tern_device_rdma(struct tern_rt *rt, char pci[TERN_PCI_BYTES], const char **why)
{
    (void)rt;
    pci[0] = '\0';
    *why = "host memory";
    return true;
}

int tern_device_dmabuf(struct tern_rt *rt, void *addr, uint64_t bytes)
{
    (void)rt;
    (void)addr;
    (void)bytes;
    return -1;
}
