/* put_signal.cu - the kernel of each PE puts a block of numbers to the next PE and waits for those of the PE before it. */
#include <stdio.h>
#include <tern/device.h>

__global__ void pass_on(tern_ctx_t ctx, int *out, int *in, uint64_t *arrived, int *sum)
{
    int next = (tern_my_pe(ctx) + 1) % tern_n_pes(ctx);

    out[threadIdx.x] = 1000 * tern_my_pe(ctx) + threadIdx.x;
    tern_put_signal_nbi_block(ctx, in, out, blockDim.x * sizeof *out, arrived, 1, TERN_SIGNAL_SET, next);
    if (tern_signal_wait_until_block(ctx, arrived, TERN_CMP_EQ, 1) == TERN_OK)
        atomicAdd(sum, in[threadIdx.x]);
}

int main(void)
{
    const int n = 128;
    tern_ctx_t ctx;

    if (tern_init() != TERN_OK || tern_ctx(&ctx) != TERN_OK)
        return fprintf(stderr, "put_signal: %s\n", tern_last_error()), 1;
    int *out = (int *)tern_malloc(n * sizeof *out), *in = (int *)tern_malloc(n * sizeof *in);
    int *sum = (int *)tern_calloc(1, sizeof *sum), before = (tern_my_pe() + tern_n_pes() - 1) % tern_n_pes(), got = 0;
    uint64_t *arrived = (uint64_t *)tern_calloc(1, sizeof *arrived);

    pass_on<<<1, n>>>(ctx, out, in, arrived, sum);
    cudaMemcpy(&got, sum, sizeof got, cudaMemcpyDeviceToHost); /* waits for the kernel */
    printf("PE %d of %d: the numbers of PE %d add up to %d\n", tern_my_pe(), tern_n_pes(), before, got);
    return tern_finalize() != TERN_OK || got != 1000 * before * n + n * (n - 1) / 2;
}
