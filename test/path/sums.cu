/*
 * sums.cu - all PEs add to one word and to one signal of PE 0, its owner included, as fast as they can: the sums are
 * exact. Argument: adds of each kind by each PE (20000).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/device_test.h"

#define THREADS 64

__global__ void sums_kernel(tern_ctx_t ctx, uint64_t *word, uint64_t *sig, unsigned adds)
{
    for (unsigned i = threadIdx.x; i < adds; i += blockDim.x) {
        tern_uint64_atomic_add(ctx, word, i + 1, 0);
        tern_signal_op(ctx, sig, 1, TERN_SIGNAL_ADD, 0);
    }
    tern_quiet_block(ctx);
}

int main(int argc, char **argv)
{
    unsigned adds = argc > 1 ? (unsigned)atoi(argv[1]) : 20000;
    uint64_t got[2];
    tern_ctx_t ctx;

    device_test_init(&ctx, 0);
    uint64_t *words = (uint64_t *)tern_calloc(2, sizeof *words);
    REQUIRE(words, "%s", tern_last_error());
    REQUIRE(tern_launch(sums_kernel, 1, THREADS, 0, NULL, ctx, words, words + 1, adds) == TERN_OK, "%s",
            tern_last_error());
    device_test_wait("sums");
    CHECK(tern_barrier_all() == TERN_OK, "%s", tern_last_error());
    cudaMemcpy(got, words, sizeof got, cudaMemcpyDeviceToHost);
    uint64_t n = (uint64_t)ctx.n_pes, sum = n * adds * (adds + 1ull) / 2;
    CHECK(ctx.my_pe > 0 || (got[0] == sum && got[1] == n * adds), "sums %llu and %llu, must be %llu and %llu",
          (unsigned long long)got[0], (unsigned long long)got[1], (unsigned long long)sum,
          (unsigned long long)(n * adds));
    CHECK(tern_barrier_all() == TERN_OK, "%s", tern_last_error());
    device_test_done();
    return test_end("sums");
}
