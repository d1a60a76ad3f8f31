/* mpi_bcast_uid_ring.cu - the kernel of mpi_bcast_uid: one number goes to the next PE with its signal. */
#include <tern/device.h>

extern "C" tern_status_t ring_pass(uint64_t *box, uint64_t value, uint64_t *got);

/* box[0]: the number that arrives; box[1]: its signal. */
__global__ void pass_on(tern_ctx_t ctx, uint64_t *box, uint64_t value)
{
    int next = (tern_my_pe(ctx) + 1) % tern_n_pes(ctx);

    tern_uint64_p(ctx, &box[0], value, next);
    tern_fence(ctx);
    tern_signal_op(ctx, &box[1], 1, TERN_SIGNAL_SET, next);
    tern_signal_wait_until(ctx, &box[1], TERN_CMP_EQ, 1);
}

tern_status_t ring_pass(uint64_t *box, uint64_t value, uint64_t *got)
{
    tern_ctx_t ctx;
    tern_status_t status = tern_ctx(&ctx);

    if (status == TERN_OK)
        status = tern_launch(pass_on, dim3(1), dim3(1), 0, NULL, ctx, box, value);
    if (status == TERN_OK && cudaMemcpy(got, box, sizeof *got, cudaMemcpyDeviceToHost) != cudaSuccess)
        status = TERN_ERR_DEVICE;
    return status != TERN_OK ? status : tern_status();
}
