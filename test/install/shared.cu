/* shared.cu - made into two shared objects (NAME differs): kernels of both communicate in one process. */
#include <tern/device.h>

__global__ void add_kernel(tern_ctx_t ctx, uint64_t *word, uint64_t value)
{
    tern_signal_op(ctx, word, value, TERN_SIGNAL_ADD, tern_my_pe(ctx));
    tern_signal_wait_until(ctx, word, TERN_CMP_GE, value);
}

extern "C" __attribute__((visibility("default"))) int NAME(tern_ctx_t ctx, uint64_t *word, uint64_t value)
{
    if (tern_launch(add_kernel, 1, 1, 0, NULL, ctx, word, value) != TERN_OK)
        return 1;
    return cudaDeviceSynchronize() != cudaSuccess;
}
