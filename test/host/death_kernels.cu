/* death_kernels.cu - kernels in which a PE is killed, or finds that another one was. */
#include <tern/device.h>

#include "host/death.h"

__global__ void put_kernel(tern_ctx_t ctx, char *dst, const char *src, size_t bytes)
{
    tern_put_nbi_block(ctx, dst, src, bytes, (tern_my_pe(ctx) + 1) % tern_n_pes(ctx));
    tern_quiet_block(ctx);
}

__global__ void wait_kernel(tern_ctx_t ctx, uint64_t *sig, int *status)
{
    int got = (int)tern_signal_wait_until_block(ctx, sig, TERN_CMP_EQ, 1);
    if (threadIdx.x == 0)
        *status = got;
}

tern_status_t death_put(tern_ctx_t ctx, void *dst, const void *src, size_t bytes)
{
    tern_status_t status =
        tern_launch(put_kernel, dim3(1), dim3(64), 0, NULL, ctx, (char *)dst, (const char *)src, bytes);
    if (status == TERN_OK && cudaDeviceSynchronize() != cudaSuccess)
        status = TERN_ERR_DEVICE;
    return status;
}

tern_status_t death_wait(tern_ctx_t ctx, uint64_t *sig, int *status)
{
    int got = -1;
    tern_status_t launched = tern_launch(wait_kernel, dim3(1), dim3(64), 0, NULL, ctx, sig, status);
    if (launched != TERN_OK)
        return launched;
    if (cudaMemcpy(&got, status, sizeof got, cudaMemcpyDeviceToHost) != cudaSuccess)
        return TERN_ERR_DEVICE;
    return (tern_status_t)got;
}
