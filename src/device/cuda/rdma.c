/* rdma.c - what NICs may do with GPU memory, and descriptors of it for their registration. */
#include <ctype.h>
#include <string.h>

#include "device/cuda/driver.h"
#include "host/rt.h"

bool tern_device_rdma(struct tern_rt *rt, char pci[TERN_PCI_BYTES], const char **why)
{
    struct tern_device *d = rt->device;
    int order = 0;

    pci[0] = '\0';
    if (tern_cuda.cuDeviceGetPCIBusId(pci, TERN_PCI_BYTES, d->device) != CUDA_SUCCESS)
        pci[0] = '\0';
    for (char *p = pci; *p; p++)
        *p = (char)tolower((unsigned char)*p); /* as sysfs has it */
    if (!d->rdma) {
        *why = "this GPU or its driver does not let NICs reach its memory (GPUDirect RDMA)";
        return false;
    }
    if (tern_cuda.cuDeviceGetAttribute(&order, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING, d->device) !=
            CUDA_SUCCESS ||
        order == CU_GPU_DIRECT_RDMA_WRITES_ORDERING_NONE) {
        *why = "this GPU gives no order to what NICs write (GPU_DIRECT_RDMA_WRITES_ORDERING none): a signal could "
               "overtake its data";
        return false;
    }
    *why = "GPU memory";
    return true;
}

int tern_device_dmabuf(struct tern_rt *rt, void *addr, uint64_t bytes)
{
    struct tern_cuda_scope scope;
    int fd = -1;

    if (tern_cuda_enter(rt->device, &scope) != TERN_OK)
        return -1;
    if (tern_cuda.cuMemGetHandleForAddressRange(&fd, (CUdeviceptr)(uintptr_t)addr, bytes,
                                                CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0) != CUDA_SUCCESS)
        fd = -1;
    tern_cuda_leave(&scope);
    return fd;
}
